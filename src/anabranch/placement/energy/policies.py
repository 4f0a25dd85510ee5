"""Policies that place slots with an eye to energy: ERDM, and those that it is compared with, behind one Protocol.

TMSH-Storm, LEEDSP and WNDVR-Storm are only sketched in the paper on energy; what stands here is *after* them: their
idea, on our models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from anabranch.model.cluster import Executor, Homes, SlotId, SlotLoad
from anabranch.model.energy import Energy
from anabranch.model.power import DEFAULT_POWER, PowerCurve
from anabranch.placement.energy.board import Board, Limits
from anabranch.placement.energy.loads import FlowLoad, Host
from anabranch.placement.energy.reallocation import SlotMove, count_needed, plan_reallocation
from anabranch.placement.homes import plan_homes

CPU_SHARE = 0.61
DRAM_SHARE = 0.18
"""What processors and memory draw of a busy server (Barroso, Hölzle and Ranganathan, The Datacenter as a Computer,
third edition): what policies act on that change clock rates and voltages of these parts alone."""
CLOCK_RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOW_VOLTAGE = 1.35 / 1.5
"""DDR3L over DDR3."""
_NEARLY_CRITICAL = 0.9
_MUCH_DATA = 0.5
"""Hosts on critical paths keep the full voltage while their network or processors are busier than this."""


@dataclass(frozen=True, slots=True)
class EnergyPlan:
    """Where slots are, which hosts are awake, and how fast and at which voltage they run."""

    homes: Homes
    awake: frozenset[str]
    moves: tuple[SlotMove, ...] = ()
    clock_rates: Mapping[str, float] = field(default_factory=dict)
    """Of hosts that do not run at their full rate, as shares of it."""
    low_voltage: frozenset[str] = frozenset()
    """Hosts whose memory runs at the lower voltage."""
    reason: str = ""


class PlacesForEnergy(Protocol):
    """A policy: where slots are and which hosts are awake, from what a window showed."""

    name: str
    releases_hosts: bool
    """Whether hosts may sleep under it."""

    def plan(
        self, hosts: Sequence[Host], load: FlowLoad, homes: Homes, awake: frozenset[str], settings: Energy
    ) -> EnergyPlan:
        """Return what is to be from the next boundary on, for a load that may come.

        ``hosts`` are all that there are; ``awake`` those that run. Equal arguments give equal plans, and where a load
        fits no number of hosts within limits and latency, all are awake.
        """
        ...

    def tune(self, board: Board, settings: Energy) -> tuple[Mapping[str, float], frozenset[str]]:
        """Return clock rates and the hosts at low voltage for the load of a window, without any move."""
        ...


class _FullPower:
    """Hosts that are awake run at their full rate and voltage."""

    releases_hosts = False

    def tune(self, board: Board, settings: Energy) -> tuple[Mapping[str, float], frozenset[str]]:
        """Return that nothing is slowed down."""
        return {}, frozenset()


@dataclass(frozen=True, slots=True)
class RoundRobin(_FullPower):
    """Slots are dealt to all hosts in turn, as Spark and Storm spread them; nobody sleeps."""

    name: str = "round-robin"

    def plan(
        self, hosts: Sequence[Host], load: FlowLoad, homes: Homes, awake: frozenset[str], settings: Energy
    ) -> EnergyPlan:
        """Return the spread; it depends on no load."""
        dealt = {slot: hosts[place % len(hosts)].id for place, slot in enumerate(sorted(load.slots))}
        return _finish(hosts, load, homes, dealt, "dealt in turn")


@dataclass(frozen=True, slots=True)
class TrafficAware(_FullPower):
    """After TMSH-Storm: those who send each other most share a host, as far as its limits go; nobody sleeps.

    Nothing keeps slots from piling up on a few hosts, which is what makes it quick and unsteady.
    """

    name: str = "after TMSH-Storm"

    def plan(
        self, hosts: Sequence[Host], load: FlowLoad, homes: Homes, awake: frozenset[str], settings: Energy
    ) -> EnergyPlan:
        """Return slots one after the other where most of their traffic already is."""
        limits = Limits.of(settings)
        traffic: dict[SlotId, float] = dict.fromkeys(load.slots, 0.0)
        for (sender, receiver), sent in sorted(load.sent_bytes.items()):
            traffic[sender] += sent
            traffic[receiver] += sent
        placed: dict[SlotId, str] = {}
        cpu, held = dict.fromkeys((host.id for host in hosts), 0.0), dict.fromkeys((host.id for host in hosts), 0)
        talk: dict[SlotId, list[tuple[SlotId, float]]] = {slot: [] for slot in load.slots}
        for (sender, receiver), sent in sorted(load.sent_bytes.items()):
            talk[sender].append((receiver, sent))
            talk[receiver].append((sender, sent))
        for slot in sorted(load.slots, key=lambda slot: (-traffic[slot], slot)):
            use = load.slots[slot]
            near = dict.fromkeys((host.id for host in hosts), 0.0)
            for other, sent in talk[slot]:
                if other in placed:
                    near[placed[other]] += sent

            def fits(host: Host, use_cpu: float = use.cpu_seconds, memory: int = use.memory_bytes) -> bool:
                in_time = cpu[host.id] + use_cpu <= limits.cpu * host.cores * load.seconds
                in_room = not host.memory_bytes or held[host.id] + memory <= limits.memory * host.memory_bytes
                return in_time and in_room

            among = [host for host in hosts if fits(host)] or list(hosts)
            best = min(among, key=lambda host: (-near[host.id], cpu[host.id] / host.cores, host.id))
            placed[slot] = best.id
            cpu[best.id] += use.cpu_seconds
            held[best.id] += use.memory_bytes
        return _finish(hosts, load, homes, placed, "where most of their traffic is")


@dataclass(frozen=True, slots=True)
class FewestHosts(_FullPower):
    """Consolidation: as few hosts as suffice, each as full as limits and latency allow."""

    name: str = "consolidation"
    releases_hosts = True

    def plan(
        self, hosts: Sequence[Host], load: FlowLoad, homes: Homes, awake: frozenset[str], settings: Energy
    ) -> EnergyPlan:
        """Return the first number of hosts over which slots can be spread evenly; those that are awake come first."""
        order = _prefer_awake(hosts, awake)
        limits = Limits.of(settings)
        for count in range(max(settings.min_hosts, count_needed(hosts, load, limits)), len(hosts) + 1):
            found = _spread(order[:count], hosts, load, homes)
            board = Board(hosts, load, found)
            if count == len(hosts) or _suits(board, limits, settings):
                return _finish(hosts, load, homes, found, f"{count} hosts suffice", order[:count])
        return _finish(hosts, load, homes, _spread(order, hosts, load, homes), "all hosts are needed")


@dataclass(frozen=True, slots=True)
class Erdm(_FullPower):
    """ERDM: slots of hosts that are on no long path go to the hosts of those who send to them, which stay.

    The paper only ever removes hosts. Here hosts come back when load does: slots are spread evenly then.
    """

    name: str = "ERDM"
    releases_hosts = True

    def plan(
        self, hosts: Sequence[Host], load: FlowLoad, homes: Homes, awake: frozenset[str], settings: Energy
    ) -> EnergyPlan:
        """Return the reallocation if hosts can go, the same placement if not, and more hosts where these do not do."""
        limits = Limits.of(settings)
        running = [host for host in hosts if host.id in awake]
        at_home = all(home in awake for home in homes.values())
        if at_home:
            found = plan_reallocation(
                running,
                load,
                homes,
                limits,
                latency_seconds=settings.latency_seconds,
                fewest=settings.min_hosts,
            )
            if found is not None and found.released:
                staying = [host for host in running if host.id not in found.released]
                reason = f"{len(found.released)} hosts are on no path of {found.threshold:.0%} of the longest"
                return _finish(hosts, load, homes, found.homes, reason, staying, found.moves)
            if _suits(Board(running, load, homes), limits, settings):
                return _finish(hosts, load, homes, homes, "no host can go", running)
        order = _prefer_awake(hosts, awake)
        for count in range(max(len(running), settings.min_hosts), len(hosts) + 1):
            spread = _spread(order[:count], hosts, load, homes)
            if count == len(hosts) or _suits(Board(hosts, load, spread), limits, settings):
                return _finish(hosts, load, homes, spread, f"{count} hosts are needed", order[:count])
        return _finish(hosts, load, homes, _spread(order, hosts, load, homes), "all hosts are needed")


@dataclass(frozen=True, slots=True)
class FrequencyAware(FewestHosts):
    """After LEEDSP: as many hosts and as low a clock rate as together draw least and keep the latency.

    It looks at processors alone, as the original is said to: memory and network draw the same at any clock rate.
    """

    name: str = "after LEEDSP"
    curve: PowerCurve = DEFAULT_POWER.expected
    """By which it weighs hosts against clock rates."""

    def plan(
        self, hosts: Sequence[Host], load: FlowLoad, homes: Homes, awake: frozenset[str], settings: Energy
    ) -> EnergyPlan:
        """Return the number of hosts, with the lowest rate that suits it, that draws least; few hosts among equals."""
        order = _prefer_awake(hosts, awake)
        limits = Limits.of(settings)
        best: tuple[float, int] | None = None
        plans: dict[int, tuple[Homes, Mapping[str, float]]] = {}
        for count in range(max(settings.min_hosts, count_needed(hosts, load, limits)), len(hosts) + 1):
            spread = _spread(order[:count], hosts, load, homes)
            board = Board(hosts, load, spread)
            if count < len(hosts) and not _suits(board, limits, settings):
                continue
            rates, _ = self.tune(board, settings)
            used = {host.id for host in order[:count]}
            shares = dict(zip((host.id for host in hosts), board.cpu_shares().tolist(), strict=True))
            watts = sum(draw_watts(self.curve, shares[host], rates.get(host, 1.0)) for host in sorted(used))
            plans[count] = spread, rates
            if best is None or watts < best[0] - 1e-9:
                best = watts, count
        count = best[1] if best else len(hosts)
        spread, rates = plans.get(count, (_spread(order, hosts, load, homes), {}))
        done = _finish(hosts, load, homes, spread, f"{count} hosts at lower clock rates", order[:count])
        return EnergyPlan(done.homes, done.awake, done.moves, rates, frozenset(), done.reason)

    def tune(self, board: Board, settings: Energy) -> tuple[Mapping[str, float], frozenset[str]]:
        """Return the lowest common clock rate that keeps the limit and the latency."""
        limits = Limits.of(settings)
        busiest = float(board.cpu_shares().max())
        for rate in CLOCK_RATES[:-1]:
            rates = {host.id: rate for host in board.hosts}
            if busiest / rate <= limits.cpu and board.latency_seconds(rates) <= settings.latency_seconds:
                return rates, frozenset()
        return {}, frozenset()


@dataclass(frozen=True, slots=True)
class MemoryVoltage(RoundRobin):
    """After WNDVR-Storm: memory of hosts off the critical paths runs at a lower voltage (DVRNP).

    With ``on_critical_path``, that of critical hosts does, too, while there is little data (DVRCP). Slots stay.
    """

    name: str = "after WNDVR-Storm"
    on_critical_path: bool = True

    def tune(self, board: Board, settings: Energy) -> tuple[Mapping[str, float], frozenset[str]]:
        """Return which hosts' memory runs at the lower voltage."""
        paths = board.find_paths()
        critical = {
            board.home(slot) for slot, cost in paths.through.items() if cost >= _NEARLY_CRITICAL * paths.seconds
        }
        busy = np.maximum(board.cpu_shares(), board.network_shares()).tolist()
        little = {host.id for host, share in zip(board.hosts, busy, strict=True) if share <= _MUCH_DATA}
        everyone = {host.id for host in board.hosts}
        low = (everyone - critical) | (little if self.on_critical_path else set())
        return {}, frozenset(low)


