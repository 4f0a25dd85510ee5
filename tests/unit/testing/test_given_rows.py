"""Rows as tests write them become frames of the declared columns, or the error says what does not fit."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.testing.given_rows import read_rows

SCHEMA: dict[str, pl.DataType] = {"sensor": pl.Int64(), "ts": pl.Datetime("ms"), "volts": pl.Float64()}
NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    "given",
    [
        [{"sensor": 1, "ts": NOON, "volts": 2.5}],
        [{"volts": 2.5, "ts": "2026-01-01T12:00:00", "sensor": 1}],
        {"sensor": 1, "ts": "2026-01-01 12:00", "volts": 2.5},
        ({"sensor": 1, "ts": moment, "volts": 2.5} for moment in ["2026-01-01T12:00:00Z"]),
        [{"sensor": 1, "ts": datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))), "volts": 2.5}],
        pl.DataFrame({"sensor": [1], "ts": [NOON], "volts": [2.5]}),
        pl.DataFrame({"volts": [2.5], "ts": ["2026-01-01T12:00:00.000"], "sensor": pl.Series([1], dtype=pl.UInt8)}),
    ],
)
def test_rows_of_any_form_are_a_frame_of_the_declared_columns(given: Any) -> None:
    frame = read_rows(given, SCHEMA, "add")
    assert dict(frame.schema) == SCHEMA
    assert frame.rows() == [(1, NOON, 2.5)]


def test_columns_that_a_dict_leaves_out_are_null() -> None:
    assert read_rows([{"sensor": 1}, {"volts": 1}], SCHEMA, "add").rows() == [(1, None, None), (None, None, 1.0)]


def test_no_rows_are_an_empty_frame_of_the_declared_columns() -> None:
    assert dict(read_rows([], SCHEMA, "add").schema) == SCHEMA


def test_every_kind_of_column_can_be_given() -> None:
    schema: dict[str, pl.DataType] = {
        "day": pl.Date(),
        "at": pl.Time(),
        "zoned": pl.Datetime("us", "Europe/Berlin"),
        "paid": pl.Decimal(10, 2),
        "tags": pl.List(pl.String()),
        "place": pl.Struct({"lat": pl.Float64()}),
        "kind": pl.Enum(["a", "b"]),
    }
    row = {
        "day": "2026-01-02",
        "at": "08:30",
        "zoned": "2026-01-01T12:00:00+00:00",
        "paid": Decimal("1.25"),
        "tags": ["x"],
        "place": {"lat": 1.5},
        "kind": "b",
    }
    read = read_rows(row, schema, "add").row(0, named=True)
    assert (read["day"], read["at"], read["paid"]) == (date(2026, 1, 2), time(8, 30), Decimal("1.25"))
    assert read["zoned"].astimezone(UTC) == NOON.replace(tzinfo=UTC)
    assert (read["tags"], read["place"], read["kind"]) == (["x"], {"lat": 1.5}, "b")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"senso": 1}], "add: row 0: no column 'senso'; did you mean 'sensor'?"),
        ([{"sensor": 1}, {"sensor": "two"}], "add: 'sensor' is Int64, and 'two' is none; row 1 is {'sensor': 'two'}"),
        ([{"sensor": 1.5}], "'sensor' is Int64, and 1.5 is none"),
        ([{"ts": "noon"}], "'ts' is Datetime(time_unit='ms', time_zone=None), and 'noon' is none; row 0"),
        ([{"sensor": 2**70}], "'sensor' is Int64, and 1180591620717411303424 is none"),
        ([(1, 2)], "add: row 0 is a tuple, (1, 2); give dicts, or a Polars frame"),
        (pl.DataFrame({"sensor": [1], "ts": [NOON]}), "add: the frame has no column volts; it has sensor, ts"),
        (
            pl.DataFrame({"sensor": [1], "ts": [NOON], "volts": [1.0], "amps": [1]}),
            "add: no column 'amps'; there are sensor",
        ),
        (
            pl.DataFrame({"sensor": [1.0], "ts": [NOON], "volts": [1.0]}),
            "add: 'sensor' is Int64, and Float64 in the frame; cast it first",
        ),
        (
            pl.DataFrame({"sensor": [1], "ts": ["noon"], "volts": [1.0]}),
            "and 'noon' is none; row 0 is {'sensor': 1, 'ts': 'noon', 'volts': 1.0}",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_row(given: Any, said: str) -> None:
    with pytest.raises(ab.FlowError) as raised:
        read_rows(given, SCHEMA, "add")
    assert said in str(raised.value)


def test_a_frame_whose_values_are_too_large_is_refused() -> None:
    with pytest.raises(ab.FlowError, match="'small' is Int8, and does not hold all of the frame's Int64"):
        read_rows(pl.DataFrame({"small": [1000]}), {"small": pl.Int8()}, "add")
