"""What a batch begins with: routes of the manifest before it, or those that operators begin with; homes of slots."""

from __future__ import annotations

import logging

import numpy as np
import polars as pl

from anabranch.engine.batches.slot_homes import SlotHomes
from anabranch.model import RouteError
from anabranch.model.balance import AUTO
from anabranch.model.cluster import KeptHomes
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan, name_of
from anabranch.routing.bases.base_routes import BucketRoute, deal_by_power
from anabranch.routing.keys import KeySample
from anabranch.routing.phases import FlowRoutes, PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import decide_named, looks_at_keys, strategy_over
from anabranch.state.manifest import Manifest

logger = logging.getLogger("anabranch")


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


def begin_homes(homes: SlotHomes, plan: Plan, routes: FlowRoutes, before: Manifest | None) -> None:
    """Settle where slots are at home, from the last manifest and the executors that are there."""
    homes.begin(count_slots(plan, routes), KeptHomes() if before is None else before.engine.homes)
