"""What every picture of a plan says, before it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from anabranch.errors import FlowError
from anabranch.eventtime.durations import describe_duration
from anabranch.model import AggregateSpec, JoinSpec, TopKSpec
from anabranch.operators import make_kernel
from anabranch.query.alignment import AlignedOperator, find_aligned
from anabranch.query.merging import describe_hold, why_not_held
from anabranch.query.nodes import FlowSource, Node, Output, Stateful, Watermark
from anabranch.query.plan import Parallelism, Plan, Subquery, find_growth
from anabranch.routing.bases.drawn import DrawnRoute
from anabranch.routing.keys import KeySample
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import decide_named

Kind = Literal["source", "stateless", "stateful", "sink"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The way of rows to one head, and what is known about it."""

    level: int
    head: int
    keys: tuple[str, ...]
    """Empty where a stateless operator is dealt its rows, under operator parallelism."""
    slots: int
    local_merge: bool
    event_time: str | None
    """In words; None where the operator keeps no event time."""
    until: str = ""
    """In words, until when readers hold merged rows back; empty where they do not."""
    reason: str = ""
    """Why its exchange is what it is."""
    not_held: str = ""
    """Why merged rows could not be held back, if that is so."""
    ahead: bool = False
    """Whether rows stay in the partition that they were read from: then there is no exchange."""
    near: bool = False
    """Whether rows of the right input also go to where keys near their own are."""
    shape: str = ""
    """What slots form where rows are dealt to them whatever their keys; empty where rows go by their keys."""

    @property
    def route(self) -> str:
        if self.ahead:
            return "no exchange, partitions are slots"
        if self.shape:
            return f"to a {self.shape}"
        if self.near:
            return f"by {', '.join(self.keys)}, right rows also to those near it"
        return f"by {', '.join(self.keys)}" if self.keys else "dealt out evenly"

    @property
    def merge(self) -> str:
        return f"local merge{self.until}" if self.local_merge else "no local merge"


@dataclass(frozen=True, slots=True)
class StrategyCost:
    """What one parallelism asks of the network for the same flow on as many instances."""

    parallelism: Parallelism
    hops: int
    slots: int
    fan_out: int

    @property
    def words(self) -> str:
        if not self.hops:
            return "no hops"
        return f"{_count(self.hops, 'hop')} × {_count(self.slots, 'slot')} = fan-out {self.fan_out}"


@dataclass(frozen=True, slots=True)
class Facts:
    """A plan as a person asks about it."""

    plan: Plan
    subqueries: tuple[Subquery, ...]
    exchanges: Mapping[int, Exchange]
    """By head."""
    costs: tuple[StrategyCost, ...]

    @property
    def instances(self) -> int:
        """How many instances all strategies share out, reading included."""
        return self.plan.subquery_slots * (self.plan.under("operator-set").hops + 1)

    def children_within(self, subquery: Subquery, node: int) -> list[int]:
        """Return what runs behind a node in the same task, each once."""
        members = set(subquery.members) - set(subquery.heads)
        return [child for child in dict.fromkeys(edge.node for edge in self.plan.edges[node]) if child in members]

    def subquery_of(self, head: int) -> Subquery:
        """Return the subquery that a head starts."""
        return next(subquery for subquery in self.subqueries if head in subquery.heads)

    def exchanges_behind(self, node: int) -> list[Exchange]:
        """Return the exchanges that a node sends rows into."""
        children = dict.fromkeys(edge.node for edge in self.plan.edges[node])
        return [self.exchanges[child] for child in children if child in self.exchanges]

    def sides_of(self, node: int, head: int) -> str:
        """Say which inputs of a join a node feeds; nothing of other operators."""
        operation = self.plan.nodes[head].operation
        if not isinstance(operation, Stateful) or not isinstance(operation.spec, JoinSpec):
            return ""
        sides = [("left", "right")[edge.input] for edge in self.plan.edges[node] if edge.node == head]
        return f"as the {' and the '.join(sides)} of the join"

    def remarks_on(self, node: int) -> list[str]:
        """Say what else is worth to be known of a node."""
        labels = {
            source.operation.index: source.label
            for source in self.plan.sources
            if isinstance(source.operation, FlowSource)
        }
        aligned = [
            _describe_alignment(operator, labels) for operator in find_aligned(self.plan) if operator.head == node
        ]
        return [*(growth for head, growth in find_growth(self.plan).items() if head == node), *aligned]

    @property
    def headline(self) -> str:
        """Count what the flow is made of."""
        plan = self.plan
        stateful = len(plan.stateful) + len(plan.merged_globally)
        stateless = len(plan.operators) - stateful
        return " · ".join(
            [
                _count(len(plan.sources), "source"),
                f"{_count(len(plan.operators), 'step')} ({stateful} stateful, {stateless} stateless)",
                _count(len(plan.outputs), "sink"),
                _count(len(self.subqueries), "subquery", "subqueries"),
            ]
        )

    @property
    def network(self) -> str:
        """Say what crosses the network: hops, and the fan-out of each and of all."""
        plan = self.plan
        if not plan.hops:
            return "no exchange: every row stays in the task that reads it"
        crossed = [slots for slots, heads in zip(plan.slots, plan.levels, strict=True) if not _is_ahead(plan, heads)]
        if not crossed:
            return "no exchange: the source's partitions are the slots"
        each = " + ".join(str(slots) for slots in crossed)
        total = f" = {sum(crossed)}" if len(crossed) > 1 else ""
        return f"{_count(len(crossed), 'exchange')} = {_count(len(crossed), 'hop')} · fan-out {each}{total}"


