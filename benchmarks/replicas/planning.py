"""How long it takes to plan for many hosts and slots, and to plan again when some are lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from anabranch.placement.replicas import (
    Network,
    ReplicaHost,
    ReplicaPlan,
    ReplicaProblem,
    ReplicaSlot,
    place_replicas,
    restore_replicas,
)
from benchmarks.replicas.experiments import DEGREE, find_fault

PLAN_HOSTS, PLAN_SLOTS = 1_000, 10_000
HOSTS_A_RACK, LOST_HOSTS, REPEATS = 40, 10, 3
FILLED = 0.8
"""Of the memory of all hosts, when all copies stand: limits bind."""


@dataclass(frozen=True, slots=True)
class Planning:
    """What planning took."""

    hosts: int
    slots: int
    degree: int
    plan_seconds: float
    """The median of several; the problem's own checks included."""
    restore_seconds: float
    """After some hosts are lost."""
    lost_hosts: int
    lost_copies: int
    """Slots' own state and replicas, on hosts that are lost."""
    moved_replicas: int
    """That are copied anew: as many as copies were lost."""
    replica_hosts: int
    wrong: str


def measure_planning(seed: int, hosts: int = PLAN_HOSTS, slots: int = PLAN_SLOTS) -> Planning:
    """Plan for slots of different sizes on hosts in racks, and again when some hosts are gone."""
    problem = _pose(seed, hosts, slots)
    seconds: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        plan = place_replicas(replace(problem))
        seconds.append(time.perf_counter() - began)
    after, lost = _lose(problem, plan)
    again: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        restored = restore_replicas(replace(after), plan.replicas)
        again.append(time.perf_counter() - began)
    wrong = find_fault(problem, plan) or find_fault(after, restored)
    if len(restored.moves) != lost:
        wrong = wrong or f"{lost} copies were lost, and {len(restored.moves)} are copied"
    return Planning(
        hosts,
        slots,
        DEGREE,
        median(seconds),
        median(again),
        LOST_HOSTS,
        lost,
        len(restored.moves),
        plan.replica_hosts,
        wrong,
    )


def _pose(seed: int, hosts: int, slots: int) -> ReplicaProblem:
    rng = np.random.default_rng([seed, hosts, slots])
    racks = np.arange(hosts) // HOSTS_A_RACK
    latency = np.where(racks[:, None] == racks[None, :], 0.0002, 0.0005) * rng.uniform(0.8, 1.2, (hosts, hosts))
    np.fill_diagonal(latency, 0.0)
    state = rng.lognormal(np.log(50e6), 0.7, slots)
    memory = DEGREE * float(state.sum()) / hosts / FILLED
    sent = rng.uniform(0, 2e5, (hosts, hosts))
    return ReplicaProblem(
        tuple(ReplicaHost(f"h{place}", 1.25e9, memory) for place in range(hosts)),
        tuple(
            ReplicaSlot((1, slot), f"h{slot % hosts}", DEGREE, float(size), float(size) / 100)
            for slot, size in enumerate(state)
        ),
        Network(latency, sent),
    )


def _lose(problem: ReplicaProblem, plan: ReplicaPlan) -> tuple[ReplicaProblem, int]:
    """Return the problem without the first hosts, whose slots are at home with a replica now, and the copies lost."""
    gone = {host.name for host in problem.hosts[:LOST_HOSTS]}
    slots = tuple(
        slot
        if slot.home not in gone
        else replace(slot, home=next((host for host in plan.replicas[slot.slot] if host not in gone), "none"))
        for slot in problem.slots
    )
    lost = sum(len(gone & {slot.home, *plan.replicas[slot.slot]}) for slot in problem.slots)
    network = problem.network
    sent = network.sent_bytes_per_second
    left = slice(LOST_HOSTS, None)
    less = Network(network.latency_seconds[left, left], None if sent is None else sent[left, left])
    return ReplicaProblem(problem.hosts[LOST_HOSTS:], slots, less), lost
