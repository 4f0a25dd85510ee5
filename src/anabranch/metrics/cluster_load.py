"""What tasks of a batch took, added up: by executor and host, between them, and over the batch's time."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.metrics.rapl import PowerError, measure_between
from anabranch.model.cluster import Executor, Homes
from anabranch.model.measures import (
    BatchMeasures,
    Bytes,
    ExecutorLoad,
    ExecutorSample,
    HostLoad,
    TaskMeasure,
    add_reads,
    fold_pairs,
    keep_largest,
)
from anabranch.model.power import RaplReading

MOST_REMEMBERED = 4_096
"""Executors, hosts, and pairs of hosts of which something is remembered: one that is seen no more makes room."""


class LoadBook:
    """Makes the measures of a batch of those of its tasks, and remembers the counters of batches before."""

    def __init__(self) -> None:
        self._executors: dict[str, ExecutorSample] = {}
        self._hosts: dict[str, ExecutorSample] = {}
        self._latencies: dict[tuple[str, str], float] = {}
        self._energy: dict[str, RaplReading] = {}

    def add(self, tasks: Iterable[TaskMeasure], executors: Sequence[Executor], batch_seconds: float) -> BatchMeasures:
        """Return what a batch took; ``executors`` are all that there are, with their cores."""
        known = {executor.id: executor for executor in executors}
        # A process does not always know its host by the name that others reach it by.
        measured = sorted(
            (replace(task, host=known[task.executor].host) if task.executor in known else task for task in tasks),
            key=lambda task: task.id,
        )
        grown = self._count_executors(measured)
        network, drawn = self._count_hosts(measured), self._count_energy(measured)
        self._note_latencies(measured)
        loads = tuple(
            _sum_executor(own, known.get(own[0].executor), grown[own[0].executor], batch_seconds)
            for own in _by_executor(measured)
        )
        cpu_seconds = sum(load.busy_seconds for load in loads)
        homes = homes_of(measured)
        host_of = {task.executor: task.host for task in measured}
        sent = sum_transfers(measured, homes)
        return BatchMeasures(
            tasks=fold_pairs(measured),
            executors=loads,
            hosts=tuple(
                _with_energy(_sum_host(host, loads, network, batch_seconds), drawn.get(host))
                for host in sorted({one.host for one in loads})
            ),
            executor_bytes=keep_largest(sent),
            host_bytes=keep_largest(sum_by_host(sent, host_of)),
            latency_seconds=keep_largest(self._latencies),
            run_reads=add_reads(task.run_reads for task in measured),
            cpu_seconds=cpu_seconds,
            utilisation=_utilisation(cpu_seconds, batch_seconds, _count_cores(loads, known.values())),
            measuring_seconds=sum(task.measuring_seconds for task in measured),
        )

    def _count_executors(self, tasks: Iterable[TaskMeasure]) -> Mapping[str, ExecutorSample]:
        """Return by executor what its process did since it was seen in a batch before, and what it holds."""
        grown: dict[str, ExecutorSample] = defaultdict(ExecutorSample)
        for executor, sample in _last_samples((task.executor, task.sample) for task in tasks).items():
            # Executors of another application may have the same ids: theirs begin at 0 again.
            grown[executor] = _since(self._executors.pop(executor, sample), sample)
            self._executors[executor] = sample
        _forget(self._executors)
        return grown

    def _count_hosts(self, tasks: Iterable[TaskMeasure]) -> Mapping[str, ExecutorSample]:
        """Return by host what went through its network since it was seen in a batch before."""
        grown: dict[str, ExecutorSample] = defaultdict(ExecutorSample)
        for host, sample in _last_samples((task.host, task.sample) for task in tasks).items():
            grown[host] = _since(self._hosts.pop(host, sample), sample)
            self._hosts[host] = sample
        _forget(self._hosts)
        return grown

    def _count_energy(self, tasks: Iterable[TaskMeasure]) -> dict[str, tuple[float, float]]:
        """Return by host what its counters of energy rose by, and over how many seconds."""
        latest: dict[str, RaplReading] = {}
        for task in tasks:
            reading = task.sample.rapl if task.sample is not None else None
            if reading is not None and (task.host not in latest or reading.at_seconds > latest[task.host].at_seconds):
                latest[task.host] = reading
        found = {}
        for host, reading in latest.items():
            before = self._energy.pop(host, reading)
            self._energy[host] = reading
            # Too far apart, or of a host that was started anew: the next two will tell.
            with contextlib.suppress(PowerError):
                joules = measure_between(before, reading).joules
                found[host] = joules, reading.at_seconds - before.at_seconds
        _forget(self._energy)
        return found

    def _note_latencies(self, tasks: Iterable[TaskMeasure]) -> None:
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for task in tasks:
            for host, seconds in task.latency_seconds.items():
                if host != task.host:
                    found[task.host, host].append(seconds)
        for pair, tried in found.items():
            self._latencies.pop(pair, None)
            self._latencies[pair] = min(tried)
        _forget(self._latencies)


def homes_of(tasks: Iterable[TaskMeasure]) -> Homes:
    """Return where tasks ran."""
    return {task.id: task.executor for task in tasks}


def sum_transfers(tasks: Iterable[TaskMeasure], homes: Homes) -> dict[tuple[str, str], int]:
    """Return the bytes between executors if slots had these homes; tasks that have none count where they ran."""
    sent: dict[tuple[str, str], int] = defaultdict(int)
    for task in tasks:
        sender = homes.get(task.id, task.executor)
        for target, sent_bytes in task.sent_bytes.items():
            if target in homes:
                sent[sender, homes[target]] += sent_bytes
    return dict(sent)


def sum_by_host(sent: Bytes, host_of: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """Return bytes between executors as bytes between their hosts."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for (sender, receiver), sent_bytes in sent.items():
        found[host_of.get(sender, ""), host_of.get(receiver, "")] += sent_bytes
    return dict(found)


