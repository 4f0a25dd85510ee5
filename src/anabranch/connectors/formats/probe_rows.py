"""A row of ordinary values, to see before the first batch whether rows of these types can be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl


def make_probe(schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return one row with a plain value in every column, and in every list and struct."""
    return pl.DataFrame([_probe(kind).alias(column) for column, kind in schema.items()])


def _probe(kind: pl.DataType) -> pl.Series:
    if isinstance(kind, pl.List | pl.Array):
        items = pl.concat([_probe(kind.inner)] * (kind.size if isinstance(kind, pl.Array) else 1))  # type: ignore[arg-type]
        return items.implode().cast(kind)
    if isinstance(kind, pl.Struct):
        return pl.DataFrame([_probe(field.dtype).alias(field.name) for field in kind.fields]).to_struct()  # type: ignore[arg-type]
    return pl.Series([_plain_value(kind)]).cast(kind)


def _plain_value(kind: pl.DataType) -> Any:
    if isinstance(kind, pl.Enum):
        return kind.categories[0] if len(kind.categories) else None
    if isinstance(kind, pl.String | pl.Categorical):
        return "a"
    if isinstance(kind, pl.Binary):
        return b"a"
    if isinstance(kind, pl.Boolean):
        return True
    if kind.is_float():
        return 0.5
    return None if isinstance(kind, pl.Null) else 0
