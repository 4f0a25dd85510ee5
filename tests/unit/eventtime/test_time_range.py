"""The times that a stream may hold can be shown, converted and written; all others are found."""

from __future__ import annotations

import datetime
import io

import polars as pl
import pytest

from anabranch.eventtime.time_range import describe_time_bounds, find_times_out_of_range, time_bounds

KINDS: list[pl.Datetime | pl.Date | pl.Time] = [
    pl.Date(),
    pl.Time(),
    pl.Datetime("ms"),
    pl.Datetime("us"),
    pl.Datetime("ns"),
    pl.Datetime("us", "UTC"),
    pl.Datetime("us", "Europe/Berlin"),
    pl.Datetime("ms", "Pacific/Kiritimati"),
    pl.Datetime("ns", "America/Adak"),
]


def make(ticks: list[int | None], kind: pl.DataType) -> pl.Series:
    if not isinstance(kind, pl.Datetime) or kind.time_zone is None:
        return pl.Series(ticks, dtype=pl.Int64).cast(kind)
    naive = pl.Series(ticks, dtype=pl.Int64).cast(pl.Datetime(kind.time_unit))
    return naive.dt.replace_time_zone("UTC").dt.convert_time_zone(kind.time_zone)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_first_and_last_time_become_python_text_and_parquet(kind: pl.Datetime | pl.Date | pl.Time) -> None:
    times = make([*time_bounds(kind), None], kind)
    assert find_times_out_of_range(times) is None
    assert all(isinstance(time, datetime.date | datetime.time) for time in times.to_list()[:2])
    frame = times.to_frame("t")
    assert frame.write_ndjson().count("\n") == 3
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    buffer.seek(0)
    assert pl.read_parquet(buffer).get_column("t").equals(times)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (pl.Datetime("ns"), pl.Time())], ids=str)
def test_time_beyond_the_first_or_last_is_found_at_any_depth(kind: pl.Datetime | pl.Date) -> None:
    first, last = time_bounds(kind)
    flat = make([first, first - 1, None, last, last + 1], kind)
    assert find_times_out_of_range(flat).to_list() == [False, True, False, False, True]  # type: ignore[union-attr]
    struct = flat.to_frame("inner").to_struct("outer")
    assert find_times_out_of_range(struct).to_list() == [False, True, False, False, True]  # type: ignore[union-attr]
    rows = flat.to_frame("t").with_columns(row=pl.Series([0, 0, 1, 1, 2])).group_by("row", maintain_order=True)
    lists = rows.agg("t").get_column("t").append(pl.Series([[], None], dtype=pl.List(flat.dtype)))
    assert find_times_out_of_range(lists).to_list() == [True, False, True, False, False]  # type: ignore[union-attr]


def test_bounds_are_said_in_words() -> None:
    assert describe_time_bounds(pl.Date()) == "outside the times that it may hold, 0001-01-01 to 9999-12-31"
    assert "9999-12-30 23:59:59.999999 UTC" in describe_time_bounds(pl.Datetime("us", "Europe/Berlin"))


def test_columns_without_times_are_in_range() -> None:
    assert find_times_out_of_range(pl.Series([1, None])) is None
    assert find_times_out_of_range(pl.Series([[{"a": "x"}], None])) is None
