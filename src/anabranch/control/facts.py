"""What a flow says of its stateful operators, before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from anabranch.model import JoinSpec, KeepsState, splits_keys, spreads_any_key
from anabranch.model.balance import AUTO, Routing
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan
from anabranch.routing.phases import End, JoinEnd, end_of


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """What a flow says of one of its stateful operators."""

    head: int
    name: str
    routing: Routing
    slots: int
    """As planned; an operator whose routes have others can be brought to them."""
    end: End | None
    """What ends by itself, so that a change of routes may wait for it."""
    splittable: bool
    """Whether slots may share a key."""
    spreadable: bool
    """Whether a strategy may spread any key over slots."""
    key_types: Mapping[str, pl.DataType]
    is_ahead: bool = False
    """Whether a source's partitions are its slots: then whoever wrote them has said where keys go."""
    join: JoinSpec | None = None
    """What it joins, if it does."""
    level: int = 1


def find_end(plan: Plan, head: int) -> End | None:
    """Return what a change of an operator's routes may wait for.

    Results of other operators may be ahead of all times that were seen, and only windows can tell.
    """
    operation = plan.nodes[head].operation
    assert isinstance(operation, Stateful)
    end = end_of(operation.spec)
    return None if isinstance(end, JoinEnd) and plan.level_of(head) > 1 else end


def find_operators(plan: Plan, kernels: Mapping[int, KeepsState]) -> tuple[OperatorFacts, ...]:
    """Return what is known of a flow's operators that have slots."""
    found = []
    for node in plan.stateful:
        operation = node.operation
        assert isinstance(operation, Stateful)
        is_ahead = plan.exchanges[node.id].kind == "ahead"
        schema = plan.nodes[node.inputs[0]].schema
        untold: dict[str, Any] = {"strategy": AUTO, "balance": None, "options": {}, "powers": None}
        found.append(
            OperatorFacts(
                head=node.id,
                name=operation.name,
                routing=replace(operation.routing, **untold) if is_ahead else operation.routing,
                slots=plan.slots[plan.level_of(node.id) - 1],
                end=find_end(plan, node.id),
                splittable=splits_keys(kernels[node.id]),
                spreadable=spreads_any_key(kernels[node.id]),
                key_types={key: schema[key] for key in operation.spec.keys},
                is_ahead=is_ahead,
                join=operation.spec if isinstance(operation.spec, JoinSpec) else None,
                level=plan.level_of(node.id),
            )
        )
    return tuple(found)
