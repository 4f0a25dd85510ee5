"""What is known when replicas are placed: hosts with their limits, slots with their sizes, the network between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import name_alternatives
from anabranch.model.cluster import SlotId
from anabranch.model.loads import LoadError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReplicaHost:
    """A machine that may hold replicas, and what all on it together may take."""

    name: str
    bandwidth_bytes_per_second: float = math.inf
    """Of its wire, both ways together."""
    memory_bytes: float = math.inf
    """For the state of its slots, and replicas."""
    is_leaving: bool = False
    """It gets no replicas, and those it has are to stand elsewhere."""


@dataclass(frozen=True, slots=True)
class ReplicaSlot:
    """A slot whose state is copied."""

    slot: SlotId
    home: str
    """The host that it runs on."""
    degree: int
    """Copies that are wanted, its own included."""
    state_bytes: float = 0.0
    """What each copy takes of a host's memory."""
    replica_bytes_per_second: float = 0.0
    """What each replica is sent, and takes of the bandwidth of both hosts."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """What lies between hosts, as it was measured; rows and columns in the order of the hosts."""

    latency_seconds: Floats
    sent_bytes_per_second: Floats | None = None
    """From the host of the row to that of the column, replicas not included; nothing if it is not given."""


@dataclass(frozen=True, eq=False)
class ReplicaProblem:
    """Hosts, slots and network, checked against each other."""

    hosts: tuple[ReplicaHost, ...]
    slots: tuple[ReplicaSlot, ...]
    network: Network
    places: dict[str, int] = field(init=False)
    """Host → its place in all columns."""
    homes: NDArray[np.int64] = field(init=False)
    """By slot, the place of its home."""

    def __post_init__(self) -> None:
        places = {host.name: place for place, host in enumerate(self.hosts)}
        if len(places) < len(self.hosts):
            msg = f"{len(self.hosts) - len(places)} hosts have the name of another; give each host once"
            raise LoadError(msg)
        if len({slot.slot for slot in self.slots}) < len(self.slots):
            msg = "a slot is there more than once; give each slot once"
            raise LoadError(msg)
        for host in self.hosts:
            _refuse_negative(f"host {host.name}", "bandwidth_bytes_per_second", host.bandwidth_bytes_per_second)
            _refuse_negative(f"host {host.name}", "memory_bytes", host.memory_bytes)
        for slot in self.slots:
            if slot.home not in places:
                some = [host.name for host in self.hosts[:20]]
                msg = f"slot {slot.slot} is at home on {slot.home!r}, which is no host; "
                msg += f"{name_alternatives(slot.home, some)}; give lost slots a home first"
                raise LoadError(msg)
            if slot.degree < 1:
                msg = f"slot {slot.slot} has degree {slot.degree}; it counts the slot's own state: give at least 1"
                raise LoadError(msg)
            _refuse_negative(f"slot {slot.slot}", "state_bytes", slot.state_bytes)
            _refuse_negative(f"slot {slot.slot}", "replica_bytes_per_second", slot.replica_bytes_per_second)
        for name in ("latency_seconds", "sent_bytes_per_second"):
            self._check_matrix(name)
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "homes", np.array([places[slot.home] for slot in self.slots], np.int64))

    def _check_matrix(self, name: str) -> None:
        matrix: Floats | None = getattr(self.network, name)
        if matrix is None:
            return
        if matrix.shape != (len(self.hosts), len(self.hosts)):
            shape = " × ".join(map(str, matrix.shape))
            msg = f"{name} is {shape} for {len(self.hosts)} hosts; give a row and a column for each"
            raise LoadError(msg)
        if not (np.isfinite(matrix).all() and (matrix >= 0).all()):
            msg = f"{name} has numbers below 0, or that are none; give what was measured, and 0 from a host to itself"
            raise LoadError(msg)

    @cached_property
    def traffic(self) -> Floats:
        """By host, the bytes a second that cross its wire without any replica."""
        sent = self.network.sent_bytes_per_second
        if sent is None:
            return np.zeros(len(self.hosts))
        crossing = sent - np.diag(np.diag(sent))
        both: Floats = crossing.sum(axis=0) + crossing.sum(axis=1)
        return both

    @cached_property
    def mean_latency(self) -> Floats:
        """By host, the seconds to another one, in the mean."""
        latency = self.network.latency_seconds
        mean: Floats = (latency.sum(axis=1) - np.diag(latency)) / max(1, len(self.hosts) - 1)
        return mean


def _refuse_negative(owner: str, name: str, value: float) -> None:
    if not value >= 0:
        msg = f"{owner} has {name} {value}; give 0 or more, and infinity where there is no limit"
        raise LoadError(msg)


def list_names(problem: ReplicaProblem, places: Sequence[int]) -> tuple[str, ...]:
    """Return the names of hosts at these places."""
    return tuple(problem.hosts[place].name for place in places)
