"""What a text is in a column of some type, found with Python's own json, decimal, datetime and zoneinfo modules.

``MALFORMED`` stands for every text that is not of the type. Times are the ticks that Polars keeps, so that nothing is
rounded on the way; floats and decimals are their own texts, so that -0.0 is not 0.0.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

MALFORMED = object()

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_RANGES = {
    pl.Int8: (-(2**7), 2**7), pl.Int16: (-(2**15), 2**15), pl.Int32: (-(2**31), 2**31), pl.Int64: (-(2**63), 2**63),
    pl.Int128: (-(2**127), 2**127), pl.UInt8: (0, 2**8), pl.UInt16: (0, 2**16), pl.UInt32: (0, 2**32),
    pl.UInt64: (0, 2**64), pl.UInt128: (0, 2**128),
}  # fmt: skip
_FLOATS = {pl.Float16: np.float16, pl.Float32: np.float32, pl.Float64: np.float64}
_TICKS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
# Python's own context rounds to 28 digits; columns hold 38.
_ALL_DIGITS = decimal.Context(prec=38)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Undecided(Exception):
    """This oracle does not know."""


class Number(str):
    """A JSON number, as it was written."""

    __slots__ = ()


def parse_json(text: str) -> Any:
    """Return a JSON text's value, objects as lists of pairs, numbers as their digits; ``MALFORMED`` if it is none."""

    def refuse(_: str) -> Any:
        raise ValueError

    try:
        return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=refuse, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return MALFORMED


class Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, as they were written."""


def depth_of(value: Any) -> int:
    """Return how many objects and arrays lie within each other."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        held, depth = waiting.pop()
        if isinstance(held, list):
            deepest = max(deepest, depth)
            waiting += [(item[1] if isinstance(held, Pairs) else item, depth + 1) for item in held]
    return deepest


def json_value(value: Any, raw: str | None, kind: pl.DataType) -> Any:  # noqa: PLR0911, PLR0912 - rule after rule
    """Return what a parsed JSON value is in a column, given how it was written."""
    if value is None:
        return None
    match kind:
        case pl.Struct():
            if not isinstance(value, Pairs):
                return MALFORMED
            members = dict(reversed(value))
            found = {
                field.name: json_value(members.get(field.name), rewrite(members.get(field.name)), field.dtype)
                for field in kind.fields
            }
            return MALFORMED if MALFORMED in found.values() else found
        case pl.List() | pl.Array():
            if isinstance(value, Pairs) or not isinstance(value, list):
                return MALFORMED
            if isinstance(kind, pl.Array) and len(value) != kind.size:
                return MALFORMED
            items = [json_value(item, rewrite(item), kind.inner) for item in value]
            return MALFORMED if any(item is MALFORMED for item in items) else items
        case pl.String() | pl.Categorical() | pl.Enum():
            if type(value) is not str and raw is None:
                raise Undecided
            return text_value(str(value) if type(value) is str else str(raw), kind)
        case pl.Boolean():
            return value if isinstance(value, bool) else MALFORMED
        case pl.Decimal() | pl.Datetime():
            return text_value(str(value), kind) if isinstance(value, str) else MALFORMED
        case pl.Date() | pl.Time():
            return text_value(str(value), kind) if type(value) is str else MALFORMED
        case pl.Null():
            return MALFORMED
        case _:
            return text_value(str(value), kind) if type(value) is Number else MALFORMED


def rewrite(value: Any) -> str | None:
    """Return a value inside of another as ``wild_lines`` writes it: without blanks, numbers as they were.

    None where a string may have been written in several ways.
    """
    if isinstance(value, Pairs):
        parts = [(json.dumps(name, ensure_ascii=False), rewrite(item)) for name, item in value]
        if any(part is None or not name.isascii() for name, part in parts):
            return None
        return "{" + ",".join(f"{name}:{part}" for name, part in parts) + "}"
    if isinstance(value, list):
        items = [rewrite(item) for item in value]
        return None if None in items else "[" + ",".join(filter(None, items)) + "]"
    if type(value) is str and not re.fullmatch(r"[a-z]*", value):
        return None
    return str(value) if type(value) is Number else json.dumps(value)


def text_value(text: str, kind: pl.DataType) -> Any:  # noqa: PLR0911 - one rule after the other
    """Return what a text is in a column."""
    match kind:
        case pl.String() | pl.Categorical():
            return MALFORMED if any("\ud800" <= letter <= "\udfff" for letter in text) else text
        case pl.Enum():
            return text if text in kind.categories.to_list() else MALFORMED
        case pl.Boolean():
            return {"true": True, "false": False}.get(text.lower(), MALFORMED) if text.isascii() else MALFORMED
        case pl.Decimal():
            return _decimal_value(text, kind)
        case pl.Date():
            return _date_value(text)
        case pl.Time():
            return _time_of_day(text)
        case pl.Datetime():
            return _moment(text, kind)
    if type(kind) in _FLOATS:
        return _float_value(text, kind)
    lowest, limit = _RANGES[type(kind)]
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return MALFORMED
    number = int(Fraction(text))
    return number if lowest <= number < limit else MALFORMED