def draw_watts(curve: PowerCurve, utilisation: float, clock_rate: float = 1.0, *, low_voltage: bool = False) -> float:
    """Return what a host draws that does so much work, as a share of its processor time at the full clock rate.

    At a lower rate it is busy longer, and the dynamic part of its processors' power falls with the cube of the rate.
    At the lower voltage its memory's power falls with the square.
    """
    watts = curve.watts(utilisation / clock_rate)
    watts -= CPU_SHARE * (watts - curve.idle_watts) * (1 - clock_rate**3)
    return watts * (1 - DRAM_SHARE * (1 - LOW_VOLTAGE**2)) if low_voltage else watts


POLICIES: tuple[PlacesForEnergy, ...] = (
    RoundRobin(),
    TrafficAware(),
    FrequencyAware(),
    MemoryVoltage("after WNDVR-Storm, DVRNP", on_critical_path=False),
    MemoryVoltage("after WNDVR-Storm, DVRCP"),
    FewestHosts(),
    Erdm(),
)
"""All of them, round-robin first: what it does is what others are compared with."""


def _suits(board: Board, limits: Limits, settings: Energy) -> bool:
    return board.is_within(limits) and board.latency_seconds() <= settings.latency_seconds


def _prefer_awake(hosts: Sequence[Host], awake: frozenset[str]) -> list[Host]:
    return sorted(hosts, key=lambda host: host.id not in awake)


