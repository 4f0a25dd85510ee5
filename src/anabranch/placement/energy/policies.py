"""Policies that place slots with an eye to energy: ERDM, and those that it is compared with, behind one Protocol.

TMSH-Storm, LEEDSP and WNDVR-Storm are only sketched in the paper on energy; what stands here is *after* them: their
idea, on our models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from anabranch.model.cluster import Homes, SlotId
from anabranch.model.energy import Energy, EnergyPolicy
from anabranch.model.power import DEFAULT_POWER, PowerCurve
from anabranch.placement.energy.board import Board, Limits
from anabranch.placement.energy.loads import FlowLoad, Host
from anabranch.placement.energy.reallocation import SlotMove, count_needed, plan_reallocation

CPU_SHARE = 0.61
DRAM_SHARE = 0.18
"""What processors and memory are taken to draw of a server's power: assumptions, which only policies depend on that
change clock rates or voltages."""
CLOCK_RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOW_VOLTAGE = 1.35 / 1.5
"""DDR3L over DDR3."""
_NEARLY_CRITICAL = 0.9
_UNEVEN = 0.1
"""How far above its share of a level a host may be before slots leave it."""
_ROUNDING = 1e-9
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

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def releases_hosts(self) -> bool:
        """Whether hosts may sleep under it."""
        ...

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
    """After TMSH-Storm: slots move to where most of their traffic is, as far as processors there allow; nobody sleeps.

    Nothing keeps slots of a level from piling up on a few hosts.
    """

    name: str = "after TMSH-Storm"
    tolerance: float = 0.15
    """How far above the mean share of processor time a host may get by that."""

    def plan(
        self, hosts: Sequence[Host], load: FlowLoad, homes: Homes, awake: frozenset[str], settings: Energy
    ) -> EnergyPlan:
        """Return slots, those with most traffic first, each on the host that lets the fewest bytes cross."""
        board = Board(hosts, load, homes)
        mean = float(board.cpu_shares().mean())
        limits = replace(Limits.of(settings), cpu=min(settings.cpu_limit, (1 + self.tolerance) * mean))
        traffic: dict[SlotId, float] = dict.fromkeys(load.slots, 0.0)
        for (sender, receiver), sent in sorted(load.sent_bytes.items()):
            traffic[sender] += sent
            traffic[receiver] += sent
        for slot in sorted(load.slots, key=lambda slot: (-traffic[slot], slot)):
            near = board.find_traffic(slot)
            gains = np.where(board.find_admitting(slot, limits), near - near[board.places[board.home(slot)]], 0.0)
            if gains.max() > _ROUNDING * traffic[slot]:
                board.move(slot, board.hosts[int(gains.argmax())].id)
        return _finish(hosts, load, homes, board.homes, "where most of their traffic is")


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
        board = Board(hosts, load, homes)
        for count in range(max(settings.min_hosts, count_needed(hosts, load, limits)), len(hosts)):
            found = spread_evenly(order[:count], load, homes)
            if _suits(board.rehomed(found), limits, settings):
                return _finish(hosts, load, homes, found, f"{count} hosts suffice", order[:count])
        return _finish(hosts, load, homes, spread_evenly(order, load, homes), "all hosts are needed")


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
        board = Board(hosts, load, homes)
        for count in range(max(len(running), settings.min_hosts), len(hosts)):
            spread = spread_evenly(order[:count], load, homes)
            if _suits(board.rehomed(spread), limits, settings):
                return _finish(hosts, load, homes, spread, f"{count} hosts are needed", order[:count])
        return _finish(hosts, load, homes, spread_evenly(order, load, homes), "all hosts are needed")


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
        board = Board(hosts, load, homes)
        best: tuple[float, int, Homes, Mapping[str, float]] | None = None
        for count in range(max(settings.min_hosts, count_needed(hosts, load, limits)), len(hosts) + 1):
            spread = spread_evenly(order[:count], load, homes)
            tried = board.rehomed(spread)
            if count < len(hosts) and not _suits(tried, limits, settings):
                continue
            rates, _ = self.tune(tried, settings)
            shares = tried.cpu_shares().tolist()
            watts = sum(
                draw_watts(self.curve, shares[board.places[host.id]], rates.get(host.id, 1.0)) for host in order[:count]
            )
            if best is None or watts < best[0] * (1 - _ROUNDING):
                best = watts, count, spread, rates
        assert best is not None, "with all hosts there is always a plan"
        _, count, chosen, slower = best
        done = _finish(hosts, load, homes, chosen, f"{count} hosts draw least at their clock rate", order[:count])
        return replace(done, clock_rates=slower)

    def tune(self, board: Board, settings: Energy) -> tuple[Mapping[str, float], frozenset[str]]:
        """Return the lowest common clock rate that keeps the limit and the latency if the load rises a little."""
        limits = Limits.of(settings)
        board = board.scaled(1 + settings.headroom / 2)
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


def find_policy(name: EnergyPolicy) -> PlacesForEnergy:
    """Return the policy that a run names; clock rates and voltages are nothing that a run could change."""
    match name:
        case "erdm":
            return Erdm()
        case "consolidation":
            return FewestHosts()
        case "awake":
            return RoundRobin()


def _suits(board: Board, limits: Limits, settings: Energy) -> bool:
    return board.is_within(limits) and board.latency_seconds() <= settings.latency_seconds


def _prefer_awake(hosts: Sequence[Host], awake: frozenset[str]) -> list[Host]:
    return sorted(hosts, key=lambda host: host.id not in awake)


def spread_evenly(hosts: Sequence[Host], load: FlowLoad, homes: Homes) -> dict[SlotId, str]:
    """Return homes on these hosts that are even in processor time, level by level; slots stay where that allows it.

    ``plan_homes`` weighs each move and swap, and takes seconds for hundreds of slots. Here dozens of numbers of hosts
    are tried for a plan, so slots are only dealt: those too many for a host, and those without one, the largest first.
    """
    places = {host.id: place for place, host in enumerate(hosts)}
    cores = np.array([max(1, host.cores) for host in hosts], np.float64)
    memory = np.array([host.memory_bytes or np.inf for host in hosts], np.float64)
    total, held = np.zeros(len(hosts)), np.zeros(len(hosts))
    found: dict[SlotId, str] = {}
    for level in sorted({level for level, _ in load.slots}):
        slots = [slot for slot in sorted(load.slots) if slot[0] == level]
        mine = np.zeros(len(hosts))
        most = (1 + _UNEVEN) * sum(load.slots[slot].cpu_seconds for slot in slots) / cores.sum()
        free: list[SlotId] = []
        for slot in sorted(slots, key=lambda slot: (-load.slots[slot].cpu_seconds, slot)):
            use, place = load.slots[slot], places.get(homes.get(slot, ""))
            if place is None or (mine[place] + use.cpu_seconds) / cores[place] > most:
                free.append(slot)
                continue
            found[slot] = hosts[place].id
            mine[place] += use.cpu_seconds
            held[place] += use.memory_bytes
        for slot in free:
            use = load.slots[slot]
            lacks = np.maximum(0.0, held + use.memory_bytes - memory)
            after = (mine + use.cpu_seconds) / cores
            place = int(np.lexsort((total / cores, np.round(after, 9), lacks))[0])
            found[slot] = hosts[place].id
            mine[place] += use.cpu_seconds
            held[place] += use.memory_bytes
        total += mine
    return dict(sorted(found.items()))


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
