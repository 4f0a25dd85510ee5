"""Which columns of its sources a flow cannot do without: those that keys and event times are taken from."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from anabranch.model import JoinSpec
from anabranch.query.lookups import Lookup
from anabranch.query.nodes import (
    Expression,
    Filter,
    FlowSource,
    LateRows,
    Node,
    Select,
    Stateful,
    Union,
    Watermark,
    WithColumns,
)

_Origins = Mapping[str, frozenset[tuple[int, str]]]
"""Column → the (source, column) pairs that it is, unchanged."""


def required_columns(nodes: Mapping[int, Node]) -> dict[int, tuple[str, ...]]:
    """Return source → the columns of it that are keys or event times as they are, not made from others."""
    origins: dict[int, _Origins] = {}
    found: set[tuple[int, str]] = set()
    for node in nodes.values():
        before = _merge([origins[parent] for parent in node.inputs])
        operation = node.operation
        if isinstance(operation, Watermark):
            found |= before.get(operation.column, frozenset())
        elif isinstance(operation, Stateful) and isinstance(operation.spec, JoinSpec):
            for parent, source in zip(node.inputs, operation.spec.inputs, strict=True):
                found |= {origin for key in source.keys for origin in origins[parent].get(key, ())}
        elif isinstance(operation, Stateful):
            found |= {origin for key in operation.spec.keys for origin in before.get(key, ())}
        origins[node.id] = _after(node, before)
    return {
        source: tuple(sorted(column for index, column in found if index == source))
        for source in sorted({index for index, _ in found})
    }


def _after(node: Node, before: _Origins) -> _Origins:
    match node.operation:
        case FlowSource(index=index):
            return {column: frozenset({(index, column)}) for column in node.schema}
        case Filter() | Union() | Watermark() | LateRows() | Lookup():
            return before
        case Select(positional=positional, named=named):
            return _renamed(positional, named, before)
        case WithColumns(positional=positional, named=named):
            replaced = {_output_name(item) for item in positional} | set(named)
            kept = {column: origin for column, origin in before.items() if column not in replaced}
            return {**kept, **_renamed(positional, named, before)}
    return {}


def _renamed(positional: tuple[Expression, ...], named: Mapping[str, Expression], before: _Origins) -> _Origins:
    made = [(_output_name(item), item) for item in positional] + list(named.items())
    pairs = [(name, before.get(_plain_column(item) or "")) for name, item in made if name is not None]
    return {name: origin for name, origin in pairs if origin is not None}


def _output_name(item: Expression) -> str | None:
    return _as_expression(item).meta.output_name(raise_if_undetermined=False)


def _plain_column(item: Expression) -> str | None:
    """Return the column that an expression only names, if it does no more."""
    bare = _as_expression(item).meta.undo_aliases()
    return bare.meta.output_name() if bare.meta.is_column() else None


def _as_expression(item: Expression) -> pl.Expr:
    if isinstance(item, pl.Expr):
        return item
    try:
        return pl.sql_expr(item)
    except pl.exceptions.PolarsError:
        # A name that is no SQL, such as one with a blank, is a name.
        return pl.col(item)


def _merge(parents: list[_Origins]) -> _Origins:
    merged: dict[str, frozenset[tuple[int, str]]] = {}
    for origins in parents:
        for column, origin in origins.items():
            merged[column] = merged.get(column, frozenset()) | origin
    return merged
