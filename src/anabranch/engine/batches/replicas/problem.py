"""What is known when replicas are placed, put together from a manifest, its measures and what hosts say."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.model import RunRef
from anabranch.model.cluster import Executor, Home, Homes, SlotId, SlotLoad, SlotLoads
from anabranch.model.measures import BatchMeasures
from anabranch.model.replicas import Replicas
from anabranch.placement.replicas import Holdings, Network, ReplicaHost, ReplicaProblem, ReplicaSlot, SlotRuns
from anabranch.query.plan import Plan, name_of
from anabranch.state.copies.hot import name_copy
from anabranch.state.manifest import Manifest

_NEW_WEIGHT = 0.3
"""How much the last batch counts in what follows the batches."""
_USUAL_LATENCY_SECONDS = 0.0005
"""Between hosts of which nothing was measured yet."""
_BYTES_A_MEGABIT = 125_000


@dataclass(frozen=True, slots=True)
class Pace:
    """What a flow writes and sends in a second, followed from batch to batch."""

    written: Mapping[SlotId, float] = field(default_factory=dict)
    """Slot → bytes of new runs a second."""
    sent: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(executor, executor) → bytes of blocks a second."""
    latency_seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(host, host) → how long it takes to reach it."""

    def follow(self, runs: SlotRuns, batch: int, measures: BatchMeasures | None, seconds: float | None) -> Pace:
        """Return the pace with one batch more, ``seconds`` after the one before; None: it was the first."""
        if seconds is None:
            return self
        new = {slot: sum(run.bytes for run in named.values() if run.batch == batch) for slot, named in runs.items()}
        sent = {} if measures is None else measures.executor_bytes
        return Pace(
            {slot: _follow(self.written.get(slot), count / seconds) for slot, count in new.items()},
            {
                pair: _follow(self.sent.get(pair), sent.get(pair, 0) / seconds)
                for pair in (*sent, *(self.sent.keys() - sent.keys()))
            },
            self.latency_seconds if measures is None else {**self.latency_seconds, **measures.latency_seconds},
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What the last batch that was committed left, and who was there."""

    batch: int
    runs: SlotRuns
    homes: Mapping[SlotId, Home]
    executors: tuple[Executor, ...]
    pace: Pace
    ran: Homes = field(default_factory=dict)
    """Slot → the host on which it ran, as far as that was measured: mostly at home, and elsewhere if Spark found that
    lost."""
    since: Mapping[SlotId, int] = field(default_factory=dict)
    """From which batch on it has run there: what it wrote since is in the host's memory."""

    @property
    def leaving(self) -> frozenset[str]:
        """The executors that slots are leaving."""
        return frozenset(executor.id for executor in self.executors if executor.is_leaving)

    def list_going(self, host_of: Mapping[str, str]) -> frozenset[str]:
        """Return the hosts all of whose executors slots are leaving; ``host_of`` says whose memory each sees."""
        staying = {host_of[executor.id] for executor in self.executors if not executor.is_leaving}
        return frozenset(host_of.values()) - staying

    def state_bytes(self, slot: SlotId) -> int:
        """Return what a slot's runs take."""
        return sum(run.bytes for run in self.runs.get(slot, {}).values())

    def load_of(self, slot: SlotId, loads: SlotLoads) -> SlotLoad:
        """Return what a slot costs, as far as it was measured."""
        return loads.slots.get(slot) or SlotLoad(1.0, self.state_bytes(slot))


def find_places(measures: BatchMeasures | None, host_of: Mapping[str, str]) -> dict[SlotId, str]:
    """Return the host on which each slot ran, by the measures of a batch."""
    tasks = () if measures is None else measures.tasks
    return {
        task.id: host_of[task.executor]
        for task in tasks
        if task.level > 0 and not task.meets and task.executor in host_of
    }


def follow_places(before: Known | None, ran: Homes, batch: int, host_of: Mapping[str, str]) -> dict[SlotId, int]:
    """Return from which batch on each slot has run where it ran in this one, without a break."""
    if before is None:
        return dict.fromkeys(ran, batch)
    unbroken = find_unbroken(before, host_of)
    return {
        slot: before.since.get(slot, batch) if before.ran.get(slot) == host and host in unbroken else batch
        for slot, host in ran.items()
    }


def find_unbroken(known: Known, host_of: Mapping[str, str]) -> set[str]:
    """Return the hosts with an executor that was there before; others may have been away, and without memory since."""
    before = {executor.id for executor in known.executors}
    return {host for executor, host in host_of.items() if executor in before}


