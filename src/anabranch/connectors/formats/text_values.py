"""One value's text as a value of a column's type: the rules that hold for every format written as text.

docs/reference/values.md has them as a table. Whoever reads many values at once answers what this module
answers, or leaves it to this module.
"""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import cache, partial
from math import inf
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError

from anabranch.connectors.formats.schemas import whole_type
from anabranch.eventtime.time_range import describe_time_bounds, time_bounds

FRACTION_DIGITS = {"ms": 3, "us": 6, "ns": 9}
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
ISO = (
    r"^(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    rf"(?:[T ](?P<minute>{CLOCK})(?::(?P<second>[0-5][0-9])(?:\.(?P<fraction>[0-9]{{1,9}}))?)?"
    r"(?P<zone>Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?)?$"
)
EPOCH = r"^-?[0-9]{1,19}$"
TIME_OF_DAY = rf"^{CLOCK}:[0-5][0-9](?:\.[0-9]{{1,9}})?$"
NOT_FINITE = r"^(?i:[+-]?(?:inf|infinity)|nan)$"
_ISO, _EPOCH, _TIME_OF_DAY, _NOT_FINITE = map(re.compile, (ISO, EPOCH, TIME_OF_DAY, NOT_FINITE))
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MOST_EXPONENT_DIGITS = 6
_MOST_DIGITS = 40
_FEW_BYTES = 4096
_MOST_BYTES_OF_A_VALUE = 2**31 - 1
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()
_NARROW_FLOATS: dict[type[pl.DataType], str] = {pl.Float32: "<f", pl.Float16: "<e"}

TIMES = (pl.Datetime, pl.Date, pl.Time)
WORDS = (pl.String, pl.Categorical, pl.Enum)
NESTED = (pl.List, pl.Array, pl.Struct)


class Misfit(Exception):
    """A value is not of its column's type; the text says why where that is not plain to see."""


def is_utf8(text: bytes) -> bool:
    """Say whether bytes are text."""
    if text.isascii():
        return True
    try:
        if len(text) < _FEW_BYTES or len(text) > _MOST_BYTES_OF_A_VALUE:
            return text.decode() is not None
        # Polars looks at them as a whole, 25 times as fast as Python makes a text of them.
        view = np.array([len(text) | int.from_bytes(text[:4], "little") << 32, 0], np.uint64)
        buffers = [None, pa.py_buffer(view), pa.py_buffer(text)]
        pl.Series(pa.Array.from_buffers(pa.binary_view(), 1, buffers)).cast(pl.String)
    except (UnicodeDecodeError, PolarsError):
        return False
    return True


def is_leaf_type(kind: pl.DataType) -> bool:
    """Say whether a single text can be of a type."""
    return kind.is_integer() or kind.is_float() or isinstance(kind, (pl.Boolean, pl.Decimal, *TIMES, *WORDS))


def kept_as(kind: pl.DataType) -> pl.DataType:
    """Return the type of the values that ``reader_of`` gives, at any depth: those that cast to the type exactly."""
    if isinstance(kind, pl.List):
        return pl.List(kept_as(whole_type(kind.inner)))
    if isinstance(kind, pl.Array):
        return pl.Array(kept_as(whole_type(kind.inner)), kind.size)
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: kept_as(whole_type(field.dtype)) for field in kind.fields})
    if isinstance(kind, WORDS):
        return pl.String()
    if kind.is_float():
        return pl.Float64()
    return pl.Int64() if isinstance(kind, TIMES) else kind


def make_column(name: str, values: list[Any], kind: pl.DataType) -> pl.Series:
    """Return a column of values that ``reader_of`` gave."""
    return pl.Series(name, values, dtype=kept_as(kind), strict=True).cast(kind)


@cache
def reader_of(kind: pl.DataType) -> Callable[[str], Any]:
    """Return what makes the value of a column of this type of a text, times as numbers; it raises ``Misfit`` if the
    text is none."""
    if isinstance(kind, WORDS):
        return _reader_of_words(kind)
    if kind.is_integer():
        return _reader_of_integers(kind)
    if kind.is_float():
        return _reader_of_floats(kind)
    if isinstance(kind, pl.Boolean):
        return _read_truth
    if isinstance(kind, pl.Decimal):
        return partial(_read_decimal, precision=kind.precision or 38, scale=kind.scale)
    if isinstance(kind, pl.Datetime):
        return _reader_of_moments(kind)
    return _read_date if isinstance(kind, pl.Date) else _read_time_of_day


