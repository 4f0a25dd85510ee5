"""Column types as users write them, brought into one form."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import polars as pl

from anabranch.errors import FlowError

TypeLike = Any
"""A Polars type, a Python type such as ``int``, or a name such as ``"int64"`` or ``"datetime[ms]"``."""

_PYTHON_TYPES: dict[type, pl.DataType] = {
    bool: pl.Boolean(),
    int: pl.Int64(),
    float: pl.Float64(),
    str: pl.String(),
    bytes: pl.Binary(),
    datetime.date: pl.Date(),
    datetime.time: pl.Time(),
    datetime.datetime: pl.Datetime("us"),
    datetime.timedelta: pl.Duration("us"),
}

_NAMED_TYPES: dict[str, pl.DataType] = {
    "bool": pl.Boolean(),
    "boolean": pl.Boolean(),
    "int8": pl.Int8(),
    "int16": pl.Int16(),
    "int32": pl.Int32(),
    "int64": pl.Int64(),
    "int": pl.Int64(),
    "long": pl.Int64(),
    "bigint": pl.Int64(),
    "uint8": pl.UInt8(),
    "uint16": pl.UInt16(),
    "uint32": pl.UInt32(),
    "uint64": pl.UInt64(),
    "float32": pl.Float32(),
    "float64": pl.Float64(),
    "float": pl.Float64(),
    "double": pl.Float64(),
    "string": pl.String(),
    "str": pl.String(),
    "binary": pl.Binary(),
    "bytes": pl.Binary(),
    "date": pl.Date(),
    "time": pl.Time(),
    "datetime": pl.Datetime("us"),
    "datetime[ms]": pl.Datetime("ms"),
    "datetime[us]": pl.Datetime("us"),
    "datetime[ns]": pl.Datetime("ns"),
    "timestamp": pl.Datetime("us"),
}


def normalise_schema(schema: Mapping[str, TypeLike]) -> dict[str, pl.DataType]:
    """Return column → Polars type; raise ``FlowError`` naming the column whose type is not understood."""
    if not schema:
        msg = 'the schema has no columns; give at least one, such as schema={"sensor": pl.Int64}'
        raise FlowError(msg)
    return {name: normalise_type(name, wanted) for name, wanted in schema.items()}


def normalise_type(column: str, wanted: TypeLike) -> pl.DataType:
    """Return the Polars type that a column was declared with."""
    if isinstance(wanted, pl.DataType):
        return wanted
    if isinstance(wanted, type):
        if issubclass(wanted, pl.DataType):
            return pl.Datetime("us") if wanted is pl.Datetime else wanted()
        if wanted in _PYTHON_TYPES:
            return _PYTHON_TYPES[wanted]
    if isinstance(wanted, str) and wanted.strip().lower() in _NAMED_TYPES:
        return _NAMED_TYPES[wanted.strip().lower()]
    msg = (
        f"column {column!r} has the type {wanted!r}, which is not known; use a Polars type such as pl.Int64, "
        f"one of {sorted(kind.__name__ for kind in _PYTHON_TYPES)} or one of {sorted(_NAMED_TYPES)}"
    )
    raise FlowError(msg)
