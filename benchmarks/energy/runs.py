"""What the energy bench simulates: a steady load as in the paper, a day, and monitor windows of several lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.model.energy import Energy
from anabranch.model.power import DEFAULT_POWER, PUBLISHED_CURVES, PowerCurve
from anabranch.placement.energy import (
    POLICIES,
    Board,
    Erdm,
    FlowLoad,
    Limits,
    PlacesForEnergy,
    draw_watts,
    plan_reallocation,
    saved_by_hosts,
)
from anabranch.placement.energy import Host as EnergyHost
from anabranch.sim.energy_day import BatchShape, SimulatedDay, make_load, simulate_day
from benchmarks.energy.topologies import HOSTS, PAPER_UTILISATION, TOPOLOGIES, Topology, make_flow, make_paper_hosts
from benchmarks.energy.trace import make_shape

SHAPE = BatchShape(interval_seconds=2.0, level_seconds=0.1)
"""A batch every two seconds; a level of a batch of Python tasks takes a tenth of one, whatever it does."""
SETTINGS = Energy(latency_seconds=4.0)
DAY_UTILISATION = 0.25
MONITOR_SLOT_BYTES = 64
MONITOR_PAIR_BYTES = 24
"""What is told once a window of each slot, and of each pair of slots that sent each other something."""
_CARRIED = 0.9999


@dataclass(frozen=True, slots=True)
class SteadyRun:
    """A policy under the paper's own load, which does not change."""

    system: str
    topology: str
    hosts: int
    """Awake."""
    moved_slots: int
    localised_slots: int
    """Of these, how many now get something from within their host that came from others before."""
    bytes_between_hosts: float
    """A second."""
    latency_seconds: float
    """At the latest; batches that take longer than the time between two are shown as long as they take."""
    highest_rate: float
    """Rows a second that batches keep up with."""
    joules_per_million_rows: float
    """At the paper's rate, by the default curve."""
    bytes_change_pct: float = 0.0
    latency_change_pct: float = 0.0
    rate_change_pct: float = 0.0
    energy_change_pct: float = 0.0
    energy_change_at_highest_rate_pct: float = 0.0
    """Each at the highest rate that it keeps up with, as the paper compares them."""
    paper_energy_change_pct: float | None = None
    """By the paper's accounting: constant power a host, its own rates."""
    basis: str = "simulated, energy modelled"


@dataclass(frozen=True, slots=True)
class DayRun:
    """A policy over a day."""

    system: str
    topology: str
    utilisation: float
    """Of all 16 hosts, in the mean over the day, under round-robin."""
    hosts_awake: float
    releases: int
    restarts: int
    moved_bytes: float
    carried_pct: float
    rows_per_second: float
    p95_seconds: float
    mean_seconds: float
    longest_seconds: float
    within_bound_pct: float
    """Rows whose window kept the bound."""
    bytes_between_hosts: float
    """State that moved is in it."""
    joules_per_million_rows: float
    joules_low: float
    joules_high: float
    energy_saved_pct: float = 0.0
    energy_saved_least_pct: float = 0.0
    """Under that of the published curves that gives least …"""
    energy_saved_most_pct: float = 0.0
    """… and most."""
    energy_saved_at_best_pct: float = 0.0
    """What no policy can save more than under the default curve: all work on hosts that are always full."""
    bytes_change_pct: float = 0.0
    latency_change_pct: float = 0.0
    """Of the mean."""
    rate_change_pct: float = 0.0
    basis: str = "simulated, energy modelled"


@dataclass(frozen=True, slots=True)
class WindowRun:
    """ERDM with a monitor window of some length, over a day of WordCount; beside the paper's table 4."""

    window_seconds: float
    monitor_bytes_pct: float
    """What monitoring sends, of what slots send between hosts."""
    added_latency_ms: float
    """In the mean, over windows of the shortest length that was tried."""
    energy_saved_pct: float
    within_bound_pct: float
    restarts: int
    paper_network_pct: float
    paper_latency_ms: float


