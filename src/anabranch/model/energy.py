"""What a flow may do to use less energy, and what it may not give up for it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from anabranch.model.loads import LoadError
from anabranch.model.named_settings import check_names, read_number
from anabranch.model.power import DEFAULT_POWER, HostPower, PowerCurve

EnergyPolicy = Literal["erdm", "consolidation", "awake"]
"""*erdm*: slots leave hosts that are on no long path, for the hosts of those who send to them. *consolidation*: as few
hosts as suffice, each about as busy. *awake*: no host sleeps, and energy is only told."""
POLICY_NAMES: tuple[str, ...] = get_args(EnergyPolicy)
EVERY_HOST = "*"
_SHARES = ("cpu_limit", "memory_limit", "network_limit")
_WHOLE = ("windows_down", "min_hosts")
_POINTS = 4
_STANDBY = DEFAULT_POWER.standby_watts / DEFAULT_POWER.expected.full_watts


@dataclass(frozen=True, slots=True)
class Energy:
    """When hosts are emptied and released, when they come back, and how late results may be for it.

    Examples:
        >>> energy = ab.Energy(latency_seconds=4, power={"*": (60, 95, 160, 310)})
        >>> energy.policy, energy.window_seconds, energy.power_of("any").expected.half_watts
        ('erdm', 30.0, 160.0)
        >>> ab.Energy(latency_seconds=4, policy="sleepy")
        Traceback (most recent call last):
        ...
        anabranch.model.loads.LoadError: policy is 'sleepy'; give one of erdm, consolidation, awake
    """

    latency_seconds: float
    """Within so long after it came, a row is in the results: it waits for its batch, and the batch takes its time.
    No placement is chosen that would break this."""
    policy: EnergyPolicy = "erdm"
    """*erdm*, *consolidation*, or *awake*, under which no host sleeps."""
    window_seconds: float = 30.0
    """How long the load is watched before anything is decided."""
    cpu_limit: float = 0.9
    """The share of its processor time that slots may take of a host; the same of memory and of network."""
    memory_limit: float = 0.9
    network_limit: float = 0.9
    bandwidth: float = 0.0
    """Bytes a second that a host can send, and as many that it can receive; 0 if nobody says: then its network is not
    looked at."""
    headroom: float = 0.2
    """By how much the load may rise before hosts that sleep are needed, as a share: waking takes a while."""
    windows_down: int = 10
    """So many windows in a row must show that there are too many hosts …"""
    cool_down_seconds: float = 300.0
    """… and so long there was no change."""
    restart_seconds: float = 180.0
    """How long a host takes from being woken to running slots."""
    min_hosts: int = 1
    power: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Host → the watts that it draws when idle, and at 10, 50 and 100 % of its processor time; ``*`` for all others.
    Without any, the mean of published results. Where hardware counts energy itself, that counts."""

    def __post_init__(self) -> None:
        if self.policy not in POLICY_NAMES:
            msg = f"policy is {self.policy!r}; give one of {', '.join(POLICY_NAMES)}"
            raise LoadError(msg)
        for name in _SHARES:
            share = getattr(self, name)
            if not 0 < share <= 1:
                msg = f"{name} is {share}; it is a share of what a host has: give a number above 0 and at most 1"
                raise LoadError(msg)
        for name in ("latency_seconds", "window_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                msg = f"{name} is {getattr(self, name)}; give a number of seconds above 0"
                raise LoadError(msg)
        for name in ("headroom", "cool_down_seconds", "restart_seconds", "bandwidth"):
            if not 0 <= getattr(self, name) < math.inf:
                msg = f"{name} is {getattr(self, name)}; give 0 for none"
                raise LoadError(msg)
        for name in _WHOLE:
            if getattr(self, name) < 1:
                msg = f"{name} is {getattr(self, name)}; give at least 1"
                raise LoadError(msg)
        for host, watts in self.power.items():
            _read_curve(host, watts)

    @property
    def releases_hosts(self) -> bool:
        """Whether hosts may sleep."""
        return self.policy != "awake"

    def power_of(self, host: str) -> HostPower:
        """Return what a host draws: as it was said, or as published servers do in the mean."""
        watts = self.power.get(host, self.power.get(EVERY_HOST))
        if watts is None:
            return DEFAULT_POWER
        curve = _read_curve(host, watts)
        return HostPower.from_curve(curve, standby_watts=_STANDBY * curve.full_watts)

    @classmethod
    def from_names(cls, given: Mapping[str, Any]) -> Energy:
        """Return settings that are given by name, as flow files give them; raise ``LoadError`` if one is no setting."""
        check_names(given, [one.name for one in fields(cls)])
        if "latency_seconds" not in given:
            msg = "latency_seconds is missing; say within how many seconds a row is to be in the results"
            raise LoadError(msg)
        if not isinstance(given.get("power", {}), Mapping):
            msg = f"power is {given['power']!r}; give hosts with four watts each, such as {{'*': [60, 95, 160, 310]}}"
            raise LoadError(msg)
        read: dict[str, Any] = {
            name: value if name in ("policy", "power") else read_number(name, value, is_whole=name in _WHOLE)
            for name, value in given.items()
        }
        return cls(**read)


def _read_curve(host: str, watts: object) -> PowerCurve:
    points: list[float] = []
    if isinstance(watts, Sequence) and not isinstance(watts, str):
        with contextlib.suppress(TypeError, ValueError):
            points = [float(point) for point in watts]
    if len(points) != _POINTS:
        msg = f"power of {host} is {watts!r}; give the watts when idle, and at 10, 50 and 100 % load"
        raise LoadError(msg)
    return PowerCurve(*points)
