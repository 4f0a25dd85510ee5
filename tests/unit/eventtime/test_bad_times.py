"""Event times that cannot be right are found, whatever the column's unit and zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.eventtime.bad_times import find_bad_times
from anabranch.model.times import NO_LIMITS, USUAL_LIMITS, TimeLimits
from property_tests import tries

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000
DAY_US = 86_400_000_000
KINDS = [pl.Datetime(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")]


def times(kind: pl.Datetime, *moments: datetime | None) -> pl.Series:
    naive = [None if moment is None else moment.astimezone(UTC).replace(tzinfo=None) for moment in moments]
    series = pl.Series("ts", naive, dtype=pl.Datetime(kind.time_unit))
    return series if kind.time_zone is None else series.dt.replace_time_zone("UTC").dt.convert_time_zone(kind.time_zone)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_times_within_the_limits_are_good(kind: pl.Datetime) -> None:
    good = times(kind, datetime(1970, 1, 1, tzinfo=UTC), NOW, NOW + timedelta(days=1))
    assert find_bad_times(good, USUAL_LIMITS, NOW_US) == []


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_null_early_and_future_times_are_told_apart(kind: pl.Datetime) -> None:
    early, ahead = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), NOW + timedelta(days=1, milliseconds=1)
    found = find_bad_times(times(kind, None, early, NOW, ahead), USUAL_LIMITS, NOW_US)
    assert [bad.rows.to_list() for bad in found] == [
        [True, False, False, False],
        [False, True, False, False],
        [False, False, False, True],
    ]
    assert [bad.reason for bad in found] == [
        "null event time ts",
        "event time ts is before 1970-01-01T00:00:00Z: "
        "correct the clock or the column's unit, or set earliest= in watermark()",
        "event time ts is more than 1d ahead of the clock, 2026-05-01T12:00:00Z: "
        "correct the clock or the column's unit, or set future= in watermark()",
    ]


def test_no_limits_leave_only_what_does_not_fit_into_microseconds() -> None:
    year_90000 = (90_000 - 1970) * 31_556_952_000
    column = pl.Series("ts", [0, -1, year_90000, -year_90000, 2**62], dtype=pl.Int64).cast(pl.Datetime("ms"))
    found = find_bad_times(column, NO_LIMITS, NOW_US)
    assert [bad.rows.to_list() for bad in found] == [
        [False, False, False, True, False],
        [False, False, True, False, True],
    ]


def test_without_a_known_clock_nothing_is_too_far_ahead() -> None:
    assert find_bad_times(times(pl.Datetime("us"), NOW + timedelta(days=999)), USUAL_LIMITS, None) == []


def test_frame_of_nulls_is_all_bad() -> None:
    (bad,) = find_bad_times(times(pl.Datetime("us"), None, None), USUAL_LIMITS, NOW_US)
    assert bad.rows.to_list() == [True, True]


@tries(100)
@given(
    st.lists(st.one_of(st.none(), st.integers(NOW_US - 3 * DAY_US, NOW_US + 3 * DAY_US)), max_size=20),
    st.one_of(st.none(), st.integers(NOW_US - 2 * DAY_US, NOW_US)),
    st.one_of(st.none(), st.integers(0, 2 * DAY_US)),
    st.sampled_from(["ms", "us", "ns"]),
)
def test_every_row_is_judged_as_it_would_be_alone(
    values: list[int | None], earliest_us: int | None, future_us: int | None, unit: str
) -> None:
    column = pl.Series("ts", values, dtype=pl.Datetime("us")).dt.cast_time_unit(unit)  # type: ignore[arg-type]
    kept_us = column.dt.timestamp("us").to_list()
    found = find_bad_times(column, TimeLimits(earliest_us, future_us), NOW_US)
    bad = [any(one.rows[row] for one in found) for row in range(len(values))]
    assert bad == [
        us is None
        or (earliest_us is not None and us < earliest_us)
        or (future_us is not None and us > NOW_US + future_us)
        for us in kept_us
    ]
