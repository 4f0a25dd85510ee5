"""Cut a flow at its stateful operators into subqueries that run in parallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from anabranch.errors import FlowError
from anabranch.model import AggregateSpec, JoinSpec, OrderSpec, TopKSpec
from anabranch.model.exchanges import ExchangeDecision
from anabranch.model.loads import LoadError
from anabranch.query.ahead import choose_ahead
from anabranch.query.merging import decide_exchanges
from anabranch.query.nodes import FlowSource, LateRows, Node, Output, Stateful, Union, Watermark

if TYPE_CHECKING:
    from anabranch.query.graph import FlowGraph

Parallelism = Literal["operator-set", "operator", "query"]
PARALLELISMS: tuple[str, ...] = get_args(Parallelism)

DEFAULT_SLOTS = 8
"""What a plan is explained with when nobody says how many slots there are."""


@dataclass(frozen=True, slots=True)
class Subquery:
    """What one task runs: its first nodes (*heads*) and everything stateless behind them.

    The subquery of level 0 has the sources as its heads, a later one has a single head. A node that a union feeds is
    a member of every subquery that it gets rows from: each runs it on rows of its own.
    """

    level: int
    heads: tuple[int, ...]
    members: tuple[int, ...]


class Edge(NamedTuple):
    """Where rows of a node go: to one of the inputs of another."""

    node: int
    input: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a flow runs: which nodes start a subquery, on which level, on how many slots.

    Level 0 reads the sources. Each later level is one exchange: its subqueries' first nodes (*heads*) get their rows
    through it, and everything stateless behind a head runs in the same task. Reading is level 0 even where a stateful
    operator comes first, so hops are never one fewer than the stateful operators in a row.
    """

    flow: str
    parallelism: Parallelism
    nodes: Mapping[int, Node]
    edges: Mapping[int, tuple[Edge, ...]]
    """Node → where its rows go."""
    levels: tuple[tuple[int, ...], ...]
    """Heads of level 1, 2, …"""
    slots: tuple[int, ...]
    """Slots of level 1, 2, …"""
    watermarks: Mapping[int, tuple[int, ...]]
    """Stateful node → the watermark nodes that its time follows: the smallest of them counts."""
    lagging: frozenset[int]
    """Stateful nodes that are fed by windows which fire in the same batch."""
    subquery_slots: int
    """What each subquery gets under *operator-set*: the same total is shared out under the other strategies."""
    exchanges: Mapping[int, ExchangeDecision] = field(default_factory=dict)
    """Stateful node → how its rows come together, and why."""

    @property
    def hops(self) -> int:
        return len(self.levels)

    @property
    def fan_out(self) -> int:
        """The number of targets that a row's sender has, added up over the hops."""
        return sum(self.slots)

    @property
    def sources(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if isinstance(node.operation, FlowSource))

    @property
    def stateful(self) -> tuple[Node, ...]:
        """The stateful nodes that have slots."""
        return tuple(node for node in self.nodes.values() if node.stateful and not self.is_global(node.id))

    @property
    def merged_globally(self) -> tuple[Node, ...]:
        """The stateful nodes without an exchange whose partial results meet in a store."""
        return tuple(node for node in self.nodes.values() if self.is_global(node.id))

    def is_global(self, node: int) -> bool:
        """Say whether a node's partial results meet in a store: then it has no slots and is on no level."""
        return node in self.exchanges and self.exchanges[node].kind == "global"

    @property
    def operators(self) -> tuple[Node, ...]:
        """The processors that compute or move something: all but sources, outputs, unions and watermarks."""
        return tuple(node for node in self.nodes.values() if is_operator(node))

    @property
    def outputs(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if isinstance(node.operation, Output))

    @property
    def subqueries(self) -> tuple[Subquery, ...]:
        """The subqueries, by level; the first reads the sources."""
        sources = tuple(node.id for node in self.sources)
        found = [Subquery(0, sources, self._members(sources))]
        for level, heads in enumerate(self.levels, start=1):
            found += [Subquery(level, (head,), self._members((head,))) for head in heads]
        return tuple(found)

    @property
    def sources_behind(self) -> dict[int, frozenset[int]]:
        """Node → the sources whose rows may get there, by number."""
        found: dict[int, frozenset[int]] = {}
        for node in self.nodes.values():  # ids rise along the edges
            own = frozenset({node.operation.index}) if isinstance(node.operation, FlowSource) else frozenset[int]()
            found[node.id] = own.union(*(found[before] for before in node.inputs))
        return found

    def watermarks_behind(self, node: int) -> tuple[int, ...]:
        """Return the nearest watermarks that the rows of a node have passed, or itself if it is one."""
        return tuple(sorted(_followed(self.nodes, (node,))[0]))

    def level_of(self, head: int) -> int:
        """Return the level (1 …) whose exchange feeds this head, or 0 if the node is no head."""
        for number, heads in enumerate(self.levels, start=1):
            if head in heads:
                return number
        return 0

    def renumbered(self, sources: Sequence[int], sinks: Sequence[int]) -> Plan:
        """Return the plan with the flow's sources and sinks, in their order, under the numbers of a checkpoint."""
        nodes = {}
        for id, node in self.nodes.items():
            operation = node.operation
            if isinstance(operation, FlowSource):
                operation = replace(operation, index=sources[operation.index])
            elif isinstance(operation, Output):
                operation = replace(operation, index=sinks[operation.index])
            nodes[id] = replace(node, operation=operation)
        return replace(self, nodes=nodes)

    def under(self, parallelism: Parallelism) -> Plan:
        """Return the plan of the same flow on as many instances under another parallelism."""
        return _plan(self.flow, self.nodes, self.subquery_slots, parallelism)

    def _members(self, heads: tuple[int, ...]) -> tuple[int, ...]:
        every_head = {head for level in self.levels for head in level}
        members = set(heads)
        for node in self.nodes.values():  # ids rise along the edges
            if node.id not in every_head and members.intersection(node.inputs):
                members.add(node.id)
        return tuple(sorted(members))