@dataclass(frozen=True, slots=True)
class HostShares:
    """How full a host is under the paper's load, before and after (its figures 7 to 9)."""

    topology: str
    host: str
    is_critical: bool
    cpu_before: float
    network_before: float
    memory_before: float
    cpu_after: float | None
    network_after: float | None
    memory_after: float | None
    """None of a host that was released."""


def run_steady(topology: Topology, policies: Sequence[PlacesForEnergy] = POLICIES) -> list[SteadyRun]:
    """Return every policy under the paper's load, and ERDM with as many hosts as the paper releases."""
    hosts, load = _prepare(topology, topology.default_rate)
    awake = frozenset(host.id for host in hosts)
    homes = policies[0].plan(hosts, load, {}, awake, SETTINGS).homes
    before = Board(hosts, load, homes)
    runs: list[SteadyRun] = []
    for policy in policies:
        plan = policy.plan(hosts, load, homes, awake, SETTINGS)
        board = before.rehomed(plan.homes)
        rates, low = policy.tune(board, SETTINGS)
        watts = _add_watts(board, plan.awake, plan.clock_rates or rates, low)
        run = _describe(policy.name, topology, board, len(plan.awake), watts, dict(plan.clock_rates or rates))
        runs.append(replace(run, moved_slots=len(plan.moves), localised_slots=count_localised(before, board)))
    forced = plan_reallocation(hosts, load, homes, Limits.of(SETTINGS), fewest=HOSTS - topology.released)
    if forced is not None:
        board = before.rehomed(forced.homes)
        used = awake - set(forced.released)
        run = _describe("ERDM, hosts as in the paper", topology, board, len(used), _add_watts(board, used, {}), {})
        paper = -100 * saved_by_hosts(HOSTS, topology.released, topology.rate_change)
        runs.append(
            replace(
                run,
                moved_slots=len(forced.moves),
                localised_slots=count_localised(before, board),
                paper_energy_change_pct=paper,
            )
        )
    return [_compare_steady(run, runs[0]) for run in runs]


def count_localised(before: Board, after: Board) -> int:
    """Return how many slots that moved get more from within their host than they did."""
    old, new = before.homes, after.homes
    moved = [slot for slot in before.slots if old[slot] != new[slot]]
    return sum(
        float(after.find_traffic(slot)[after.places[new[slot]]])
        > float(before.find_traffic(slot)[before.places[old[slot]]])
        for slot in moved
    )


def list_host_shares(topology: Topology) -> list[HostShares]:
    """Return how full hosts are before and after as many were released as in the paper."""
    hosts, load = _prepare(topology, topology.default_rate)
    awake = frozenset(host.id for host in hosts)
    homes = POLICIES[0].plan(hosts, load, {}, awake, SETTINGS).homes
    before = Board(hosts, load, homes)
    found = plan_reallocation(hosts, load, homes, Limits.of(SETTINGS), fewest=HOSTS - topology.released)
    after = before.rehomed(found.homes) if found is not None else before
    released = found.released if found is not None else ()
    columns = [
        shares.tolist()
        for board in (before, after)
        for shares in (board.cpu_shares(), board.network_shares(), board.memory_shares())
    ]
    return [
        HostShares(
            topology.name,
            host.id,
            host.id not in released,
            columns[0][place],
            columns[1][place],
            columns[2][place],
            None if host.id in released else columns[3][place],
            None if host.id in released else columns[4][place],
            None if host.id in released else columns[5][place],
        )
        for place, host in enumerate(hosts)
    ]


