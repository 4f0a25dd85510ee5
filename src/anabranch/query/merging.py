"""What ``key_by`` is told about merging and exchanges, checked and brought into one form; and what *auto* comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import polars as pl

from anabranch.errors import FlowError
from anabranch.eventtime import pane_us, parse_duration
from anabranch.eventtime.durations import describe_duration
from anabranch.model import AggregateSpec, JoinKernel, Kernel, OperatorSpec, RouteError, Sink
from anabranch.model.balance import AUTO, Balance, NamedStrategy, Routing
from anabranch.model.exchanges import EXCHANGES, ExchangeChoice, ExchangeDecision, ExchangeSpec, HoldSpec
from anabranch.model.renamed import renamed_fields, tell_renamed
from anabranch.operators.kernels import make_kernel
from anabranch.query.event_times import Duration
from anabranch.query.nodes import Node, Output, Stateful, describe
from anabranch.routing.strategies.by_name import check_named, strategy_names

_MOST_SLICES_NAMED = 4


@renamed_fields(slot="slice")
@dataclass(frozen=True, slots=True)
class LocalMerge:
    """When readers send what they merged: after a delay, after so many rows, or at a point.

    Any condition that is given is enough; with none, what a batch merged is sent in the same batch. Whatever is said,
    rows are sent in the batch in which a window that holds them fires, so results do not depend on it.

    Examples:
        >>> held = readings.watermark("ts").key_by("sensor", merge=ab.LocalMerge(at="window", count=10_000))
        >>> collect(held.window("10s").agg(rows=ab.count()).select("sensor", "rows"))
        [(1, 1), (1, 2), (2, 1)]
    """

    slice: Duration | None = None
    """Rows are merged per key and slice of time; by default the longest that windows are made of."""
    delay: Duration | None = None
    """By the wall clock, from when the oldest row that a reader holds was read."""
    count: int | None = None
    """Rows that were read into what one reader holds."""
    at: Literal["window"] | pl.Expr | str | None = None
    """*window*: no earlier than a window ends. An expression, Polars or SQL, over keys, ``window_start``,
    ``window_end`` and the values so far: as soon as it is true of a merged row."""

    @property
    def slot(self) -> Duration | None:
        # The name of before, for a version.
        tell_renamed("LocalMerge.slot", "slice")
        return self.slice


@runtime_checkable
class PartialSink(Sink, Protocol):
    """A sink that takes partial results of an operator and merges them itself."""

    def bound(self, operator: str, keys: tuple[str, ...], kernel: Kernel, windowed: bool) -> Sink:
        """Return the sink of one operator."""
        ...


def make_routing(
    routing: object, balance: object, exchange: ExchangeChoice, merge: LocalMerge | None, step: str = "key_by"
) -> Routing:
    """Return what a step was told about where keys go, or raise ``FlowError`` that names the alternatives."""
    if not isinstance(routing, str | NamedStrategy):
        msg = f"{step}: routing is {routing!r}; give a name, or ab.NamedStrategy(name, …)"
        raise FlowError(msg)
    named = NamedStrategy(routing) if isinstance(routing, str) else routing
    if not (balance is None or isinstance(balance, Balance)):
        msg = f"{step}: balance is {balance!r}; give ab.Balance(…), or None to leave keys where they are"
        raise FlowError(msg)
    names = strategy_names(for_joins=step != "key_by")
    if named.name != AUTO and named.name not in names:
        wrong = f"unknown routing {named.name!r}"
        if named.name in strategy_names(for_joins=True):
            wrong = f"routing {named.name!r} places rows, not keys, which is for joins only"
        msg = f"{step}: {wrong}; there are {AUTO}, {', '.join(names)}"
        raise FlowError(msg)
    try:
        check_named(named)
    except RouteError as error:
        msg = f"{step}: {error}"
        raise FlowError(msg) from error
    return Routing(named.name, balance, _make_exchange(exchange, merge), named.options, named.powers)


def _make_exchange(exchange: ExchangeChoice, merge: LocalMerge | None) -> ExchangeSpec:
    """Return what ``key_by`` was told, or raise ``FlowError`` if it contradicts itself."""
    if exchange not in EXCHANGES:
        msg = f"key_by: unknown exchange {exchange!r}; there are {', '.join(EXCHANGES)}"
        raise FlowError(msg)
    if merge is None:
        return ExchangeSpec(exchange)
    if exchange in ("routed", "ahead"):
        msg = f'key_by: exchange="{exchange}" merges nothing, so merge= says nothing; leave it out, or say "local"'
        raise FlowError(msg)
    delay_us = None if merge.delay is None else parse_duration(merge.delay, "merge's delay")
    slice_us = None if merge.slice is None else parse_duration(merge.slice, "merge's slice")
    if merge.count is not None and (isinstance(merge.count, bool) or merge.count < 1):
        msg = f"LocalMerge: count is a number of rows, at least 1, got {merge.count!r}"
        raise FlowError(msg)
    at_point = isinstance(merge.at, pl.Expr) or merge.at not in (None, "window")
    predicate = _read_point(merge.at) if at_point else None
    holds = delay_us is not None or merge.count is not None or merge.at is not None
    hold = HoldSpec(delay_us, merge.count, predicate) if holds else None
    return ExchangeSpec(exchange, hold, slice_us)


def _read_point(at: pl.Expr | str | None) -> pl.Expr:
    if isinstance(at, pl.Expr):
        return at
    try:
        return pl.sql_expr(str(at))
    except pl.exceptions.PolarsError as error:
        msg = f'LocalMerge: at={at!r} is no point: say at="window", or an expression such as "readings >= 100"; {error}'
        raise FlowError(msg) from error


def fit_exchange(name: str, spec: OperatorSpec, exchange: ExchangeSpec) -> OperatorSpec:
    """Return the operator as its exchange wants it, or raise ``FlowError`` with the reason why it cannot be."""
    if exchange.slice_us is not None:
        spec = _with_slices(name, spec, exchange.slice_us)
    if exchange.choice in ("local", "global") and not make_kernel(spec).mergeable:
        msg = f'{name}: exchange="{exchange.choice}" merges rows of a key before they meet, and {_why_not(spec)}'
        raise FlowError(msg)
    if exchange.hold is not None or exchange.choice == "global":
        to_store = exchange.choice == "global"
        reason = _why_not_stored(spec) if to_store else why_not_held(spec)
        if reason is not None:
            what = "Global Merge" if to_store else "a merge that holds rows back"
            msg = f"{name}: {what} cannot be had here: {reason}; leave it out"
            raise FlowError(msg)
    return spec


def check_predicate(name: str, exchange: ExchangeSpec, schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` unless the point at which merged rows are sent can be told from their columns."""
    if exchange.hold is None or exchange.hold.predicate is None:
        return
    try:
        answer = pl.DataFrame(schema=dict(schema)).select(exchange.hold.predicate).to_series()
    except pl.exceptions.PolarsError as error:
        msg = f"{name}: LocalMerge(at=…): {str(error).splitlines()[0]}; a merged row has {', '.join(schema)}"
        raise FlowError(msg) from error
    if answer.dtype != pl.Boolean:
        msg = f"{name}: LocalMerge(at=…) is {answer.dtype}, not true or false; compare it with something"
        raise FlowError(msg)


