"""The experiments of the paper on replica placement, in the simulator: a row of slots, and hosts that fail at once.

Availability is the share of runs that go on committing batches after the failures, with no store to fall back on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from anabranch.model.cluster import Homes
from anabranch.placement.replicas import (
    Network,
    ReplicaHost,
    ReplicaPlan,
    ReplicaProblem,
    Replicas,
    ReplicaSlot,
    find_survived,
    list_copies,
    list_failures,
    place_replicas,
)
from anabranch.sim import (
    Host,
    HostEvent,
    Links,
    LoadTrace,
    Scenario,
    SimulatedFlow,
    Simulation,
    Slot,
    Steering,
    draw_waves,
)

DEGREES, NODES, MACHINES, FAILURES = "degrees", "nodes", "machines", "failures"
LIMITS, AGAIN, PLANNING = "limits", "again", "planning"
MRP, RANDOM, WHOLE = "mrp", "random", "whole-cluster"
HOSTS, SLOTS, DEGREE, FAILED_SHARE = 20, 10, 3, 0.15
"""As in the paper: ten nodes in a row, each with two replicas, on twenty machines of which 15 % fail."""
PAPER_FAILURES = (3, 5, 8)
ROWS_PER_SECOND = 1_000.0
"""A thousand connections, one row a second each."""
STATE_BYTES, CHANGED_BYTES_A_ROW, SENT_BYTES_A_ROW = 10_000_000, 100.0, 200.0
COPIES_A_HOST = 4
"""Where limits bind, a host's memory holds so many states, that of its own slot included."""
WAVES = ((8,), (4, 4), (2, 2, 2, 2), (1,) * 8)
BETWEEN_SECONDS = 20.0
"""Between two waves; a lost replica is there again after one or two."""
FAILS_AT_SECONDS = 2.5
"""In the middle of the third batch or behind it: some have been committed."""
WATCHED_SECONDS = 3.0
ENUMERATED_DRAWS = 100
"""So many random placements are enumerated; the mean of them is shown."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of an experiment under one placement."""

    part: str
    placement: str
    x: float
    """What the experiment changes: the degree, the slots, the hosts, the failures, or the waves."""
    hosts: int = HOSTS
    slots: int = SLOTS
    degree: int = DEGREE
    waves: tuple[int, ...] = (math.ceil(FAILED_SHARE * HOSTS),)
    has_limits: bool = False

    @property
    def failures(self) -> int:
        """Hosts that fail in all."""
        return sum(self.waves)

    @property
    def restores(self) -> bool:
        """Whether replicas are placed again between failures."""
        return self.part == AGAIN


@dataclass(frozen=True, slots=True)
class Point:
    """What was found at a point."""

    part: str
    placement: str
    x: float
    runs: int
    simulated_pct: float
    """Runs that went on committing, of all."""
    error_pct: float
    """The standard error of that, by the runs alone."""
    enumerated_pct: float | None
    """The same over every set of hosts that can fail at once; None where replicas are placed again in between."""
    replica_hosts: float
    """Hosts with replicas, in the mean."""
    used_hosts: float
    """Hosts with slots or replicas."""
    delay_bytes: float
    """Bytes of replicas on their way at any time."""
    wrong: str = ""
    """Where the simulator and the enumeration disagree about a run, or a placement breaks a rule."""


def list_settings(parts: Iterable[str]) -> Iterator[Setting]:
    """Yield the points of the experiments, in the paper's order, then those that it does not have."""
    chosen = set(parts)
    three = (MRP, WHOLE, RANDOM)
    if DEGREES in chosen:
        yield from (Setting(DEGREES, one, x, degree=x) for x in range(1, 6) for one in three)
    if NODES in chosen:
        yield from (Setting(NODES, one, x, slots=x, degree=2) for x in range(5, 16) for one in three)
    if MACHINES in chosen:
        yield from (
            Setting(MACHINES, one, x, hosts=x, waves=(math.ceil(FAILED_SHARE * x - 1e-9),))
            for x in range(10, 21)
            for one in three
        )
    if FAILURES in chosen:
        yield from (Setting(FAILURES, one, x, waves=(x,)) for x in PAPER_FAILURES for one in three)
    if LIMITS in chosen:
        yield from (
            Setting(LIMITS, one, x, waves=(x,), has_limits=True) for x in PAPER_FAILURES for one in (MRP, RANDOM)
        )
    if AGAIN in chosen:
        yield from (Setting(AGAIN, MRP, len(waves), waves=waves) for waves in WAVES)
        yield Setting(AGAIN, MRP, 0, degree=4, waves=WAVES[0])


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """The hosts, links and slots of a setting."""

    setting: Setting
    hosts: tuple[Host, ...]
    links: Links
    flow: SimulatedFlow
    homes: Homes
    problem: ReplicaProblem = field(repr=False)

    def place(self, rng: np.random.Generator | None = None) -> ReplicaPlan:
        """Place the replicas; by chance, if that is the placement, with a generator."""
        return place_replicas(self.problem, self.setting.placement, rng=rng)

    def list_copies(self, plan: ReplicaPlan) -> NDArray[np.bool_]:
        """Return by slot and host whether there is a copy."""
        return list_copies([host.name for host in self.hosts], self.homes, plan.replicas)


