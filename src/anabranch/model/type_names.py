"""Names of column types as people write them: ``Int64``, ``Datetime(ms, UTC)``, ``List(Struct(lat: Float64))``."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Sequence
from typing import Literal, cast

import polars as pl

from anabranch.errors import FlowError, name_alternatives

_PLAIN: dict[str, pl.DataType] = {
    "Boolean": pl.Boolean(),
    "Int8": pl.Int8(),
    "Int16": pl.Int16(),
    "Int32": pl.Int32(),
    "Int64": pl.Int64(),
    "Int128": pl.Int128(),
    "UInt8": pl.UInt8(),
    "UInt16": pl.UInt16(),
    "UInt32": pl.UInt32(),
    "UInt64": pl.UInt64(),
    "Float32": pl.Float32(),
    "Float64": pl.Float64(),
    "String": pl.String(),
    "Binary": pl.Binary(),
    "Date": pl.Date(),
    "Time": pl.Time(),
    "Datetime": pl.Datetime("us"),
    "Duration": pl.Duration("us"),
    "Decimal": pl.Decimal(38, 0),
}
_ALIASES = {
    "bool": "Boolean",
    "int": "Int64",
    "long": "Int64",
    "bigint": "Int64",
    "float": "Float64",
    "double": "Float64",
    "str": "String",
    "utf8": "String",
    "bytes": "Binary",
    "timestamp": "Datetime",
}
_BY_SMALL_LETTERS = {name.lower(): name for name in _PLAIN} | _ALIASES
TYPE_FORMS = (
    *_PLAIN,
    "Datetime(ms)",
    "Datetime(us, UTC)",
    "Duration(ms)",
    "Decimal(18, 2)",
    "Enum(low, high)",
    "List(Int64)",
    "Array(Float64, 3)",
    "Struct(lat: Float64, lon: Float64)",
)
"""The names that are understood, an example for each that has parameters."""

_TimeUnit = Literal["ms", "us", "ns"]
_TIME_UNITS = ("ms", "us", "ns")
_MOST_DIGITS = 38
_WITH_PARAMETERS = re.compile(r"(\w+)\s*(?:\((.*)\)|\[(.*)\])", re.DOTALL)
# Polars writes Datetime(time_unit='us', time_zone=None): the words before = say nothing new.
_KEYWORD = re.compile(r"(?:time_unit|time_zone|precision|scale|shape|categories)\s*=\s*")
_PIECE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|.""", re.DOTALL)
"""A letter, or a text in quotes with whatever stands in it."""


def parse_type(text: str) -> pl.DataType:
    """Return the Polars type that a text names; upper and lower case are the same, and Polars' own texts are read, too.

    Raises ``FlowError`` with the part of the text that names no type.
    """
    text = text.strip()
    plain = _BY_SMALL_LETTERS.get(text.lower())
    if plain is not None:
        return _PLAIN[plain]
    parts = _WITH_PARAMETERS.fullmatch(text)
    read = None if parts is None else _READERS.get(parts[1].lower())
    if parts is None or read is None:
        msg = f"unknown type {text!r}; {name_alternatives(text, TYPE_FORMS, 'types are')}"
        raise FlowError(msg)
    given = [_KEYWORD.sub("", part, count=1) for part in _split(parts[2] or parts[3] or "", ",")]
    try:
        return read(given)
    except ValueError as error:
        msg = f"the type {text!r} cannot be: {error}"
        raise FlowError(msg) from error


def _read_datetime(given: Sequence[str]) -> pl.DataType:
    match [_unquoted(part) for part in given]:
        case [unit] | [unit, "None"]:
            return pl.Datetime(_read_unit(unit))
        case [unit, zone]:
            try:
                # Polars makes a type with any zone, and fails only when it meets a value.
                return pl.Series(dtype=pl.Datetime(_read_unit(unit))).dt.replace_time_zone(zone).dtype
            except pl.exceptions.ComputeError as error:
                msg = f"there is no time zone {zone!r}; zones are such as UTC and Europe/Berlin"
                raise ValueError(msg) from error
    msg = "give a unit and, if need be, a zone, such as Datetime(us, UTC)"
    raise ValueError(msg)


