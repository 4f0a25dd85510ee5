"""What a test sees of single operators: the timers of processors, and where rows that came too late are written."""

from __future__ import annotations

import polars as pl

from anabranch.errors import FlowError
from anabranch.eventtime.timers import TIMER_COLUMNS
from anabranch.model import ProcessSpec
from anabranch.query.graph import FlowGraph
from anabranch.query.nodes import LateRows, Output, Stateful
from anabranch.query.plan import Plan


def find_processor(plan: Plan, operator: str | None) -> tuple[str, ProcessSpec]:
    """Return a processor, by name or the only one; raise ``FlowError`` that names those that there are."""
    found = {
        node.operation.name: node.operation.spec
        for node in plan.stateful
        if isinstance(node.operation, Stateful) and isinstance(node.operation.spec, ProcessSpec)
    }
    name = next(iter(found)) if operator is None and len(found) == 1 else operator
    if name is None or name not in found:
        asked = "say which processor" if operator is None else f"no processor {operator!r}"
        msg = f"timers: {asked}; the flow has {', '.join(found) or 'none'}"
        raise FlowError(msg)
    return name, found[name]


def list_timers(stored: pl.DataFrame, spec: ProcessSpec) -> pl.DataFrame:
    """Return the timers in a processor's stored rows, in the order of their time."""
    # A key may have the name of one of these columns.
    time, kind, tag = (f"timer_{name}" if name in spec.keys else name for name in ("time", "kind", "tag"))
    keys = {key: spec.columns[key] for key in spec.keys}
    frames = [pl.DataFrame(schema={**keys, time: pl.Datetime("us"), kind: pl.String, tag: pl.String})]
    for domain, column in TIMER_COLUMNS.items():
        if column in stored.columns:
            timers = stored.select(*keys, column).explode(column).drop_nulls(column)
            at, called = pl.col(column).struct.field("at"), pl.col(column).struct.field("tag")
            frames.append(
                timers.select(
                    *keys, at.cast(pl.Datetime("us")).alias(time), pl.lit(domain).alias(kind), called.alias(tag)
                )
            )
    return pl.concat(frames).sort(time, *keys, kind, tag)


def find_late_output(graph: FlowGraph, operator: str | None, late_count: int) -> int:
    """Return the place of the sink that late rows of an operator are written to; of the only one, if none is named."""
    found: dict[str, int] = {}
    for node in graph.nodes.values():
        sink = _first_output(graph, node.id) if isinstance(node.operation, LateRows) else None
        windows = graph.nodes[node.inputs[0]].operation if sink is not None else None
        if sink is not None and isinstance(windows, Stateful):
            found.setdefault(windows.name, sink)
    name = next(iter(found)) if operator is None and len(found) == 1 else operator
    if name is None and found:
        msg = f"late: say of which operator; the flow writes late rows of {', '.join(found)}"
        raise FlowError(msg)
    if name is None or name not in found:
        msg = (
            f"late: {late_count} rows were late, and the flow writes those of {', '.join(found) or 'no operator'} to a "
            'sink; to see others, say late="side" and write late_rows() to one'
        )
        raise FlowError(msg)
    return found[name]


def _first_output(graph: FlowGraph, start: int) -> int | None:
    """Return the first sink that rows get to from a node without an operator that keeps state."""
    reached = {start}
    for node in graph.nodes.values():  # ids rise along the edges
        if reached.intersection(node.inputs) and not node.stateful:
            if isinstance(node.operation, Output):
                return node.operation.index
            reached.add(node.id)
    return None
