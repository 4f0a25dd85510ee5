"""What a simulation tells of each batch, and what hosts drew over several of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anabranch.model.cluster import SlotId
from anabranch.model.power import EnergyFigure, HostPower, PowerCurve
from anabranch.placement.replicas import Shortage
from anabranch.sim.cluster import Host, Snapshot

Source = Literal["replica", "store", "lost"]
"""Where the state of a slot came from whose home was lost; *lost* if it is nowhere."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What happened in one batch, and at the boundary before it."""

    began_seconds: float
    seconds: float
    is_committed: bool
    """Not if a host with slots failed meanwhile: then its rows come again."""
    version: int
    """The last committed batch afterwards."""
    rows: float
    waiting_rows: float
    snapshot: Snapshot
    """Hosts that were reachable, homes, and the rows a second that the batch stands for."""
    busy_seconds: Mapping[str, float]
    """Processor time by host."""
    sent_bytes: float
    """Between hosts, by slots."""
    replicated_bytes: float
    recovered: Mapping[SlotId, Source]
    """Slots whose home was lost before the batch, and where their state came from."""
    stored_bytes: float
    """Read from the checkpoint store for them, and for slots that moved to where their state was not."""
    moved_slots: int
    """That had a home, and got another one."""
    placed_replicas: int
    """That began to be copied."""
    missing: tuple[Shortage, ...]
    """Slots that lack replicas, and why."""
    lag_batches: int
    """Of the replica that is furthest behind."""
    action: str
    """What elasticity or energy did; *stay* without them."""
    writers: Mapping[SlotId, tuple[str, ...]] = field(default_factory=dict)
    """Of a committed batch, the hosts that handed in each slot's new state, as hosts themselves know their slots."""
    refused_reports: int = 0
    """Slots' states that hosts handed in for a batch that is over, or was given up: they had been cut off."""
    lasted_seconds: float = 0.0
    """Until the next batch began."""
    starting_hosts: int = 0
    """That were asked for and were not there yet, as the batch ended."""
    idle_hosts: int = 0
    """Those that run no process of the flow and were not asked for: they sleep, if nobody else wants them."""


@dataclass(slots=True)
class Boundary:
    """What is done between two batches."""

    recovered: dict[SlotId, Source] = field(default_factory=dict)
    stored_bytes: float = 0.0
    moved_slots: int = 0
    placed_replicas: int = 0
    can_run: bool = True
    """Whether there are hosts, and all slots have their state."""


def find_drawn(records: Sequence[BatchRecord], hosts: Sequence[Host], power: HostPower) -> EnergyFigure:
    """Return the energy of all hosts over these batches.

    Hosts that were reached draw by what they did, those that start full power, those that nobody asked for standby.
    Those that failed or were cut off are left out: what they draw is not the flow's.
    """
    cores = {host.name: max(1, host.cores) for host in hosts}
    expected, low, high = (
        math.fsum(_find_joules(record, cores, curve, power.standby_watts) for record in records)
        for curve in (power.expected, power.lowest, power.highest)
    )
    return EnergyFigure(expected, low, high, "modelled", power.source)


def _find_joules(record: BatchRecord, cores: dict[str, int], curve: PowerCurve, standby_watts: float) -> float:
    seconds = record.lasted_seconds
    if not seconds > 0:
        return 0.0
    watts = sum(
        curve.watts(min(1.0, record.busy_seconds.get(host.name, 0.0) / (cores[host.name] * seconds)))
        for host in record.snapshot.hosts
    )
    return seconds * (watts + record.starting_hosts * curve.watts(1.0) + record.idle_hosts * standby_watts)
