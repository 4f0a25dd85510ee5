"""What ``join()`` is told, checked and brought into one form."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

import polars as pl

from anabranch.errors import FlowError, name_alternatives
from anabranch.eventtime import parse_duration
from anabranch.eventtime.durations import describe_duration
from anabranch.model import FLOW_CLOCK, TIME, WINDOW_END, WINDOW_START, Clock, WindowSpec
from anabranch.model.balance import AUTO, Routing
from anabranch.model.joins import (
    JOIN_KINDS,
    JOINED_AT,
    LEFT,
    RIGHT,
    Band,
    ClosedEnds,
    Interval,
    JoinInput,
    JoinKind,
    JoinSpec,
)
from anabranch.operators.kernels import make_kernel
from anabranch.query.alignment import read_align
from anabranch.query.column_checks import check_key_columns
from anabranch.query.event_times import Duration
from anabranch.query.labels import describe_clock, describe_window
from anabranch.query.nodes import EventTime, Stateful
from anabranch.query.windowing import find_lost_time, make_window
from anabranch.routing.strategies.by_name import Strategy, make_strategy, places_rows

if TYPE_CHECKING:
    from anabranch.query.streams import Stream

Within = Duration | tuple[Duration, Duration]
"""How far apart rows may be: in both directions, or before and after the left one."""
Names = str | Iterable[str]
JoinKeys = tuple[Sequence[str], Sequence[str]]
"""The key columns of the left stream, and those of the right one that must be equal to them."""

_NEEDS_AN_END = ("left", "right", "full", "anti")


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """What a join is asked for, as it is given."""

    how: JoinKind
    within: Within | None
    closed: ClosedEnds
    window: Duration | None
    every: Duration | None
    ttl: Duration | None
    suffix: str
    align: Duration | None


@dataclass(frozen=True, slots=True)
class Where:
    """What pairs must fulfil besides equal keys, if there are any."""

    predicate: pl.Expr | None
    band: Band | None
    text: str
    """For people."""
    near: bool = False
    """Whether keys need not be equal: they are in the band."""


def join_streams(
    left: Stream,
    right: Stream,
    keys: JoinKeys,
    terms: JoinTerms,
    routing: Routing,
    name: str,
    where: Where | None = None,
) -> Stream:
    """Return the rows of two streams in pairs."""
    how = terms.how
    check_same_flow("join", left, right)
    if how not in JOIN_KINDS:
        msg = f"join: how={how!r} is unknown; {name_alternatives(str(how), JOIN_KINDS, 'there are')}"
        raise FlowError(msg)
    window = _read_window(terms.window, terms.every)
    interval = _read_bounds(terms, window)
    bounded = interval is not None or window is not None
    clocks = _check_times(left, right, how, bounded=bounded)
    own_time = any(clock.is_kept_in_slots for clock in clocks)
    strategy = None if routing.strategy == AUTO else make_strategy(routing.strategy, **routing.options)
    if bounded and own_time:
        _check_own_time(keys, strategy, routing.strategy, where)
    if strategy is not None:
        _check_strategy(strategy, routing.strategy, how)
    spec = JoinSpec(
        inputs=_lay_out(left, right, keys, terms, window, keeps_keys=where is not None),
        how=how,
        within=interval,
        window=window,
        time_column=TIME if left.node.time is not None and right.node.time is not None else None,
        # Where rows of all times meet, nobody asks what time it is.
        clock=clocks[LEFT] if bounded and own_time else FLOW_CLOCK,
        delays_us=(clocks[LEFT].delay_us, clocks[RIGHT].delay_us),
        draws=strategy is not None and places_rows(strategy),
        predicate=None if where is None else where.predicate,
        band=None if where is None else where.band,
        near=where is not None and where.near,
    )
    schema = make_kernel(spec).output_schema({})
    time = None
    # Behind keys that have their own time, there is none that all results keep to.
    if spec.time_column is not None and not own_time:
        time = EventTime(JOINED_AT) if window is None else EventTime(WINDOW_END, from_windows=True)
    by = f"join where {where.text}" if where is not None else f"{how} join by {describe_keys(keys)}"
    label = f"{by}{_describe_bounds(spec)}"
    operation = Stateful(spec, left.graph.unused_name(name), routing, read_align("join", terms.align, left, right))
    node = left.graph.add(operation, (left.node.id, right.node.id), schema, label, time)
    return type(left)(left.graph, node)


def check_same_flow(verb: str, left: Stream, right: Stream) -> None:
    """Raise ``FlowError`` unless both are of one flow."""
    if left.graph is not right.graph:
        msg = f"{verb} takes streams of one flow; one is of {left.graph.name!r}, one of {right.graph.name!r}"
        raise FlowError(msg)


def read_keys(on: Names | None, left_on: Names | None, right_on: Names | None) -> JoinKeys:
    """Return the keys of both sides."""
    remedy = 'on="sensor", or left_on="sensor", right_on="device" where names differ'
    return pair_names("join", on, left_on, right_on, remedy)


def pair_names(verb: str, both: Names | None, left: Names | None, right: Names | None, remedy: str) -> JoinKeys:
    """Return columns of both sides, of which either all have the same names or both sides are given."""
    if (both is None) == (left is None and right is None) or (left is None) != (right is None):
        msg = f"{verb}: say by which columns, {remedy}"
        raise FlowError(msg)
    sides = (both, both) if both is not None else (left, right)
    keys = tuple(tuple([names] if isinstance(names, str) else names or ()) for names in sides)
    if len(keys[LEFT]) != len(keys[RIGHT]):
        msg = f"{verb}: {len(keys[LEFT])} columns of the left stream and {len(keys[RIGHT])} of the right; give as many"
        raise FlowError(msg)
    return keys[LEFT], keys[RIGHT]


def _read_window(window: Duration | None, every: Duration | None) -> WindowSpec | None:
    """Return the window that both rows of a pair must be in."""
    if window is None:
        if every is not None:
            msg = f"join: every={every!r} is how often windows begin; give their length, too: window=…"
            raise FlowError(msg)
        return None
    return make_window(window, every, "0s", "drop", "0s", None)


def _read_bounds(terms: JoinTerms, window: WindowSpec | None) -> Interval | None:
    within, closed, ttl = terms.within, terms.closed, terms.ttl
    given = [name for name, value in (("within", within), ("window", window), ("ttl", ttl)) if value is not None]
    if len(given) > 1:
        msg = f"join: {' and '.join(given)} both say when rows are too far apart; give one of them"
        raise FlowError(msg)
    if closed not in get_args(ClosedEnds):
        msg = (
            f"join: closed={closed!r} is unknown; ends of the interval that count are {', '.join(get_args(ClosedEnds))}"
        )
        raise FlowError(msg)
    if ttl is not None:
        ttl_us = parse_duration(ttl, "join's ttl")
        if ttl_us <= 0:
            msg = f"join: ttl must be longer than nothing, got {ttl!r}; leave it out to keep rows for ever"
            raise FlowError(msg)
        return Interval(-ttl_us, ttl_us)
    if within is None:
        return None
    pair = tuple(within) if isinstance(within, Sequence) and not isinstance(within, str) else (within, within)
    if len(pair) != len(("before", "after")):
        msg = f"join: within is one length of time, or two, before and after the left row; got {within!r}"
        raise FlowError(msg)
    before_us, after_us = (_read_signed(one) for one in pair)
    # Event times are whole microseconds.
    least_us = -before_us + (closed in ("right", "none"))
    most_us = after_us - (closed in ("left", "none"))
    if least_us > most_us:
        msg = f"join: no right row is between {before_us} µs before and {after_us} µs after a left one; within is empty"
        raise FlowError(msg)
    return Interval(least_us, most_us)


def _read_signed(length: Duration) -> int:
    """Return a length of time in microseconds; less than none before the left row is after it."""
    if isinstance(length, timedelta) and length < timedelta(0):
        return -parse_duration(-length, "join's within")
    if isinstance(length, str) and length.startswith("-"):
        return -parse_duration(length[1:], "join's within")
    return parse_duration(length, "join's within")


def _check_times(left: Stream, right: Stream, how: JoinKind, *, bounded: bool) -> tuple[Clock, Clock]:
    """Return whose time both streams follow; that of the flow where it does not matter."""
    if how in _NEEDS_AN_END and not bounded:
        msg = (
            f"join: a {how} join emits rows when no partner can come any more, so it must know how long one may; "
            'say within="10s", window="1m" or ttl="1h"'
        )
        raise FlowError(msg)
    clocks = [FLOW_CLOCK, FLOW_CLOCK]
    for number, (side, stream) in enumerate((("left", left), ("right", right))):
        if stream.node.time is not None or bounded:
            clocks[number] = check_time("join", side, stream).clock
    if bounded:
        _check_clocks(clocks[LEFT], clocks[RIGHT])
    return clocks[LEFT], clocks[RIGHT]


def check_time(verb: str, side: str, stream: Stream) -> EventTime:
    """Return the event time of a stream, or raise ``FlowError`` unless it has one, kept in a way that joins know."""
    time = stream.node.time
    if time is None:
        lost = find_lost_time(stream.graph.nodes, stream.node)
        msg = f"{verb}: rows are joined by event time, and the {side} stream has none: {lost}"
        raise FlowError(msg)
    if time.clock.per in ("slot", "group"):
        msg = (
            f"{verb}: the {side} stream keeps time per {time.clock.per}, and rows of both streams that have the same "
            'key must have a time in common; say per="key", per="flow" or per="partition"'
        )
        raise FlowError(msg)
    return time


def _check_clocks(left: Clock, right: Clock) -> None:
    """Raise ``FlowError`` unless both streams keep time of the same."""
    if left.is_kept_in_slots != right.is_kept_in_slots:
        msg = (
            f"join: one stream keeps time per {left.per}, the other per {right.per}, and the time of a key is made of "
            'both; say per="key" of both, or of none'
        )
        raise FlowError(msg)
    said = [(clock.idle_us, clock.behind_us, clock.forget_us) for clock in (left, right)]
    if left.is_kept_in_slots and said[LEFT] != said[RIGHT]:
        found = " and ".join(f"{describe_clock(clock)!r}" for clock in (left, right))
        msg = (
            "join: a key falls silent, is too far behind, or is forgotten in both streams by the same rule; "
            f"found {found}; say the same idle, behind and forget of both (delays may differ)"
        )
        raise FlowError(msg)


def _check_own_time(keys: JoinKeys, strategy: Strategy | None, name: str, where: Where | None) -> None:
    """Raise ``FlowError`` unless all rows that may meet are of one key, and no strategy spreads all keys over slots."""
    remedy = 'say per="flow" or per="partition" of both streams'
    if where is not None and (where.near or not keys[LEFT]):
        msg = (
            "join_where: time is kept per key, and the predicate says of no columns that they are equal, so rows of "
            f"different keys meet, which have no time in common; {remedy}, or compare keys by ="
        )
        raise FlowError(msg)
    if strategy is not None and strategy.splits_keys:
        msg = (
            f"join: {name} spreads every key over slots, and none of them would see how far its time is; say another "
            f"routing, by which single hot keys are split, or {remedy}"
        )
        raise FlowError(msg)


def _check_strategy(strategy: Strategy, name: str, how: JoinKind) -> None:
    if places_rows(strategy) and how != "inner":
        msg = (
            f"join: {name} sends a row to several slots, and each of them sees some of its partners only, so none can "
            f'tell whom a row of a {how} join met first, or that it met nobody; say how="inner", or another routing'
        )
        raise FlowError(msg)


def _lay_out(
    left: Stream, right: Stream, keys: JoinKeys, terms: JoinTerms, window: WindowSpec | None, *, keeps_keys: bool
) -> tuple[JoinInput, JoinInput]:
    """Return both inputs, with the names that results give to their columns; right keys may be among them."""
    if keys[LEFT] or not keeps_keys:
        check_keys("join", left, right, keys)
    kept = [name for name in columns_of(right) if keeps_keys or name not in keys[RIGHT]]
    inputs = name_columns("join", (left.schema, right.schema), keys, (columns_of(left), kept), terms.suffix)
    added = [WINDOW_START, WINDOW_END] if window is not None else [JOINED_AT]
    shown = [*keys[LEFT], *inputs[LEFT].columns]
    if terms.how not in ("semi", "anti"):
        shown += inputs[RIGHT].columns
    refuse_twice("join", [name for name in shown if name in added], terms.suffix)
    return inputs


def check_keys(verb: str, left: Stream, right: Stream, keys: JoinKeys) -> None:
    """Raise ``FlowError`` unless both streams have their keys, of the same types."""
    for side, stream, names in (("left", left, keys[LEFT]), ("right", right, keys[RIGHT])):
        check_key_columns(f"{verb}, {side} stream", names, stream.schema)
    for own, other in zip(*keys, strict=True):
        if left.schema[own] != right.schema[other]:
            msg = (
                f"{verb}: {own!r} is {left.schema[own]} on the left and {other!r} is {right.schema[other]} on the "
                "right; cast one of them by with_columns() first"
            )
            raise FlowError(msg)


def name_columns(
    verb: str,
    schemas: tuple[Mapping[str, pl.DataType], Mapping[str, pl.DataType]],
    keys: JoinKeys,
    columns: tuple[Iterable[str], Iterable[str]],
    suffix: str,
) -> tuple[JoinInput, JoinInput]:
    """Return both inputs with some columns; those of the right one that the left one has, too, get the suffix."""
    left_columns = {name: name for name in columns[LEFT] if name not in keys[LEFT]}
    taken = {*keys[LEFT], *left_columns}
    right_columns = name_right_columns(columns[RIGHT], taken, suffix)
    refuse_twice(verb, [name for name in right_columns if name in taken], suffix)
    return (
        JoinInput(tuple(keys[LEFT]), left_columns, _types(schemas[LEFT], keys[LEFT], keys[LEFT], left_columns)),
        JoinInput(tuple(keys[RIGHT]), right_columns, _types(schemas[RIGHT], keys[LEFT], keys[RIGHT], right_columns)),
    )


def refuse_twice(verb: str, names: Sequence[str], suffix: str) -> None:
    """Raise ``FlowError`` if a result would have columns twice."""
    if names:
        msg = (
            f"{verb}: the result would have {', '.join(names)} twice; rename it by select() before, "
            f"or give another suffix than {suffix!r}"
        )
        raise FlowError(msg)


def name_right_columns(names: Iterable[str], taken: Collection[str], suffix: str) -> dict[str, str]:
    """Return what results call columns of the right stream: their name → its own."""
    return {(f"{name}{suffix}" if name in taken else name): name for name in names}


def columns_of(stream: Stream) -> list[str]:
    """Return the columns that results keep of a stream; behind a join, its time is followed, and comes anew."""
    is_joined = stream.node.time is not None and stream.node.time.column == JOINED_AT
    return [name for name in stream.schema if not (is_joined and name == JOINED_AT)]


def _types(
    schema: Mapping[str, pl.DataType], names: Sequence[str], own: Sequence[str], columns: Mapping[str, str]
) -> dict[str, pl.DataType]:
    keys = {name: schema[key] for name, key in zip(names, own, strict=True)}
    return keys | {name: schema[column] for name, column in columns.items()}


def describe_keys(keys: JoinKeys) -> str:
    """Name the keys, and where they differ those of both sides."""
    return ", ".join(own if own == other else f"{own} = {other}" for own, other in zip(*keys, strict=True))


def _describe_bounds(spec: JoinSpec) -> str:
    if spec.window is not None:
        return f" in the same of {describe_window(spec.window)}"
    if spec.within is None:
        return ", over all that ever came"
    least_us, most_us = spec.within.least_us, spec.within.most_us
    if -least_us == most_us:
        return f" within {describe_duration(most_us)}"
    return f" within {describe_duration(-least_us)} before and {describe_duration(most_us)} after"