def _spread(chosen: Sequence[Host], hosts: Sequence[Host], load: FlowLoad, homes: Homes) -> dict[SlotId, str]:
    """Return homes that are even in processor time over some hosts, level by level, with as little moved as will do."""
    executors = [Executor(host.id, host.id, host.cores, host.memory_bytes) for host in chosen]
    known = {host.id for host in chosen}
    slots = {
        slot: SlotLoad(use.cpu_seconds, use.state_bytes, use.memory_bytes) for slot, use in sorted(load.slots.items())
    }
    before = {slot: home for slot, home in homes.items() if home in known and slot in slots}
    return dict(plan_homes(executors, slots, before).homes)


def _finish(
    hosts: Sequence[Host],
    load: FlowLoad,
    before: Homes,
    homes: Homes,
    reason: str,
    awake: Sequence[Host] | None = None,
    moves: tuple[SlotMove, ...] | None = None,
) -> EnergyPlan:
    if moves is None:
        moves = tuple(
            SlotMove(slot, before[slot], home, load.slots[slot].state_bytes, reason)
            for slot, home in sorted(homes.items())
            if slot in before and before[slot] != home
        )
    return EnergyPlan(
        homes=dict(sorted(homes.items())),
        awake=frozenset(host.id for host in (hosts if awake is None else awake)),
        moves=moves,
        reason=reason,
    )