def run_day(
    topology: Topology,
    seed: int,
    utilisation: float = DAY_UTILISATION,
    policies: Sequence[PlacesForEnergy] = POLICIES,
    settings: Energy = SETTINGS,
) -> tuple[list[DayRun], list[SimulatedDay]]:
    """Return what every policy makes of the day, compared with the first one, and the days themselves."""
    load = make_load(make_flow(topology), SHAPE, settings.window_seconds)
    rates = make_shape(settings.window_seconds, seed) * topology.default_rate * utilisation / PAPER_UTILISATION
    days = [simulate_day(policy, settings, make_paper_hosts(), load, rates.tolist()) for policy in policies]
    runs = [_describe_day(day, topology, utilisation, settings) for day in days]
    return [_compare_day(run, runs[0], day, days[0]) for run, day in zip(runs, days, strict=True)], days


def run_windows(topology: Topology, seed: int) -> list[WindowRun]:
    """Return ERDM with the monitor windows of the paper's table 4."""
    printed = {10.0: (17.4, 7.5), 20.0: (10.3, 13.3), 30.0: (6.1, 27.1), 40.0: (4.6, 51.8), 50.0: (3.2, 94.7)}
    found: list[WindowRun] = []
    shortest = 0.0
    for seconds, (network, latency) in printed.items():
        settings = replace(SETTINGS, window_seconds=seconds)
        runs, days = run_day(topology, seed, policies=(POLICIES[0], Erdm()), settings=settings)
        load = make_load(make_flow(topology), SHAPE, seconds)
        told = MONITOR_SLOT_BYTES * len(load.slots) + MONITOR_PAIR_BYTES * len(load.sent_bytes)
        shortest = shortest or runs[1].mean_seconds
        found.append(
            WindowRun(
                window_seconds=seconds,
                monitor_bytes_pct=100 * told * len(days[1].windows) / days[1].crossing_bytes,
                added_latency_ms=1_000 * (runs[1].mean_seconds - shortest),
                energy_saved_pct=runs[1].energy_saved_pct,
                within_bound_pct=runs[1].within_bound_pct,
                restarts=runs[1].restarts,
                paper_network_pct=network,
                paper_latency_ms=latency,
            )
        )
    return found


def check_day(run: DayRun, settings: Energy = SETTINGS) -> str:
    """Return what a day under ERDM did not keep; nothing if it kept all."""
    if run.carried_pct < 100 * _CARRIED:
        return f"{run.carried_pct:.3f} % of what came was done"
    if run.p95_seconds > settings.latency_seconds:
        return f"95 % of rows took up to {run.p95_seconds:.2f} s, and {settings.latency_seconds:g} s are the bound"
    return ""


def _prepare(topology: Topology, rate: float) -> tuple[tuple[EnergyHost, ...], FlowLoad]:
    load = make_load(make_flow(topology), SHAPE, SETTINGS.window_seconds).scale(rate)
    return tuple(host.as_energy_host() for host in make_paper_hosts()), load


def _add_watts(
    board: Board, awake: frozenset[str], clock_rates: Mapping[str, float], low_voltage: frozenset[str] = frozenset()
) -> float:
    shares = board.cpu_shares().tolist()
    watts = sum(
        draw_watts(
            DEFAULT_POWER.expected,
            shares[board.places[host]],
            clock_rates.get(host, 1.0),
            low_voltage=host in low_voltage,
        )
        for host in sorted(awake)
    )
    return watts + DEFAULT_POWER.standby_watts * (len(board.hosts) - len(awake))


def _describe(
    name: str, topology: Topology, board: Board, hosts: int, watts: float, clock_rates: Mapping[str, float]
) -> SteadyRun:
    fixed = board.load.levels * board.load.level_seconds
    batch = board.batch_seconds(clock_rates)
    # Rates are compared at the full clock.
    factor = (board.load.interval_seconds - fixed) / (board.batch_seconds() - fixed)
    seconds = board.load.seconds
    return SteadyRun(
        system=name,
        topology=topology.name,
        hosts=hosts,
        moved_slots=0,
        localised_slots=0,
        bytes_between_hosts=board.crossing_bytes / seconds,
        latency_seconds=board.load.interval_seconds + batch,
        highest_rate=factor * board.rows / seconds,
        joules_per_million_rows=watts * seconds / board.rows * 1e6,
    )


