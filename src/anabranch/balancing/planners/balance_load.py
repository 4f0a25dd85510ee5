"""BalanceLoad: whole buckets from the busiest slot to the idlest."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING, Goal
from anabranch.balancing.planners.columns import sum_by
from anabranch.balancing.planners.outcome import Clock
from anabranch.model.loads import BucketLoads, LoadError
from anabranch.model.moves import MoveEffect, MoveKind, MovePlan, MoveReason, Moves, PlanCosts
from anabranch.model.routes import BucketMap, RoutingTable

SMALLEST_GAIN = 1e-4
"""By how much a move must lower the standard deviation of the slots' loads, each over its fair share."""


def balance_buckets(
    loads: BucketLoads,
    goal: Goal,
    *,
    table: RoutingTable | None = None,
    smallest_gain: float = SMALLEST_GAIN,
    closed: Sequence[int] = (),
    clock: Clock | None = None,
) -> MovePlan:
    """Move the busiest slot's hottest bucket to the idlest slot, again and again, while that gains enough.

    A bucket hotter than the gap stays put: moving it only moves the hot spot, so splitting its keys is left to
    ``plan_mnrt``. The routing table stays as it is. Slots that are ``closed`` give all away.
    """
    started = clock() if clock else 0.0
    count = goal.slots_in_all
    _check_slots(loads, goal)
    settled = np.zeros(count)
    if loads.settled is not None:
        settled[: len(loads.settled)] = loads.settled
    owners = loads.slots_of
    before = settled + sum_by(owners, loads.loads, count)
    means = _share_out(goal, float(before.sum()), closed)
    dealing = _Dealing(before.copy(), means, owners, loads.loads)
    dealing.offload([*closed, *range(goal.slots_later, goal.slots)])
    dealing.balance(smallest_gain)
    after = settled + sum_by(dealing.owners, loads.loads, count)
    moves = _list_moves(loads, dealing.owners, goal, closed)
    limits = means * (1 + goal.tolerance)
    new_table = RoutingTable.empty() if table is None else table
    return MovePlan(
        planner="balance-load",
        moves=moves,
        table=new_table,
        bucket_map=BucketMap(goal.slots_later, tuple(dealing.owners.tolist())),
        loads_before=before,
        loads_after=after,
        means=means,
        limits=limits,
        costs=PlanCosts(
            planning_seconds=clock() - started if clock else None,
            table_rows=len(new_table.keys),
            moved_bytes=float(moves.state_bytes.sum()),
            split_load=0.0,
        ),
        shortfall=_describe_shortfall(after, means, limits),
    )


def _share_out(goal: Goal, load: float, closed: Sequence[int]) -> NDArray[np.float64]:
    """Return each slot's fair share of a load; 0 for slots that are closed."""
    if not closed:
        return goal.find_means(load)
    means = goal.find_means(1.0)
    means[list(closed)] = 0.0
    return means * (load / float(means.sum()))


def _check_slots(loads: BucketLoads, goal: Goal) -> None:
    if loads.buckets.slots != goal.slots:
        msg = f"the bucket map has {loads.buckets.slots} slots and the goal {goal.slots}; give the goal the map's"
        raise LoadError(msg)
    if loads.settled is None:
        return
    if len(loads.settled) > goal.slots_in_all or (loads.settled[goal.slots_later :] > 0).any():
        msg = (
            f"settled loads lie on slots beyond the {goal.slots_later} after the plan; "
            "plan where the routing table's keys go first"
        )
        raise LoadError(msg)