def make_cluster(setting: Setting, seed: int) -> Cluster:
    """Return the cluster of a setting; latencies between hosts depend on the seed."""
    memory = COPIES_A_HOST * STATE_BYTES if setting.has_limits else math.inf
    hosts = tuple(
        Host(f"h{place:02}", memory_bytes=memory, bandwidth_bytes_per_second=125e6) for place in range(setting.hosts)
    )
    rng = np.random.default_rng([seed, 1])
    between = {
        (one.name, other.name): float(rng.uniform(0.0002, 0.001))
        for place, one in enumerate(hosts)
        for other in hosts[:place]
    }
    links = Links(between=between)
    # Pairs of hosts are drawn in the order of hosts, so that those of fewer hosts are the same.
    flow = SimulatedFlow(
        tuple(Slot((level, 0), 1e-5, STATE_BYTES, CHANGED_BYTES_A_ROW) for level in range(1, setting.slots + 1)),
        {((level, 0), (level + 1, 0)): SENT_BYTES_A_ROW for level in range(1, setting.slots)},
    )
    homes = {slot.id: hosts[place].name for place, slot in enumerate(flow.slots)}
    problem = ReplicaProblem(
        tuple(ReplicaHost(host.name, host.bandwidth_bytes_per_second, host.memory_bytes) for host in hosts),
        tuple(
            ReplicaSlot(slot.id, homes[slot.id], setting.degree, STATE_BYTES, CHANGED_BYTES_A_ROW * ROWS_PER_SECOND)
            for slot in flow.slots
        ),
        Network(links.make_matrix(hosts)),
    )
    return Cluster(setting, hosts, links, flow, homes, problem)


def measure_point(setting: Setting, runs: int, seed: int) -> Point:
    """Run a setting so often, and enumerate it where failures come at once."""
    cluster = make_cluster(setting, seed)
    rng = np.random.default_rng([seed, 2, setting.hosts, setting.slots, setting.degree, setting.failures])
    draws = runs if setting.placement == RANDOM else 1
    plans = [cluster.place(rng) for _ in range(draws)]
    wrong = next((fault for plan in plans if (fault := find_fault(cluster.problem, plan))), "")
    survived = 0
    for number in range(runs):
        plan = plans[number % draws]
        events = draw_waves(
            rng, [host.name for host in cluster.hosts], setting.waves, FAILS_AT_SECONDS, BETWEEN_SECONDS
        )
        went_on = _run_once(cluster, plan, events)
        survived += went_on
        if not setting.restores and went_on != _has_copies_left(cluster, plan, events):
            wrong = wrong or f"run {number} of {setting.part} at {setting.x:g} does not end as its copies say"
    share = survived / runs
    return Point(
        part=setting.part,
        placement=setting.placement,
        x=setting.x,
        runs=runs,
        simulated_pct=100 * share,
        error_pct=100 * math.sqrt(share * (1 - share) / runs),
        enumerated_pct=_enumerate(cluster, plans, rng) if len(setting.waves) == 1 else None,
        replica_hosts=float(np.mean([plan.replica_hosts for plan in plans])),
        used_hosts=float(np.mean([plan.used_hosts for plan in plans])),
        delay_bytes=float(np.mean([plan.delay_bytes for plan in plans])),
        wrong=wrong,
    )


def _run_once(cluster: Cluster, plan: ReplicaPlan, events: Sequence[HostEvent]) -> bool:
    """Say whether batches are committed after the last failure."""
    setting = cluster.setting
    simulation = Simulation(
        Scenario(cluster.hosts, cluster.flow, LoadTrace.constant(ROWS_PER_SECOND), tuple(events), cluster.links),
        Steering(Replicas(setting.degree, MRP, spare=0.0), restores=setting.restores, has_store=False, evens_out=False),
        homes=cluster.homes,
        replicas=plan.replicas,
    )
    last = events[-1].at_seconds
    records = simulation.run_until(last + WATCHED_SECONDS)
    return any(record.is_committed and record.began_seconds > last for record in records)


def _has_copies_left(cluster: Cluster, plan: ReplicaPlan, events: Sequence[HostEvent]) -> bool:
    gone = {event.host for event in events}
    return all(not gone.issuperset({home, *plan.replicas[slot]}) for slot, home in cluster.homes.items())


def _enumerate(cluster: Cluster, plans: Sequence[ReplicaPlan], rng: np.random.Generator) -> float:
    """Return the share of all sets of failures that leave every slot a copy; of random placements, the mean of many."""
    if cluster.setting.placement == RANDOM:
        plans = [*plans[:ENUMERATED_DRAWS], *(cluster.place(rng) for _ in range(ENUMERATED_DRAWS - len(plans)))]
    failed = _list_failures(len(cluster.hosts), cluster.setting.failures)
    return 100 * float(np.mean([find_survived(cluster.list_copies(plan), failed).mean() for plan in plans]))


@cache
def _list_failures(hosts: int, failures: int) -> NDArray[np.bool_]:
    return list_failures(hosts, failures)


def find_fault(problem: ReplicaProblem, plan: ReplicaPlan) -> str:
    """Say which rule of the paper a plan breaks, reckoned from the plan alone; nothing if it keeps all."""
    memory = {host.name: host.memory_bytes for host in problem.hosts}
    bandwidth = {host.name: host.bandwidth_bytes_per_second for host in problem.hosts}
    for slot in problem.slots:
        replicas = plan.replicas[slot.slot]
        if len({slot.home, *replicas}) != slot.degree or len(replicas) != slot.degree - 1:
            return f"slot {slot.slot} has copies on {[slot.home, *replicas]}, and should have {slot.degree} apart"
        for host in (slot.home, *replicas):
            memory[host] -= slot.state_bytes
        for host in replicas:
            bandwidth[host] -= slot.replica_bytes_per_second
            bandwidth[slot.home] -= slot.replica_bytes_per_second
    short = [host for host in memory if memory[host] < -1 or bandwidth[host] < -1]
    return f"{short[:3]} hold more than they can" if short else ""
