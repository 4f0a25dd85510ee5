"""MNRT: few moves, few splits, a small routing table, and every slot within its limit."""

from __future__ import annotations

from functools import partial

from anabranch.balancing.goals import Goal
from anabranch.balancing.planners.loading import Loading, collect_items
from anabranch.balancing.planners.outcome import Change, Clock, make_move_plan
from anabranch.balancing.planners.problem import Problem
from anabranch.balancing.planners.unloading import Ranking, unload
from anabranch.model.loads import KeyLoads
from anabranch.model.moves import MovePlan, MoveReason
from anabranch.model.routes import RoutingTable

WHOLE_KEYS_A_SPLIT = 64
"""So many keys may move whole to spare one split."""


def plan_mnrt(
    loads: KeyLoads,
    table: RoutingTable,
    goal: Goal,
    *,
    clock: Clock | None = None,
    whole_keys_a_split: int = WHOLE_KEYS_A_SPLIT,
) -> MovePlan:
    """Take from slots above the limit what merges a key, goes home or costs least, and place it as whole as can be.

    Merging comes before keeping whole, and keeping whole before splitting. A key that no slot can hold fills the
    gaps of as many slots as it needs, and the keys that live there stay; where the goal has it ``alone``, it gets slots
    of its own, as few as will do, and the keys that must leave fill the routing table.
    """
    choose = partial(_choose, whole_keys_a_split=whole_keys_a_split, oversized_alone=goal.oversized == "alone")
    return make_move_plan("mnrt", choose, loads, table, goal, clock)


def _choose(problem: Problem, whole_keys_a_split: int, oversized_alone: bool) -> Change:
    if not problem.overloaded.any():
        return Change.nothing()
    ranking = Ranking(problem, oversized_alone=oversized_alone)
    parts, shares = unload(problem, ranking, whole_keys_a_split)
    items = collect_items(problem, parts, shares)
    loading = Loading(
        problem,
        ranking,
        [(parts, shares, MoveReason.OVERLOADED)],
        whole_keys_a_split=whole_keys_a_split,
        oversized_alone=oversized_alone,
    )
    return loading.place(items)
