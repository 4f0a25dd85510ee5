"""Column types as users write them, brought into one form."""

from __future__ import annotations

import datetime
from typing import Any, cast

import polars as pl
from polars.datatypes import DataTypeClass

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
    if isinstance(wanted, pl.DataType) or (isinstance(wanted, type) and issubclass(wanted, pl.DataType)):
        return whole_type(wanted)
    if isinstance(wanted, type) and wanted in _PYTHON_TYPES:
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


def whole_type(kind: pl.DataType | DataTypeClass) -> pl.DataType:
    """Return a type, and all types in it, with what they lack if only their class was given: times are in ``us``."""
    if not isinstance(kind, pl.DataType):
        return pl.Datetime("us") if issubclass(kind, pl.Datetime) else cast(pl.DataType, kind())
    if isinstance(kind, pl.List):
        return pl.List(whole_type(kind.inner))
    if isinstance(kind, pl.Array):
        return pl.Array(whole_type(kind.inner), kind.size)
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: whole_type(field.dtype) for field in kind.fields})
    return kind
