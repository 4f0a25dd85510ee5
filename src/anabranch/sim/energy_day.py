"""A flow on simulated hosts while its load rises and falls: who is awake, how late results are, what it all draws.

A window of the monitor is a step. Within it the load is even; batches begin at a fixed interval, rows that a batch has
no time for wait for the next ones. Hosts that are woken draw full power until they are ready. State is copied while
slots go on where they are, and hosts that are to sleep stay awake until it is; the switch costs a batch's time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from anabranch.model.cluster import Homes
from anabranch.model.energy import Energy
from anabranch.model.power import EnergyFigure, HostPower, PowerCurve
from anabranch.placement.energy import (
    Board,
    EnergyPlan,
    FlowLoad,
    GovernorState,
    PlacesForEnergy,
    RoundRobin,
    SlotUse,
    WindowReading,
    decide_energy,
    draw_watts,
)
from anabranch.placement.energy import Host as EnergyHost
from anabranch.sim.cluster import Host, SimulatedFlow


@dataclass(frozen=True, slots=True)
class HostWindow:
    """What a host did in a window: how busy it was, and how it ran."""

    utilisation: float
    clock_rate: float = 1.0
    low_voltage: bool = False

    def watts(self, curve: PowerCurve) -> float:
        """Return what it drew in the mean."""
        return draw_watts(curve, self.utilisation, self.clock_rate, low_voltage=self.low_voltage)


@dataclass(frozen=True, slots=True)
class SimulatedWindow:
    """One step of the day."""

    now_seconds: float
    rows: float
    """That came."""
    done_rows: float
    waiting_rows: float
    latency_seconds: float
    """Of the row that waits for its batch longer than 95 in 100."""
    crossing_bytes: float
    moved_bytes: int
    hosts: tuple[HostWindow, ...]
    """Those that were awake, ready or not."""
    asleep: int
    action: str


@dataclass(frozen=True, slots=True)
class SimulatedDay:
    """What a policy made of a day."""

    policy: str
    window_seconds: float
    windows: tuple[SimulatedWindow, ...]
    releases: int
    """Hosts that went to sleep, each time counted."""
    restarts: int
    """Hosts that were woken."""
    homes: Homes = field(repr=False)

    @property
    def rows(self) -> float:
        """Rows that came."""
        return math.fsum(window.rows for window in self.windows)

    @property
    def done_rows(self) -> float:
        """Rows that were worked off."""
        return math.fsum(window.done_rows for window in self.windows)

    @property
    def crossing_bytes(self) -> float:
        """What slots sent between hosts; state that moved is counted by itself."""
        return math.fsum(window.crossing_bytes for window in self.windows)

    @property
    def moved_bytes(self) -> int:
        """State of slots that changed their host."""
        return sum(window.moved_bytes for window in self.windows)

    @property
    def mean_awake(self) -> float:
        """Hosts that were awake, in the mean."""
        return math.fsum(len(window.hosts) for window in self.windows) / len(self.windows)

    def find_latency(self, quantile: float = 0.95) -> float:
        """Return the latency that this share of the rows stayed within."""
        ordered = sorted(self.windows, key=lambda window: window.latency_seconds)
        needed, seen = quantile * self.rows, 0.0
        for window in ordered:
            seen += window.rows
            if seen >= needed:
                return window.latency_seconds
        return ordered[-1].latency_seconds

    @property
    def mean_latency(self) -> float:
        """The windows' latencies, by their rows."""
        return math.fsum(window.rows * window.latency_seconds for window in self.windows) / max(self.rows, 1e-9)

    @property
    def mean_utilisation(self) -> float:
        """How busy hosts that were awake were."""
        busy = math.fsum(host.utilisation for window in self.windows for host in window.hosts)
        return busy / max(1, sum(len(window.hosts) for window in self.windows))

    def joules(self, curve: PowerCurve, standby_watts: float) -> float:
        """Return what all hosts drew under a curve."""
        return math.fsum(
            self.window_seconds
            * (math.fsum(host.watts(curve) for host in window.hosts) + standby_watts * window.asleep)
            for window in self.windows
        )

    def find_energy(self, power: HostPower) -> EnergyFigure:
        """Return the energy of the day."""
        expected, low, high = (
            self.joules(curve, power.standby_watts) for curve in (power.expected, power.lowest, power.highest)
        )
        return EnergyFigure(expected, low, high, "modelled", power.source)


