"""Undo what is no longer needed: split keys merge and moved keys return home once they have cooled."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING, Goal
from anabranch.balancing.planners.columns import find_firsts
from anabranch.balancing.planners.outcome import Change, Clock, make_move_plan
from anabranch.balancing.planners.problem import Problem
from anabranch.model.loads import KeyLoads
from anabranch.model.moves import MovePlan, MoveReason
from anabranch.model.routes import RoutingTable

COOL_SHARE = 0.25
"""A split key has cooled when its whole load is below this share of a slot's fair share.

Well below the load at which keys are split, so that a key at the edge does not come and go.
"""
ROOM_KEPT = 0.5
"""The part of the tolerance that a slot keeps free, so that a merge does not ask for the next split."""


def plan_cooling(
    loads: KeyLoads,
    table: RoutingTable,
    goal: Goal,
    *,
    clock: Clock | None = None,
    cool_share: float = COOL_SHARE,
    sends_home: bool = True,
) -> MovePlan:
    """Gather split keys that have cooled, at home or where most of them is, and send cooled whole keys home.

    A key stays as it is where no slot of its own has the room: half the tolerance is kept free.
    """
    choose = partial(_choose, cool_share=cool_share, sends_home=sends_home)
    return make_move_plan("cooling", choose, loads, table, goal, clock)


def _choose(problem: Problem, cool_share: float, sends_home: bool) -> Change:
    listed = problem.parts.listed
    if not len(listed):
        return Change.nothing()
    key_rows = problem.parts.key_rows[listed]
    begins = find_firsts(key_rows)
    ends = np.append(begins[1:], len(listed))
    key_loads = problem.loads.loads[key_rows[begins]]
    threshold = cool_share * float(problem.means[~problem.removed].min())
    cooled = (key_loads < threshold) | (key_loads <= 0)
    if not sends_home:
        cooled &= ends - begins > 1
    ceilings = problem.means + (problem.limits - problem.means) * (1 - ROOM_KEPT)
    # Split keys first, then the smallest: as many keys as possible find room, and equal inputs give equal plans.
    order = np.lexsort((key_loads, ends - begins == 1))
    slot_loads = problem.slot_loads.copy()
    taken: list[tuple[NDArray[np.int64], NDArray[np.float64], MoveReason]] = []
    put: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]] = []
    for key in order[cooled[order]].tolist():
        parts = listed[begins[key] : ends[key]]
        target = _find_target(problem, parts, slot_loads, ceilings, float(key_loads[key]))
        leaving = parts[problem.parts.slots[parts] != target]
        if target < 0 or not len(leaving):
            continue
        shares = problem.parts.shares[leaving]
        moved = problem.parts.loads[leaving]
        np.subtract.at(slot_loads, problem.parts.slots[leaving], moved)
        slot_loads[target] += moved.sum()
        taken.append((leaving, shares, MoveReason.COOLED))
        put.append((problem.parts.key_rows[leaving], np.full(len(leaving), target, np.int32), shares))
    return Change.gather(taken, put)


def _find_target(
    problem: Problem,
    parts: NDArray[np.int64],
    slot_loads: NDArray[np.float64],
    ceilings: NDArray[np.float64],
    load: float,
) -> int:
    """Return the slot that the key can have to itself: home, else the one with the largest part; -1 if none can."""
    slots, shares = problem.parts.slots[parts], problem.parts.shares[parts]
    home = int(problem.homes[problem.parts.key_rows[parts[0]]])
    # A whole key away from home goes home or stays.
    largest_first = slots[np.argsort(-shares, kind="stable")].tolist() if len(parts) > 1 else []
    for slot in [home, *largest_first]:
        there = float(problem.parts.loads[parts[slots == slot]].sum())
        fits = slot_loads[slot] - there + load <= ceilings[slot] + ROUNDING * problem.means[slot]
        if not problem.removed[slot] and (fits or load <= 0):
            return int(slot)
    return -1
