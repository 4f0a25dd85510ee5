"""Slots that keys have to themselves because no slot can hold them beside others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from anabranch.balancing.goals import Goal
from anabranch.balancing.planners.columns import sum_by
from anabranch.balancing.planners.parts import locate_parts
from anabranch.model.loads import BucketLoads, KeyLoads
from anabranch.model.routes import RoutingTable


def find_own_slots(
    keys: KeyLoads, rest: BucketLoads, table: RoutingTable, goal: Goal, *, splits_keys: bool
) -> dict[int, tuple[int, ...]]:
    """Return key → the slots that it is to have to itself.

    A key that no slot can hold gets the slots that it fills if the goal says so. One that stays whole fills its slot
    whatever the goal says: what is beside it there would only make the busiest slot busier. Where keys are comes
    first, then slots with little state to clear away; one slot at least is left to all others.
    """
    limits = goal.find_means(float(keys.loads.sum() + rest.loads.sum())) * (1 + goal.tolerance)
    oversized = np.flatnonzero(keys.loads > limits.max(initial=0.0))
    own: dict[int, tuple[int, ...]] = {}
    if not len(oversized):
        return own
    parts = locate_parts(keys, table)
    clearing = sum_by(rest.slots_of, rest.state_bytes, goal.slots_in_all)[: goal.slots_later]
    free = [int(slot) for slot in np.argsort(clearing, kind="stable")]
    # Hottest first, ties by key: equal inputs must give equal plans.
    for key in oversized[np.argsort(-keys.loads[oversized], kind="stable")].tolist():
        may_split = splits_keys and (keys.splittable is None or bool(keys.splittable[key]))
        if may_split and goal.oversized != "alone":
            continue
        here = np.flatnonzero(parts.key_rows == key)
        here = here[np.argsort(-parts.shares[here], kind="stable")]
        left = float(keys.loads[key])
        chosen: list[int] = []
        for slot in dict.fromkeys([*parts.slots[here].tolist(), *free]):
            if slot in free and len(free) > 1 and left >= limits[slot]:
                free.remove(slot)
                chosen.append(slot)
                left = left - float(limits[slot]) if may_split else 0.0
        if chosen:
            own[int(keys.keys[key])] = tuple(chosen)
    return own


def place_in_own_slots(table: RoutingTable, own: Mapping[int, tuple[int, ...]]) -> RoutingTable:
    """Return the routing table with keys in the slots that they are to have, in equal shares."""
    placed = RoutingTable.of({key: {slot: 1 / len(slots) for slot in slots} for key, slots in own.items()})
    return table.without(list(own)).overlaid(placed)