def bind_sink(sink: Sink, node: Node) -> Sink:
    """Return the sink as a stream's end gets it, or raise ``FlowError`` if partial results would go astray."""
    operation = node.operation
    choice = operation.routing.exchange.choice if isinstance(operation, Stateful) else None
    if not isinstance(sink, PartialSink):
        if choice == "global":
            msg = f'{node.label}: exchange="global" has its results in a store only: .write(ab.global_store(…))'
            raise FlowError(msg)
        return sink
    if not isinstance(operation, Stateful) or choice not in ("auto", "global"):
        msg = (
            f"{sink.label} merges partial results itself, so it comes right behind the agg() of a key_by(…, "
            f'exchange="global"); behind {node.label}, write to a sink for finished results'
        )
        raise FlowError(msg)
    spec = operation.spec
    reason = _why_not_stored(spec)
    if reason is not None:
        msg = f"{node.label}: Global Merge cannot be had here: {reason}; write to another sink"
        raise FlowError(msg)
    windowed = isinstance(spec, AggregateSpec) and spec.window is not None
    kernel = make_kernel(spec)
    assert not isinstance(kernel, JoinKernel), "nothing of a join is merged"
    return sink.bound(operation.name, spec.keys, kernel, windowed)


def describe_hold(hold: HoldSpec | None) -> str:
    """Return in words until when merged rows are held back, as the end of a phrase; empty if they are not."""
    if hold is None:
        return ""
    until = []
    if hold.delay_us is not None:
        until.append(f"after {describe_duration(hold.delay_us)}")
    if hold.count_rows is not None:
        until.append(f"after {hold.count_rows:,} rows")
    if hold.predicate is not None:
        until.append(f"when {describe(hold.predicate)}")
    return f", sent {' or '.join([*until, 'when windows end'])}"


def decide_exchanges(nodes: Mapping[int, Node]) -> dict[int, ExchangeDecision]:
    """Return what the exchange of each stateful node is, and why."""
    return {node.id: _decide(nodes, node) for node in nodes.values() if node.stateful}


