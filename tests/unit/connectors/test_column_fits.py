"""Columns of Parquet and Arrow files as the declared ones: exactly the same values, or a malformed row."""

from __future__ import annotations

import datetime as dt
import json
import struct
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors import files
from anabranch.connectors.filesystem.column_fits import fit_rows
from anabranch.connectors.filesystem.source import FileSource
from anabranch.errors import FlowError
from property_tests import tries

from .conftest import drain_source, write_frame

FORMATS = ["parquet", "arrow"]
BITS = (8, 16, 32, 64)
WHOLE = [getattr(pl, f"{sign}Int{bits}")() for sign in ("", "U") for bits in BITS]
EDGES = [sign * (2**bits + step) for bits in (7, 8, 24, 31, 32, 53, 62) for step in (-1, 0, 1) for sign in (1, -1)]


def source_of(folder: Path, format: str, **schema: Any) -> FileSource:
    return files(folder, format=format, schema=schema)  # type: ignore[arg-type]


def holds(kind: pl.DataType, value: int) -> bool:
    """Say, without Polars, whether a type has a number."""
    name = str(kind)
    if name == "Float64":
        return Fraction(float(value)) == value
    if name == "Float32":
        return Fraction(struct.unpack("f", struct.pack("f", float(value)))[0]) == value
    bits = int(name.lstrip("UInt"))
    return 0 <= value < 2**bits if name.startswith("U") else -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


@tries(150)
@given(
    found=st.sampled_from(WHOLE),
    wanted=st.sampled_from([*WHOLE, pl.Float32(), pl.Float64()]),
    values=st.lists(st.one_of(st.none(), st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1)), max_size=20),
)
def test_whole_number_is_kept_exactly_or_its_row_is_malformed(
    found: pl.DataType, wanted: pl.DataType, values: list[int | None]
) -> None:
    values = [value for value in values if value is None or holds(found, value)]
    frame = pl.DataFrame({"v": pl.Series(values, dtype=found)})
    outcome = fit_rows(frame, {"v": wanted}, ["v"])
    assert outcome.frame.schema == {"v": wanted}
    assert outcome.frame["v"].to_list() == [value for value in values if value is None or holds(wanted, value)]
    assert [json.loads(text)["v"] for _, text in outcome.rejected] == [
        value for value in values if value is not None and not holds(wanted, value)
    ]


UNITS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
FIRST_SECOND, END_SECOND = -62_135_596_800, 253_402_300_800
"""The years 1 to 9999."""


@tries(100)
@given(
    found=st.sampled_from(sorted(UNITS)),
    wanted=st.sampled_from(sorted(UNITS)),
    values=st.lists(st.one_of(st.none(), st.integers(-(2**62), 2**62), st.integers(0, 10**7)), max_size=20),
    kind=st.sampled_from([pl.Datetime, pl.Duration]),
)
def test_time_is_the_same_instant_in_the_declared_unit_or_its_row_is_malformed(
    found: Any, wanted: Any, values: list[int | None], kind: Any
) -> None:
    def exact(value: int) -> int | None:
        seconds = Fraction(value, UNITS[found])
        ticks = seconds * UNITS[wanted]
        known = FIRST_SECOND <= seconds < END_SECOND if kind is pl.Datetime else abs(seconds) * 10**6 < 2**63
        return int(ticks) if known and ticks.denominator == 1 and -(2**63) < ticks < 2**63 else None

    frame = pl.DataFrame({"v": pl.Series(values, dtype=pl.Int64).cast(kind(found))})
    outcome = fit_rows(frame, {"v": kind(wanted)}, ["v"])
    kept = [value for value in values if value is None or exact(value) is not None]
    expected = [None if value is None else exact(value) for value in kept]
    assert outcome.frame["v"].to_physical().to_list() == expected
    assert len(outcome.rejected) == len(values) - len(expected)


