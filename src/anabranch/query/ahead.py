"""When *auto* is Ahead KeyBy: the source says that its partitions were written by the keys of operators behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from anabranch.model.balance import AUTO
from anabranch.model.exchanges import ExchangeDecision
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


def choose_ahead(nodes: Mapping[int, Node], decided: Mapping[int, ExchangeDecision]) -> dict[int, ExchangeDecision]:
    """Return the stateful nodes that need no exchange, although nobody asked for that; all of the first, or none.

    A partitioner that anybody can compute is trusted only, because every row can be checked against it, and only where
    nothing between the source and the operator can have changed the keys.
    """
    first = [node for node in nodes.values() if node.stateful and not _stateful_above(nodes, node)]
    if not first or not all(_can_be_ahead(nodes, node, decided[node.id]) for node in first):
        return {}
    partitioner = _partitioners_above(nodes, first[0])[0]
    reason = f"the source is partitioned by its keys: {partitioner!r}"
    return {node.id: ExchangeDecision("ahead", reason) for node in first if decided[node.id].kind != "ahead"}


def _can_be_ahead(nodes: Mapping[int, Node], node: Node, decision: ExchangeDecision) -> bool:
    if decision.kind == "ahead":
        return True
    operation = node.operation
    assert isinstance(operation, Stateful)
    told = operation.routing.exchange
    if (
        told.choice != "auto"
        or told.hold is not None
        or decision.kind == "global"
        or operation.routing.strategy != AUTO
    ):
        return False
    partitioners = _partitioners_above(nodes, node)
    keys = operation.spec.keys
    same = len({repr(partitioner) for partitioner in partitioners}) == 1
    return (
        same
        and all(
            partitioner is not None and partitioner.keys and partitioner.finds(keys) for partitioner in partitioners
        )
        and all(_keeps(above, tuple(partitioners[0].keys)) for above in _above(nodes, node))
    )


def _partitioners_above(nodes: Mapping[int, Node], node: Node) -> list[Any]:
    sources = [above.operation for above in _above(nodes, node) if isinstance(above.operation, FlowSource)]
    return [getattr(source.source, "partitioned_by", None) for source in sources]


def _stateful_above(nodes: Mapping[int, Node], node: Node) -> bool:
    return any(above.stateful for above in _above(nodes, node))


def _above(nodes: Mapping[int, Node], node: Node) -> list[Node]:
    """Return every node that rows come through on their way to this one."""
    found: dict[int, Node] = {}
    pending = list(node.inputs)
    while pending:
        current = pending.pop()
        if current not in found:
            found[current] = nodes[current]
            pending += nodes[current].inputs
    return list(found.values())


def _keeps(node: Node, keys: tuple[str, ...]) -> bool:
    """Say whether a node surely leaves the keys of every row as they are."""
    match node.operation:
        case FlowSource() | Filter() | Union() | Watermark() | LateRows():
            return True
        case Select(columns, named):
            kept = [column for column in columns if isinstance(column, str)]
            return all(key in kept and key not in named for key in keys) and not _names(columns, keys)
        case WithColumns(columns, named):
            return not _names(columns, keys) and not any(key in named for key in keys)
    return False


def _names(columns: Iterable[Expression], keys: tuple[str, ...]) -> bool:
    """Say whether an expression may make a column of a key's name; SQL and patterns may make any."""
    for column in columns:
        if isinstance(column, str):
            if not column.isidentifier():
                return True
            continue
        try:
            name = column.meta.output_name()
        except pl.exceptions.PolarsError:
            return True
        if name in keys:
            return True
    return False
