"""Which keys leave a slot that is above its limit: the first half of MNRT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING
from anabranch.balancing.planners.columns import find_firsts
from anabranch.balancing.planners.problem import Problem

# In the order in which parts leave: what merges a split key, then what sends a whole one home or on, then the rest,
# by migration cost. A key that no slot can hold is split anyway, so cutting it comes before touching others, unless it
# is to have its slots to itself.
_MERGE_HOME, _MERGE_SHIFT, _MERGE_OUT, _WHOLE_HOME, _WHOLE_SHIFT, _OVERSIZED, _BY_COST, _OVERSIZED_LAST = range(8)

# Steps of the cost per load to the octave: keys within a step are equally cheap, and the largest of them goes first.
_COST_STEPS = 8
# Off every round number, so that equal costs do not fall on both sides of a step by rounding.
_COST_OFFSET = 0.377
# Beginnings of the order that are tried before all of a slot's parts are sorted.
_FIRST_TRY = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """Rows of the candidates to take whole, and one to cut, with the amount to take of it; no row is -1."""

    rows: NDArray[np.int64]
    cut: int = -1
    amount: float = 0.0
    enough: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Parts of one slot in the order in which they should leave it."""

    parts: NDArray[np.int64]
    loads: NDArray[np.float64]
    may_cut: NDArray[np.bool_]
    is_split: NDArray[np.bool_]
    """The key is split already: cutting it once more makes no new split key."""
    oversized: NDArray[np.bool_]
    """No slot can hold the key: never more than needed is taken of it."""