def _compare_steady(run: SteadyRun, base: SteadyRun) -> SteadyRun:
    full = DEFAULT_POWER.expected
    at_highest = (_draw_at_highest(run, full) / run.highest_rate) / (_draw_at_highest(base, full) / base.highest_rate)
    return replace(
        run,
        bytes_change_pct=_change(run.bytes_between_hosts, base.bytes_between_hosts),
        latency_change_pct=_change(run.latency_seconds, base.latency_seconds),
        rate_change_pct=_change(run.highest_rate, base.highest_rate),
        energy_change_pct=_change(run.joules_per_million_rows, base.joules_per_million_rows),
        energy_change_at_highest_rate_pct=100 * (at_highest - 1),
    )


def _draw_at_highest(run: SteadyRun, curve: PowerCurve) -> float:
    """Return what hosts draw at the highest rate, by their mean share of processor time there."""
    topology_rate = PAPER_UTILISATION * HOSTS / run.hosts
    base_rate = next(one.default_rate for one in TOPOLOGIES if one.name == run.topology)
    share = min(1.0, topology_rate * run.highest_rate / base_rate)
    return run.hosts * curve.watts(share) + (HOSTS - run.hosts) * DEFAULT_POWER.standby_watts


def _describe_day(day: SimulatedDay, topology: Topology, utilisation: float, settings: Energy) -> DayRun:
    energy = day.find_energy(DEFAULT_POWER).per_million_rows(day.done_rows)
    kept = sum(window.rows for window in day.windows if window.latency_seconds <= settings.latency_seconds)
    return DayRun(
        system=day.policy,
        topology=topology.name,
        utilisation=utilisation,
        hosts_awake=day.mean_awake,
        releases=day.releases,
        restarts=day.restarts,
        moved_bytes=float(day.moved_bytes),
        carried_pct=100 * day.done_rows / day.rows,
        rows_per_second=day.done_rows / (len(day.windows) * day.window_seconds),
        p95_seconds=day.find_latency(0.95),
        mean_seconds=day.mean_latency,
        longest_seconds=max(window.latency_seconds for window in day.windows),
        within_bound_pct=100 * kept / day.rows,
        bytes_between_hosts=day.crossing_bytes + day.moved_bytes,
        joules_per_million_rows=energy.joules,
        joules_low=energy.low_joules,
        joules_high=energy.high_joules,
    )


def _compare_day(run: DayRun, base: DayRun, day: SimulatedDay, base_day: SimulatedDay) -> DayRun:
    per_row = base_day.done_rows / day.done_rows
    saved = [
        100 * (1 - per_row * day.joules(curve, 0.02 * curve.full_watts) / base_day.joules(curve, 0.0))
        for _, curve in PUBLISHED_CURVES
    ]
    return replace(
        run,
        energy_saved_pct=-_change(run.joules_per_million_rows, base.joules_per_million_rows),
        energy_saved_least_pct=min(saved),
        energy_saved_most_pct=max(saved),
        energy_saved_at_best_pct=100
        * (1 - per_row * _find_least_joules(day) / base_day.find_energy(DEFAULT_POWER).joules),
        bytes_change_pct=_change(run.bytes_between_hosts, base.bytes_between_hosts),
        latency_change_pct=_change(run.mean_seconds, base.mean_seconds),
        rate_change_pct=_change(run.rows_per_second, base.rows_per_second),
    )


def _find_least_joules(day: SimulatedDay) -> float:
    """Return what the work of a day draws at the load at which the default curve gives most work a joule."""
    curve = DEFAULT_POWER.expected
    best = min(curve.watts(share / 100) / (share / 100) for share in range(1, 101))
    work = sum(host.utilisation for window in day.windows for host in window.hosts) * day.window_seconds
    return best * work


def _change(value: float, base: float) -> float:
    return 100 * (value / base - 1)
