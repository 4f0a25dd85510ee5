"""Whether the columns of streams are what a step needs, and what to do if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.errors import FlowError, name_alternatives
from anabranch.model.column_kinds import holds
from anabranch.model.schema_forms import SchemaLike, declared_columns
from anabranch.query.labels import describe_columns

ColumnTypes = Mapping[str, pl.DataType | type[pl.DataType]]


def find_column(where: str, column: str, schema: Mapping[str, pl.DataType]) -> pl.DataType:
    """Return the type of a column, or raise ``FlowError`` with the columns that exist."""
    if column not in schema:
        msg = f"{where}: no column {column!r}; {name_alternatives(column, schema)}"
        raise FlowError(msg)
    return schema[column]


def read_schema(where: str, schema: SchemaLike) -> dict[str, pl.DataType]:
    """Return declared columns with their types as objects, or raise ``FlowError`` for what is no type."""
    try:
        return dict(pl.Schema(declared_columns(schema)))
    except FlowError as error:
        msg = f"{where}: {error}"
        raise FlowError(msg) from error
    except TypeError as error:
        msg = f"{where}: {error}; a schema is columns with Polars types, such as {{'sensor': pl.Int64}}"
        raise FlowError(msg) from error


def check_key_columns(where: str, columns: Sequence[object], schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` unless rows can be told apart by these columns."""
    if not columns:
        msg = f"{where} needs at least one column; there are {', '.join(schema)}"
        raise FlowError(msg)
    for column in columns:
        if not isinstance(column, str):
            msg = (
                f'{where} takes names of columns, as in {where}("country", "device"), found a {type(column).__name__}; '
                "what is computed gets a name first, by with_columns()"
            )
            raise FlowError(msg)
        dtype = find_column(where, column, schema)
        if dtype.is_float() or dtype.is_nested():
            allowed = "integers, strings, enums, bytes, dates, times, durations, booleans or decimals"
            msg = f"{where}: {column!r} is {dtype}; keys are {allowed}: cast it first"
            raise FlowError(msg)


def check_time_column(column: str, schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` unless a column can be followed as event time."""
    dtype = find_column("watermark", column, schema)
    if not isinstance(dtype, pl.Datetime):
        hint = f'.with_columns({column}=pl.from_epoch("{column}", "ms"))' if dtype.is_integer() else "a cast"
        msg = f"watermark: {column!r} is {dtype}, not a Datetime; make it one first, by {hint}"
        raise FlowError(msg)


def check_kinds(where: str, schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` for columns of Python objects: no file, exchange or sink can hold them."""
    for column, dtype in schema.items():
        if holds(dtype, pl.Object, pl.Unknown):
            msg = f"{where}: {column!r} is {dtype}, which cannot leave a process; give it a type, as by return_dtype=…"
            raise FlowError(msg)


def check_same_columns(first: Mapping[str, pl.DataType], other: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` unless rows of two streams can stand in one."""
    if first != other:
        msg = (
            "union needs the same columns and types in the same order; the first stream has "
            f"{describe_columns(first)}, another has {describe_columns(other)}; use select() first"
        )
        raise FlowError(msg)