@dataclass(frozen=True, slots=True)
class BatchShape:
    """How a flow runs, beside what its rows cost."""

    interval_seconds: float = 1.0
    """From the beginning of a batch to that of the next one."""
    level_seconds: float = 0.1
    """What each level of a batch takes however few its rows are."""
    task_memory_bytes: int = 64_000_000
    """That a slot's process holds beside its state."""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What is so between two windows."""

    homes: Homes
    awake: frozenset[str]
    board: Board
    rates: dict[str, float] = field(default_factory=dict)
    low_voltage: frozenset[str] = frozenset()
    coming: EnergyPlan | None = None
    """What is so once hosts that were woken are ready and state was copied."""
    coming_at: float = math.inf
    waiting_rows: float = 0.0
    moved_bytes: int = 0
    """State of slots that switched as the window began; 0 if none did."""
    switched: bool = False


def make_load(flow: SimulatedFlow, shape: BatchShape, window_seconds: float) -> FlowLoad:
    """Return what a flow does in a window in which one row comes a second."""
    return FlowLoad(
        seconds=window_seconds,
        batches=max(1, round(window_seconds / shape.interval_seconds)),
        rows=window_seconds,
        slots={
            slot.id: SlotUse(
                slot.cpu_seconds_a_row * window_seconds, slot.state_bytes + shape.task_memory_bytes, slot.state_bytes
            )
            for slot in flow.slots
        },
        sent_bytes={pair: sent * window_seconds for pair, sent in flow.sent_bytes_a_row.items()},
        level_seconds=shape.level_seconds,
    )


def simulate_day(
    policy: PlacesForEnergy,
    settings: Energy,
    hosts: Sequence[Host],
    load: FlowLoad,
    rates: Sequence[float],
) -> SimulatedDay:
    """Return the day of a flow under a policy.

    ``load`` is what the flow does in a window of one row a second; ``rates`` are rows a second, window by window.
    All hosts are awake as the day begins, and slots are dealt in turn, or as a policy that lets no host sleep places
    them for the busiest window.
    """
    everyone = tuple(host.as_energy_host() for host in hosts)
    awake = frozenset(host.id for host in everyone)
    homes: Homes = RoundRobin().plan(everyone, load, {}, awake, settings).homes
    if not policy.releases_hosts:
        homes = policy.plan(everyone, load.scale(max(rates)), homes, awake, settings).homes
    cluster = _Cluster(homes, awake, Board(everyone, load, homes))
    state, windows, releases, restarts = GovernorState(), [], 0, 0
    for place, rate in enumerate(rates):
        now = (place + 1) * settings.window_seconds
        if cluster.coming is not None and now > cluster.coming_at:
            releases += len(cluster.awake - cluster.coming.awake)
            cluster = _switch(cluster, cluster.coming, everyone)
        board = cluster.board.scaled(rate)
        seen, waiting = _run_window(cluster, board, settings.window_seconds, everyone)
        reading = WindowReading(now, board, everyone, cluster.awake, is_changing=cluster.coming is not None)
        decision = decide_energy(policy, settings, state, reading)
        state = decision.state
        windows.append(replace(seen, now_seconds=now, action=decision.action))
        cluster = replace(
            cluster,
            waiting_rows=waiting,
            moved_bytes=0,
            switched=False,
            rates=dict(decision.plan.clock_rates),
            low_voltage=decision.plan.low_voltage,
        )
        if decision.action in ("wake", "release", "balance"):
            woken = decision.plan.awake - cluster.awake
            restarts += len(woken)
            cluster = replace(
                cluster,
                awake=cluster.awake | woken,
                coming=decision.plan,
                coming_at=now
                + (settings.restart_seconds if woken else 0.0)
                + find_copying_seconds(board, cluster.homes, decision.plan.homes, everyone),
            )
    return SimulatedDay(policy.name, settings.window_seconds, tuple(windows), releases, restarts, cluster.homes)


def find_copying_seconds(board: Board, before: Homes, after: Homes, hosts: Sequence[EnergyHost]) -> float:
    """Return how long it takes to copy the state of slots that move, with what the flow leaves of the network."""
    copied: dict[str, float] = {}
    for slot, home in sorted(after.items()):
        if (source := before[slot]) != home:
            for host in (source, home):
                copied[host] = copied.get(host, 0.0) + board.load.slots[slot].state_bytes
    spare = max(0.1, 1 - float(board.network_shares().max()))
    return max((copied.get(host.id, 0.0) / (spare * host.bandwidth) for host in hosts if host.bandwidth), default=0.0)


def _switch(cluster: _Cluster, plan: EnergyPlan, hosts: Sequence[EnergyHost]) -> _Cluster:
    """Let slots run where they are to be; hosts that have none are asleep from now on."""
    load = cluster.board.load
    moved = [slot for slot, home in sorted(plan.homes.items()) if cluster.homes[slot] != home]
    return replace(
        cluster,
        homes=plan.homes,
        awake=frozenset(plan.awake),
        board=Board([host for host in hosts if host.id in plan.awake], load, plan.homes),
        rates=dict(plan.clock_rates),
        coming=None,
        coming_at=math.inf,
        moved_bytes=sum(load.slots[slot].state_bytes for slot in moved),
        switched=bool(moved),
    )


def _run_window(
    cluster: _Cluster, board: Board, window_seconds: float, hosts: Sequence[EnergyHost]
) -> tuple[SimulatedWindow, float]:
    """Return what a window was like, and the rows that wait at its end."""
    interval = board.load.interval_seconds
    fixed = board.load.levels * board.load.level_seconds
    variable = board.batch_seconds(cluster.rates) - fixed
    # So many times its rows a batch could have within the interval.
    capacity = max(0.0, interval - fixed) / variable if variable > 0 else math.inf
    rows, waiting = board.rows, cluster.waiting_rows
    done = min(rows + waiting, rows * capacity) if rows > 0 else 0.0
    left = rows + waiting - done
    ratio = done / rows if rows > 0 else 0.0
    # Rows wait for a batch, behind those that are there already; slots that switch write and load what is new.
    behind = (waiting + left) / 2 / (rows / window_seconds) if rows > 0 else 0.0
    switching = interval if cluster.switched else 0.0
    latency = 0.95 * interval + fixed + ratio * variable + behind + switching
    busy = dict(zip((host.id for host in board.hosts), (board.cpu_shares() * ratio).tolist(), strict=True))
    awake = tuple(
        # One that is not ready yet starts.
        HostWindow(min(1.0, busy[host.id]), cluster.rates.get(host.id, 1.0), host.id in cluster.low_voltage)
        if host.id in busy
        else HostWindow(1.0)
        for host in hosts
        if host.id in cluster.awake
    )
    seen = SimulatedWindow(
        now_seconds=0.0,
        rows=rows,
        done_rows=done,
        waiting_rows=left,
        latency_seconds=latency,
        crossing_bytes=board.crossing_bytes * ratio,
        moved_bytes=cluster.moved_bytes,
        hosts=awake,
        asleep=len(hosts) - len(awake),
        action="stay",
    )
    return seen, left