def _by_executor(tasks: Iterable[TaskMeasure]) -> list[list[TaskMeasure]]:
    found: dict[str, list[TaskMeasure]] = defaultdict(list)
    for task in tasks:
        found[task.executor].append(task)
    return [found[executor] for executor in sorted(found)]


def _sum_executor(
    tasks: Sequence[TaskMeasure], known: Executor | None, grown: ExecutorSample, batch_seconds: float
) -> ExecutorLoad:
    load = ExecutorLoad(
        executor=tasks[0].executor,
        host=tasks[0].host,
        cores=known.cores if known is not None else 1,
        tasks=len(tasks),
        cpu_seconds=sum(task.cpu_seconds for task in tasks),
        starting_seconds=sum(task.starting_seconds for task in tasks),
        process_cpu_seconds=grown.process_cpu_seconds,
        memory_bytes=max(task.memory_bytes for task in tasks),
        process_memory_bytes=grown.process_memory_bytes,
        state_bytes=sum(task.state_bytes for task in tasks),
        rows=sum(task.rows for task in tasks),
        received_bytes=sum(task.received_bytes for task in tasks),
        sent_bytes=sum(task.all_sent_bytes for task in tasks),
    )
    return replace(load, utilisation=_utilisation(load.busy_seconds, batch_seconds, load.cores))


def _sum_host(
    host: str, loads: Iterable[ExecutorLoad], network: Mapping[str, ExecutorSample], batch_seconds: float
) -> HostLoad:
    own = [load for load in loads if load.host == host]
    cores, busy_seconds = sum(load.cores for load in own), sum(load.busy_seconds for load in own)
    return HostLoad(
        host=host,
        executors=len(own),
        cores=cores,
        busy_seconds=busy_seconds,
        utilisation=_utilisation(busy_seconds, batch_seconds, cores),
        state_bytes=sum(load.state_bytes for load in own),
        network_sent_bytes=network[host].network_sent_bytes,
        network_received_bytes=network[host].network_received_bytes,
    )


def _with_energy(load: HostLoad, counted: tuple[float, float] | None) -> HostLoad:
    return load if counted is None else replace(load, rapl_joules=counted[0], rapl_seconds=counted[1])


def _count_cores(loads: Iterable[ExecutorLoad], known: Iterable[Executor]) -> int:
    cores = {load.executor: load.cores for load in loads} | {executor.id: executor.cores for executor in known}
    return sum(cores.values())


def _utilisation(cpu_seconds: float, batch_seconds: float, cores: int) -> float:
    return cpu_seconds / (batch_seconds * cores) if batch_seconds > 0 and cores else 0.0


def _last_samples(samples: Iterable[tuple[str, ExecutorSample | None]]) -> dict[str, ExecutorSample]:
    """Return by name the largest of its counters: they only rise, so these are the last."""
    found: dict[str, ExecutorSample] = {}
    for name, sample in samples:
        if sample is not None:
            last = found.get(name, sample)
            found[name] = ExecutorSample(
                max(last.process_cpu_seconds, sample.process_cpu_seconds),
                max(last.process_memory_bytes, sample.process_memory_bytes),
                max(last.network_sent_bytes, sample.network_sent_bytes),
                max(last.network_received_bytes, sample.network_received_bytes),
            )
    return found


def _since(before: ExecutorSample, now: ExecutorSample) -> ExecutorSample:
    """Return by how much counters rose; one that fell began anew, and tells nothing yet."""
    return ExecutorSample(
        max(0.0, now.process_cpu_seconds - before.process_cpu_seconds),
        now.process_memory_bytes,
        max(0, now.network_sent_bytes - before.network_sent_bytes),
        max(0, now.network_received_bytes - before.network_received_bytes),
    )


def _forget(
    remembered: dict[str, ExecutorSample] | dict[str, RaplReading] | dict[tuple[str, str], float],
) -> None:
    """Let go of what was not seen for longest."""
    while len(remembered) > MOST_REMEMBERED:
        del remembered[next(iter(remembered))]  # type: ignore[arg-type]
