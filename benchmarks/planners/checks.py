"""Whether a plan keeps its promises, reckoned from its routing table alone and without the planners' code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.model.loads import BucketLoads, KeyLoads
from anabranch.model.moves import MovePlan
from anabranch.model.routes import RoutingTable

# Millions of floats are added up in another order here.
_ROUNDING = 1e-6


def check_key_plan(loads: KeyLoads, before: RoutingTable, plan: MovePlan, slots: int, limit: float | None) -> str:
    """Return what is wrong with a plan; nothing when it is right.

    ``limit`` is the load that no slot may exceed; a planner that cannot promise one must leave it no worse.
    """
    start, end = _add_up(loads, before, slots), _add_up(loads, plan.table, slots)
    total = float(loads.loads.sum())
    if abs(end.sum() - total) > _ROUNDING * total:
        return f"{end.sum():.6g} of {total:.6g} load is there after the plan"
    if np.abs(end - plan.loads_after[:slots]).max() > _ROUNDING * total:
        return "the loads that the plan names are not those of its routing table"
    moved = np.bincount(plan.moves.targets, plan.moves.loads, slots) - np.bincount(
        plan.moves.sources, plan.moves.loads, slots
    )
    if np.abs(start + moved - end).max() > _ROUNDING * total:
        return "the moves do not lead from the old routing table to the new one"
    if limit is not None and end.max() > limit * (1 + _ROUNDING):
        return f"a slot has {end.max():.6g} load, above the limit of {limit:.6g}"
    if limit is None and end.max() > start.max() * (1 + _ROUNDING):
        return f"the busiest slot had {start.max():.6g} load, and has {end.max():.6g} after the plan"
    return _check_table(loads, plan.table)


def check_bucket_plan(loads: BucketLoads, plan: MovePlan, slots: int) -> str:
    """Return what is wrong with a plan of bucket moves; nothing when it is right."""
    if plan.bucket_map is None:
        return "there is no bucket map"
    start = np.bincount(loads.buckets.slot_of, loads.loads, slots)
    end = np.bincount(plan.bucket_map.slot_of, loads.loads, slots)
    if np.abs(end - plan.loads_after).max() > _ROUNDING * end.sum():
        return "the loads that the plan names are not those of its bucket map"
    if end.max() > start.max() * (1 + _ROUNDING):
        return f"the busiest slot had {start.max():.6g} load, and has {end.max():.6g} after the plan"
    return ""


def _add_up(loads: KeyLoads, table: RoutingTable, slots: int) -> NDArray[np.float64]:
    """Return the slots' loads: keys of the table where it says, all others at home."""
    rows = np.searchsorted(loads.keys, table.keys)
    at_home = np.ones(len(loads), np.bool_)
    at_home[rows] = False
    home: NDArray[np.float64] = np.bincount(loads.homes[at_home], loads.loads[at_home], slots).astype(np.float64)
    away = np.bincount(table.slots, loads.loads[rows] * table.shares, slots)
    return home + away


def _check_table(loads: KeyLoads, table: RoutingTable) -> str:
    if not len(table.keys):
        return ""
    rows = np.searchsorted(loads.keys, table.keys)
    if not np.array_equal(loads.keys[np.minimum(rows, len(loads) - 1)], table.keys):
        return "the routing table names keys that are not there"
    _, first, count = np.unique(table.keys, return_index=True, return_counts=True)
    sums = np.add.reduceat(table.shares, first)
    if np.abs(sums - 1).max() > _ROUNDING:
        return "the shares of a key do not make a whole"
    at_home = (count == 1) & (table.slots[first] == loads.homes[rows[first]])
    return f"{int(at_home.sum())} keys at home are in the routing table" if at_home.any() else ""