def name_of(plan: Plan, head: int) -> str:
    """Return the name of a stateful node, which is stable between starts; empty for others."""
    operation = plan.nodes[head].operation
    return operation.name if isinstance(operation, Stateful) else ""


def make_plan(graph: FlowGraph, slots: int, parallelism: Parallelism = "operator-set") -> Plan:
    """Return the plan of a flow.

    ``slots`` is what each level gets under *operator-set*, reading included. The other strategies share out the same
    total: *operator* gives every operator its own level and a part of it, *query* lets every instance run the whole
    query, so that each exchange has the total as its fan-out.
    """
    if parallelism not in PARALLELISMS:
        msg = f"unknown parallelism {parallelism!r}; there are {', '.join(PARALLELISMS)}"
        raise FlowError(msg)
    if slots < 1:
        msg = f"a flow needs at least one slot, got {slots}; give slots=1 or more"
        raise FlowError(msg)
    return _plan(graph.name, _without_unused_orders(graph.nodes), slots, parallelism)


def told_slots(graph: FlowGraph) -> int | None:
    """Return for how many slots the flow gives weights or powers; None if it gives none."""
    routings = [node.operation.routing for node in graph.nodes.values() if isinstance(node.operation, Stateful)]
    return max((len(routing.told_powers) for routing in routings if routing.told_powers is not None), default=None)


def check_powers(plan: Plan) -> None:
    """Raise ``FlowError`` unless operators that give weights or powers give one a slot."""
    for node in plan.stateful:
        operation, slots = node.operation, plan.slots[plan.level_of(node.id) - 1]
        assert isinstance(operation, Stateful)
        if plan.exchanges[node.id].kind == "ahead":
            continue
        try:
            operation.routing.check_slots(slots)
        except LoadError as error:
            msg = f"{operation.name}: {error}, or run the flow with slots={len(operation.routing.told_powers or ())}"
            raise FlowError(msg) from error


def find_growth(plan: Plan) -> dict[int, str]:
    """Return what is to be said of operators whose state grows for ever, by node."""
    return {
        node.id: "state grows for ever, as no within, window or ttl says when a row may go"
        for node in plan.stateful
        if isinstance(node.operation, Stateful)
        and isinstance(node.operation.spec, JoinSpec)
        and node.operation.spec.grows_for_ever
    }


def is_operator(node: Node) -> bool:
    """Say whether a node counts as an operator of the flow.

    Springs and outputs are where rows enter and leave; unions and watermarks move nothing and compute nothing.
    """
    return not isinstance(node.operation, FlowSource | Output | Union | Watermark | LateRows)