class Ranking:
    """The order in which parts leave their slots, by table 2's priorities and migration cost per load."""

    def __init__(self, problem: Problem, *, oversized_alone: bool = False) -> None:
        parts = problem.parts
        self._problem = problem
        self._oversized_alone = oversized_alone
        self._classes = np.full(len(parts.slots), _BY_COST, np.int8)
        self._is_split = np.zeros(len(parts.slots), np.bool_)
        self._largest_limit = float(problem.limits.max(initial=0.0))
        if len(parts.listed):
            self._rank_listed()

    def order(self, parts: NDArray[np.int64], enough: float) -> Candidates:
        """Return the parts of one slot in the order in which they leave, as many as hold ``enough`` load or all."""
        loads = self._problem.parts.loads[parts]
        # A key that may not be split and that no slot can hold is the hot spot wherever it is.
        loaded = np.flatnonzero((loads > 0) & ~self._find_stuck(parts))
        codes = self._encode(parts[loaded], loads[loaded])
        if len(loaded) > 2 * _FIRST_TRY and self._problem.all_divisible:
            first = np.argpartition(codes, _FIRST_TRY)[:_FIRST_TRY]
            if float(loads[loaded[first]].sum()) >= enough:
                loaded, codes = loaded[first], codes[first]
        return self._describe(parts[loaded[np.argsort(codes, kind="stable")]])

    def _find_stuck(self, parts: NDArray[np.int64]) -> NDArray[np.bool_]:
        if self._problem.all_divisible:
            return np.zeros(len(parts), np.bool_)
        key_rows = self._problem.parts.key_rows[parts]
        too_large = self._problem.loads.loads[key_rows] > self._largest_limit
        return too_large & ~self._problem.may_split(key_rows)

    def _describe(self, parts: NDArray[np.int64]) -> Candidates:
        problem = self._problem
        key_rows = problem.parts.key_rows[parts]
        may_cut = problem.may_split(key_rows)
        return Candidates(
            parts,
            problem.parts.loads[parts],
            may_cut,
            self._is_split[parts],
            may_cut & (problem.loads.loads[key_rows] > self._largest_limit),
        )

    def _encode(self, parts: NDArray[np.int64], loads: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Return numbers that sort as (class, cost per load in steps, largest first) do."""
        problem = self._problem
        key_rows = problem.parts.key_rows[parts]
        key_loads = problem.loads.loads[key_rows]
        classes = self._classes[parts]
        oversized = (key_loads > self._largest_limit) & (classes == _BY_COST) & problem.may_split(key_rows)
        rank = _OVERSIZED_LAST if self._oversized_alone else _OVERSIZED
        classes = np.where(oversized, rank, classes).astype(np.uint64)
        with np.errstate(divide="ignore"):
            costs = np.log2(problem.loads.state_bytes[key_rows] / key_loads)
        steps = (np.clip(np.floor(costs * _COST_STEPS + _COST_OFFSET), -2047, 2047) + 2048).astype(np.uint64)
        # The bits of a positive float rise with it.
        smallness = (~loads.view(np.uint64)) >> np.uint64(16)
        codes: NDArray[np.uint64] = np.bitwise_or(classes << np.uint64(60), steps << np.uint64(48)) | smallness
        return codes

    def _rank_listed(self) -> None:
        """Rank the parts of keys that the table names: only they can merge, return home or shift."""
        problem = self._problem
        listed = problem.parts.listed
        key_rows, slots = problem.parts.key_rows[listed], problem.parts.slots[listed]
        homes = problem.homes[key_rows]
        has_room = problem.slot_loads < problem.means
        begins = find_firsts(key_rows)
        lengths = np.diff(begins, append=len(listed))
        at_home = slots == homes
        room_at_home = np.repeat(np.logical_or.reduceat(at_home & has_room[slots], begins), lengths)
        room_elsewhere = np.repeat(np.logical_or.reduceat(~at_home & has_room[slots], begins), lengths)
        is_split = np.repeat(lengths > 1, lengths)
        self._is_split[listed] = is_split
        self._classes[listed] = np.select(
            [
                is_split & ~at_home & room_at_home,
                is_split & ~at_home & room_elsewhere,
                is_split & at_home & room_elsewhere,
                ~is_split & ~at_home & has_room[homes],
                ~is_split & ~at_home,
            ],
            [_MERGE_HOME, _MERGE_SHIFT, _MERGE_OUT, _WHOLE_HOME, _WHOLE_SHIFT],
            _BY_COST,
        )


def unload(
    problem: Problem, ranking: Ranking, whole_keys_a_split: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the parts that leave slots above their limits, and the shares of their keys that leave.

    A slot may fall to its mean, not below it, where that spares a split; a removed slot gives everything.
    """
    grouped, begins = problem.group_parts(problem.overloaded)
    parts: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    shares: list[NDArray[np.float64]] = [np.empty(0)]
    for slot in np.flatnonzero(problem.overloaded).tolist():
        residents = grouped[begins[slot] : begins[slot + 1]]
        if problem.removed[slot]:
            parts.append(residents)
            shares.append(problem.parts.shares[residents])
            continue
        load, mean, limit = (float(column[slot]) for column in (problem.slot_loads, problem.means, problem.limits))
        candidates = ranking.order(residents, load - mean)
        picked = pick(candidates, load - limit, load - mean, ROUNDING * mean, whole_keys_a_split)
        leaving = candidates.parts[picked.rows]
        parts.append(leaving)
        shares.append(problem.parts.shares[leaving])
        if picked.cut >= 0:
            part, whole = candidates.parts[picked.cut], float(candidates.loads[picked.cut])
            # Where only a crumb would stay, all of it leaves.
            fraction = 1.0 if whole - picked.amount <= ROUNDING * mean else picked.amount / whole
            parts.append(np.array([part]))
            shares.append(np.array([problem.parts.shares[part] * fraction]))
    return np.concatenate(parts), np.concatenate(shares)


def pick(candidates: Candidates, need: float, room: float, crumb: float, whole_keys_a_split: int) -> Picked:
    """Return what to take so that at least ``need`` leaves, and no more than ``room`` where that can be kept.

    Keys are taken whole in their order. The first that is too large is cut, unless a few whole ones behind it do as
    well; one that may not be cut is passed over, and taken only if nothing else will do. A ``crumb`` more or less does
    not matter.
    """
    loads = candidates.loads
    taken: list[NDArray[np.int64]] = []
    got = 0.0
    rest = np.arange(len(loads))
    while len(rest):
        sums = got + np.cumsum(loads[rest])
        enough = int(np.searchsorted(sums, need - crumb, "left"))
        fitting = int(np.searchsorted(sums, room + crumb, "right"))
        if enough < len(rest) and candidates.oversized[rest[enough]]:
            # Of a key that is split anyway, what is needed goes, and not a row more.
            return Picked(np.concatenate((*taken, rest[:enough])), int(rest[enough]), need - _before(sums, enough, got))
        if enough < fitting:
            return Picked(np.concatenate((*taken, rest[: enough + 1])))
        taken.append(rest[:fitting])
        got = _before(sums, fitting, got)
        if fitting == len(rest):
            break
        too_large, behind = int(rest[fitting]), rest[fitting + 1 :]
        if not candidates.is_split[too_large] or not candidates.may_cut[too_large]:
            instead = _pick_few(loads, behind[:whole_keys_a_split], need - got, room - got)
            if instead is not None:
                return Picked(np.concatenate((*taken, instead)))
        if candidates.may_cut[too_large]:
            return Picked(np.concatenate(taken), too_large, need - got)
        rest = behind[loads[behind] <= room - got]
    rows = np.concatenate(taken) if taken else np.empty(0, np.int64)
    return _add_fixed(candidates, rows, need - got)


def _before(sums: NDArray[np.float64], count: int, got: float) -> float:
    return float(sums[count - 1]) if count else got


def _pick_few(
    loads: NDArray[np.float64], rows: NDArray[np.int64], need: float, room: float
) -> NDArray[np.int64] | None:
    """Return some of the rows, in order, that hold at least ``need`` and at most ``room``; None if they do not."""
    chosen, got = [], 0.0
    for row, load in zip(rows.tolist(), loads[rows].tolist(), strict=True):
        if got + load <= room:
            chosen.append(row)
            got += load
            if got >= need:
                return np.array(chosen)
    return None


def _add_fixed(candidates: Candidates, rows: NDArray[np.int64], missing: float) -> Picked:
    """Add the smallest key left that alone is enough: the slot falls below its mean, but keeps its limit."""
    left = np.setdiff1d(np.arange(len(candidates.loads)), rows)
    large_enough = left[candidates.loads[left] >= missing]
    if missing <= 0 or not len(large_enough):
        return Picked(rows, enough=missing <= 0)
    smallest = large_enough[np.argmin(candidates.loads[large_enough])]
    return Picked(np.append(rows, smallest))
