"""Text columns to times and decimals, a whole column at a time.

Polars' own JSON and CSV readers parse ISO times value by value (0.3 to 1.6 million a second); cut into parts, a column
goes at 25 million a second.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

_FRACTION_DIGITS = {"ms": 3, "us": 6, "ns": 9}
_SEPARATORS = ((4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":"), (19, "."))
_DIGIT_PLACES = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)
_LONGEST_MONTHS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int32)
_EPOCH = r"^-?[0-9]{1,19}$"
_ISO = (
    r"^(?<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?<minute>[0-9]{2}:[0-9]{2})(?::(?<second>[0-9]{2})(?:\.(?<fraction>[0-9]{1,9}))?)?"
    r"(?<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
_OFFSET_OR_EPOCH = r"Z$|T.*[+-][0-9]{2}:?[0-9]{2}$| .*[+-][0-9]{2}:?[0-9]{2}$|" + _EPOCH
_ISO_ALONE = re.compile(_ISO.replace("(?<", "(?P<"))
_EPOCH_ALONE = re.compile(_EPOCH)
_DATE_ALONE = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")

_Ints = NDArray[np.int32]

TEXT_TYPES = (pl.Datetime, pl.Date, pl.Time, pl.Decimal)
"""Types that are read as text and converted here."""


def convert_text(text: pl.Series, kind: pl.DataType) -> pl.Series | None:
    """Return a text column as another type, None if any value is not of that type; nulls stay null.

    Times are ISO 8601 (``2026-01-31``, ``2026-01-31T23:59:59.123``, with a space for the ``T``, with ``Z`` or
    ``+02:00``), or whole numbers since 1970 in the column's own unit. An offset is always heeded: such a time becomes
    UTC in a column without a zone. A time without an offset is of the column's zone, or UTC if it has none; where
    clocks are set back or forward, it may have happened twice or never, and is refused.
    """
    if isinstance(kind, pl.Datetime):
        converted = _read_times(text, kind)
    elif isinstance(kind, pl.Date):
        converted = text.str.to_date("%Y-%m-%d", strict=False).set(text.str.len_bytes() != 10, None)
    elif isinstance(kind, pl.Time):
        converted = text.str.to_time("%H:%M:%S%.f", strict=False)
    else:
        converted = text.cast(kind, strict=False)
    return converted if converted.null_count() == text.null_count() else None


def may_be_time(text: str, kind: pl.DataType) -> bool:
    """Say whether a single text could be of a type for times; if not, ``convert_text`` would refuse it, too."""
    if isinstance(kind, pl.Datetime):
        return bool(_ISO_ALONE.match(text) or _EPOCH_ALONE.match(text))
    return bool(_DATE_ALONE.match(text)) if isinstance(kind, pl.Date) else True


def to_datetime(ticks: pl.Series, kind: pl.Datetime) -> pl.Series:
    """Return whole numbers since 1970, in the type's own unit, as times."""
    naive = ticks.cast(pl.Datetime(kind.time_unit))
    return naive if kind.time_zone is None else naive.dt.replace_time_zone("UTC").dt.convert_time_zone(kind.time_zone)


def explain_time(text: str, kind: pl.DataType) -> str | None:
    """Say why a text that looks like a time is none in this column; None if that is not for its zone."""
    if not isinstance(kind, pl.Datetime) or kind.time_zone in (None, "UTC"):
        return None
    times = pl.Series([text])
    if convert_text(times, pl.Datetime(kind.time_unit)) is None:
        return None
    if convert_text(times, kind) is not None:
        return None
    return (
        f"no single moment in {kind.time_zone}: clocks are set there at that time, so it happened twice or never; "
        f"write times with their offset, such as {text}+01:00"
    )


def _read_times(text: pl.Series, kind: pl.Datetime) -> pl.Series:
    """Return the times; null where a text is none, or no single moment in the column's zone."""
    is_utc = kind.time_zone in (None, "UTC")
    ticks = _read_uniform_ticks(text, kind.time_unit)
    has_offset: bool | pl.Series = True
    if ticks is not None:
        has_offset = is_utc or bool(text.str.ends_with("Z").all())
    else:
        ticks = _read_epochs(text)
    if ticks is None:
        ticks = _read_any_ticks(text, kind.time_unit)
        has_offset = True if is_utc else text.str.contains(_OFFSET_OR_EPOCH)
    if has_offset is True:
        return to_datetime(ticks, kind)
    assert kind.time_zone is not None
    local = ticks.cast(pl.Datetime(kind.time_unit)).dt.replace_time_zone(
        kind.time_zone, ambiguous="null", non_existent="null"
    )
    return local if has_offset is False else to_datetime(ticks, kind).zip_with(has_offset, local)