@dataclass(slots=True, eq=False)
class _Dealing:
    """The buckets as they are being dealt: slots' loads, and each slot's buckets by load."""

    slot_loads: NDArray[np.float64]
    means: NDArray[np.float64]
    owners: NDArray[np.int32]
    bucket_loads: NDArray[np.float64]

    def __post_init__(self) -> None:
        self.owners = self.owners.copy()

    def offload(self, removed: Sequence[int]) -> None:
        """Empty the slots that are removed, hottest buckets first, each into the slot that is then idlest."""
        homeless = np.flatnonzero(np.isin(self.owners, np.array(removed, np.int64)))
        stays = self.means > 0
        left = np.setdiff1d(np.arange(len(self.means)), np.array(removed, np.int64))
        # Hottest first, ties by number: equal inputs must give equal plans.
        for bucket in homeless[np.argsort(-self.bucket_loads[homeless], kind="stable")].tolist():
            later = self.slot_loads + self.bucket_loads[bucket]
            relative = np.full(len(later), np.inf)
            relative[stays] = later[stays] / self.means[stays]
            # Without any load, all slots are alike, and the first with a fair share need not exist.
            target = int(np.argmin(relative)) if stays.any() else int(left[bucket % len(left)])
            self._move(bucket, target)

    def balance(self, smallest_gain: float) -> None:
        """Move buckets from busy slots to idle ones until no move gains enough."""
        if not (self.means > 0).any():
            return
        stays = np.flatnonzero(self.means > 0)
        shelves: dict[int, list[tuple[float, int]]] = {int(slot): [] for slot in stays}
        for bucket in np.flatnonzero(self.bucket_loads > 0).tolist():
            shelves[int(self.owners[bucket])].append((float(self.bucket_loads[bucket]), bucket))
        for shelf in shelves.values():
            shelf.sort()
        giving = set(shelves)
        while giving:
            relative = self.slot_loads[stays] / self.means[stays]
            idlest = int(stays[np.argmin(relative)])
            busiest = max(sorted(giving), key=lambda slot: self.slot_loads[slot] / self.means[slot])
            found = self._find_bucket(shelves[busiest], busiest, idlest)
            if found is None or self._find_gain(relative, found[0], busiest, idlest) < smallest_gain:
                # What the idlest slot cannot take now it cannot take later, when it is fuller.
                giving.discard(busiest)
                continue
            shelves[busiest].remove(found)
            insort(shelves[idlest], found)
            self._move(found[1], idlest)

    def _find_bucket(self, shelf: list[tuple[float, int]], busiest: int, idlest: int) -> tuple[float, int] | None:
        """Return the hottest bucket that evens the two slots out, or the coolest above that if it narrows the gap."""
        share = self.means[idlest] / (self.means[busiest] + self.means[idlest])
        even = (self.slot_loads[busiest] + self.slot_loads[idlest]) * share - self.slot_loads[idlest]
        gap = self.slot_loads[busiest] * self.means[idlest] / self.means[busiest] - self.slot_loads[idlest]
        above = bisect_left(shelf, (float(even) * (1 + ROUNDING), -1))
        if above:
            # Of equally hot buckets, the first in number.
            return shelf[bisect_left(shelf, (shelf[above - 1][0], -1))]
        if above < len(shelf) and shelf[above][0] < gap * (1 - ROUNDING):
            return shelf[above]
        return None

    def _find_gain(self, relative: NDArray[np.float64], load: float, busiest: int, idlest: int) -> float:
        """Return by how much a move lowers the standard deviation of the relative loads, whose mean is 1."""
        now = float(((relative - 1) ** 2).sum())
        later = now
        for slot, change in ((busiest, -load), (idlest, load)):
            mean = float(self.means[slot])
            off = float(self.slot_loads[slot]) / mean - 1
            later += (off + change / mean) ** 2 - off**2
        return sqrt(now / len(relative)) - sqrt(max(later, 0.0) / len(relative))

    def _move(self, bucket: int, target: int) -> None:
        load = self.bucket_loads[bucket]
        self.slot_loads[self.owners[bucket]] -= load
        self.slot_loads[target] += load
        self.owners[bucket] = target


def _list_moves(loads: BucketLoads, owners: NDArray[np.int32], goal: Goal, closed: Sequence[int]) -> Moves:
    before = loads.slots_of
    moved = np.flatnonzero(before != owners)
    reasons = np.where(before[moved] >= goal.slots_later, MoveReason.SLOT_REMOVED, MoveReason.NARROWS_GAP)
    reasons = np.where(np.isin(before[moved], np.array(closed, np.int64)), MoveReason.MAKES_ROOM, reasons)
    return Moves(
        "bucket",
        moved.astype(np.uint64),
        before[moved],
        owners[moved],
        np.ones(len(moved)),
        loads.loads[moved],
        loads.state_bytes[moved],
        # The bucket map is the base route: wherever it puts a bucket, there is its home.
        np.full(len(moved), MoveKind.RETURN_HOME, np.int8),
        np.full(len(moved), MoveEffect.WHOLE, np.int8),
        reasons.astype(np.int8),
    )


def _describe_shortfall(after: NDArray[np.float64], means: NDArray[np.float64], limits: NDArray[np.float64]) -> str:
    over = np.flatnonzero(after > limits + ROUNDING * means.max(initial=0.0))
    if not len(over):
        return ""
    worst = int(over[np.argmax(after[over] - limits[over])])
    return (
        f"slot {worst} carries {after[worst]:.6g}, its limit is {limits[worst]:.6g}; "
        "no bucket of it is small enough to move, so split its hot keys with mnrt"
    )
