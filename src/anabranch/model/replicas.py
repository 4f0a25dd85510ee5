"""How many copies of its state a slot has in the memory of hosts, how hosts are chosen, and how that goes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from anabranch.errors import name_alternatives
from anabranch.model.loads import LoadError

PLACEMENTS = ("mrp", "random", "whole-cluster")


@dataclass(frozen=True, slots=True)
class Replicas:
    """Copies of slots' state in the memory of other hosts, from which a flow goes on when a host is lost.

    Examples:
        >>> replicas = ab.Replicas(degree=3, placement="mrp", memory_mb=2048)
        >>> replicas.replicas_a_slot, replicas.memory_mb
        (2, 2048)
        >>> ab.Replicas(degree=0)
        Traceback (most recent call last):
        ...
        anabranch.model.loads.LoadError: degree is 0; it counts the slot's own state as well: \
give 1 for no replicas, 3 for two of them
    """

    degree: int = 3
    """Copies of a slot's state, its own included; each on a host of its own."""
    placement: str = "mrp"
    """*mrp*: few hosts, near ones first, within their limits. *random* and *whole-cluster* are to compare with."""
    memory_mb: float = 1024.0
    """What replicas may take of the memory of a host, all slots together; less where less is free."""
    bandwidth_mbit: float | None = None
    """What the wire of a host carries, both ways together; None: what its network interfaces say of themselves."""
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
        if not 0 < self.memory_mb < math.inf:
            msg = f"memory_mb is {self.memory_mb}; give how many megabytes of a host replicas may take, such as 1024"
            raise LoadError(msg)
        if self.bandwidth_mbit is not None and not self.bandwidth_mbit > 0:
            msg = f"bandwidth_mbit is {self.bandwidth_mbit}; give megabits a second, or None for what hosts say"
            raise LoadError(msg)
        if not 0 <= self.spare < 1:
            msg = f"spare is {self.spare}; it is a part of what hosts have: give a number from 0 on and below 1"
            raise LoadError(msg)

    @property
    def replicas_a_slot(self) -> int:
        """Copies beside the slot's own state."""
        return self.degree - 1

    @property
    def memory_bytes(self) -> int:
        """What replicas may take of a host's memory."""
        return int(self.memory_mb * 2**20)

    @classmethod
    def from_names(cls, given: Mapping[str, Any]) -> Replicas:
        """Return settings that are given by name, as flow files give them; raise ``LoadError`` if one is no setting."""
        known = {one.name: str(one.type) for one in fields(cls)}
        read: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                msg = f"there is no setting {name!r}; {name_alternatives(name, known)}"
                raise LoadError(msg)
            read[name] = value if value is None or known[name] == "str" else _read_number(name, value)
        return cls(**read)


def _read_number(name: str, value: Any) -> float:
    try:
        number = float("" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or (name == "degree" and not number.is_integer()):
        msg = f"{name} is {value!r}; give a {'whole ' if name == 'degree' else ''}number"
        raise LoadError(msg)
    return int(number) if name == "degree" else number


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """How replicas stood when a batch was over.

    Replicas are copied beside the batches, so those of a batch are rarely there as it ends.
    """

    wanted: int = 0
    """Replicas that slots should have, all together."""
    placed: int = 0
    """Those of them that have a host."""
    current: int = 0
    """Those of them that hold all state of the batch."""
    hosts: int = 0
    """Hosts that hold replicas."""
    lag_batches: int = 0
    """How many batches ago all replicas that are placed held all state of a batch."""
    lag_bytes: int = 0
    """What must still be copied."""
    held_bytes: int = 0
    """What replicas take of the memory of all hosts together."""
    copied_bytes: int = 0
    """What was copied since the batch before."""
    copying_seconds: float = 0.0
    """How long that took, beside the batches."""
    problem: str = ""
    """Why there are fewer than wanted, or why they cannot be copied; empty if nothing is wrong."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReplicaProgress:
        """Read what ``to_json`` wrote; figures that this version does not know are left out."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})

    def describe(self) -> str:
        """Return it in words."""
        told = f"{self.current:,} of {self.wanted:,} replicas hold all state, on {self.hosts} hosts"
        if self.lag_bytes:
            batches = f"{self.lag_batches} batch{'es' if self.lag_batches != 1 else ''}"
            told += f", {self.lag_bytes / 2**20:,.1f} MB and {batches} behind"
        return told + (f"; {self.problem}" if self.problem else "")
