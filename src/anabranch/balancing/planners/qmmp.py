"""QMMP: a plan as fast as can be, by cutting keys wherever a limit falls."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING, Goal
from anabranch.balancing.planners.columns import sum_by
from anabranch.balancing.planners.layout import lay_out
from anabranch.balancing.planners.loading import Loading, collect_items
from anabranch.balancing.planners.outcome import Change, Clock, make_move_plan
from anabranch.balancing.planners.problem import Problem
from anabranch.balancing.planners.unloading import Ranking
from anabranch.model.loads import KeyLoads
from anabranch.model.moves import MovePlan, MoveReason
from anabranch.model.routes import RoutingTable


def plan_qmmp(loads: KeyLoads, table: RoutingTable, goal: Goal, *, clock: Clock | None = None) -> MovePlan:
    """Take keys as they come from slots above the limit, and fill the others to the mean, splitting at every edge.

    Time grows with the number of keys and nothing else; the routing table may grow a lot. Nothing is chosen, so hot
    keys may be cut and cold ones moved by the thousand: ``plan_mnrt`` takes longer and disturbs less.
    """
    return make_move_plan("qmmp", _choose, loads, table, goal, clock)


def _choose(problem: Problem) -> Change:
    if not problem.overloaded.any():
        return Change.nothing()
    parts, shares = _unload(problem)
    taken = [(parts, shares, MoveReason.OVERLOADED)]
    if not problem.all_divisible:
        # Keys that may not be cut need looking at.
        items = collect_items(problem, parts, shares)
        return Loading(problem, Ranking(problem), taken, whole_keys_a_split=0).place(items)
    key_rows = problem.parts.key_rows[parts]
    loads = problem.loads.loads[key_rows] * shares
    left = problem.slot_loads - sum_by(problem.parts.slots[parts], loads, problem.goal.slots_in_all)
    gaps = np.where(problem.removed, 0.0, problem.means - left)
    open_slots = np.flatnonzero(gaps > 0)
    if not len(open_slots):
        # Keys without any load must leave slots that go all the same.
        open_slots = np.flatnonzero(~problem.removed)
    pieces = lay_out(loads, gaps[open_slots], ROUNDING * float(problem.means.max()))
    put = (key_rows[pieces.items], open_slots[pieces.gaps].astype(np.int32), shares[pieces.items] * pieces.shares)
    return Change.gather(taken, [put])


def _unload(problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the parts that leave, as they come, and the shares of their keys that leave; the last one is cut."""
    grouped, begins = problem.group_parts(problem.overloaded)
    stuck = np.zeros(len(grouped), np.bool_)
    if not problem.all_divisible:
        grouped, stuck = _put_divisible_first(problem, grouped)
    slots = problem.parts.slots[grouped]
    loads = problem.parts.loads[grouped]
    removed, crumbs = problem.removed[slots], ROUNDING * problem.means[slots]
    needs = np.where(problem.removed, np.inf, problem.slot_loads - problem.limits)[slots]
    sums = np.cumsum(loads)
    until = sums - np.concatenate(([0.0], sums))[begins[:-1]][slots]
    before = until - loads
    leaves = np.flatnonzero(removed | ((before < needs - crumbs) & (loads > 0) & ~stuck))
    cut = leaves[until[leaves] > needs[leaves] + crumbs[leaves]]
    cut = cut[problem.may_split(problem.parts.key_rows[grouped[cut]])]
    fraction = np.ones(len(grouped))
    fraction[cut] = (needs[cut] - before[cut]) / loads[cut]
    return grouped[leaves], problem.parts.shares[grouped[leaves]] * fraction[leaves]


def _put_divisible_first(problem: Problem, grouped: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the parts of each slot with those first that may be cut, and whether each is too large for any slot.

    Those that may not be cut and that no slot can hold come last: they are the hot spot wherever they are.
    """
    key_rows = problem.parts.key_rows[grouped]
    fixed = ~problem.may_split(key_rows)
    stuck = fixed & (problem.loads.loads[key_rows] > problem.limits.max())
    order = np.lexsort((stuck, fixed, problem.parts.slots[grouped]))
    return grouped[order], stuck[order]