def gather_facts(plan: Plan) -> Facts:
    """Work out what the pictures show."""
    if not plan.sources:
        msg = f"flow {plan.flow!r} reads nothing, so there is nothing to explain; start it with flow.read(...)"
        raise FlowError(msg)
    exchanges = {
        head: _describe_exchange(plan, plan.nodes[head], level)
        for level, heads in enumerate(plan.levels, start=1)
        for head in heads
    }
    costs = []
    for parallelism in get_args(Parallelism):
        other = plan.under(parallelism)
        costs.append(StrategyCost(parallelism, other.hops, other.slots[0] if other.slots else 0, other.fan_out))
    return Facts(plan, plan.subqueries, exchanges, tuple(costs))


def kind_of(node: Node) -> Kind:
    """Return what a node is drawn as."""
    if isinstance(node.operation, FlowSource):
        return "source"
    if isinstance(node.operation, Output):
        return "sink"
    return "stateful" if node.stateful else "stateless"


def name_of(subquery: Subquery, plan: Plan) -> str:
    """Return a subquery's number: its level, with a letter where the level has several."""
    siblings = plan.levels[subquery.level - 1] if subquery.level else ()
    letter = chr(ord("a") + siblings.index(subquery.heads[0]) % 26) if len(siblings) > 1 else ""
    return f"{subquery.level}{letter}"


def title_of(subquery: Subquery, plan: Plan) -> str:
    """Return how a subquery is called, with its parallel instances."""
    instances = "one task a split"
    if subquery.level:
        ahead = _is_ahead(plan, subquery.heads)
        instances = "one slot a partition" if ahead else _count(plan.slots[subquery.level - 1], "slot")
    return f"subquery {name_of(subquery, plan)} · {instances}"


def _describe_exchange(plan: Plan, head: Node, level: int) -> Exchange:
    slots = plan.slots[level - 1]
    if not isinstance(head.operation, Stateful):
        return Exchange(level, head.id, (), slots, local_merge=False, event_time=None)
    spec = head.operation.spec
    decision = plan.exchanges[head.id]
    merges = make_kernel(spec).mergeable and decision.kind != "routed"
    until = describe_hold(head.operation.routing.exchange.hold)
    ahead = decision.kind == "ahead"
    event_time = _describe_time(plan, head)
    # Of operators that have nothing to wait for, nobody would ask.
    may_ask = decision.kind == "local" and isinstance(spec, AggregateSpec)
    not_held = (why_not_held(spec) or "") if may_ask else ""
    known = (1 if ahead else slots, merges, event_time, until, decision.reason, not_held, ahead)
    shape = _find_shape(head.operation, slots) if isinstance(spec, JoinSpec) and spec.draws else ""
    near = isinstance(spec, JoinSpec) and spec.near
    return Exchange(level, head.id, spec.keys, *known, near, shape)


def _find_shape(operation: Stateful, slots: int) -> str:
    """Return what slots form at first, by a strategy that places rows."""
    no_keys = KeySample(np.empty(0, np.uint64), np.empty(0))
    base = decide_named(operation.routing, no_keys, Routes.even(slots), np.random.default_rng(0)).base
    assert isinstance(base, DrawnRoute)
    return base.label


def _is_ahead(plan: Plan, heads: tuple[int, ...]) -> bool:
    return all(head in plan.exchanges and plan.exchanges[head].kind == "ahead" for head in heads)


def _describe_time(plan: Plan, head: Node) -> str | None:
    assert isinstance(head.operation, Stateful)
    spec = head.operation.spec
    counts_rows = isinstance(spec, AggregateSpec | TopKSpec) and spec.count_window is not None
    if spec.time_column is None or counts_rows:
        return None
    followed = [plan.nodes[node].operation for node in plan.watermarks[head.id]]
    delays = [f"{w.column} less {describe_duration(w.delay_us)}" for w in followed if isinstance(w, Watermark)]
    text = delays[0] if len(delays) == 1 else f"the smallest of {', '.join(delays)}"
    if isinstance(spec, JoinSpec) and spec.follows_own_time:
        return f"each key follows its own time: {text}"
    windowed = isinstance(spec, AggregateSpec | TopKSpec) and spec.window is not None
    behind = ", behind windows that fire in the same batch" if head.id in plan.lagging else ""
    return f"{'fires at' if windowed else 'follows'} the watermark: {text}{behind}"


def _describe_alignment(operator: AlignedOperator, labels: Mapping[int, str]) -> str:
    length = describe_duration(operator.align_us)
    sides = [", ".join(labels[source] for source in sorted(one.own_sources)) for one in operator.inputs]
    if not any(sides):
        return f"align {length}: both inputs come from the same source, so nothing is held back"
    shared = frozenset[int].intersection(*(one.sources for one in operator.inputs))
    free = f"; {', '.join(labels[source] for source in sorted(shared))} feeds both, and never waits" if shared else ""
    who = " and ".join(side for side in sides if side)
    return f"align {length}: of {who}, what is further ahead is held back{free}"


def _count(number: int, word: str, plural: str | None = None) -> str:
    return f"{number} {word if number == 1 else plural or word + 's'}"
