"""Partial results as bytes: every value comes back, to the last bit."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors.global_stores.packed_rows import name_rows, pack_rows, unpack_rows
from anabranch.errors import SinkError
from property_tests import tries

SCHEMA: dict[str, pl.DataType] = {
    "whole": pl.Int64(),
    "narrow": pl.Int8(),
    "large": pl.UInt64(),
    "wide": pl.Int128(),
    "real": pl.Float64(),
    "truth": pl.Boolean(),
    "text": pl.String(),
    "bytes": pl.Binary(),
    "time": pl.Datetime("us"),
    "day": pl.Date(),
    "picked": pl.Struct({"value": pl.String(), "time": pl.Datetime("us"), "order": pl.Int64()}),
    "best": pl.List(pl.Struct({"by": pl.Float64(), "names": pl.List(pl.String())})),
}
times = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
GOLDEN = ["8686a54eee13674c94f68a1f928879e8", "1e4d93322c22e741ceb4e5339842da32"]
rows = st.fixed_dictionaries(
    {
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "narrow": st.none() | st.integers(-128, 127),
        "large": st.none() | st.integers(0, 2**64 - 1),
        "wide": st.none() | st.integers(-(2**120), 2**120),
        "real": st.none() | st.floats(allow_nan=False),
        "truth": st.none() | st.booleans(),
        "text": st.none() | texts,
        "bytes": st.none() | st.binary(max_size=5),
        "time": st.none() | times,
        "day": st.none() | st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1)),
        "picked": st.fixed_dictionaries(
            {"value": st.none() | texts, "time": st.none() | times, "order": st.none() | st.integers(0, 2**40)}
        ),
        "best": st.none()
        | st.lists(
            st.fixed_dictionaries({"by": st.none() | st.floats(allow_nan=False), "names": st.lists(texts, max_size=2)}),
            max_size=3,
        ),
    }
)


def frame_of(given_rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(given_rows, schema=SCHEMA, orient="row")


@tries(60)
@given(st.lists(rows, max_size=6))
def test_every_value_comes_back(given_rows: list[dict[str, Any]]) -> None:
    frame = frame_of(given_rows)
    assert unpack_rows(pack_rows(frame), SCHEMA).equals(frame)


def test_what_is_no_number_comes_back_as_such() -> None:
    frame = pl.DataFrame({"real": [float("nan"), float("inf"), -0.0, None]})
    back = unpack_rows(pack_rows(frame), dict(frame.schema))["real"]
    assert back.is_nan().to_list() == [True, False, False, None]
    assert str(back[2]) == "-0.0"


def test_names_depend_on_values_and_not_on_their_neighbours() -> None:
    keys = pl.DataFrame({"a": ["x", "xy", ""], "b": ["yz", "z", "xyz"]})
    names = name_rows(keys)
    assert len(set(names)) == 3
    assert name_rows(keys[1:2]) == names[1:2]


def test_names_never_change() -> None:
    """They lie in stores for years: a change would make new rows for old keys."""
    keys = pl.DataFrame({"window": [1_767_225_600_000_000, 0], "sensor": [7, -1], "name": ["ä", None]})
    assert name_rows(keys) == GOLDEN


@pytest.mark.parametrize("line", [b"", b"\x02", b"\x01\x01", b"\x01\x01" + bytes(8) + b"more"])
def test_bytes_of_something_else_are_refused(line: bytes) -> None:
    with pytest.raises(SinkError, match="another version or another flow wrote them"):
        unpack_rows([line], {"whole": pl.Int64()})
