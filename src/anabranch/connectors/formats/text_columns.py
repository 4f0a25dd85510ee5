"""Text columns to columns of other types, a whole column at a time.

Every value is read as ``text_values`` reads it, or the column is left to it. Polars' own readers are slow with times
(0.3 to 1.6 million a second) and lenient with nearly everything; cut into parts, a column of times goes at 25 million a
second.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.connectors.formats.text_values import EPOCH, FRACTION_DIGITS, ISO, NOT_FINITE, TIME_OF_DAY, WORDS
from anabranch.eventtime.time_range import time_bounds

_ISO_GROUPS = ISO.replace("(?P<", "(?<")
_OFFSET_OR_EPOCH = r"Z$|[T ].*[+-][0-9]{2}:?[0-9]{2}$|" + EPOCH
_SEPARATORS = ((4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":"), (19, "."))
_DIGIT_PLACES = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)
_LONGEST_MONTHS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int32)
_DATE_BYTES = 10
_BYTES_BEHIND = 64
_MANY_TIMES = 20_000
"""Below it, loading the compiled code takes a process longer than it saves."""
_MOST_SECONDS = {unit: 2**63 // 10**digits - 1 for unit, digits in FRACTION_DIGITS.items()}
"""Further from 1970, ticks may not fit into 64 bits."""

_Ints = NDArray[np.int32]


def convert_text(text: pl.Series, kind: pl.DataType) -> pl.Series | None:
    """Return a text column as another type; None if a value is not of it, or is a matter for ``text_values``."""
    if isinstance(kind, pl.String):
        return text
    if isinstance(kind, pl.Datetime):
        converted = _read_times(text, kind)
    elif isinstance(kind, pl.Date):
        converted = _read_dates(text)
    elif isinstance(kind, pl.Time):
        fits = text.str.contains(TIME_OF_DAY).all()
        converted = text.str.to_time("%H:%M:%S%.f", strict=False) if fits else None
    elif kind.is_float():
        numbers = text.cast(pl.Float64, strict=False)
        odd = ~numbers.is_finite()
        is_written_so = not odd.any() or bool(text.filter(odd.fill_null(value=False)).str.contains(NOT_FINITE).all())
        converted = narrow_floats(numbers, kind) if is_written_so else None
    elif isinstance(kind, pl.Decimal):
        exact = rf"^[+-]?[0-9]*(?:\.[0-9]{{0,{kind.scale}}}0*)?$"
        converted = text.cast(kind, strict=False) if text.str.contains(exact).all() else None
    elif isinstance(kind, pl.Boolean):
        words = text.str.to_lowercase()
        converted = words == "true" if words.is_in(["true", "false"]).all() else None
    elif kind.is_integer() or isinstance(kind, WORDS):
        converted = text.cast(kind, strict=False)
    else:
        return None
    return converted if converted is not None and converted.null_count() == text.null_count() else None


def narrow_floats(numbers: pl.Series, kind: pl.DataType) -> pl.Series | None:
    """Return Float64 numbers as another float type; None if one is too large for it."""
    if isinstance(kind, pl.Float64):
        return numbers
    narrow = numbers.cast(kind)
    return narrow if (narrow.is_infinite() == numbers.is_infinite()).all() else None


def to_datetime(ticks: pl.Series, kind: pl.Datetime) -> pl.Series | None:
    """Return whole numbers since 1970, in the type's own unit, as times; None if one is out of range."""
    first, last = time_bounds(kind)
    if ticks.null_count() < len(ticks) and not (int(ticks.min()) >= first and int(ticks.max()) <= last):  # type: ignore[arg-type]
        return None
    naive = ticks.cast(pl.Datetime(kind.time_unit))
    return naive if kind.time_zone is None else naive.dt.replace_time_zone("UTC").dt.convert_time_zone(kind.time_zone)


