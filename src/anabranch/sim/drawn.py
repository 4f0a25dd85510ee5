"""What simulated hosts draw: a power curve over their processor time, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from anabranch.model.power import EnergyFigure, HostPower, PowerCurve
from anabranch.sim.cluster import Host
from anabranch.sim.records import BatchRecord


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
