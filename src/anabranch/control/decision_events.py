"""Decisions as the history tells them: what changed, who wanted it, why, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.control.decisions import Decision, ExecutorChange
from anabranch.control.homes import name_homes
from anabranch.model import RoutingTable
from anabranch.model.cluster import Executor, SettledHomes, SlotId
from anabranch.model.events import DecisionAction, DecisionEvent, ExecutorAction, RouteDelta
from anabranch.model.exchanges import ExchangeFigures
from anabranch.query.plan import Plan, name_of
from anabranch.routing.bases.base_routes import BucketRoute
from anabranch.routing.phases import FlowRoutes
from anabranch.routing.routes import Routes

_WAYS = {"plain": "rows go as they are", "merged": "rows are merged first", "held": "merged rows are held back"}


def tell_changes(plan: Plan, routes: FlowRoutes, decision: Decision) -> Iterator[DecisionEvent]:
    """Yield what a decision changes about routes."""
    for head, change in decision.routes.items():
        delta = compare(routes[head].routes, change.routes)
        yield DecisionEvent(
            batch=decision.batch,
            operator=name_of(plan, head),
            action=name_action(delta),
            sender=change.sender,
            reason=change.reason,
            protocol=change.protocol,
            costs=None if change.costs is None else asdict(change.costs),
            imbalance_before=change.imbalance_before,
            imbalance_expected=change.imbalance_expected,
            change=delta,
        )


def tell_looks(plan: Plan, batch: int, before: FlowRoutes, looked: FlowRoutes) -> Iterator[DecisionEvent]:
    """Yield which strategies decided by a first look at keys: they count in this batch already."""
    for head, phases in looked.items():
        if phases != before[head]:
            reason = f"{phases.routes.by} decides by a first look at keys, before the first row is routed"
            delta = compare(before[head].routes, phases.routes)
            yield DecisionEvent(batch, name_of(plan, head), "strategy", "first look", reason, change=delta)


def tell_switches(batch: int, figures: Mapping[int, ExchangeFigures]) -> Iterator[DecisionEvent]:
    """Yield which exchanges go another way from the next batch on, and why."""
    for shown in figures.values():
        if shown.next_way != shown.way:
            reason = f"{_WAYS[shown.next_way]}: {shown.reason}"
            yield DecisionEvent(batch, shown.operator, "exchange", "exchange", reason)


def tell_holds(batch: int, before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[DecisionEvent]:
    """Yield which sources wait from now on, and which no longer do; given are the seconds that each is ahead."""
    for source, seconds in after.items():
        if source not in before:
            reason = f"waits for another source to catch up: it is {seconds:.1f} s ahead"
            yield DecisionEvent(batch, source, "hold", "alignment", reason)
    for source in before:
        if source not in after:
            yield DecisionEvent(batch, source, "release", "alignment", "reads on: no other source is too far behind")


def tell_homes(plan: Plan, batch: int, settled: SettledHomes) -> Iterator[DecisionEvent]:
    """Yield which slots of a batch have another home than before it, by operator."""
    for (level, why), homes in settled.changes.items():
        for head in plan.levels[level - 1]:
            reason = f"{why}: {name_homes(homes)}"
            yield DecisionEvent(
                batch,
                name_of(plan, head),
                "home",
                "placement",
                reason,
                costs=_moving(plan, level, head, settled.moved_bytes[level, why]),
            )


def tell_places(
    plan: Plan, decision: Decision, moved_bytes: Mapping[SlotId, int], executors: Sequence[Executor]
) -> Iterator[DecisionEvent]:
    """Yield what a decision changes about homes and executors; given are the state that moves, and who is there."""
    batch = decision.batch
    for (level, slot), change in decision.homes.items():
        for head in plan.levels[level - 1]:
            reason = f"slot {slot}: {change.reason}"
            costs = _moving(plan, level, head, moved_bytes.get((level, slot), 0))
            yield DecisionEvent(batch, name_of(plan, head), "home", change.sender, reason, costs=costs)
    if decision.executors is not None:
        yield from _tell_executors(batch, decision.executors, executors)


def _moving(plan: Plan, level: int, head: int, moved_bytes: int) -> dict[str, Any]:
    # A slot holds the state of all operators of its level: it is told with the first, so that sums are right.
    return {"moved_bytes": float(moved_bytes) if head == plan.levels[level - 1][0] else 0.0}


def _tell_executors(batch: int, change: ExecutorChange, executors: Sequence[Executor]) -> Iterator[DecisionEvent]:
    staying = {one.id for one in executors if not one.is_leaving}
    wanted = len((staying | set(change.keep)) - {*change.release, *change.offload}) + change.provision
    told: dict[ExecutorAction, str] = {}
    if change.provision:
        told["provision"] = f"{change.provision} more"
    if change.release:
        told["release"] = ", ".join(change.release)
    if change.offload:
        told["offload"] = f"slots leave {', '.join(change.offload)}"
    if change.hold:
        told["hold"] = f"{', '.join(change.hold)} are not let go yet"
    if change.keep:
        told["keep"] = ", ".join(change.keep)
    if change.total is not None:
        wanted = change.total
        if not told:
            # Nobody comes and nobody goes, but the cluster is told another number: of those on their way, some stop.
            told["request"] = f"{change.total} in all"
    for action, what in told.items():
        reason = f"{what}: {change.reason}"
        # To wait changes nothing, so nothing comes of it that could be seen.
        awaited = None if action == "hold" else wanted
        yield DecisionEvent(batch, "executors", action, change.sender, reason, executors=awaited)


def compare(old: Routes, new: Routes) -> RouteDelta:
    """Return how routes differ."""
    old_split, new_split = old.table.split_keys(), new.table.split_keys()
    split, merged = np.setdiff1d(new_split, old_split), np.setdiff1d(old_split, new_split)
    changed = np.setdiff1d(_changed_keys(old.table, new.table), np.union1d(split, merged))
    return RouteDelta(
        slots_before=old.slots,
        slots_after=new.slots,
        moved_keys=len(changed),
        split_keys=len(split),
        merged_keys=len(merged),
        moved_buckets=_moved_buckets(old, new),
        strategy_before=_name(old),
        strategy_after=_name(new),
    )


def name_action(delta: RouteDelta) -> DecisionAction:
    """Return the one word for what routes do, whoever wanted it."""
    if delta.slots_before != delta.slots_after:
        return "resize"
    if delta.strategy_before != delta.strategy_after:
        return "strategy"
    if delta.split_keys:
        return "split"
    return "merge" if delta.merged_keys and not delta.moved_keys else "move"


def _name(routes: Routes) -> str:
    """Return what keys go by: a named strategy, or the kind of route that a plan is laid over."""
    kinds = (type(part).__name__ for part in (routes.base, routes.splitter) if part is not None)
    return routes.by or "/".join(kinds)


def _changed_keys(old: RoutingTable, new: RoutingTable) -> NDArray[np.uint64]:
    rows = [pl.DataFrame({"key": table.keys, "slot": table.slots, "share": table.shares}) for table in (old, new)]
    once = pl.concat(rows).group_by("key", "slot", "share").len().filter(pl.col("len") == 1)
    return once["key"].unique().to_numpy()


def _moved_buckets(old: Routes, new: Routes) -> int:
    if not isinstance(old.base, BucketRoute) or not isinstance(new.base, BucketRoute):
        return 0
    before, after = (np.asarray(base.bucket_map.slot_of) for base in (old.base, new.base))
    return int((before != after).sum()) if len(before) == len(after) else len(after)