def _read_times(text: pl.Series, kind: pl.Datetime) -> pl.Series | None:
    """Return the times; null where one is no single moment in the column's zone, None if a text is no time."""
    is_utc = kind.time_zone in (None, "UTC")
    ticks = _read_uniform_ticks(text, kind)
    has_offset: bool | pl.Series = True
    if ticks is not None:
        has_offset = is_utc or bool(text.str.ends_with("Z").all())
    else:
        ticks = _read_epochs(text)
    if ticks is None:
        ticks = _read_many_ticks(text, kind) if len(text) >= _MANY_TIMES else None
        ticks = _read_any_ticks(text, kind) if ticks is None else ticks
        has_offset = True if is_utc else text.str.contains(_OFFSET_OR_EPOCH)
    if ticks.null_count() != text.null_count():
        return None
    moments = to_datetime(ticks, kind)
    if has_offset is True or moments is None:
        return moments
    assert kind.time_zone is not None
    local = ticks.cast(pl.Datetime(kind.time_unit)).dt.replace_time_zone(
        kind.time_zone, ambiguous="null", non_existent="null"
    )
    local_moments = to_datetime(local.to_physical(), kind)
    if has_offset is False or local_moments is None:
        return local_moments
    return moments.zip_with(has_offset, local_moments)


def _read_uniform_ticks(text: pl.Series, kind: pl.Datetime) -> pl.Series | None:
    """Read ``2026-01-31T23:59:59.123Z``, all values with the same number of fraction digits; None if one differs."""
    length = _find_length(text)
    if length is None or not 19 <= length <= 30:
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
    hour, minute, second = (_read_pair(digits, place) for place in (11, 14, 17))
    days = _count_days(digits)
    if days is None or (hour > 23).any() or (minute > 59).any() or (second > 59).any():
        return None
    seconds = days.astype(np.int64) * 86_400 + (hour * 3600 + minute * 60 + second)
    kept = FRACTION_DIGITS[kind.time_unit]
    if seconds.min() < -_MOST_SECONDS[kind.time_unit] or seconds.max() > _MOST_SECONDS[kind.time_unit]:
        return None
    ticks = seconds * 10**kept
    for ordinal, place in enumerate(fraction_places[:kept], start=1):
        ticks += digits[place].astype(np.int64) * 10 ** (kept - ordinal)
    read = pl.Series(text.name, ticks)
    return read if text.null_count() == 0 else read.set(text.is_null(), None)


def _read_dates(text: pl.Series) -> pl.Series | None:
    if text.null_count() == len(text):
        return text.cast(pl.Date)
    if _find_length(text) != _DATE_BYTES:
        return None
    places = _lay_out_bytes(text, _DATE_BYTES)
    digits = places - np.uint8(ord("0"))
    if any((places[place] != ord(separator)).any() for place, separator in _SEPARATORS[:2]) or any(
        (digits[place] > 9).any() for place in _DIGIT_PLACES[:8]
    ):
        return None
    days = _count_days(digits)
    if days is None or days.min() < time_bounds(pl.Date())[0]:
        return None
    read = pl.Series(text.name, days).cast(pl.Date)
    return read if text.null_count() == 0 else read.set(text.is_null(), None)


def _read_epochs(text: pl.Series) -> pl.Series | None:
    ticks = text.cast(pl.Int64, strict=False)
    if ticks.null_count() != text.null_count() or text.str.starts_with("+").any():
        return None
    return ticks if (text.str.len_bytes().max() or 0) <= 19 else None  # type: ignore[operator]


def _find_length(text: pl.Series) -> int | None:
    """Return the bytes that every value has; None if they differ or there is none."""
    lengths = text.str.len_bytes()
    length = lengths.max()
    return length if isinstance(length, int) and length == lengths.min() else None