def _decide(nodes: Mapping[int, Node], node: Node) -> ExchangeDecision:
    operation = node.operation
    assert isinstance(operation, Stateful)
    choice = operation.routing.exchange.choice
    children = [child for child in nodes.values() if node.id in child.inputs]
    to_stores = [_is_partial_output(child) for child in children]
    if choice == "global" or (choice == "auto" and any(to_stores)):
        _check_global(nodes, node, children, to_stores)
        why = "asked for" if choice == "global" else "its results go to a store that merges them"
        return ExchangeDecision("global", f"{why}: readers' partial results meet in the store")
    if choice == "ahead":
        return ExchangeDecision("ahead", "asked for: the source's partitions are the slots")
    if choice == "routed":
        return ExchangeDecision("routed", "asked for: rows go to their key's slot as they are")
    if choice == "local":
        return ExchangeDecision("local", "asked for: one row a key and window leaves each reader")
    if make_kernel(operation.spec).mergeable:
        return ExchangeDecision("local", _describe_weighing(operation.routing.exchange.hold))
    return ExchangeDecision("routed", _why_not(operation.spec))


def _describe_weighing(hold: HoldSpec | None) -> str:
    ways = "as they are" if hold is None else "as they are or are not held back"
    return (
        "auto: its results merge, so one row a key and window leaves each reader; from batch to batch, rows left, "
        f"bytes and processor time are weighed, and rows go {ways} where that costs less"
    )


def _check_global(nodes: Mapping[int, Node], node: Node, children: list[Node], to_stores: list[bool]) -> None:
    if not children or not all(to_stores):
        behind = ", ".join(child.label for child, to_store in zip(children, to_stores, strict=True) if not to_store)
        msg = (
            f"{node.label}: Global Merge has no place where results are whole but the store, so nothing can be behind "
            f"it but .write(ab.global_store(…)); found {behind or 'nothing'}"
        )
        raise FlowError(msg)
    pending = list(node.inputs)
    while pending:
        above = nodes[pending.pop()]
        if above.stateful:
            msg = (
                f"{node.label}: Global Merge is done where rows are read, and {above.label} comes before it; let that "
                'one write to the store, or use exchange="local" and a sink for finished results'
            )
            raise FlowError(msg)
        pending += above.inputs


def _is_partial_output(node: Node) -> bool:
    return isinstance(node.operation, Output) and isinstance(node.operation.sink, PartialSink)


def _with_slices(name: str, spec: OperatorSpec, slice_us: int) -> OperatorSpec:
    if not isinstance(spec, AggregateSpec) or spec.window is None or spec.window.kind == "session":
        msg = f"{name}: slices of time divide windows of a fixed length, and there are none here; leave slice= out"
        raise FlowError(msg)
    if spec.keeps_state_by_key:
        msg = f"{name}: windows in the time of their own keys, early and updated ones, choose theirs; leave slice= out"
        raise FlowError(msg)
    whole_us = pane_us(spec.window)
    if slice_us <= 0 or whole_us % slice_us:
        parts = [whole_us // part for part in (1, 2, 5, 10) if whole_us % part == 0][:_MOST_SLICES_NAMED]
        works = ", ".join(f'"{describe_duration(part)}"' for part in parts)
        msg = (
            f"{name}: a slice of {describe_duration(slice_us)} does not divide the windows, which are made of "
            f"{describe_duration(whole_us)}; what works is that and its parts: {works}"
        )
        raise FlowError(msg)
    return replace(spec, slice_us=slice_us)


def _why_not(spec: OperatorSpec) -> str:
    if getattr(spec, "count_window", None) is not None:
        return "windows of so many rows must see each row in its place"
    return "this operator must see each row by itself"


def _why_not_stored(spec: OperatorSpec) -> str | None:
    """Say why partial results of an operator cannot meet in a store; None if they can."""
    if isinstance(spec, AggregateSpec) and spec.window is not None and spec.window.kind == "session":
        return "whether a session is over can only be told where all rows of its key are"
    if isinstance(spec, AggregateSpec) and spec.follows_own_time:
        return f"the time of each {spec.clock.per} is told by its rows, and no reader has all of them"
    return why_not_held(spec)


def why_not_held(spec: OperatorSpec) -> str | None:
    """Say why merged rows of an operator cannot wait where they were read; None if they can."""
    if not isinstance(spec, AggregateSpec):
        return "only agg() has results that can be made of partial ones at any later time"
    if spec.count_window is not None:
        return _why_not(spec)
    if spec.ttl_us is not None:
        return "a time-to-live counts from a key's last row, which must be known at once"
    if not spec.keeps_state_by_key:
        return None
    window = spec.window
    if window is not None and (window.late != "drop" or window.early_us is not None):
        return "windows that emit early or again, or hand late rows out, need every row at once"
    return _WHY_NOT_BY_CLOCK.get(spec.clock.per)


_WHY_NOT_BY_CLOCK: Mapping[str, str] = {
    "key": (
        "a key's own time is told by its rows, wherever they are read: a reader that holds some would have to hear in "
        "the next batch which of its keys' windows have ended by rows that others read, and nothing tells readers of "
        'single keys; watermarks per="group" can be had'
    ),
    "slot": "the time of a slot is told by the rows that it has got, so that one that waits would make it another",
}