@tries(100)
@given(
    found=st.tuples(st.integers(1, 18), st.integers(0, 6)).map(lambda sizes: (sizes[0] + sizes[1], sizes[1])),
    wanted=st.tuples(st.integers(1, 18), st.integers(0, 6)).map(lambda sizes: (sizes[0] + sizes[1], sizes[1])),
    values=st.lists(st.integers(-(10**18), 10**18), max_size=10),
)
def test_decimal_keeps_all_its_digits_or_its_row_is_malformed(
    found: tuple[int, int], wanted: tuple[int, int], values: list[int]
) -> None:
    precision, scale = found
    numbers = [Decimal(value).scaleb(-scale) for value in values if abs(value) < 10**precision]
    frame = pl.DataFrame({"v": pl.Series(numbers, dtype=pl.Decimal(*found))})
    outcome = fit_rows(frame, {"v": pl.Decimal(*wanted)}, ["v"])

    def fits(number: Decimal) -> bool:
        unscaled = Fraction(number) * 10 ** wanted[1]
        return unscaled.denominator == 1 and abs(unscaled) < 10 ** wanted[0]

    assert outcome.frame["v"].to_list() == [number for number in numbers if fits(number)]
    assert len(outcome.rejected) == sum(not fits(number) for number in numbers)


@pytest.mark.parametrize("format", FORMATS)
def test_file_with_narrower_types_is_read_as_declared(tmp_path: Path, format: str) -> None:
    narrow = pl.DataFrame(
        {"k": [1, 2], "v": [0.5, None], "s": ["a", "b"], "t": [1, 2], "n": [None, None], "l": [[1], None]},
        schema={
            "k": pl.Int32,
            "v": pl.Float32,
            "s": pl.Categorical,
            "t": pl.Datetime("ms"),
            "n": pl.Null,
            "l": pl.List(pl.Int8),
        },
    )
    wide = {
        "k": pl.Int64(),
        "v": pl.Float64(),
        "s": pl.String(),
        "t": pl.Datetime("us"),
        "n": pl.Date(),
        "l": pl.List(pl.Int64()),
    }
    write_frame(narrow, format, tmp_path / "a")
    drained = drain_source(source_of(tmp_path, format, **wide))
    assert drained.rejected == []
    assert drained.frame.schema == wide
    assert drained.frame.rows() == [
        (1, 0.5, "a", dt.datetime(1970, 1, 1, microsecond=1000), None, [1]),
        (2, None, "b", dt.datetime(1970, 1, 1, microsecond=2000), None, None),
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_arrow_kinds_of_text_and_bytes_are_one(tmp_path: Path, format: str) -> None:
    texts = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
    kinds = [pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view()]
    for number, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        table = pa.table({"s": pa.array(["ab"]).cast(text), "b": pa.array([b"ab"]).cast(kind)})
        if format == "parquet":
            pq.write_table(table, tmp_path / f"{number}")
        else:
            with pa.ipc.new_file(tmp_path / f"{number}", table.schema) as file:
                file.write_table(table)
    assert drain_source(source_of(tmp_path, format, s=str, b=bytes)).frame.rows() == [("ab", b"ab")] * 4


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        (pl.Datetime("us", "Europe/Berlin"), pl.Datetime("us"), dt.datetime(2026, 1, 1, 11)),
        (pl.Datetime("us", "Europe/Berlin"), pl.Datetime("ms", "UTC"), dt.datetime(2026, 1, 1, 11, tzinfo=dt.UTC)),
        (pl.Datetime("us"), pl.Datetime("us", "Europe/Berlin"), dt.datetime(2026, 1, 1, 11, tzinfo=dt.UTC)),
    ],
)
def test_zones_are_read_as_in_text(found: pl.Datetime, wanted: pl.Datetime, expected: dt.datetime) -> None:
    local = pl.Series("t", [dt.datetime(2026, 1, 1, 12)], dtype=pl.Datetime("us"))
    given = local.dt.replace_time_zone(found.time_zone) if found.time_zone else local
    assert fit_rows(pl.DataFrame([given]), {"t": wanted}, ["t"]).frame["t"].to_list() == [expected]


def test_local_time_that_happened_twice_or_never_is_malformed() -> None:
    times = [dt.datetime(2026, 10, 25, 2, 30), dt.datetime(2026, 3, 29, 2, 30), dt.datetime(2026, 1, 1), None]
    outcome = fit_rows(pl.DataFrame({"t": times}), {"t": pl.Datetime("us", "Europe/Berlin")}, ["t"])
    assert outcome.frame.height == 2
    assert len(outcome.rejected) == 2