def _lay_out_bytes(text: pl.Series, length: int) -> NDArray[np.uint8]:
    """Return a matrix with a row for every place in the values; nulls are filled with some value."""
    filled = text if text.null_count() == 0 else text.fill_null(text.drop_nulls()[0])
    array = filled.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    first = np.frombuffer(array.buffers()[1], np.int64)[array.offset]
    held = np.frombuffer(array.buffers()[2], np.uint8)[first : first + length * len(text)]
    return np.ascontiguousarray(held.reshape(len(text), length).T)


def _read_pair(digits: NDArray[np.uint8], place: int) -> _Ints:
    return np.asarray(digits[place].astype(np.int32) * 10 + digits[place + 1], dtype=np.int32)


def _count_days(digits: NDArray[np.uint8]) -> _Ints | None:
    """Return the days since 1970 of dates that begin a text, None if some date does not exist."""
    year = _read_pair(digits, 0) * 100 + _read_pair(digits, 2)
    month, day = _read_pair(digits, 5), _read_pair(digits, 8)
    if (month < 1).any() or (month > 12).any() or (day < 1).any() or (day > _LONGEST_MONTHS[month]).any():
        return None
    last_of_february = (month == 2) & (day == 29)
    if (last_of_february & ~((year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)))).any():
        return None
    # Years that begin in March: the leap day comes last, so months have fixed starts.
    marched = year - (month <= 2)
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return np.asarray(marched * 365 + marched // 4 - marched // 100 + marched // 400 + day_of_year - 719_468, np.int32)


def _read_many_ticks(text: pl.Series, kind: pl.Datetime) -> pl.Series | None:
    """Read every form by compiled code; None if a value has none of them, or one that is read otherwise."""
    from anabranch.compiled.written_times import read_moments

    # A line end behind every value: compiled code reads digits up to what is none.
    ended = pl.select(pl.concat_str(text.fill_null(""), pl.lit("\n"))).to_series()
    array = ended.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(text) + 1]
    held = np.frombuffer(array.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    ticks = np.zeros(len(text), np.int64)
    padded = np.concatenate([held, np.zeros(_BYTES_BEHIND, np.uint8)])
    if read_moments(offsets[1:] - offsets[0], padded, FRACTION_DIGITS[kind.time_unit], ticks) < len(text):
        return None
    # Nulls were made empty, which is what no other value may be.
    if text.null_count() != int((ended.str.len_bytes() == 1).sum()):
        return None
    read = pl.Series(text.name, ticks)
    return read if text.null_count() == 0 else read.set(text.is_null(), None)


def _read_any_ticks(text: pl.Series, kind: pl.Datetime) -> pl.Series:
    """Read every form, value by value; null where a value has none of them."""
    kept = FRACTION_DIGITS[kind.time_unit]
    most = _MOST_SECONDS[kind.time_unit]
    parts = text.to_frame("text").select("text", pl.col("text").str.extract_groups(_ISO_GROUPS).alias("iso"))
    day = pl.col("date").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int64) * 86_400
    minute, second = pl.col("minute").fill_null("00:00"), pl.col("second").fill_null("00")
    clock = pl.concat_str(minute, pl.lit(":"), second).str.to_time("%H:%M:%S", strict=False).cast(pl.Int64)
    zone = pl.col("zone").replace("Z", "+00:00").fill_null("+00:00").str.replace(":", "", literal=True)
    zone_seconds = zone.str.slice(1, 2).cast(pl.Int64) * 3600 + zone.str.slice(3, 2).cast(pl.Int64) * 60
    offset = pl.when(zone.str.starts_with("-")).then(-zone_seconds).otherwise(zone_seconds)
    fraction = pl.col("fraction").fill_null("0").str.pad_end(9, "0").cast(pl.Int64) // 10 ** (9 - kept)
    seconds = day + clock // 1_000_000_000 - offset
    iso = pl.when(seconds.is_between(-most, most)).then(seconds * 10**kept + fraction)
    epoch = pl.when(pl.col("text").str.contains(EPOCH)).then(pl.col("text").cast(pl.Int64, strict=False))
    return parts.unnest("iso").select(ticks=pl.coalesce(iso, epoch)).to_series()
