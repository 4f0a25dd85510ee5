"""What a plan has to reach: how many slots, how strong they are, and how far above the mean a slot may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.model.balance import OversizedChoice
from anabranch.model.loads import LoadError

ROUNDING = 1e-9
"""Loads that differ by less, relative to a slot's fair share, are equal: sums of floats depend on their order."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Bring every slot below (1 + tolerance) times its fair share of the load.

    A slot that is added is an empty one; a slot that is removed has no fair share and must be emptied.
    """

    slots: int
    tolerance: float = 0.05
    slots_after: int | None = None
    """The number of slots once the plan is carried out; as many as now when it is not given."""
    powers: tuple[float, ...] | None = None
    """What each slot can do, by slot after the plan; all the same when it is not given."""
    oversized: OversizedChoice = "fill"
    """Where a key goes that no slot can hold: it *fills* the gaps of all, or has as few slots as will do *alone*."""

    def __post_init__(self) -> None:
        if self.slots < 1 or (self.slots_after is not None and self.slots_after < 1):
            msg = f"slots is {self.slots} and slots_after {self.slots_after}; a level has at least one slot"
            raise LoadError(msg)
        if not self.tolerance >= 0:
            msg = f"tolerance is {self.tolerance}; it is the share by which a slot may exceed the mean, from 0 on"
            raise LoadError(msg)
        if self.powers is None:
            return
        if len(self.powers) != self.slots_later or not all(power > 0 for power in self.powers):
            msg = (
                f"powers are {self.powers} for {self.slots_later} slots; give one above 0 for each slot after the plan"
            )
            raise LoadError(msg)

    @property
    def slots_later(self) -> int:
        """The number of slots once the plan is carried out."""
        return self.slots if self.slots_after is None else self.slots_after

    @property
    def slots_in_all(self) -> int:
        """The slots that are there before or after the plan."""
        return max(self.slots, self.slots_later)

    def find_means(self, load: float) -> NDArray[np.float64]:
        """Return each slot's fair share of a load; 0 for slots that are removed."""
        powers = np.zeros(self.slots_in_all)
        powers[: self.slots_later] = 1.0 if self.powers is None else self.powers
        return powers * (load / float(powers.sum()))
