"""Operators of several inputs that are kept close in event time: what ``align`` says, and which sources it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import FlowError
from anabranch.eventtime import parse_duration
from anabranch.query.event_times import Duration
from anabranch.query.nodes import Stateful
from anabranch.query.windowing import find_lost_time

if TYPE_CHECKING:
    from anabranch.query.plan import Plan
    from anabranch.query.streams import Stream


@dataclass(frozen=True, slots=True)
class AlignedInput:
    """One input of an operator whose inputs are kept close."""

    watermarks: tuple[int, ...]
    """The watermark nodes that it follows."""
    sources: frozenset[int]
    """All sources that its rows come from."""
    own_sources: frozenset[int]
    """Those that feed no other input: only they can be held back, for to hold back a source of both helps nobody."""


@dataclass(frozen=True, slots=True)
class AlignedOperator:
    """An operator whose inputs are kept close."""

    head: int
    align_us: int
    inputs: tuple[AlignedInput, ...]


def read_align(where: str, align: Duration | None, *streams: Stream) -> int | None:
    """Return how far apart in event time streams may be read; raise ``FlowError`` if that makes no sense."""
    if align is None:
        return None
    align_us = parse_duration(align, f"{where}'s align")
    if align_us <= 0:
        msg = f"{where}: align must be longer than nothing, got {align!r}; leave it out to hold nobody back"
        raise FlowError(msg)
    for stream in streams:
        if stream.node.time is None:
            lost = find_lost_time(stream.graph.nodes, stream.node)
            msg = f"{where}: align compares event times, and {stream.node.label} has none: {lost}"
            raise FlowError(msg)
    return align_us


def find_aligned(plan: Plan) -> tuple[AlignedOperator, ...]:
    """Return the operators whose inputs are to be kept close."""
    sources = plan.sources_behind
    found = []
    for node in plan.nodes.values():
        if not isinstance(node.operation, Stateful) or node.operation.align_us is None:
            continue
        inputs = []
        for number, behind in enumerate(node.inputs):
            of_others = frozenset[int]().union(
                *(sources[other] for place, other in enumerate(node.inputs) if place != number)
            )
            own = sources[behind] - of_others
            inputs.append(AlignedInput(plan.watermarks_behind(behind), sources[behind], own))
        found.append(AlignedOperator(node.id, node.operation.align_us, tuple(inputs)))
    return tuple(found)
