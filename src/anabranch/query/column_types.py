"""Column types as flow files write them: ``Int64``, ``Datetime(ms)``, ``List(String)``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, cast

import polars as pl

from anabranch.errors import FlowError
from anabranch.query.labels import name_alternatives

_PLAIN: dict[str, pl.DataType] = {
    "Boolean": pl.Boolean(),
    "Int8": pl.Int8(),
    "Int16": pl.Int16(),
    "Int32": pl.Int32(),
    "Int64": pl.Int64(),
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
_WITH_PARAMETERS = re.compile(r"\s*(\w+)\s*[(\[](.*)[)\]]\s*", re.DOTALL)
_FORMS = (*_PLAIN, "Datetime(ms)", "Datetime(us, UTC)", "Duration(ms)", "Decimal(18, 2)", "List(Int64)")

_TimeUnit = Literal["ms", "us", "ns"]
_TIME_UNITS = ("ms", "us", "ns")


def parse_schema(schema: Mapping[str, str]) -> dict[str, pl.DataType]:
    """Return column → Polars type."""
    parsed = {}
    for column, text in schema.items():
        try:
            parsed[column] = parse_type(text)
        except FlowError as error:
            msg = f"column {column!r}: {error}"
            raise FlowError(msg) from error
    return parsed


def parse_type(text: str) -> pl.DataType:
    """Return the Polars type that a text names; upper and lower case are the same."""
    plain = _BY_SMALL_LETTERS.get(text.strip().lower())
    if plain is not None:
        return _PLAIN[plain]
    parts = _WITH_PARAMETERS.fullmatch(text)
    if parts is not None:
        parameters = [part.strip() for part in parts[2].split(",")]
        match parts[1].lower(), parameters:
            case "list", _:
                return pl.List(parse_type(parts[2]))
            case "datetime" | "timestamp", [unit] if unit in _TIME_UNITS:
                return pl.Datetime(cast(_TimeUnit, unit))
            case "datetime" | "timestamp", [unit, zone] if unit in _TIME_UNITS and zone:
                return pl.Datetime(cast(_TimeUnit, unit), zone)
            case "duration", [unit] if unit in _TIME_UNITS:
                return pl.Duration(cast(_TimeUnit, unit))
            case "decimal", [precision, scale] if precision.isdigit() and scale.isdigit():
                return pl.Decimal(int(precision), int(scale))
    msg = f"unknown type {text!r}; {name_alternatives(text, _FORMS, 'types are')}"
    raise FlowError(msg)
