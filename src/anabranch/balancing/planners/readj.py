"""Readj: whole keys only, swapped or moved between pairs of slots; here to be compared with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING, Goal
from anabranch.balancing.planners.columns import sum_by
from anabranch.balancing.planners.outcome import Change, Clock, make_move_plan
from anabranch.balancing.planners.problem import Problem
from anabranch.model.loads import KeyLoads
from anabranch.model.moves import MovePlan, MoveReason, find_imbalance
from anabranch.model.routes import RoutingTable

LARGE_SHARE = 0.005
"""A key is large from this share of a slot's fair share on; smaller ones live at home."""
STEPS_AT_MOST = 2_000
_LARGE_KEYS_AT_MOST = 20_000


def plan_readj(
    loads: KeyLoads,
    table: RoutingTable,
    goal: Goal,
    *,
    clock: Clock | None = None,
    large_share: float = LARGE_SHARE,
    steps_at_most: int = STEPS_AT_MOST,
) -> MovePlan:
    """Send small keys home, then swap or move large ones between the busiest slot and any other while that helps.

    No key is split, and split ones are gathered: a key above the limit keeps its slot above the limit. The search
    tries every pair of keys, so it is bounded by steps.
    """
    choose = partial(_choose, large_share=large_share, steps_at_most=steps_at_most)
    return make_move_plan("readj", choose, loads, table, goal, clock)


def _choose(problem: Problem, large_share: float, steps_at_most: int) -> Change:
    if not problem.overloaded.any() and not len(problem.parts.listed):
        return Change.nothing()
    before = find_imbalance(problem.slot_loads, problem.means)
    search = _Search.begin(problem, large_share, sends_home=True)
    search.run(steps_at_most)
    if find_imbalance(search.slot_loads, problem.means) > max(before, 1 + problem.goal.tolerance) * (1 + ROUNDING):
        # Small keys that were away kept the balance: leave them there.
        search = _Search.begin(problem, large_share, sends_home=False)
        search.run(steps_at_most)
    return search.conclude()


@dataclass(slots=True, eq=False)
class _Search:
    problem: Problem
    places: NDArray[np.int32]
    """By key, the slot that has all of it."""
    gathered: NDArray[np.int32]
    """The same before the search."""
    slot_loads: NDArray[np.float64]
    large: list[tuple[NDArray[np.int64], NDArray[np.float64]]]
    """By slot, its large keys and their loads, by load."""

    @classmethod
    def begin(cls, problem: Problem, large_share: float, *, sends_home: bool) -> _Search:
        """Gather split keys where most of them is, send small ones home if asked to, and empty removed slots."""
        parts, loads, count = problem.parts, problem.loads.loads, problem.goal.slots_in_all
        places = problem.homes.copy()
        # A key's parts are adjacent: in rising order of their shares, the largest is written last.
        by_share = parts.listed[np.lexsort((-parts.slots[parts.listed], parts.shares[parts.listed]))]
        places[parts.key_rows[by_share]] = parts.slots[by_share]
        threshold = large_share * float(problem.means[~problem.removed].min())
        is_large = loads >= max(threshold, np.finfo(np.float64).tiny)
        if int(is_large.sum()) > _LARGE_KEYS_AT_MOST:
            is_large = np.zeros(len(loads), np.bool_)
            is_large[np.argsort(-loads, kind="stable")[:_LARGE_KEYS_AT_MOST]] = True
        returns = problem.removed[places] | (~is_large if sends_home else False)
        places = np.where(returns, problem.homes, places)
        slot_loads = sum_by(places, loads, count)
        if problem.loads.unlisted is not None:
            slot_loads[: len(problem.loads.unlisted)] += problem.loads.unlisted
        large = []
        rows = np.flatnonzero(is_large)
        rows = rows[np.argsort(loads[rows], kind="stable")]
        for slot in range(count):
            here = rows[places[rows] == slot]
            large.append((here, loads[here]))
        return cls(problem, places, places.copy(), slot_loads, large)

    def run(self, steps_at_most: int) -> None:
        """Relieve the busiest slot, step by step, until all are within their limits or none can be relieved."""
        problem = self.problem
        stays = np.flatnonzero(~problem.removed)
        stuck = np.zeros(len(self.slot_loads), np.bool_)
        for _ in range(steps_at_most):
            over = (self.slot_loads > problem.limits * (1 + ROUNDING)) & ~stuck & ~problem.removed
            if not over.any():
                return
            relative = np.where(over, self.slot_loads / np.maximum(problem.means, np.finfo(np.float64).tiny), -np.inf)
            busiest = int(np.argmax(relative))
            others = [slot for slot in stays.tolist() if slot != busiest]
            found = [self._try_pair(busiest, other) for other in others]
            best = min((one for one in found if one is not None), default=None)
            if best is None:
                stuck[busiest] = True
                continue
            self._exchange(busiest, best[1], best[2], best[3])

    def _try_pair(self, busiest: int, other: int) -> tuple[float, int, int, int] | None:
        """Return the larger relative load of the two slots after their best exchange, the other slot and two keys.

        The key given is a row of the busiest slot's large keys, the key taken one of the other's, or -1 for none.
        None if no exchange lowers the busiest slot's load.
        """
        means = self.problem.means
        load, other_load = float(self.slot_loads[busiest]), float(self.slot_loads[other])
        given, taken = self.large[busiest][1], np.concatenate(([0.0], self.large[other][1]))
        if not len(given):
            return None
        even = (load + other_load) * means[other] / (means[busiest] + means[other]) - other_load
        near = np.searchsorted(taken, given - even)
        best: tuple[float, int, int, int] | None = None
        for choice in (np.maximum(near - 1, 0), np.minimum(near, len(taken) - 1)):
            change = given - taken[choice]
            worse = np.maximum((load - change) / means[busiest], (other_load + change) / means[other])
            row = int(np.argmin(worse))
            if worse[row] < load / means[busiest] * (1 - ROUNDING) and (best is None or worse[row] < best[0]):
                best = (float(worse[row]), other, row, int(choice[row]) - 1)
        return best

    def _exchange(self, busiest: int, other: int, given: int, taken: int) -> None:
        key_given = int(self.large[busiest][0][given])
        key_taken = int(self.large[other][0][taken]) if taken >= 0 else None
        self._hand_over(key_given, busiest, other)
        if key_taken is not None:
            self._hand_over(key_taken, other, busiest)

    def _hand_over(self, key_row: int, source: int, target: int) -> None:
        load = float(self.problem.loads.loads[key_row])
        keys, loads = self.large[source]
        left = keys != key_row
        self.large[source] = (keys[left], loads[left])
        keys, loads = self.large[target]
        where = int(np.searchsorted(loads, load))
        self.large[target] = (np.insert(keys, where, key_row), np.insert(loads, where, load))
        self.slot_loads[source] -= load
        self.slot_loads[target] += load
        self.places[key_row] = target

    def conclude(self) -> Change:
        """Return the parts that are not where their keys are now, and put them there."""
        parts = self.problem.parts
        differs = np.flatnonzero(parts.slots != self.places[parts.key_rows])
        key_rows = parts.key_rows[differs]
        exchanged = self.places[key_rows] != self.gathered[key_rows]
        relieved = exchanged & self.problem.overloaded[parts.slots[differs]]
        reasons = np.where(
            relieved, MoveReason.OVERLOADED, np.where(exchanged, MoveReason.SWAPPED, MoveReason.GATHERED)
        )
        shares = parts.shares[differs]
        return Change(differs, shares, reasons.astype(np.int8), key_rows, self.places[key_rows], shares)
