"""What a Python worker finds out of itself, of its executor and of its host, for the measures of its tasks.

Everything here belongs to one process, which runs one task at a time. Nothing of it may fail a task.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.engine.tasks.process_figures import count_peak_anew, peak_memory_since_bytes, sample_executor
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.model.measures import ExecutorSample, TaskMeasure

DRIVER = "driver"
"""Spark's id of an executor that is the driver, too."""
DEAREST_SAMPLE = 1 / 200
"""The time of a sample over the processor time since the last one."""
LONGEST_CONNECT_SECONDS = 2.0
CONNECTS = 3
"""Of which the quickest counts: the others waited for something else."""
MOST_PEERS = 8
"""That one process connects to in one go."""

_MOST_PARENTS = 4


@dataclass(frozen=True, slots=True)
class Peers:
    """Hosts that tasks are asked to find the latency of."""

    turn: int = 0
    """The how manieth time they are asked."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Host → a port of one of its executors."""

    def choose(self, host: str) -> dict[str, int]:
        """Return those that a process of one host tries: some behind its own in a ring, at each turn others."""
        others = sorted(name for name in self.ports if name != host)
        first = (sum(name < host for name in others) + self.turn * MOST_PEERS) % max(1, len(others))
        return {name: self.ports[name] for name in (others[first:] + others[:first])[:MOST_PEERS]}


NOBODY = Peers()


@dataclass(frozen=True, slots=True)
class WorkerOwner:
    """Whose worker a process is."""

    executor: str
    host: str
    """As the executor was told its own; empty if it was not."""
    process: int
    """The executor's; 0 if it is not known."""


def find_owner(process: int, proc: Path = Path("/proc")) -> WorkerOwner:
    """Return whose worker a process is.

    Spark tells its Python workers nothing of it. Executors of every cluster manager are started with their id and host
    as arguments, and are the parents of their workers or of the daemon that forks them. In local mode there is no
    such parent: it is the driver.
    """
    parents = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for _ in range(_MOST_PARENTS):
            process = int((proc / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
            arguments = (proc / str(process) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            parents.append((process, arguments))
            if "--executor-id" in arguments:
                host = arguments[arguments.index("--hostname") + 1] if "--hostname" in arguments else ""
                return WorkerOwner(arguments[arguments.index("--executor-id") + 1], host, process)
    java = next((number for number, arguments in parents if os.path.basename(arguments[0]) == "java"), 0)
    return WorkerOwner(DRIVER, "", java)


class Worker:
    """This process, as its tasks measure it."""

    def __init__(self) -> None:
        self._owner: WorkerOwner | None = None
        self._process = 0
        self._ended_cpu = 0.0
        self._sampled_cpu: float | None = None
        self._sample_seconds = 0.0
        self._probe = LatencyProbe()

    @contextlib.contextmanager
    def measured(self, peers: Peers, found: list[TaskMeasure]) -> Iterator[TaskMeter]:
        """Measure the block, which is a task, and put what was found into a list."""
        began = time.thread_time()
        self._begin()
        starting_seconds = time.process_time() - self._ended_cpu
        count_peak_anew()
        spent = time.thread_time() - began
        meter = TaskMeter()
        yield meter
        with contextlib.suppress(Exception):
            # Also what was spent before the task's own time began.
            measuring_since = time.thread_time() - spent
            assert self._owner is not None
            self._probe.begin(peers, self._owner.host)
            measure = meter.measure(
                self._owner.executor,
                self._owner.host,
                peak_memory_since_bytes(),
                starting_seconds=starting_seconds,
                sample=self._sample(self._owner.process),
                latency_seconds=self._probe.take(),
                measuring_since=measuring_since,
            )
            if measure is not None:
                found.append(measure)
        self._ended_cpu = time.process_time()

    def _begin(self) -> None:
        """Find out where this is; a daemon forks its workers, so what was known before a fork is another's."""
        if self._owner is None or self._process != os.getpid():
            self._process = os.getpid()
            self._owner = find_owner(self._process)
            self._ended_cpu, self._sampled_cpu = 0.0, None
            self._probe = LatencyProbe()

    def _sample(self, process: int) -> ExecutorSample | None:
        now = time.process_time()
        if self._sampled_cpu is not None and self._sample_seconds > (now - self._sampled_cpu) * DEAREST_SAMPLE:
            return None
        sample = sample_executor(process)
        self._sampled_cpu = time.process_time()
        self._sample_seconds = self._sampled_cpu - now
        return sample


class LatencyProbe:
    """Finds out how long it takes to reach other hosts, in a thread of its own: no task waits for it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._turn = NOBODY.turn
        self._found: dict[str, float] = {}

    def begin(self, peers: Peers, host: str) -> None:
        """Try some hosts, once for each time that the driver asks; not while the last try goes on."""
        if not peers.ports or peers.turn == self._turn or (self._thread is not None and self._thread.is_alive()):
            return
        self._turn = peers.turn
        self._thread = threading.Thread(target=self._try, args=(peers.choose(host),), daemon=True)
        self._thread.start()

    def take(self) -> dict[str, float]:
        """Return what was found since it was last asked, by host."""
        if not self._found or (self._thread is not None and self._thread.is_alive()):
            return {}
        found, self._found = self._found, {}
        return found

    def _try(self, ports: Mapping[str, int]) -> None:
        for host, port in ports.items():
            with contextlib.suppress(OSError):
                self._found[host] = min(connect_seconds(host, port) for _ in range(CONNECTS))


def connect_seconds(host: str, port: int) -> float:
    """Return how long it takes to open a connection; nothing is sent through it."""
    began = time.perf_counter()
    with socket.create_connection((host, port), timeout=LONGEST_CONNECT_SECONDS):
        return time.perf_counter() - began


THIS_WORKER = Worker()
