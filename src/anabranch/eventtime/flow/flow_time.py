"""The flow's time in a manifest: by the watermark's place among the flow's watermarks, not by its node.

Nodes are numbered anew when a step is added, and watermarks change places when sources do: a manifest says beside the
times what each place stood for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from anabranch.eventtime.flow.reported import TimeReport
from anabranch.eventtime.watermarks import WHOLE_FLOW, FlowTime, SeenTimes, WatermarkRules
from anabranch.eventtime.windows import last_end_of
from anabranch.model import BEGINNING_OF_TIME, JoinSpec
from anabranch.model.times import FollowedTimes
from anabranch.query.nodes import FlowSource, Stateful, Watermark
from anabranch.query.plan import Plan
from anabranch.state.manifest import Manifest


def load_time(plan: Plan, manifest: Manifest | None) -> FlowTime:
    """Return what was known of time after a batch, by watermark node."""
    if manifest is None:
        return FlowTime()
    told = manifest.engine.followed
    places = match_watermarks(told, describe_watermarks(plan)) if told else dict(enumerate(_watermarks(plan)))
    time = FlowTime.from_json(manifest.watermarks).renamed(places)
    present = {str(source.operation.index) for source in plan.sources if isinstance(source.operation, FlowSource)}
    time = time.without_partitions(lambda name: name.partition("/")[0] not in {*present, WHOLE_FLOW})
    return _join_in(plan, time, {*_watermarks(plan)} - {*places.values()})


def store_time(plan: Plan, time: FlowTime) -> dict[str, Any]:
    """Return what a manifest keeps of a flow's time."""
    return time.renamed({node: place for place, node in enumerate(_watermarks(plan))}).to_json()


def describe_watermarks(plan: Plan) -> dict[int, FollowedTimes]:
    """Return what each watermark node follows."""
    sources = plan.sources_behind
    return {id: FollowedTimes(operation.column, sources[id]) for id, operation in _watermarks(plan).items()}


def match_watermarks(told: Sequence[FollowedTimes], now: Mapping[int, FollowedTimes]) -> dict[int, int]:
    """Return which place of a manifest's times is which watermark node now; what has no likeness is left out."""
    alike: tuple[Callable[[FollowedTimes, FollowedTimes], bool], ...] = (
        lambda one, other: one == other,
        lambda one, other: one.column == other.column and bool(one.sources & other.sources),
        lambda one, other: bool(one.sources & other.sources),
    )
    found: dict[int, int] = {}
    for is_alike in alike:
        for place, one in enumerate(told):
            free = [node for node, other in now.items() if node not in found.values() and is_alike(one, other)]
            if place not in found and free:
                found[place] = free[0]
    return found


def _join_in(plan: Plan, time: FlowTime, new: Collection[int]) -> FlowTime:
    """Return the time with watermarks that are new since the manifest where the operators stand that follow them.

    What has fired must not be opened again because somebody joins who has said nothing yet.
    """
    current, previous = dict(time.current), dict(time.previous)
    for node in sorted(new):
        for followed in plan.watermarks.values():
            others = [other for other in followed if other in time.current]
            if node in followed and others:
                for reached, known in ((current, time.current), (previous, time.previous)):
                    slowest = min(known.get(other, BEGINNING_OF_TIME) for other in others)
                    reached[node] = max(slowest, reached.get(node, slowest))
    return replace(time, current=current, previous=previous)


def advance_time(
    plan: Plan,
    before: FlowTime,
    report: TimeReport,
    *,
    now_us: int,
    since_us: int,
    drained: bool,
    fires_at_once: bool = False,
) -> FlowTime:
    """Return what is known of time after a batch; silence counts from ``since_us`` on, by the wall clock."""
    fired: dict[int, int] = {}
    for head in report.heads if drained else ():
        last_end_us = report.last_end_us(head)
        if last_end_us is not None:
            for watermark in plan.watermarks[head]:
                fired[watermark] = max(last_end_us, fired.get(watermark, last_end_us))
    seen = SeenTimes(report.latest_us, report.partitions_us, report.tallies)
    return before.advanced(
        seen, rules_of(plan), now_us=now_us, since_us=since_us, fired_until=fired, fires_at_once=fires_at_once
    )


def next_silence_us(plan: Plan, time: FlowTime, report: TimeReport, *, now_us: int, since_us: int) -> int | None:
    """Return when, by the wall clock, somebody counts as silent whom open windows wait for."""
    if all(report.next_due_us(head) is None for head in report.heads):
        return None
    return time.wake_us(rules_of(plan), now_us=now_us, since_us=since_us)


def rules_of(plan: Plan) -> WatermarkRules:
    """Return what the flow says of its watermarks."""
    return WatermarkRules(
        clocks={node: operation.clock for node, operation in _watermarks(plan).items()},
        last_end_us=partial(_last_end_us, plan),
        together=tuple(nodes for nodes in plan.watermarks.values() if len(nodes) > 1),
    )


def _watermarks(plan: Plan) -> dict[int, Watermark]:
    return {node.id: node.operation for node in plan.nodes.values() if isinstance(node.operation, Watermark)}


def _last_end_us(plan: Plan, watermark: int, latest_us: int) -> int:
    """Return when the last window ends that an event may be in, be it in a window of windows."""
    reached_us = latest_us
    times = {watermark: latest_us}
    for node in plan.nodes.values():  # ids rise along the edges
        arriving = [times[source] for source in node.inputs if source in times]
        if not arriving or isinstance(node.operation, Watermark):
            continue
        times[node.id] = max(arriving)
        if isinstance(node.operation, Stateful):
            end_us = int(last_end_of(node.operation.spec)(np.array([times[node.id]], np.int64))[0])
            reached_us = max(reached_us, end_us)
            joins = isinstance(node.operation.spec, JoinSpec)
            if node.time is not None and (node.time.from_windows or joins):
                # A result belongs to the last instant of its window.
                times[node.id] = end_us - 1
    return reached_us
