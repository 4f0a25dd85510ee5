"""What every planner of keys starts from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING, Goal
from anabranch.balancing.planners.columns import sum_by
from anabranch.balancing.planners.parts import Parts, locate_parts
from anabranch.model.loads import KeyLoads, LoadError
from anabranch.model.routes import RoutingTable


@dataclass(frozen=True, eq=False)
class Problem:
    """Where the parts of all keys are once the base route holds, and how far each slot is from its fair share."""

    loads: KeyLoads
    table: RoutingTable
    goal: Goal
    parts: Parts
    slot_loads: NDArray[np.float64]
    """By slot, unlisted load included."""
    means: NDArray[np.float64]
    limits: NDArray[np.float64]

    @cached_property
    def homes(self) -> NDArray[np.int32]:
        """The later home of each key."""
        return self.loads.later_homes

    @cached_property
    def removed(self) -> NDArray[np.bool_]:
        """By slot, whether it must be emptied."""
        return np.arange(self.goal.slots_in_all) >= self.goal.slots_later

    @cached_property
    def overloaded(self) -> NDArray[np.bool_]:
        """By slot, whether it must give something away."""
        return self.removed | (self.slot_loads > self.limits + ROUNDING * self.means)

    @cached_property
    def all_divisible(self) -> bool:
        """Whether every key may be split."""
        return self.loads.splittable is None or bool(self.loads.splittable.all())

    def may_split(self, key_rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether the keys' rows may be shared out."""
        if self.loads.splittable is None or self.all_divisible:
            return np.ones(len(key_rows), np.bool_)
        return self.loads.splittable[key_rows]

    def group_parts(self, slots: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the parts of the chosen slots, grouped by slot in the order of keys, and by slot where each begins."""
        chosen = np.flatnonzero(slots[self.parts.slots])
        # Narrow integers are sorted by digit, in time proportional to their number.
        narrow = np.uint16 if len(slots) <= 2**16 else np.int32
        owners = self.parts.slots[chosen]
        order = np.argsort(owners.astype(narrow), kind="stable")
        begins = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=len(slots)))))
        return chosen[order], begins


def pose_problem(loads: KeyLoads, table: RoutingTable, goal: Goal) -> Problem:
    """Check that loads, table and goal fit together, and add up the slots' loads."""
    _check_slots(loads, table, goal)
    parts = locate_parts(loads, table)
    slot_loads = sum_by(parts.slots, parts.loads, goal.slots_in_all)
    if loads.unlisted is not None:
        slot_loads[: len(loads.unlisted)] += loads.unlisted
    means = goal.find_means(float(slot_loads.sum()))
    return Problem(loads, table, goal, parts, slot_loads, means, means * (1 + goal.tolerance))


def _check_slots(loads: KeyLoads, table: RoutingTable, goal: Goal) -> None:
    if len(loads) and int(loads.homes.max()) >= goal.slots:
        msg = f"homes name slot {int(loads.homes.max())}; there are slots 0 to {goal.slots - 1}"
        raise LoadError(msg)
    if len(table.keys) and int(table.slots.max()) >= goal.slots:
        msg = f"the routing table names slot {int(table.slots.max())}; there are slots 0 to {goal.slots - 1}"
        raise LoadError(msg)
    if len(loads) and int(loads.later_homes.max()) >= goal.slots_later:
        msg = (
            f"the base route leads to slot {int(loads.later_homes.max())}, and there are {goal.slots_later} slots "
            "after the plan; give next_homes, the homes under the base route of the slots that stay"
        )
        raise LoadError(msg)
    if loads.unlisted is None:
        return
    if len(loads.unlisted) > goal.slots_in_all:
        msg = f"unlisted has {len(loads.unlisted)} rows for {goal.slots_in_all} slots; give one a slot"
        raise LoadError(msg)
    if (loads.unlisted[goal.slots_later :] > 0).any():
        msg = (
            "slots that are removed have unlisted load; give unlisted as it is under the base route of those that stay"
        )
        raise LoadError(msg)
