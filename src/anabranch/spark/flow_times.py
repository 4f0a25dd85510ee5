"""The flow's time in a manifest: by the watermark's place among the flow's watermarks, not by its node.

Nodes are numbered anew when a stateless step is added, which a checkpoint must survive.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from anabranch.eventtime.last_ends import last_end_of
from anabranch.eventtime.watermarks import FlowTime, SeenTimes, WatermarkRules
from anabranch.query.nodes import Stateful, Watermark
from anabranch.query.plan import Plan
from anabranch.spark.reports import BatchReport
from anabranch.state.manifest import Manifest


def load_time(plan: Plan, manifest: Manifest | None) -> FlowTime:
    """Return what was known of time after a batch, by watermark node."""
    if manifest is None:
        return FlowTime()
    return FlowTime.from_json(manifest.watermarks).renamed(dict(enumerate(_watermarks(plan))))


def store_time(plan: Plan, time: FlowTime) -> dict[str, Any]:
    """Return what a manifest keeps of a flow's time."""
    return time.renamed({node: place for place, node in enumerate(_watermarks(plan))}).to_json()


def advance_time(
    plan: Plan,
    before: FlowTime,
    report: BatchReport,
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


def next_silence_us(plan: Plan, time: FlowTime, report: BatchReport, *, now_us: int, since_us: int) -> int | None:
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
            if node.time is not None and node.time.from_windows:
                # A result belongs to the last instant of its window.
                times[node.id] = end_us - 1
    return reached_us
