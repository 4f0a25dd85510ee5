"""Whether the columns of streams are what a step needs, and what to do if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.errors import FlowError
from anabranch.query.labels import describe_columns, name_alternatives


def find_column(where: str, column: str, schema: Mapping[str, pl.DataType]) -> pl.DataType:
    """Return the type of a column, or raise ``FlowError`` with the columns that exist."""
    if column not in schema:
        msg = f"{where}: no column {column!r}; {name_alternatives(column, schema)}"
        raise FlowError(msg)
    return schema[column]


def check_key_columns(columns: Sequence[str], schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` unless rows can be told apart by these columns."""
    if not columns:
        msg = f"key_by needs at least one column; there are {', '.join(schema)}"
        raise FlowError(msg)
    for column in columns:
        dtype = find_column("key_by", column, schema)
        if dtype.is_float() or dtype.is_nested():
            allowed = "integers, strings, bytes, dates, times, booleans or decimals"
            msg = f"key_by: {column!r} is {dtype}; keys are {allowed}: cast it first"
            raise FlowError(msg)


def check_time_column(column: str, schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` unless a column can be followed as event time."""
    dtype = find_column("watermark", column, schema)
    if not isinstance(dtype, pl.Datetime):
        hint = f'.with_columns({column}=pl.from_epoch("{column}", "ms"))' if dtype.is_integer() else "a cast"
        msg = f"watermark: {column!r} is {dtype}, not a Datetime; make it one first, by {hint}"
        raise FlowError(msg)


def check_same_columns(first: Mapping[str, pl.DataType], other: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` unless rows of two streams can stand in one."""
    if first != other:
        msg = (
            "union needs the same columns and types in the same order; the first stream has "
            f"{describe_columns(first)}, another has {describe_columns(other)}; use select() first"
        )
        raise FlowError(msg)
