"""Simulated hosts as policies for energy know them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from anabranch.placement.energy import Host as EnergyHost
from anabranch.sim.cluster import Host


def make_hosts(hosts: Sequence[Host]) -> tuple[EnergyHost, ...]:
    """Return simulated hosts as policies for energy know them: half of a wire's bytes go either way."""
    return tuple(
        EnergyHost(
            host.name,
            host.cores,
            int(host.memory_bytes) if math.isfinite(host.memory_bytes) else 0,
            host.bandwidth_bytes_per_second / 2 if math.isfinite(host.bandwidth_bytes_per_second) else 0.0,
        )
        for host in hosts
    )