def _reader_of_words(kind: pl.DataType) -> Callable[[str], str]:
    categories = frozenset(kind.categories) if isinstance(kind, pl.Enum) else None

    def read(text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            msg = f"which is no Unicode text: half of a surrogate pair at character {error.start}"
            raise Misfit(msg) from None
        if categories is not None and text not in categories:
            raise Misfit("which is none of its categories")
        return text

    return read


def integer_range(kind: pl.DataType) -> tuple[int, int]:
    """Return the least and the largest number that a type of whole numbers has."""
    bits = int(re.sub(r"\D", "", str(kind)))
    return (0, 2**bits - 1) if kind.is_unsigned_integer() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _reader_of_integers(kind: pl.DataType) -> Callable[[str], int]:
    lowest, highest = integer_range(kind)

    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise Misfit
        # Python reads no more than some thousand digits, and no type has more than 39.
        number = int(text) if len(text) < _MOST_DIGITS or len(text.lstrip("+-0")) < _MOST_DIGITS else highest + 1
        if not lowest <= number <= highest:
            raise Misfit(f"outside its range, {lowest} to {highest}")
        return number

    return read


def _reader_of_floats(kind: pl.DataType) -> Callable[[str], float]:
    """Return what reads the nearest float: a number beyond the type's range is refused, written infinity is not."""
    form = _NARROW_FLOATS.get(type(kind))

    def read(text: str) -> float:
        if not _NUMBER.fullmatch(text):
            if _NOT_FINITE.fullmatch(text):
                return float(text)
            raise Misfit
        number = float(text)
        try:
            if form is not None:
                struct.pack(form, number)
        except OverflowError:
            number = inf
        if number in (inf, -inf):
            raise Misfit("too large for it")
        return number

    return read


def _read_decimal(text: str, precision: int, scale: int) -> Decimal:
    """Return an exact number; digits beyond the scale, other than zeros, and beyond the precision are refused."""
    if not _NUMBER.fullmatch(text):
        raise Misfit
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("+-").partition(".")
    digits = (whole + fraction).strip("0")
    if not digits:
        return Decimal(0)
    if len(exponent.lstrip("+-0")) > _MOST_EXPONENT_DIGITS:
        raise Misfit("more digits than it holds")
    # The place of the last digit that is not zero, counted from the point.
    lowest = int(exponent or "0") - len(fraction) + len(whole + fraction) - len((whole + fraction).rstrip("0"))
    if lowest < -scale:
        raise Misfit(f"more than {scale} digits behind the point")
    if len(digits) + lowest > precision - scale:
        raise Misfit(f"more than {precision - scale} digits before the point")
    return Decimal((int(text.startswith("-")), tuple(map(int, digits)), lowest))


def _reader_of_moments(kind: pl.Datetime) -> Callable[[str], int]:
    """Return what reads times, in ticks since 1970.

    Times are ISO 8601 (``2026-01-31``, ``2026-01-31T23:59:59.123``, with a space for the ``T``, with ``Z`` or
    ``+02:00``), or whole numbers since 1970 in the column's own unit; digits finer than the unit are cut off. An offset
    is always heeded: such a time becomes UTC in a column without a zone. A time without an offset is of the column's
    zone, or UTC if it has none; where clocks are set back or forward, it may have happened twice or never, and is
    refused, as are times that not everybody can hold.
    """
    first, last = time_bounds(kind)

    def read(text: str) -> int:
        ticks = int(text) if _EPOCH.fullmatch(text) else _read_iso(text, kind)
        if not first <= ticks <= last:
            raise Misfit(describe_time_bounds(kind))
        return ticks

    return read


def _read_iso(text: str, kind: pl.Datetime) -> int:
    match = _ISO.fullmatch(text)
    if match is None:
        raise Misfit
    date, minute, second, fraction, zone = match.groups()
    seconds = _count_days(date) * 86_400
    if minute:
        seconds += int(minute[:2]) * 3600 + int(minute[3:]) * 60 + int(second or "0")
    if zone and zone != "Z":
        offset_seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds += offset_seconds if zone[0] == "-" else -offset_seconds
    kept = FRACTION_DIGITS[kind.time_unit]
    ticks = seconds * 10**kept + (int(fraction.ljust(kept, "0")[:kept]) if fraction else 0)
    return ticks if zone or kind.time_zone in (None, "UTC") else _localise(text, ticks, kind)


def _localise(text: str, ticks: int, kind: pl.Datetime) -> int:
    """Return the moment at which the clocks of the column's zone show a time."""
    first, last = time_bounds(kind)
    if not first <= ticks <= last:
        raise Misfit(describe_time_bounds(kind))
    assert kind.time_zone is not None
    local = pl.Series([ticks]).cast(pl.Datetime(kind.time_unit))
    moment = local.dt.replace_time_zone(kind.time_zone, ambiguous="null", non_existent="null").to_physical()[0]
    if moment is None:
        msg = (
            f"no single moment in {kind.time_zone}: clocks are set there at that time, so it happened twice or never; "
            f"write times with their offset, such as {text}+01:00"
        )
        raise Misfit(msg)
    return int(moment)


def _read_date(text: str) -> int:
    if not _DATE.fullmatch(text):
        raise Misfit
    return _count_days(text)


def _count_days(date: str) -> int:
    try:
        return datetime.date(int(date[:4]), int(date[5:7]), int(date[8:])).toordinal() - _FIRST_DAY
    except ValueError:
        raise Misfit("there is no such day") from None


def _read_time_of_day(text: str) -> int:
    if not _TIME_OF_DAY.fullmatch(text):
        raise Misfit
    seconds = int(text[:2]) * 3600 + int(text[3:5]) * 60 + int(text[6:8])
    return seconds * 10**9 + int(text[9:].ljust(9, "0"))


def _read_truth(text: str) -> bool:
    truth = {"true": True, "false": False}.get(text.lower())
    if truth is None:
        raise Misfit
    return truth
