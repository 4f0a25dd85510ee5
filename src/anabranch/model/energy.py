"""What a flow may do to use less energy, and what it may not give up for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.model.loads import LoadError


@dataclass(frozen=True, slots=True)
class Energy:
    """When hosts are emptied and released, when they come back, and how late results may be for it.

    Nothing on Spark acts by it yet: it steers the simulator.
    """

    latency_seconds: float
    """Within so long after it came, a row is in the results: it waits for its batch, and the batch takes its time.
    No placement is chosen that would break this."""
    window_seconds: float = 30.0
    """How long the load is watched before anything is decided."""
    cpu_limit: float = 0.9
    """The share of its processor time that slots may take of a host; the same of memory and of network."""
    memory_limit: float = 0.9
    network_limit: float = 0.9
    headroom: float = 0.2
    """By how much the load may rise before hosts that sleep are needed, as a share: waking takes a while."""
    windows_down: int = 10
    """So many windows in a row must show that there are too many hosts …"""
    cool_down_seconds: float = 300.0
    """… and so long there was no change."""
    restart_seconds: float = 180.0
    """How long a host takes from being woken to running slots."""
    min_hosts: int = 1

    def __post_init__(self) -> None:
        for name in ("cpu_limit", "memory_limit", "network_limit"):
            share = getattr(self, name)
            if not 0 < share <= 1:
                msg = f"{name} is {share}; it is a share of what a host has: give a number above 0 and at most 1"
                raise LoadError(msg)
        for name in ("latency_seconds", "window_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                msg = f"{name} is {getattr(self, name)}; give a number of seconds above 0"
                raise LoadError(msg)
        for name in ("headroom", "cool_down_seconds", "restart_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                msg = f"{name} is {getattr(self, name)}; give 0 for none"
                raise LoadError(msg)
        for name in ("windows_down", "min_hosts"):
            if getattr(self, name) < 1:
                msg = f"{name} is {getattr(self, name)}; give at least 1"
                raise LoadError(msg)
