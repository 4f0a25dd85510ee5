"""The time that every stateful operator of a flow runs under, from the manifest into the batch and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.eventtime.flow.flow_time import load_time
from anabranch.eventtime.flow.reported import TimeReport
from anabranch.eventtime.operator_clocks import OperatorClocks, follow_parts
from anabranch.eventtime.watermarks import FlowTime
from anabranch.eventtime.windows import last_end_of
from anabranch.model import BEGINNING_OF_TIME, AggregateSpec, OperatorSpec, OperatorTime, TopKSpec
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan, name_of
from anabranch.routing.phases import FlowRoutes
from anabranch.state.manifest import Manifest

FlowClocks = Mapping[int, OperatorClocks]
"""Stateful node → what is known of its own time."""


def load_clocks(plan: Plan, manifest: Manifest | None) -> dict[int, OperatorClocks]:
    """Return what was known of each operator's time after a batch."""
    known = manifest.engine.clocks if manifest is not None else {}
    return {node.id: OperatorClocks.from_json(known.get(name_of(plan, node.id), {})) for node in plan.stateful}


def store_clocks(plan: Plan, clocks: FlowClocks) -> dict[str, dict[str, Any]]:
    """Return what a manifest keeps of the operators' times."""
    return {name_of(plan, head): own.to_json() for head, own in clocks.items()}


def operator_times(
    plan: Plan, before: Manifest | None, batch: int, routes: FlowRoutes, *, draining: bool, now_us: int, since_us: int
) -> dict[int, OperatorTime]:
    """Return the time that each stateful operator runs a batch under."""
    flow_time = load_time(plan, before)
    clocks = load_clocks(plan, before)
    last_now_us = before.engine.now_us if before is not None else 0
    times = {}
    for node in (*plan.stateful, *plan.merged_globally):
        spec = _spec(plan, node.id)
        followed = plan.watermarks[node.id]
        time = flow_time.operator_time(
            batch, followed, lagging=node.id in plan.lagging, draining=draining, now_us=now_us
        )
        if node.id not in routes:
            # Where there are no slots, no clock is kept in them.
            times[node.id] = time
            continue
        slots = routes[node.id].slots
        time = replace(
            time,
            floor_us=flow_time.floor_us(followed, spec.clock.behind_us),
            slot_closed_us=clocks[node.id].slot_closed_us(spec.clock, slots),
            last_now_us=last_now_us,
            since_us=since_us,
            split_keys=clocks[node.id].split_keys,
            forgotten=clocks[node.id].forgotten,
        )
        if spec.follows_own_time:
            time = replace(
                time,
                shared=clocks[node.id].shared(spec.clock, slots),
                closed_us=BEGINNING_OF_TIME,
                fired_us=BEGINNING_OF_TIME,
                fire_us=time.fire_us if draining else BEGINNING_OF_TIME,
            )
        times[node.id] = time
    return times


def is_due(plan: Plan, manifest: Manifest) -> bool:
    """Say whether windows are due that only another batch, with or without data, can fire."""
    time_after = load_time(plan, manifest)
    clocks = load_clocks(plan, manifest)
    nodes = {name_of(plan, node.id): node.id for node in (*plan.stateful, *plan.merged_globally)}
    for operator, next_due in manifest.engine.next_due_us.items():
        if next_due is None:
            continue
        head = nodes[operator]
        spec = _spec(plan, head)
        if spec.follows_own_time:
            floor_us = time_after.floor_us(plan.watermarks[head], spec.clock.behind_us)
            # Which of the clocks it is that has something open is known in the slots only.
            if (next_due <= floor_us) if spec.clock.per == "key" else clocks[head].rose():
                return True
            continue
        ahead = time_after.operator_time(0, plan.watermarks[head], lagging=False, draining=False, now_us=0)
        if next_due <= ahead.fire_us:
            return True
    return False


def advance_clocks(
    plan: Plan,
    clocks: FlowClocks,
    report: TimeReport,
    times: Mapping[int, OperatorTime],
    time_after: FlowTime,
    *,
    drained: bool,
    changed: frozenset[int],
) -> dict[int, OperatorClocks]:
    """Return the operators' clocks after a batch that ran under these times.

    ``changed`` are the operators whose keys change slots now.
    """
    advanced = {}
    for head, operator in report.operators.items():
        spec, time = _spec(plan, head), times[head]
        clock = spec.clock
        if clock.idle_us is not None and time.since_us + clock.idle_us > time.now_us:
            # Nobody was silent before the flow began to listen.
            clock = replace(clock, idle_us=None)
        own = clocks[head].advanced(
            clock,
            operator.slot_latest_us,
            operator.group_latest_us,
            last_end_of(spec),
            now_us=time.now_us,
            floor_us=time_after.floor_us(plan.watermarks[head], spec.clock.behind_us),
            drained=drained,
            routes_changed=head in changed,
        )
        advanced[head] = own.forgetting(time.forget_until_us(spec.clock), operator.forgotten_us)
    return advanced


def follow_split_keys(
    plan: Plan, clocks: FlowClocks, report: TimeReport, split: Mapping[int, Sequence[NDArray[np.uint64]]]
) -> dict[int, OperatorClocks]:
    """Return the clocks with those of the keys that slots shared in a batch, or will share in the next one.

    ``split`` has their hashes, by stateful node.
    """
    followed = {}
    for head, own in clocks.items():
        split_keys = follow_parts(own.split_keys, report.operators[head].split_keys, split[head])
        followed[head] = replace(own, split_keys=split_keys).forgetting_parts(lateness_of(_spec(plan, head)))
    return followed


def next_wake_us(
    plan: Plan, clocks: FlowClocks, report: TimeReport, silent_us: int | None, since_us: int
) -> int | None:
    """Return when, by the wall clock, a batch must run even if no data comes; ``silent_us`` is that of the flow."""
    wakes = [silent_us, *(operator.wake_us for operator in report.operators.values())]
    wakes += [buffer.wake_us for buffer in report.buffers.values()]
    for head, own in clocks.items():
        spec = _spec(plan, head)
        wakes.append(own.wake_us(spec.clock, last_end_of(spec), since_us))
    return min((wake for wake in wakes if wake is not None), default=None)


def lateness_of(spec: OperatorSpec) -> int:
    """Return for how long late rows may change what an operator has emitted."""
    window = spec.window if isinstance(spec, AggregateSpec | TopKSpec) else None
    return 0 if window is None else window.lateness_us


def _spec(plan: Plan, head: int) -> OperatorSpec:
    operation = plan.nodes[head].operation
    assert isinstance(operation, Stateful)
    return operation.spec