def _read_uniform_ticks(text: pl.Series, unit: str) -> pl.Series | None:
    """Read ``2026-01-31T23:59:59.123Z``, all values with the same number of fraction digits; None if one differs."""
    lengths = text.str.len_bytes()
    length = lengths.max()
    if not isinstance(length, int) or length != lengths.min() or not 19 <= length <= 30:
        return None
    places = _lay_out_bytes(text, length)
    if (places[-1] == ord("Z")).all():
        places = places[:-1]
    fraction_digits = max(0, len(places) - 20)
    if fraction_digits > 9:
        return None
    wanted = _SEPARATORS if fraction_digits else _SEPARATORS[:-1]
    if len(places) == 20 or any((places[place] != ord(separator)).any() for place, separator in wanted):
        return None
    digits = places - np.uint8(ord("0"))
    fraction_places = range(20, 20 + fraction_digits)
    if any((digits[place] > 9).any() for place in (*_DIGIT_PLACES, *fraction_places)):
        return None

    def read_pair(place: int) -> _Ints:
        return np.asarray(digits[place].astype(np.int32) * 10 + digits[place + 1], dtype=np.int32)

    hour, minute, second = read_pair(11), read_pair(14), read_pair(17)
    days = _count_days(read_pair(0) * 100 + read_pair(2), read_pair(5), read_pair(8))
    if days is None or (hour > 23).any() or (minute > 59).any() or (second > 59).any():
        return None
    seconds = days.astype(np.int64) * 86_400 + (hour * 3600 + minute * 60 + second)
    kept = _FRACTION_DIGITS[unit]
    ticks = seconds * 10**kept
    for ordinal, place in enumerate(fraction_places[:kept], start=1):
        ticks += digits[place].astype(np.int64) * 10 ** (kept - ordinal)
    read = pl.Series(text.name, ticks)
    return read if text.null_count() == 0 else read.set(text.is_null(), None)


def _read_epochs(text: pl.Series) -> pl.Series | None:
    ticks = text.cast(pl.Int64, strict=False)
    return ticks if ticks.null_count() == text.null_count() and not text.str.starts_with("+").any() else None


def _lay_out_bytes(text: pl.Series, length: int) -> NDArray[np.uint8]:
    """Return a matrix with a row for every place in the values; nulls are filled with some value."""
    filled = text if text.null_count() == 0 else text.fill_null(text.drop_nulls()[0])
    array = filled.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    first = np.frombuffer(array.buffers()[1], np.int64)[array.offset]
    held = np.frombuffer(array.buffers()[2], np.uint8)[first : first + length * len(text)]
    return np.ascontiguousarray(held.reshape(len(text), length).T)


def _count_days(year: _Ints, month: _Ints, day: _Ints) -> _Ints | None:
    """Return the days since 1970, None if some date does not exist."""
    if (month < 1).any() or (month > 12).any() or (day < 1).any() or (day > _LONGEST_MONTHS[month]).any():
        return None
    last_of_february = (month == 2) & (day == 29)
    if (last_of_february & ~((year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)))).any():
        return None
    # Years that begin in March: the leap day comes last, so months have fixed starts.
    marched = year - (month <= 2)
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return np.asarray(marched * 365 + marched // 4 - marched // 100 + marched // 400 + day_of_year - 719_468, np.int32)


def _read_any_ticks(text: pl.Series, unit: str) -> pl.Series:
    """Read every form, value by value; null where a value has none of them."""
    kept = _FRACTION_DIGITS[unit]
    parts = text.to_frame("text").select("text", pl.col("text").str.extract_groups(_ISO).alias("iso")).unnest("iso")
    day = pl.col("date").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int64) * 86_400
    minute, second = pl.col("minute").fill_null("00:00"), pl.col("second").fill_null("00")
    clock = pl.concat_str(minute, pl.lit(":"), second).str.to_time("%H:%M:%S", strict=False).cast(pl.Int64)
    zone = pl.col("zone").replace("Z", "+00:00").fill_null("+00:00").str.replace(":", "", literal=True)
    zone_seconds = zone.str.slice(1, 2).cast(pl.Int64) * 3600 + zone.str.slice(3, 2).cast(pl.Int64) * 60
    offset = pl.when(zone.str.starts_with("-")).then(-zone_seconds).otherwise(zone_seconds)
    fraction = pl.col("fraction").fill_null("0").str.pad_end(9, "0").cast(pl.Int64) // 10 ** (9 - kept)
    iso = (day + clock // 1_000_000_000 - offset) * 10**kept + fraction
    epoch = pl.when(pl.col("text").str.contains(_EPOCH)).then(pl.col("text").cast(pl.Int64, strict=False))
    return parts.select(ticks=pl.coalesce(iso, epoch)).to_series()