def list_written(known: Known, slot: SlotId) -> dict[str, int]:
    """Return the runs that a slot wrote where it runs now, by name, with their bytes."""
    since = known.since.get(slot, known.batch)
    # What others handed over was written elsewhere: the last folder of a file is its writer's.
    return {
        name: run.bytes
        for name, run in known.runs.get(slot, {}).items()
        if run.batch >= since and run.file.split("/")[-2:-1] == [str(slot[1])]
    }


def list_runs(plan: Plan, manifest: Manifest) -> dict[SlotId, dict[str, RunRef]]:
    """Return by slot of a level the runs that its next task may read, those that others wrote for it included.

    A run whose windows are all over is not among them.
    """
    found: defaultdict[SlotId, dict[str, RunRef]] = defaultdict(dict)
    states = {state.operator: state for state in manifest.levels}
    for level, heads in enumerate(plan.levels, start=1):
        for head in heads:
            state = states.get(name_of(plan, head))
            for slot in range(0 if state is None else state.slots):
                assert state is not None
                named = found[level, slot]
                for run in state.refs_of(slot):
                    if run.live_rows > 0:
                        # What it was made of is for repairs, and what is gone of it is gone from the manifest.
                        named[name_copy(run.file)] = replace(run, made_from=(), gone=())
    return dict(found)


def name_problem(known: Known, holdings: Mapping[str, Holdings], host_of: Mapping[str, str]) -> tuple[object, ...]:
    """Return what a plan is made for: if it changes, so may the plan."""
    homes = tuple(sorted(known.homes.items()))
    hosts = tuple(sorted(holdings.keys() & set(host_of.values())))
    return hosts, tuple(sorted(host_of.items())), homes, known.leaving


def pose_problem(
    known: Known, holdings: Mapping[str, Holdings], host_of: Mapping[str, str], settings: Replicas
) -> ReplicaProblem | None:
    """Return what is known as a problem of hosts, slots and network; None if no slot has a home.

    A host of which nothing is known yet gets no replica. ``host_of`` says whose memory each executor sees.
    """
    homes = {slot: host_of[home.executor] for slot, home in known.homes.items() if home.executor in host_of}
    slots = tuple(
        ReplicaSlot(slot, home, settings.degree, known.state_bytes(slot), known.pace.written.get(slot, 0.0))
        for slot, home in sorted(homes.items())
        if slot in known.runs
    )
    if not slots:
        return None
    own_bytes: defaultdict[str, float] = defaultdict(float)
    for slot in slots:
        # A slot that went on from a replica still reads it.
        held = holdings.get(slot.home, Holdings()).held
        own_bytes[slot.home] += slot.state_bytes - sum(held.get(name, 0) for name in known.runs[slot.slot])
    names = sorted(set(host_of.values()))
    staying = {host_of[executor.id] for executor in known.executors if not executor.is_leaving}
    limit = math.inf if settings.bandwidth_mbit is None else settings.bandwidth_mbit * _BYTES_A_MEGABIT
    hosts = tuple(
        ReplicaHost(
            name,
            min(limit, told.link_bytes_per_second),
            # The limit is that of replicas: what the host's own slots have is beside it.
            max(0.0, own_bytes[name] + min(settings.memory_bytes, told.room_bytes)),
            name not in staying,
        )
        for name in names
        for told in (holdings.get(name, Holdings(room_bytes=0.0)),)
    )
    return ReplicaProblem(hosts, slots, _see_network(names, known, host_of))


def _see_network(names: list[str], known: Known, host_of: Mapping[str, str]) -> Network:
    places = {name: place for place, name in enumerate(names)}
    sent = np.zeros((len(names), len(names)))
    for (sender, receiver), rate in known.pace.sent.items():
        if sender in host_of and receiver in host_of:
            sent[places[host_of[sender]], places[host_of[receiver]]] += rate
    measured = {pair: seconds for pair, seconds in known.pace.latency_seconds.items() if set(pair) <= places.keys()}
    usual = sum(measured.values()) / len(measured) if measured else _USUAL_LATENCY_SECONDS
    latency = np.full((len(names), len(names)), usual)
    np.fill_diagonal(latency, 0.0)
    for (one, other), seconds in measured.items():
        latency[places[one], places[other]] = seconds
    return Network(latency, sent)


def _follow(known: float | None, seen: float) -> float:
    return seen if known is None else known + _NEW_WEIGHT * (seen - known)
