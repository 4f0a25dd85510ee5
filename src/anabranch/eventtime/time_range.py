"""The times that a stream may hold: those that every format and every neighbour can hold, too.

Polars keeps ticks far beyond the years that Python, Spark, databases and its own calendar know, and fails, or stops the
process, when such a time is shown, converted or written. So they are refused where they come in.
"""

from __future__ import annotations

from functools import cache

import polars as pl

_TICKS_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS_PER_DAY = 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
_LARGEST_TICK = 2**63 - 1

TIME_TYPES = (pl.Datetime, pl.Date, pl.Time, pl.Duration)
TimeType = pl.Datetime | pl.Date | pl.Time | pl.Duration


def time_bounds(kind: TimeType) -> tuple[int, int]:
    """Return the first and the last value that a type for times may have, as it is kept: in days, or in its own ticks.

    Those are the years 1 to 9999, in nanoseconds what 64 bits hold; with a zone other than UTC a day less at both ends,
    so that the local time lies within them wherever the zone is. A time of day lies within a day, a duration within
    what 64 bits hold in microseconds.
    """
    if isinstance(kind, pl.Date):
        return _FIRST_DAY, _LAST_DAY
    if isinstance(kind, pl.Time):
        return 0, _SECONDS_PER_DAY * 10**9 - 1
    if isinstance(kind, pl.Duration):
        longest = _LARGEST_TICK // 1000 if kind.time_unit == "ms" else _LARGEST_TICK
        return -longest, longest
    per_day = _SECONDS_PER_DAY * _TICKS_PER_SECOND[kind.time_unit]
    first = max(_FIRST_DAY * per_day, -_LARGEST_TICK)
    last = min((_LAST_DAY + 1) * per_day - 1, _LARGEST_TICK)
    margin = 0 if kind.time_zone in (None, "UTC") else per_day
    return first + margin, last - margin


@cache
def describe_time_bounds(kind: TimeType) -> str:
    """Say which times a type may hold, for the reason of a row that is refused."""
    plain = pl.Datetime(kind.time_unit) if isinstance(kind, pl.Datetime) else kind
    first, last = pl.Series(time_bounds(kind)).cast(plain).to_list()
    zone = " UTC" if isinstance(kind, pl.Datetime) else ""
    return f"outside the times that it may hold, {first} to {last}{zone}"


def find_times_out_of_range(column: pl.Series) -> pl.Series | None:
    """Return which rows hold a time out of range, in lists and structs, too; None if no row does."""
    kind = column.dtype
    if isinstance(kind, TIME_TYPES):
        first, last = time_bounds(kind)
        ticks = column.to_physical()
        lowest, highest = ticks.min(), ticks.max()
        if lowest is None or (lowest >= first and highest <= last):  # type: ignore[operator]
            return None
        return ((ticks < first) | (ticks > last)).fill_null(value=False)
    if isinstance(kind, pl.Struct):
        found = [find_times_out_of_range(column.struct.field(field.name)) for field in kind.fields]
        masks = [mask for mask in found if mask is not None]
        return pl.select(pl.any_horizontal(masks)).to_series() if masks else None
    if isinstance(kind, pl.List | pl.Array):
        rows = pl.DataFrame({"row": pl.int_range(len(column), eager=True), "item": column}).explode("item")
        mask = find_times_out_of_range(rows.get_column("item"))
        if mask is None:
            return None
        return pl.int_range(len(column), eager=True).is_in(rows.get_column("row").filter(mask).implode())
    return None


def find_rows_out_of_time(column: pl.Series) -> tuple[pl.Series, str] | None:
    """Return which rows have a time out of range there, True for each of them, and the reason; None if no row has."""
    rows = find_times_out_of_range(column)
    if rows is None:
        return None
    kind = column.dtype
    what = describe_time_bounds(kind) if isinstance(kind, TIME_TYPES) else "with a time outside of the years 1 to 9999"
    return rows, f"{column.name} holds a value {what}: correct the clock or the column's unit"
