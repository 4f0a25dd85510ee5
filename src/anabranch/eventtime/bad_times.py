"""Event times that cannot be right, found by one look at the smallest and the largest of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from anabranch.eventtime.durations import describe_duration
from anabranch.model.times import TimeLimits

_UNITS_PER_US = {"ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}
_FURTHEST_US = 2**60
"""Beyond 36,000 years before or after 1970, microseconds and windows do not fit into 64 bits."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BadTimes:
    """Rows whose event time cannot be right, and why."""

    rows: pl.Series
    """True for each of them."""
    reason: str


def find_bad_times(times: pl.Series, limits: TimeLimits, now_us: int | None) -> list[BadTimes]:
    """Return what is wrong with a Datetime column; ``now_us``, the wall clock, is not looked at if it is unknown."""
    dtype = times.dtype
    assert isinstance(dtype, pl.Datetime)
    many, one = _UNITS_PER_US[dtype.time_unit]
    ticks = times.to_physical()
    found: list[BadTimes] = []
    if times.null_count():
        found.append(BadTimes(times.is_null(), f"null event time {times.name}"))
    earliest, latest = ticks.min(), ticks.max()
    if earliest is None or latest is None:
        return found
    assert isinstance(earliest, int)
    assert isinstance(latest, int)
    first_us = -_FURTHEST_US if limits.earliest_us is None else limits.earliest_us
    if earliest * one < first_us * many:
        early = (ticks < -(-first_us * many // one)).fill_null(False)
        found.append(BadTimes(early, f"event time {times.name} is before {_say(first_us)}: {_advise('earliest')}"))
    last_us = _FURTHEST_US
    ahead = f"is after {_say(last_us)}"
    if limits.future_us is not None and now_us is not None:
        last_us = now_us + limits.future_us
        ahead = f"is more than {describe_duration(limits.future_us)} ahead of the clock, {_say(now_us)}"
    if latest * one > last_us * many:
        late = (ticks > last_us * many // one).fill_null(False)
        found.append(BadTimes(late, f"event time {times.name} {ahead}: {_advise('future')}"))
    return found


def _say(time_us: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us} microseconds since 1970"
    return moment.isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


def _advise(limit: str) -> str:
    return f"correct the clock or the column's unit, or set {limit}= in watermark()"
