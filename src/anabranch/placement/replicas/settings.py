"""How many copies of its state a slot has in the memory of hosts, and how hosts are chosen."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import name_alternatives
from anabranch.model.loads import LoadError

PLACEMENTS = ("mrp", "random", "whole-cluster")


@dataclass(frozen=True, slots=True)
class Replicas:
    """Copies of slots' state in the memory of other hosts.

    Examples:
        >>> from anabranch.placement.replicas import Replicas
        >>> Replicas().replicas_a_slot
        2
        >>> Replicas(degree=0)
        Traceback (most recent call last):
        ...
        anabranch.model.loads.LoadError: degree is 0; it counts the slot's own state as well: \
give 1 for no replicas, 3 for two of them
    """

    degree: int = 3
    """Copies of a slot's state, its own included; each on a host of its own."""
    placement: str = "mrp"
    """*mrp*: few hosts, near ones first, within their limits. *random* and *whole-cluster* are to compare with."""
    spare: float = 0.1
    """The part of a host's memory and bandwidth that new replicas leave free. Those that stand may take it: what is
    measured goes up and down, and replicas are not to follow."""

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            msg = f"degree is {self.degree!r}; it counts the slot's own state as well: "
            msg += "give 1 for no replicas, 3 for two of them"
            raise LoadError(msg)
        if self.placement not in PLACEMENTS:
            msg = f"there is no placement {self.placement!r}; {name_alternatives(str(self.placement), PLACEMENTS)}"
            raise LoadError(msg)
        if not 0 <= self.spare < 1:
            msg = f"spare is {self.spare}; it is a part of what hosts have: give a number from 0 on and below 1"
            raise LoadError(msg)

    @property
    def replicas_a_slot(self) -> int:
        """Copies beside the slot's own state."""
        return self.degree - 1
