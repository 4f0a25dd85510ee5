"""The flow's watermark advances while a batch runs: slots learn what readers saw of it, and fire in that very batch.

The driver makes the same of the same observations when the batch is over, and commits only if slots did so, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from anabranch.errors import EngineError
from anabranch.eventtime.flow.flow_time import rules_of
from anabranch.eventtime.flow.reported import TimeReport
from anabranch.eventtime.observations import merge_seen
from anabranch.eventtime.watermarks import FlowTime, SeenTimes, keeps_partitions
from anabranch.model import AggregateSpec, JoinSpec, OperatorTime, OrderSpec, ProcessSpec, TopKSpec
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan


@dataclass(frozen=True, slots=True)
class InBatchWatermark:
    """What slots must know, besides what the batch's tasks saw, to tell the flow's time at the end of the batch."""

    before: FlowTime
    now_us: int
    """The wall clock at the start of the batch."""
    since_us: int
    """Since when the flow listens, by the wall clock."""


def fires_at_once(plan: Plan) -> bool:
    """Say whether windows fire in the batch that brings their watermark; if not, all of the flow's fire in the next.

    One operator that has to wait makes all others wait: those behind it would find its results too late.
    """
    for node in (*plan.stateful, *plan.merged_globally):
        operation = node.operation
        assert isinstance(operation, Stateful)
        # Who is a reader and a slot in one does not hear of other readers; and readers that hold rows back choose
        # what to send before they could know which windows fire.
        if plan.exchanges[node.id].kind in ("ahead", "global") or operation.routing.exchange.hold is not None:
            return False
    return not _silence_reaches_back(plan)


def heads_told(plan: Plan) -> frozenset[int]:
    """Return the stateful nodes with slots that wait for the flow's time, and not for that of their keys."""
    return frozenset(
        node.id
        for node in plan.stateful
        if isinstance(node.operation, Stateful)
        and _waits(node.operation)
        and not node.operation.spec.follows_own_time
        and plan.watermarks[node.id]
    )


def last_level_told(plan: Plan) -> int:
    """Return the last level whose slots must hear what tasks before them saw of time; 0 if none must."""
    return max((plan.level_of(head) for head in heads_told(plan)), default=0)


def times_in_slot(
    plan: Plan, times: Mapping[int, OperatorTime], in_batch: InBatchWatermark | None, told: Iterable[SeenTimes]
) -> Mapping[int, OperatorTime]:
    """Return the time of all operators as a slot knows it that was told what all tasks before it saw."""
    if in_batch is None:
        return times
    seen = merge_seen(told)
    after = in_batch.before.advanced(seen, rules_of(plan), now_us=in_batch.now_us, since_us=in_batch.since_us)
    return _raise_times(plan, times, after)


def settle_times(
    plan: Plan, times: Mapping[int, OperatorTime], after: FlowTime, report: TimeReport
) -> dict[int, OperatorTime]:
    """Return the times that a batch ran under, by the flow's time after it.

    Raises ``EngineError`` if slots fired by another time than the driver knows of.
    """
    raised = _raise_times(plan, times, after)
    for head, operator in report.operators.items():
        if operator.fire_us - {raised[head].fire_us}:
            msg = (
                f"{plan.nodes[head].label}: slots fired up to {sorted(operator.fire_us)} µs, and by what the batch's "
                f"tasks saw it should be {raised[head].fire_us} µs; the batch is not committed. Start the flow again, "
                "and report this: it is a fault of the engine"
            )
            raise EngineError(msg)
    return raised


def _raise_times(plan: Plan, times: Mapping[int, OperatorTime], after: FlowTime) -> dict[int, OperatorTime]:
    """Return the times of a batch with the watermark that it leaves as the one that windows fire by.

    A slot knows it for the operators of its own level: of later ones, it may not have heard everything.
    """
    raised = dict(times)
    for head in heads_told(plan):
        if not times[head].drains:
            raised[head] = replace(times[head], fire_us=after.slowest_us(plan.watermarks[head]))
    return raised


def _waits(operation: Stateful) -> bool:
    spec = operation.spec
    if isinstance(spec, AggregateSpec | TopKSpec):
        return spec.window is not None
    return isinstance(spec, ProcessSpec | OrderSpec | JoinSpec)


def _silence_reaches_back(plan: Plan) -> bool:
    """Say whether a watermark may follow, while it is silent, one that is seen only behind slots that follow the first.

    Those slots could not know of it in the same batch.
    """
    rules = rules_of(plan)
    for group in rules.together:
        clocks = [rules.clocks[node] for node in group]
        may_be_silent = any(clock.idle_us is not None and keeps_partitions(clock) for clock in clocks)
        if may_be_silent and len({_level_seen(plan, node) for node in group}) > 1:
            return True
    return False


def _level_seen(plan: Plan, node: int) -> int:
    return max(subquery.level for subquery in plan.subqueries if node in subquery.members)
