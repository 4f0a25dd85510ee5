"""The routes of a flow's stateful operators: from the manifest into the batch, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import polars as pl

from anabranch.control.observe.load_sampling import Watch
from anabranch.control.reported import BatchReport
from anabranch.eventtime.watermarks import FlowTime
from anabranch.model import BEGINNING_OF_TIME, OperatorTime, RouteError, WindowSpec
from anabranch.model.balance import AUTO
from anabranch.model.moves import PlanCosts
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan, name_of
from anabranch.routing.bases.base_routes import BucketRoute, deal_by_power
from anabranch.routing.keys import KeySample
from anabranch.routing.phases import Earlier, FlowRoutes, PhasedRoutes, can_wait, settle, switch_after, window_of
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import decide_named, looks_at_keys, strategy_over
from anabranch.state.manifest import LevelState, Manifest

logger = logging.getLogger("anabranch")

ReconfigurationProtocol = Literal["state", "window"]


@dataclass(frozen=True, slots=True)
class Change:
    """New routes of an operator from the next batch on."""

    routes: Routes
    protocol: ReconfigurationProtocol
    """*state*: what is held moves at the end of this batch. *window*: nothing moves, open windows stay to their end."""
    reason: str = ""
    costs: PlanCosts | None = None
    """What the plan behind it cost and will cost; None where people asked for it."""

    def __str__(self) -> str:
        return f"{self.reason} (by the {self.protocol} protocol)"


class Steering(Protocol):
    """Decides where keys go. Called between batches only, on the driver."""

    def watches(self, routes: FlowRoutes) -> Mapping[int, Watch]:
        """Return what the slots of each operator should look at in a batch."""
        ...

    def decide(self, batch: int, routes: FlowRoutes, before: Manifest | None) -> Mapping[int, Change]:
        """Return what changes at the end of this batch, by stateful node.

        An operator that still has earlier routes must not change.
        """
        ...

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        """Learn what a batch did under its routes."""
        ...


@runtime_checkable
class TriesStrategies(Protocol):
    """A steering that tries strategies, and can say which it goes by and how all do."""

    def strategies(self) -> dict[str, str]:
        """Return the strategy that keys go by, by operator."""
        ...

    def scores(self) -> dict[str, dict[str, float]]:
        """Return the busiest slot's load over the mean on the last sample, by operator and strategy."""
        ...


def load_routes(plan: Plan, before: Manifest | None, buckets: int) -> dict[int, PhasedRoutes]:
    """Return the routes that a batch must use: those of the manifest before it, or those to begin with."""
    known = {level.operator: level for level in before.levels} if before is not None else {}
    routes: dict[int, PhasedRoutes] = {}
    for node in plan.stateful:
        level = known.get(name_of(plan, node.id))
        routes[node.id] = (
            PhasedRoutes(first_routes(plan, node.id, buckets))
            if level is None
            else PhasedRoutes.from_json(level.routes)
        )
    return routes


def first_routes(plan: Plan, head: int, buckets: int, sample: KeySample | None = None) -> Routes:
    """Return the routes that an operator begins with.

    A strategy that must know keys decides by a sample; without one, hashes serve until it has seen some.
    """
    operation = plan.nodes[head].operation
    assert isinstance(operation, Stateful)
    routing, slots = operation.routing, plan.slots[plan.level_of(head) - 1]
    even = Routes.even(slots, buckets)
    if routing.strategy == AUTO:
        powers = routing.powers_over(slots)
        return even if powers is None else Routes(BucketRoute(deal_by_power(powers, max(buckets, slots))))
    if sample is None:
        if looks_at_keys(strategy_over(routing, slots)):
            return even
        sample = _no_keys(plan, head)
    try:
        return decide_named(routing, sample, even, np.random.default_rng(0))
    except RouteError as error:
        logger.warning("%s: keys go by their hash, because %s", operation.name, error)
        return even


def _no_keys(plan: Plan, head: int) -> KeySample:
    """Return the sample of no rows: all it says of keys is their type."""
    operation = plan.nodes[head].operation
    assert isinstance(operation, Stateful)
    keys = operation.spec.keys
    schema = plan.nodes[plan.nodes[head].inputs[0]].schema
    values = pl.Series([], dtype=schema[keys[0]]) if len(keys) == 1 else None
    return KeySample(np.empty(0, np.uint64), np.empty(0), values)


def count_slots(plan: Plan, routes: FlowRoutes) -> tuple[int, ...]:
    """Return the slots of each level: as many as the operator with most of them has."""
    return tuple(
        max((routes[head].slots for head in heads if head in routes), default=slots)
        for heads, slots in zip(plan.levels, plan.slots, strict=True)
    )


def check_changes(plan: Plan, routes: FlowRoutes, changes: Mapping[int, Change]) -> dict[int, Change]:
    """Return the changes with a protocol that each can be done by; an operator in the midst of one is left alone."""
    checked = {}
    for head, change in changes.items():
        operation = plan.nodes[head].operation
        if routes[head].earlier is not None or not isinstance(operation, Stateful):
            continue
        waits = can_wait(window_of(operation.spec), routes[head].routes, change.routes)
        checked[head] = change if waits else replace(change, protocol="state")
    return checked


def store_levels(
    plan: Plan,
    routes: FlowRoutes,
    changes: Mapping[int, Change],
    times: Mapping[int, OperatorTime],
    time_after: FlowTime,
    report: BatchReport,
) -> tuple[LevelState, ...]:
    """Return what the manifest says of every operator: its state, and the routes of the next batch."""
    levels = []
    for head, operator in report.operators.items():
        operation = plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        window = window_of(operation.spec)
        if head in changes:
            seen = [time_after.latest.get(node, BEGINNING_OF_TIME) for node in plan.watermarks[head]]
            latest_us = max(seen, default=BEGINNING_OF_TIME)
            following = _begin(changes[head], routes[head].routes, window, latest_us)
        else:
            time = times[head]
            following = settle(routes[head], window, max(time.fired_us, time.closed_us, time.fire_us))
        runs = operator.runs
        if following.slots < len(runs):
            # Slots that are no more have handed everything on.
            assert not any(runs[following.slots :]), "a slot that goes still has state"
            runs = runs[: following.slots]
        levels.append(LevelState(operation.name, following.to_json(), runs, operator.handoffs))
    return tuple(levels)


def _begin(change: Change, old: Routes, window: WindowSpec | None, latest_us: int) -> PhasedRoutes:
    """Return the routes of the batch after a change; under the window protocol, open windows keep the old ones."""
    if change.protocol == "state" or window is None or latest_us == BEGINNING_OF_TIME:
        return PhasedRoutes(change.routes)
    return PhasedRoutes(change.routes, Earlier(old, switch_after(latest_us, window)))