def _plan(flow: str, nodes: Mapping[int, Node], slots: int, parallelism: Parallelism) -> Plan:
    exchanges = decide_exchanges(nodes)
    if parallelism == "operator-set":
        exchanges |= choose_ahead(nodes, exchanges)
    heads = _heads(nodes, exchanges, parallelism)
    levels = _levels(nodes, heads)
    edges = {
        node: tuple(
            Edge(child.id, number)
            for child in nodes.values()
            for number, source in enumerate(child.inputs)
            if source == node
        )
        for node in nodes
    }
    followed = {node.id: _followed(nodes, node.inputs) for node in nodes.values() if node.stateful}
    # Subqueries of one level share its slots, so the total grows with the levels, not with the stateful operators.
    total = slots * (len(_levels(nodes, _heads(nodes, exchanges, "operator-set"))) + 1)
    return Plan(
        flow=flow,
        parallelism=parallelism,
        nodes=dict(nodes),
        edges=edges,
        levels=levels,
        slots=(_level_slots(slots, total, parallelism, len(levels)),) * len(levels),
        watermarks={node: tuple(sorted(watermarks)) for node, (watermarks, _) in followed.items()},
        lagging=frozenset(node for node, (_, lagging) in followed.items() if lagging),
        subquery_slots=slots,
        exchanges=exchanges,
    )


def _without_unused_orders(nodes: Mapping[int, Node]) -> dict[int, Node]:
    """Return the nodes without ``ordered()`` steps that nothing is behind: a processor does the ordering itself."""
    used = {source for node in nodes.values() for source in node.inputs}
    return {node.id: node for node in nodes.values() if node.id in used or not _only_orders(node)}


def _only_orders(node: Node) -> bool:
    return isinstance(node.operation, Stateful) and isinstance(node.operation.spec, OrderSpec)


def _levels(nodes: Mapping[int, Node], heads: set[int]) -> tuple[tuple[int, ...], ...]:
    depth = _depths(nodes, heads)
    count = max((depth[head] for head in heads), default=0)
    return tuple(tuple(sorted(head for head in heads if depth[head] == level)) for level in range(1, count + 1))


def _heads(nodes: Mapping[int, Node], exchanges: Mapping[int, ExchangeDecision], parallelism: Parallelism) -> set[int]:
    """Return the nodes that get their rows through an exchange: the stateful ones, or every operator behind another.

    A leading stateless operator runs where its source is read: reading is no operator, so nothing lies between them.
    """
    heads: set[int] = set()
    behind_operator: set[int] = set()
    for node in nodes.values():  # ids rise along the edges
        behind = bool(behind_operator.intersection(node.inputs))
        if node.stateful and exchanges[node.id].kind == "global":
            # It runs where its rows are read, under every parallelism.
            continue
        if node.stateful or (parallelism == "operator" and behind and is_operator(node)):
            heads.add(node.id)
        if behind or is_operator(node):
            behind_operator.add(node.id)
    return heads


def _depths(nodes: Mapping[int, Node], heads: set[int]) -> dict[int, int]:
    depth: dict[int, int] = {}
    for node in nodes.values():  # ids rise along the edges
        depth[node.id] = max((depth[source] for source in node.inputs), default=0) + (node.id in heads)
    return depth


def _level_slots(slots: int, total: int, parallelism: Parallelism, levels: int) -> int:
    if parallelism == "operator":
        return max(1, total // (levels + 1))
    return total if parallelism == "query" else slots


def _followed(nodes: Mapping[int, Node], inputs: tuple[int, ...]) -> tuple[set[int], bool]:
    """Return the nearest watermarks from these inputs on upwards, and whether windows lie between."""
    found: set[int] = set()
    lagging = False
    pending = [(source, False) for source in inputs]
    while pending:
        current, behind_window = pending.pop()
        operation = nodes[current].operation
        if isinstance(operation, Watermark):
            found.add(current)
            lagging |= behind_window
            continue
        if isinstance(operation, Stateful) and isinstance(operation.spec, AggregateSpec | TopKSpec):
            behind_window |= operation.spec.window is not None
        elif isinstance(operation, Stateful) and isinstance(operation.spec, JoinSpec):
            # Rows that met nobody go on when the watermark says that nobody will come.
            behind_window = True
        elif _only_orders(nodes[current]):
            # Rows that waited go on when the watermark has passed them, as results of windows do.
            behind_window = True
        pending += [(source, behind_window) for source in nodes[current].inputs]
    return found, lagging