def _float_value(text: str, kind: pl.DataType) -> Any:
    is_word = text.lower().lstrip("+-") in ("inf", "infinity") or text.lower() == "nan"
    if not (is_word or _NUMBER.fullmatch(text)) or not text.isascii():
        return MALFORMED
    with np.errstate(over="ignore"):
        narrow = _FLOATS[type(kind)](float(text))
    return MALFORMED if np.isinf(narrow) and not is_word else repr(float(narrow))


def _decimal_value(text: str, kind: pl.Decimal) -> Any:
    if not _NUMBER.fullmatch(text) or not text.isascii():
        return MALFORMED
    mantissa, _, exponent = text.lower().partition("e")
    if abs(int(exponent or "0")) > 5000:
        return "0" if not mantissa.strip("+-0.") else MALFORMED
    unscaled = Fraction(text.rstrip(".") if text.endswith(".") else text.replace(".e", "e").replace(".E", "e"))
    unscaled *= 10**kind.scale
    fits = unscaled.denominator == 1 and abs(unscaled) < 10 ** (kind.precision or 38)
    return str(unscaled.numerator) if fits else MALFORMED


def _date_value(text: str) -> Any:
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError:
        return MALFORMED
    return (day - _EPOCH.date()).days if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else MALFORMED


def _time_of_day(text: str) -> Any:
    match = re.fullmatch(r"([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?", text)
    if match is None:
        return MALFORMED
    try:
        clock = datetime.time.fromisoformat(match[1])
    except ValueError:
        return MALFORMED
    return ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 10**9 + int((match[2] or "").ljust(9, "0"))


def _moment(text: str, kind: pl.Datetime) -> Any:
    ticks = _TICKS[kind.time_unit]
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        return _in_range(int(text), kind)
    pattern = (
        r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)"
        r"(?:(?<=:[0-9]{2}:[0-9]{2})\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
    )
    match = re.fullmatch(pattern, text)
    if match is None:
        return MALFORMED
    date, clock, fraction, zone = match.groups()
    offset = (zone or "Z").replace(":", "").replace("Z", "+0000")
    try:
        local = datetime.datetime.fromisoformat(f"{date}T{clock or '00:00'}")
        east = datetime.timedelta(hours=int(offset[1:3]), minutes=int(offset[3:]))
        if int(offset[1:3]) > 23 or int(offset[3:]) > 59:
            return MALFORMED
    except ValueError:
        return MALFORMED
    seconds = (local.replace(tzinfo=datetime.UTC) - _EPOCH) // datetime.timedelta(seconds=1)
    seconds -= (1 if offset[0] == "+" else -1) * int(east.total_seconds())
    if zone is None and kind.time_zone not in (None, "UTC"):
        if _in_range(seconds * ticks, kind) is MALFORMED:
            return MALFORMED
        if local.year > 2037:
            raise Undecided  # Databases of zones end at different years.
        first, second = (local.replace(tzinfo=ZoneInfo(kind.time_zone or ""), fold=fold) for fold in (0, 1))
        if first.utcoffset() != second.utcoffset():
            return MALFORMED  # Set back or forward: twice, or never.
        shift = first.utcoffset()
        assert shift is not None
        seconds -= int(shift.total_seconds())
    return _in_range(seconds * ticks + int((fraction or "").ljust(9, "0")) * ticks // 10**9, kind)


def _in_range(ticks: int, kind: pl.Datetime) -> Any:
    per_second = _TICKS[kind.time_unit]
    day = 86_400 * per_second
    first, limit = -719_162 * day, 2_932_897 * day
    if kind.time_unit == "ns":
        first, limit = -(2**63) + 1, 2**63
    if kind.time_zone not in (None, "UTC"):
        first, limit = first + day, limit - day
    return ticks if first <= ticks < limit else MALFORMED


def comparable(column: pl.Series) -> list[Any]:
    """Return a column's values in the form in which this module gives them."""
    kind = column.dtype
    match kind:
        case pl.Struct():
            fields = {field.name: comparable(column.struct.field(field.name)) for field in kind.fields}
            rows = [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)]
            rows = rows if fields else [{} for _ in column]
            return [None if is_null else row for row, is_null in zip(rows, column.is_null(), strict=True)]
        case pl.List() | pl.Array():
            return [None if item is None else comparable(item) for item in column]
        case pl.Decimal():
            return [None if value is None else str(int(value.scaleb(kind.scale, _ALL_DIGITS))) for value in column]
        case pl.Datetime() | pl.Date() | pl.Time():
            return column.to_physical().to_list()
        case pl.Float16() | pl.Float32() | pl.Float64():
            return [None if value is None else repr(value) for value in column]
        case _:
            return column.to_list()


def comparable_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows in the form in which this module gives them."""
    columns: Mapping[str, list[Any]] = {name: comparable(frame.get_column(name)) for name in frame.columns}
    return [{name: columns[name][row] for name in columns} for row in range(frame.height)]
