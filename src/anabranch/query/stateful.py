"""Stateful operators behind a stream: what fits together, what comes out, and whose time it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from anabranch.errors import FlowError
from anabranch.model import TIME, WINDOW_END, DistinctSpec, OperatorSpec, OrderSpec, spreads_any_key
from anabranch.model.balance import AUTO, Routing
from anabranch.operators.kernels import make_kernel
from anabranch.query.labels import describe_window
from anabranch.query.merging import check_predicate, fit_exchange
from anabranch.query.nodes import EventTime, Stateful
from anabranch.routing.strategies.by_name import make_strategy

if TYPE_CHECKING:
    from anabranch.query.streams import Stream


def add_operator(stream: Stream, spec: OperatorSpec, name: str, label: str) -> Stream:
    """Return what the operator emits, as a stream without keys or windows; raise ``FlowError`` if it cannot run."""
    if stream.windowing is not None and stream.node.time is None:
        msg = f"{name}: the event time got lost after window(); keep its column, or unite streams with the same one"
        raise FlowError(msg)
    routing = stream.routing
    spec = fit_exchange(name, spec, routing.exchange)
    kernel = make_kernel(spec)
    splits = routing.strategy != AUTO and make_strategy(routing.strategy, **routing.options).splits_keys
    if splits and not spreads_any_key(kernel):
        msg = f"{name}: {routing.strategy} spreads a key over slots, and this operator needs each key whole"
        raise FlowError(msg)
    schema = kernel.output_schema(stream.schema | ({TIME: pl.Datetime("us")} if spec.time_column else {}))
    schema.pop(TIME, None)
    check_predicate(name, routing.exchange, schema)
    window = stream.windowing or stream.counting
    over = f" over {describe_window(window)}" if window else ""
    operation = Stateful(spec, stream.graph.unused_name(name), routing)
    full_label = f"{label} by {', '.join(stream.keys)}{over}"
    node = stream.graph.add(operation, (stream.node.id,), schema, full_label, _find_time(stream, spec))
    return replace(stream, node=node, keys=(), windowing=None, counting=None, routing=Routing())


def _find_time(stream: Stream, spec: OperatorSpec) -> EventTime | None:
    """Return the event time that all results keep to, if there is one."""
    if stream.windowing is not None:
        # Behind keys that have their own time, there is none that all results keep to.
        return None if spec.clock.is_kept_in_slots else EventTime(WINDOW_END, from_windows=True)
    passes_on = isinstance(spec, DistinctSpec) or (isinstance(spec, OrderSpec) and not spec.clock.is_kept_in_slots)
    return stream.node.time if passes_on else None