@pytest.mark.parametrize("format", ["csv", *FORMATS])
def test_column_that_a_file_lacks_is_null(tmp_path: Path, format: str) -> None:
    write_frame(pl.DataFrame({"k": [1, 2]}), format, tmp_path / "a")
    source = source_of(tmp_path, format, k=int, v=float)
    assert drain_source(source).frame.rows() == [(1, None), (2, None)]
    [split] = source.planner().plan(None, 0.0).splits
    [outcome] = source.read(split, columns=["v"])
    assert outcome.frame.rows() == [(None,), (None,)]


@pytest.mark.parametrize("format", ["csv", *FORMATS])
def test_file_that_lacks_a_required_column_is_refused(tmp_path: Path, format: str) -> None:
    write_frame(pl.DataFrame({"v": [1.0]}), format, tmp_path / "a")
    source = replace(source_of(tmp_path, format, k=int, v=float), required=("k",))
    with pytest.raises(FlowError, match=r"has no column 'k', and the flow takes its key or event time from it"):
        source.check()


def test_fields_of_structs_are_matched_by_name() -> None:
    frame = pl.DataFrame(
        {"s": [{"b": "x", "a": 1, "z": 0}, None]}, schema={"s": pl.Struct({"b": pl.String, "a": pl.Int8, "z": pl.Int8})}
    )
    wanted = pl.Struct({"a": pl.Int64, "b": pl.String, "c": pl.Float64})
    assert fit_rows(frame, {"s": wanted}, ["s"]).frame["s"].to_list() == [{"a": 1, "b": "x", "c": None}, None]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pl.String, pl.Int64),
        (pl.Int64, pl.String),
        (pl.Float64, pl.Int64),
        (pl.Float64, pl.Float32),
        (pl.Decimal(10, 2), pl.Float64),
        (pl.Boolean, pl.Int64),
        (pl.Int64, pl.Datetime("us")),
        (pl.List(pl.Int64), pl.List(pl.Int32)),
    ],
)
def test_column_of_another_kind_is_refused(tmp_path: Path, found: Any, wanted: Any) -> None:
    pl.DataFrame(schema={"k": found}).write_parquet(tmp_path / "a")
    with pytest.raises(FlowError, match=r"has the column 'k' as .* declared as"):
        source_of(tmp_path, "parquet", k=wanted).check()


def test_malformed_value_counts_also_where_its_column_is_not_asked_for(tmp_path: Path) -> None:
    pl.DataFrame({"k": [1, 2], "v": [1, 2**53 + 1]}).write_parquet(tmp_path / "a")
    source = source_of(tmp_path, "parquet", k=int, v=float)
    [split] = source.planner().plan(None, 0.0).splits
    [outcome] = source.read(split, columns=["k"])
    assert outcome.frame.rows() == [(1,)]
    expected = "column 'v' is declared as Float64, which cannot hold 9007199254740993 of the file's Int64 exactly"
    assert outcome.rejected == ((expected, '{"k":2,"v":9007199254740993}'),)


@pytest.mark.parametrize("kind", [pl.Datetime("us"), pl.Date(), pl.List(pl.Datetime("us"))])
def test_time_that_no_stream_may_hold_is_malformed(tmp_path: Path, kind: pl.DataType) -> None:
    days = pl.Series([1, 200_000 * 366])
    column = days.cast(pl.Int32).cast(kind) if kind == pl.Date() else (days * 86_400_000_000).cast(pl.Datetime("us"))
    if isinstance(kind, pl.List):
        column = column.reshape((2, 1)).arr.to_list()
    pl.DataFrame({"k": [1, 2], "t": column}).write_parquet(tmp_path / "a")
    drained = drain_source(source_of(tmp_path, "parquet", k=int, t=kind))
    assert drained.frame["k"].to_list() == [1]
    [(reason, _)] = drained.rejected
    assert reason.startswith(f"column 't' is declared as {kind}, found ")
