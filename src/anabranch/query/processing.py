"""``process()`` and ``ordered()``: what they are told, checked and made into operators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.errors import FlowError
from anabranch.model import FLOW_CLOCK, TIME, LatePolicy, OrderSpec, ProcessSpec
from anabranch.model.schema_forms import SchemaLike
from anabranch.query.column_checks import read_schema
from anabranch.query.nodes import Stateful
from anabranch.query.stateful import add_operator

if TYPE_CHECKING:
    from anabranch.query.event_times import Duration
    from anabranch.query.streams import Stream


def order_stream(stream: Stream, by: str, idle: Duration | None, late: LatePolicy, name: str | None) -> Stream:
    """Return the stream with its rows held until the watermark has passed them."""
    _refuse_windows(stream, "ordered")
    time = stream.node.time
    if time is None:
        # Inputs that are in order by themselves need no delay: the slowest of them says what may go on.
        stream = stream.watermark(by, per="partition", idle=idle)
        time = stream.node.time
        assert time is not None
    elif time.column != by:
        msg = f"ordered: rows follow the watermark of {time.column!r}, not {by!r}; order by that, or call watermark()"
        raise FlowError(msg)
    elif idle is not None:
        msg = f"ordered: there is a watermark already; say there whom to wait for: .watermark({by!r}, idle={idle!r})"
        raise FlowError(msg)
    if late not in ("drop", "side"):
        msg = f"ordered: late={late!r} is impossible; rows that others have gone on before can be drop, side"
        raise FlowError(msg)
    spec = OrderSpec(stream.keys, TIME, time.clock, late)
    ordered = add_operator(stream, spec, name or "ordered", f"in order of {by}")
    return replace(ordered, keys=stream.keys, routing=stream.routing)


def process_stream(stream: Stream, processor: object, schema: SchemaLike, name: str | None) -> Stream:
    """Return what a processor makes of the stream; it does the ordering itself if that comes right before."""
    _refuse_windows(stream, "process")
    ordered = False
    operation = stream.node.operation
    if isinstance(operation, Stateful) and isinstance(operation.spec, OrderSpec) and operation.spec.keys == stream.keys:
        if operation.spec.late != "drop":
            msg = "process: late rows go to on_late() of the processor; leave late= of ordered() out"
            raise FlowError(msg)
        stream = replace(stream, node=stream.graph.nodes[stream.node.inputs[0]])
        ordered = True
    time = stream.node.time
    spec = ProcessSpec(
        keys=stream.keys,
        processor=processor,
        columns=stream.schema,
        schema=read_schema("process", schema),
        time_column=None if time is None else TIME,
        clock=FLOW_CLOCK if time is None else time.clock,
        ordered=ordered,
    )
    label = f"process {type(processor).__name__}{' in order' if ordered else ''}"
    return add_operator(stream, spec, name or "process", label)


def puts_late_rows_aside(operation: object) -> bool:
    """Say whether late rows of a stateful operator can be had as a stream."""
    if not isinstance(operation, Stateful):
        return False
    spec = operation.spec
    window = getattr(spec, "window", None)
    return (spec.late if isinstance(spec, OrderSpec) else window is not None and window.late) == "side"


def _refuse_windows(stream: Stream, where: str) -> None:
    stream._needs_keys(where)
    if stream.windowing is not None or stream.counting is not None:
        msg = f"{where} has no windows; leave them out before it"
        raise FlowError(msg)
