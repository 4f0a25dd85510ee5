"""A simulated cluster as data: hosts and their links, slots with what they cost and send, and where they are.

One executor runs on a host and has its name, so that homes mean the same to policies here and on Spark.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import AnabranchError, name_alternatives
from anabranch.model.cluster import Executor, Homes, SlotId, SlotLoad
from anabranch.placement.energy import Host as EnergyHost

Floats = NDArray[np.float64]


class SimulationError(AnabranchError):
    """A simulated cluster or what is to happen to it does not fit together: a host twice, a home that is not there."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine."""

    name: str
    cores: int = 2
    memory_bytes: float = math.inf
    """For the state of its slots and for replicas."""
    bandwidth_bytes_per_second: float = math.inf
    """Of its wire, both ways together."""
    rack: str = ""
    kind: str = ""
    """Hosts of a kind are alike in what they draw; power curves go by it."""

    def as_executor(self, *, is_leaving: bool = False) -> Executor:
        """Return the executor that runs there, as policies know it."""
        memory = int(self.memory_bytes) if math.isfinite(self.memory_bytes) else 0
        return Executor(self.name, self.name, self.cores, memory, is_leaving=is_leaving)

    def as_energy_host(self) -> EnergyHost:
        """Return the host as policies for energy know it: half of its wire's bytes go either way."""
        memory = int(self.memory_bytes) if math.isfinite(self.memory_bytes) else 0
        bandwidth = self.bandwidth_bytes_per_second
        return EnergyHost(self.name, self.cores, memory, bandwidth / 2 if math.isfinite(bandwidth) else 0.0)


@dataclass(frozen=True, slots=True)
class Slot:
    """A parallel instance of a level of the flow, and what a row that comes from the sources costs there."""

    id: SlotId
    cpu_seconds_a_row: float = 0.0
    """For each row of the *flow*, also those that other slots of the level get: what counts is the slot's part."""
    state_bytes: int = 0
    changed_bytes_a_row: float = 0.0
    """New runs of state for each row of the flow: what every replica is sent after a commit."""


@dataclass(frozen=True, slots=True)
class SimulatedFlow:
    """The slots of a flow, and what they send to one another."""

    slots: tuple[Slot, ...]
    sent_bytes_a_row: Mapping[tuple[SlotId, SlotId], float] = field(default_factory=dict)
    """(sender, receiver) → bytes for each row of the flow; pairs that send nothing are not there."""

    def __post_init__(self) -> None:
        ids = [slot.id for slot in self.slots]
        if twice := sorted({id for id in ids if ids.count(id) > 1}) if len(set(ids)) < len(ids) else []:
            msg = f"slots {twice} are there more than once; give each an id of its own"
            raise SimulationError(msg)
        if strangers := sorted({id for pair in self.sent_bytes_a_row for id in pair} - set(ids)):
            msg = (
                f"bytes go from or to slots {strangers}, which the flow does not have; add them, or leave the pairs out"
            )
            raise SimulationError(msg)


@dataclass(frozen=True, slots=True)
class Links:
    """How long a message takes between hosts: within a rack, and between two racks."""

    near_seconds: float = 0.0002
    far_seconds: float = 0.0005
    between: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Pairs of hosts that differ from that, in either order."""

    def make_matrix(self, hosts: Sequence[Host]) -> Floats:
        """Return the seconds between any two hosts, in their order; 0 from a host to itself."""
        racks = {rack: number for number, rack in enumerate(sorted({host.rack for host in hosts}))}
        of_host = np.array([racks[host.rack] for host in hosts])
        seconds: Floats = np.where(of_host[:, None] == of_host[None, :], self.near_seconds, self.far_seconds)
        np.fill_diagonal(seconds, 0.0)
        places = {host.name: place for place, host in enumerate(hosts)}
        for (one, other), known in self.between.items():
            if one in places and other in places:
                seconds[places[one], places[other]] = seconds[places[other], places[one]] = known
        return seconds


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at a moment: which hosts run, where slots are at home, and how many rows come."""

    hosts: tuple[Host, ...]
    flow: SimulatedFlow
    homes: Homes
    """Slot → the name of a host."""
    rows_per_second: float
    links: Links = field(default_factory=Links)

    def __post_init__(self) -> None:
        names = [host.name for host in self.hosts]
        known = set(names)
        if len(known) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            msg = f"hosts {', '.join(twice)} are there more than once; give each a name of its own"
            raise SimulationError(msg)
        for slot in self.flow.slots:
            if (home := self.homes.get(slot.id)) is not None and home not in known:
                msg = (
                    f"slot {slot.id} is at home on {home!r}, which is not there; {name_alternatives(home, names[:20])}"
                )
                raise SimulationError(msg)

    def find_loads(self, seconds: float = 1.0) -> dict[SlotId, SlotLoad]:
        """Return what slots cost in so many seconds."""
        rows = self.rows_per_second * seconds
        return {
            slot.id: SlotLoad(slot.cpu_seconds_a_row * rows, slot.state_bytes, slot.state_bytes)
            for slot in self.flow.slots
        }

    def find_busy_cores(self) -> dict[str, float]:
        """Return how many cores of each host are busy with slots; more than it has if too much comes."""
        busy = dict.fromkeys((host.name for host in self.hosts), 0.0)
        for slot in self.flow.slots:
            if (home := self.homes.get(slot.id)) is not None:
                busy[home] += slot.cpu_seconds_a_row * self.rows_per_second
        return busy

    def find_traffic(self) -> dict[tuple[SlotId, SlotId], float]:
        """Return the bytes a second that slots send to one another, also within a host."""
        return {pair: sent * self.rows_per_second for pair, sent in self.flow.sent_bytes_a_row.items()}

    def find_host_traffic(self) -> dict[tuple[str, str], float]:
        """Return the bytes a second that slots of a host send to those of another; within a host nothing is sent."""
        sent: defaultdict[tuple[str, str], float] = defaultdict(float)
        for (sender, receiver), rate in self.find_traffic().items():
            source, target = self.homes.get(sender), self.homes.get(receiver)
            if source is not None and target is not None and source != target:
                sent[source, target] += rate
        return dict(sent)
