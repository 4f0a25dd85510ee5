"""Column types as users write them, brought into one form."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl

from anabranch.errors import FlowError
from anabranch.model.schema_forms import SchemaLike, declared_columns
from anabranch.model.type_names import parse_type

TypeLike = Any
"""A Polars type, a Python type such as ``int``, or a name such as ``"int64"`` or ``"datetime(ms)"``."""

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


def normalise_schema(schema: SchemaLike) -> dict[str, pl.DataType]:
    """Return column → Polars type; raise ``FlowError`` naming the column whose type is not understood."""
    columns = declared_columns(schema) if schema else {}
    if not columns:
        msg = 'the schema has no columns; give at least one, such as schema={"sensor": pl.Int64}'
        raise FlowError(msg)
    return {name: normalise_type(name, wanted) for name, wanted in columns.items()}


def normalise_type(column: str, wanted: TypeLike) -> pl.DataType:
    """Return the Polars type that a column was declared with."""
    if isinstance(wanted, pl.DataType):
        return wanted
    if isinstance(wanted, type):
        if issubclass(wanted, pl.DataType):
            return pl.Datetime("us") if wanted is pl.Datetime else wanted()
        if wanted in _PYTHON_TYPES:
            return _PYTHON_TYPES[wanted]
    if isinstance(wanted, str):
        try:
            return parse_type(wanted)
        except FlowError as error:
            msg = f"column {column!r}: {error}"
            raise FlowError(msg) from error
    msg = (
        f"column {column!r} has the type {wanted!r}, which is not known; use a Polars type such as pl.Int64, "
        f"one of {sorted(kind.__name__ for kind in _PYTHON_TYPES)} or a name such as 'int64' or 'datetime(ms)'"
    )
    raise FlowError(msg)