def _read_duration(given: Sequence[str]) -> pl.DataType:
    if len(given) != 1:
        msg = "give its unit, such as Duration(ms)"
        raise ValueError(msg)
    return pl.Duration(_read_unit(_unquoted(given[0])))


def _read_unit(unit: str) -> _TimeUnit:
    if unit not in _TIME_UNITS:
        msg = f"its unit is {unit!r}; units are {', '.join(_TIME_UNITS)}"
        raise ValueError(msg)
    return cast(_TimeUnit, unit)


def _read_decimal(given: Sequence[str]) -> pl.DataType:
    if not 1 <= len(given) <= 2 or not all(part.isdigit() for part in given):
        msg = "give its digits and how many of them are behind the point, such as Decimal(18, 2)"
        raise ValueError(msg)
    precision, scale = int(given[0]), int(given[1]) if len(given) > 1 else 0
    if not scale <= precision <= _MOST_DIGITS or precision < 1:
        msg = f"it has 1 to {_MOST_DIGITS} digits, and at most as many behind the point"
        raise ValueError(msg)
    return pl.Decimal(precision, scale)


def _read_list(given: Sequence[str]) -> pl.DataType:
    if len(given) != 1:
        msg = "give the type of its values, such as List(Int64)"
        raise ValueError(msg)
    return pl.List(parse_type(given[0]))


def _read_array(given: Sequence[str]) -> pl.DataType:
    sizes = [size.strip() for size in given[1].strip("()").split(",") if size.strip()] if len(given) == 2 else []
    if not sizes or not all(size.isdigit() for size in sizes):
        msg = "give the type of its values and how many there are, such as Array(Float64, 3)"
        raise ValueError(msg)
    return pl.Array(parse_type(given[0]), tuple(map(int, sizes)))


def _read_enum(given: Sequence[str]) -> pl.DataType:
    listed = _inside(given[0], "[", "]") if len(given) == 1 else None
    values = [_unquoted(part) for part in (given if listed is None else _split(listed, ","))]
    if not values:
        msg = "give its values, such as Enum(low, high)"
        raise ValueError(msg)
    return pl.Enum(values)  # which raises ValueError for one that comes twice


def _read_struct(given: Sequence[str]) -> pl.DataType:
    listed = _inside(given[0], "{", "}") if len(given) == 1 else None
    fields: dict[str, pl.DataType] = {}
    for field in given if listed is None else _split(listed, ","):
        name, *rest = _split(field, ":")
        name = _unquoted(name)
        if not name or not rest or name in fields:
            msg = "give its fields with their types, each once, such as Struct(lat: Float64, lon: Float64)"
            raise ValueError(msg)
        fields[name] = parse_type(":".join(rest))
    if not fields:
        msg = "it has no fields; give them with their types, such as Struct(lat: Float64, lon: Float64)"
        raise ValueError(msg)
    return pl.Struct(fields)


_READERS: dict[str, Callable[[Sequence[str]], pl.DataType]] = {
    "datetime": _read_datetime,
    "timestamp": _read_datetime,
    "duration": _read_duration,
    "decimal": _read_decimal,
    "list": _read_list,
    "array": _read_array,
    "enum": _read_enum,
    "struct": _read_struct,
}


def _split(text: str, mark: str) -> list[str]:
    """Return the parts between the marks that stand in no brackets and no quotes."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if piece == mark and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts] if text.strip() else []


def _inside(text: str, opening: str, closing: str) -> str | None:
    """Return what stands between brackets around all of a text, or None where there are none."""
    return text[1:-1] if text.startswith(opening) and text.endswith(closing) else None


def _unquoted(text: str) -> str:
    return str(literal_eval(text)) if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1 else text
