"""Columns with their types, as flow files write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from anabranch.errors import FlowError
from anabranch.model.type_names import parse_type


def parse_schema(schema: Mapping[str, Any]) -> dict[str, pl.DataType]:
    """Return column → Polars type; raise ``FlowError`` with the column whose type is not understood."""
    return {str(column): _read_type(given, str(column)) for column, given in schema.items()}


def _read_type(given: Any, place: str) -> pl.DataType:
    """Return the type that a name, a mapping of fields (a struct) or a list of one type (a list) stands for."""
    if isinstance(given, Mapping) and given:
        return pl.Struct({str(name): _read_type(inner, f"{place}.{name}") for name, inner in given.items()})
    if isinstance(given, list) and len(given) == 1:
        return pl.List(_read_type(given[0], f"{place}[]"))
    if not isinstance(given, str):
        msg = f"column {place!r}: {given!r} is no type; give its name, such as Int64, or fields with their types"
        raise FlowError(msg)
    try:
        return parse_type(given)
    except FlowError as error:
        if given.count("(") > given.count(")"):
            quoted = "in YAML, quote what has a comma in it: 'Decimal(18, 2)'"
            msg = f"column {place!r}: the type is cut off: {given!r}; {quoted}"
            raise FlowError(msg) from error
        msg = f"column {place!r}: {error}"
        raise FlowError(msg) from error
