"""Decisions as the history tells them: what changed, who wanted it, why, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.control.decisions import Decision
from anabranch.control.homes import name_homes
from anabranch.model import RoutingTable
from anabranch.model.cluster import SettledHomes
from anabranch.model.events import DecisionAction, DecisionEvent, RouteDelta
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
            yield DecisionEvent(batch, name_of(plan, head), "home", "placement", reason)


def tell_places(plan: Plan, decision: Decision) -> Iterator[DecisionEvent]:
    """Yield what a decision changes about homes and executors."""
    batch, executors = decision.batch, decision.executors
    for (level, slot), change in decision.homes.items():
        for head in plan.levels[level - 1]:
            reason = f"slot {slot}: {change.reason}"
            yield DecisionEvent(batch, name_of(plan, head), "home", change.sender, reason)
    if executors is not None and executors.provision:
        reason = f"{executors.provision} more: {executors.reason}"
        yield DecisionEvent(batch, "executors", "provision", executors.sender, reason)
    if executors is not None and executors.release:
        reason = f"{', '.join(executors.release)}: {executors.reason}"
        yield DecisionEvent(batch, "executors", "release", executors.sender, reason)
    if executors is not None and executors.offload:
        reason = f"slots leave {', '.join(executors.offload)}: {executors.reason}"
        yield DecisionEvent(batch, "executors", "offload", executors.sender, reason)
    if executors is not None and executors.keep:
        reason = f"{', '.join(executors.keep)}: {executors.reason}"
        yield DecisionEvent(batch, "executors", "keep", executors.sender, reason)


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
