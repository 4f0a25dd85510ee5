"""Types inside of types: what lists, arrays and structs are made of."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl


def holds(kind: pl.DataType, *wanted: type[pl.DataType]) -> bool:
    """Say whether a type is one of these, or has one of them inside."""
    if isinstance(kind, pl.List | pl.Array):
        return holds(kind.inner, *wanted)  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return any(holds(field.dtype, *wanted) for field in kind.fields)  # type: ignore[arg-type]
    return isinstance(kind, wanted)


def with_leaves(kind: pl.DataType, change: Callable[[pl.DataType], pl.DataType]) -> pl.DataType:
    """Return a type with the types inside of its lists and structs changed."""
    if isinstance(kind, pl.List):
        return pl.List(with_leaves(kind.inner, change))  # type: ignore[arg-type]
    if isinstance(kind, pl.Array):
        return pl.Array(with_leaves(kind.inner, change), kind.size)  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: with_leaves(field.dtype, change) for field in kind.fields})  # type: ignore[arg-type]
    return change(kind)


def has_empty_struct(kind: pl.DataType) -> bool:
    """Say whether a type is a struct without fields, or has one inside."""
    if isinstance(kind, pl.List | pl.Array):
        return has_empty_struct(kind.inner)  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return not kind.fields or any(has_empty_struct(field.dtype) for field in kind.fields)  # type: ignore[arg-type]
    return False
