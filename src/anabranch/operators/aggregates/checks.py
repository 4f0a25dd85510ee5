"""What is wrong with an aggregate, found on an empty frame before the first row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.errors import FlowError
from anabranch.model import BATCH, ORDER, TIME, Aggregate, OperatorTime
from anabranch.operators.aggregates.partials import Partials

_ENGINE_SCHEMA: dict[str, pl.DataType] = {TIME: pl.Datetime("us"), BATCH: pl.Int64(), ORDER: pl.Int64()}


def empty_rows(schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return a frame without rows as a kernel's ``prepare`` gets it."""
    return pl.DataFrame(schema={ORDER: pl.Int64(), **schema})


def check_columns(
    schema: Mapping[str, pl.DataType], columns: Sequence[str], role: str, time_column: str | None = None
) -> None:
    """Raise ``FlowError`` if a column is missing, or the time column holds no time."""
    for column in columns:
        if column not in schema:
            msg = f"{role} {column!r} is no column; there are {_names(schema)}"
            raise FlowError(msg)
    if time_column is None:
        return
    if time_column not in schema:
        msg = f"the time column {time_column!r} is missing; there are {_names(schema)}"
        raise FlowError(msg)
    if not isinstance(schema[time_column], pl.Datetime):
        msg = f"the time column {time_column!r} has type {schema[time_column]}; cast it to pl.Datetime first"
        raise FlowError(msg)


def check_aggregates(partials: Partials, schema: Mapping[str, pl.DataType], taken: Sequence[str] = ()) -> None:
    """Raise ``FlowError`` if columns are missing, types do not fit, or names clash."""
    check_columns(schema, partials.keys, "the key", partials.time_column)
    for name in partials.aggregates:
        if name in partials.keys or name in taken:
            msg = f"the aggregate {name!r} has the name of another result column; rename it"
            raise FlowError(msg)
    for name, aggregate in partials.aggregates.items():
        _check_inputs(name, aggregate, schema)
    _check_merging(partials, schema)


def describe_aggregates(partials: Partials, schema: Mapping[str, pl.DataType]) -> dict[str, object]:
    """Return keys, aggregates and their partial columns as plain JSON data.

    Arguments are named by the columns they read: expressions change their serialised form between versions of Polars.
    """
    partial_schema = partials.combine(_prepared(partials, schema)).schema
    return {
        "keys": {key: str(schema[key]) for key in partials.keys},
        "aggregates": {
            name: {
                "kind": aggregate.kind,
                "columns": sorted(
                    {
                        root
                        for expression in aggregate.inputs().values()
                        for root in expression.meta.root_names()
                        if root not in _ENGINE_SCHEMA
                    }
                ),
                "partials": {
                    column.removeprefix(f"__{name}."): str(dtype)
                    for column, dtype in partial_schema.items()
                    if column.startswith(f"__{name}.")
                },
            }
            for name, aggregate in partials.aggregates.items()
        },
    }


def _check_inputs(name: str, aggregate: Aggregate, schema: Mapping[str, pl.DataType]) -> None:
    frame = pl.DataFrame(schema={**schema, **_ENGINE_SCHEMA})
    for expression in aggregate.inputs().values():
        for root in expression.meta.root_names():
            if root not in frame.columns:
                msg = f"{name}={aggregate.kind}: no column {root!r}; there are {_names(schema)}"
                raise FlowError(msg)
        try:
            dtype = frame.select(expression.alias("value")).schema["value"]
        except pl.exceptions.PolarsError as error:
            msg = f"{name}={aggregate.kind}: {str(error).splitlines()[0]}; columns are {_typed(schema)}"
            raise FlowError(msg) from error
        accepts = getattr(aggregate, "accepts", "anything")
        if accepts == "numbers" and not (dtype.is_numeric() or dtype == pl.Boolean):
            roots = ", ".join(expression.meta.root_names())
            msg = (
                f"{name}={aggregate.kind} needs numbers, but {roots} is {dtype}; "
                "cast it, or choose count, min, max, first, last or approx_distinct"
            )
            raise FlowError(msg)
        if accepts == "flat" and dtype.is_nested():
            roots = ", ".join(expression.meta.root_names())
            msg = f"{name}={aggregate.kind} needs plain values, but {roots} is {dtype}; choose one of its fields"
            raise FlowError(msg)
        if accepts == "ordered" and dtype.is_nested():
            roots = ", ".join(expression.meta.root_names())
            msg = (
                f"{name}={aggregate.kind} needs values with an order, but {roots} is {dtype}; choose one of its fields"
            )
            raise FlowError(msg)


def _check_merging(partials: Partials, schema: Mapping[str, pl.DataType]) -> None:
    try:
        partial_rows = partials.combine(_prepared(partials, schema))
        merged = partials.merge([partial_rows])
        partials.finish(merged)
    except pl.exceptions.PolarsError as error:
        kinds = ", ".join(f"{name}={aggregate.kind}" for name, aggregate in partials.aggregates.items())
        msg = f"{kinds}: {str(error).splitlines()[0]}; columns are {_typed(schema)}"
        raise FlowError(msg) from error
    if merged.schema != partial_rows.schema:
        msg = (
            f"merge must return the columns and types of partial: partial gave {dict(partial_rows.schema)}, "
            f"merge {dict(merged.schema)}; cast where they differ"
        )
        raise FlowError(msg)


def _prepared(partials: Partials, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return partials.select_rows(empty_rows(schema), OperatorTime(batch=0), [])


def _names(schema: Mapping[str, pl.DataType]) -> str:
    return ", ".join(column for column in schema if column not in _ENGINE_SCHEMA) or "no columns"


def _typed(schema: Mapping[str, pl.DataType]) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in schema.items() if name not in _ENGINE_SCHEMA)
