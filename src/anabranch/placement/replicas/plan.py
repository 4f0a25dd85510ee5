"""Where replicas stand, as data: what a plan changes, what it costs, and what it could not place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.model.cluster import SlotId

StandingReplicas = Mapping[SlotId, tuple[str, ...]]
"""Slot → the hosts with its replicas; its home is not among them."""


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """Copy a slot's state to a host that does not have it."""

    slot: SlotId
    source: str
    """The host that it is copied from."""
    target: str
    state_bytes: float
    reason: str


@dataclass(frozen=True, slots=True)
class ReplicaDrop:
    """Forget a copy."""

    slot: SlotId
    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class Nearest:
    """The host that lacks least, and what it has."""

    host: str
    free: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """A slot that has fewer copies than it should, and what its next replica would have needed."""

    slot: SlotId
    home: str
    degree: int
    copies: int
    """That it has, its own included."""
    state_bytes: float
    replica_bytes_per_second: float
    hosts: int
    leaving: int
    short_of_memory: int
    """Hosts without a copy that have too little memory left."""
    short_of_bandwidth: int
    """Hosts without a copy that have the memory, but too little bandwidth."""
    most_memory: Nearest | None
    most_bandwidth: Nearest | None
    home_bandwidth: float | None
    """What the slot's home has left, if that is too little to send a replica; None if it is enough."""

    def __str__(self) -> str:
        needs = f"{format_bytes(self.state_bytes)} and {format_bytes(self.replica_bytes_per_second)}/s"
        told = f"no host can take copy {self.copies + 1} of {self.degree} of slot {self.slot} ({needs}): "
        if self.home_bandwidth is not None:
            return f"{told}its home {self.home} has {format_bytes(self.home_bandwidth)}/s left to send it"
        found = [f"of {self.hosts} hosts {self.copies} {'has' if self.copies == 1 else 'have'} a copy"]
        if self.leaving:
            found.append(f"{self.leaving} {'is' if self.leaving == 1 else 'are'} leaving")
        if self.most_memory is not None:
            left = f"{self.most_memory.host} has most, {format_bytes(self.most_memory.free)}"
            found.append(f"{self.short_of_memory} lack memory ({left})")
        if self.most_bandwidth is not None:
            left = f"{self.most_bandwidth.host} has most, {format_bytes(self.most_bandwidth.free)}/s"
            found.append(f"{self.short_of_bandwidth} lack bandwidth ({left})")
        return told + ", ".join(found)


class ResourcesInsufficient(AnabranchError):
    """Hosts cannot hold as many replicas as are wanted; ``missing`` says which, and what there is too little of."""

    def __init__(self, missing: tuple[Shortage, ...]) -> None:
        more = (
            f", and {len(missing) - 1} more {'slots lack' if len(missing) > 2 else 'slot lacks'} copies"
            if missing[1:]
            else ""
        )
        super().__init__(
            f"resources insufficient: {missing[0]}{more}; add hosts, give them more memory or bandwidth for replicas, "
            "or lower the degree; replicas stay where they were"
        )
        self.missing = missing


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """Where replicas stand from now on, and what has to be done for it."""

    replicas: StandingReplicas
    moves: tuple[ReplicaMove, ...]
    drops: tuple[ReplicaDrop, ...]
    missing: tuple[Shortage, ...]
    """Slots that have fewer copies than they should; none if all could be placed."""
    replica_hosts: int
    """Hosts with a replica."""
    used_hosts: int
    """Hosts with a slot or a replica: what the paper makes small first."""
    delay_bytes: float
    """Bytes of replicas that are on their way at any time: what it makes small after that."""
    reason: str

    @property
    def moved_bytes(self) -> float:
        """State that is copied."""
        return sum(move.state_bytes for move in self.moves)


def format_bytes(count: float) -> str:
    """Return bytes as people say them."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g} B"
