"""What tasks of a batch took, as it was measured where they ran. None of it goes through an exchange."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from anabranch.model.cluster import SlotId
from anabranch.model.power import RaplReading

OTHER_SLOTS: SlotId = (-1, -1)
"""Stands for all slots that figures which were made shorter do not name."""
MOST_PAIRS = 64
"""So many pairs of slots, of executors and of hosts, those with the most bytes, are kept with a batch that is over."""


RunReads = Mapping[str, tuple[int, int]]
"""Source (*hot*: copies that the host's own slots left in its memory; *replica*: copies that others sent there;
*store*: the checkpoint) → runs that came from there, and their bytes."""


def add_reads(reads: Iterable[RunReads]) -> dict[str, tuple[int, int]]:
    """Return the runs and bytes of all together, by their source."""
    found: dict[str, tuple[int, int]] = {}
    for one in reads:
        for source, (runs, size) in one.items():
            before = found.get(source, (0, 0))
            found[source] = before[0] + runs, before[1] + size
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class ExecutorSample:
    """Counters of an executor and of its host, which only rise: what a batch took is the difference of two samples."""

    process_cpu_seconds: float = 0.0
    """Of the executor's own process, all its threads: shuffles, garbage collection, network. Not of Python workers."""
    process_memory_bytes: int = 0
    """What that process holds now."""
    network_sent_bytes: int = 0
    """Through the host's interfaces, whoever sent them; the host's own loopback is not in it."""
    network_received_bytes: int = 0
    rapl: RaplReading | None = None
    """The host's counters of energy; None where the kernel shows none that may be read."""


@dataclass(frozen=True, slots=True)
class TaskMeasure:
    """One task of a batch: a reader (level 0), a slot of a level, or a task in which parts of a level's keys meet."""

    level: int
    slot: int
    """Of a reader, its number. Tasks in which parts of keys meet have the numbers behind those of the level's slots."""
    executor: str
    host: str
    cpu_seconds: float
    """Processor time of the task's process, all threads, from the task's begin to its end; waiting is not in it."""
    wall_seconds: float
    memory_bytes: int
    """The most that the task's process held while it ran, or, where that cannot be told, since it began."""
    rows: int = 0
    """That it was given, copies included; those for other levels, which it only passes on, are not in it."""
    received_bytes: int = 0
    """Of blocks, all senders together, those that it passes on included."""
    sent_bytes: Mapping[SlotId, int] = field(default_factory=dict)
    """By the task of the next exchange that gets them; what is for the driver is not in it."""
    sent_rows: Mapping[SlotId, int] = field(default_factory=dict)
    state_bytes: int = 0
    """That the slot has after the batch, all its operators together."""
    run_reads: RunReads = field(default_factory=dict)
    """Runs of state that the slot read, by where they were; nothing where the checkpoint is on the host's own disk and
    there are no replicas."""
    operator_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """By operator, with the steps behind it, of a level that has several."""
    starting_seconds: float = 0.0
    """Processor time of the same process between the task before and this one: to be told what to do, garbage
    collection, and before its first task, imports. Not in ``cpu_seconds``."""
    exchange_seconds: float = 0.0
    """The part of ``cpu_seconds`` that exchanges took: to read and unpack blocks, to find slots for rows, to cut and
    pack them, and to hand them on. Steps, operators, state and results are the rest."""
    measuring_seconds: float = 0.0
    """Processor time of what measured all this; hardly any of it is not in ``cpu_seconds``."""
    meets: bool = False
    """Whether parts of keys meet here."""
    sample: ExecutorSample | None = None
    """Taken at the end of some tasks, no more often than is worth its time."""
    latency_seconds: Mapping[str, float] = field(default_factory=dict)
    """Host → how long it takes to open a connection to it, if that was tried since the task before."""

    @property
    def id(self) -> SlotId:
        """The level and the number of the task."""
        return self.level, self.slot

    @property
    def all_sent_bytes(self) -> int:
        """To all tasks together."""
        return sum(self.sent_bytes.values())

    @property
    def all_sent_rows(self) -> int:
        """To all tasks together."""
        return sum(self.sent_rows.values())


@dataclass(frozen=True, slots=True)
class ExecutorLoad:
    """What an executor did in a batch."""

    executor: str
    host: str
    cores: int
    tasks: int = 0
    cpu_seconds: float = 0.0
    """Of its tasks."""
    starting_seconds: float = 0.0
    """Of its Python workers, before their tasks."""
    process_cpu_seconds: float = 0.0
    """Of its own process, between the last sample of this batch and that of batches before; 0 without two samples."""
    utilisation: float = 0.0
    """All three over the batch's time on all its cores: 1 is a batch in which no core was ever idle."""
    memory_bytes: int = 0
    """The most that one of its tasks' processes held."""
    process_memory_bytes: int = 0
    """What its own process held; 0 if nobody looked."""
    state_bytes: int = 0
    rows: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0

    @property
    def busy_seconds(self) -> float:
        """Processor time of all that belongs to it."""
        return self.cpu_seconds + self.starting_seconds + self.process_cpu_seconds


@dataclass(frozen=True, slots=True)
class HostLoad:
    """What a host's executors did in a batch, and what went through its network meanwhile."""

    host: str
    executors: int
    cores: int
    """Of its executors."""
    busy_seconds: float = 0.0
    utilisation: float = 0.0
    state_bytes: int = 0
    network_sent_bytes: int = 0
    """Since the last sample of batches before, by anybody; 0 without two samples."""
    network_received_bytes: int = 0
    rapl_joules: float = 0.0
    """What the host's processors and memory drew since the last sample of batches before, by the hardware's counters
    …"""
    rapl_seconds: float = 0.0
    """… and between which moments that was; 0 without two samples, or without such counters."""


Figure = TypeVar("Figure", int, float)
Bytes = Mapping[tuple[str, str], int]
"""(sender, receiver) → bytes."""


@dataclass(frozen=True, slots=True)
class BatchMeasures:
    """What the tasks of a batch took, on which executor and host, and what they sent each other."""

    tasks: tuple[TaskMeasure, ...] = ()
    """By level and slot. Of all pairs of slots, those with the most bytes are named."""
    executors: tuple[ExecutorLoad, ...] = ()
    """Those that had tasks, by id."""
    hosts: tuple[HostLoad, ...] = ()
    """By name."""
    executor_bytes: Bytes = field(default_factory=dict)
    """Between executors, those within one included. The largest."""
    host_bytes: Bytes = field(default_factory=dict)
    """Between hosts, likewise: what stays on a host does not go through its network."""
    latency_seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(from, to) → how long it took last to open a connection between two hosts; the longest."""
    run_reads: RunReads = field(default_factory=dict)
    """Runs of state that slots read, by where they were."""
    cpu_seconds: float = 0.0
    """Processor time of the batch: of all tasks, their processes' starts and the executors' own processes."""
    utilisation: float = 0.0
    """The same over the batch's time on all cores of all executors, those without tasks included."""
    measuring_seconds: float = 0.0
    """Processor time of measuring this, in tasks and in the driver."""

    @property
    def measuring_share(self) -> float:
        """The time of measuring over the processor time of the batch."""
        return self.measuring_seconds / self.cpu_seconds if self.cpu_seconds > 0 else 0.0

    def without_tasks(self) -> BatchMeasures:
        """Return what is left of a batch that is long over in memory: executors and hosts."""
        return replace(self, tasks=())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data, tasks by column: there may be many."""
        found: dict[str, Any] = {
            "cpu_seconds": _short(self.cpu_seconds),
            "utilisation": _short(self.utilisation),
            "measuring_seconds": _short(self.measuring_seconds),
            "executors": [_write(one) for one in self.executors],
            "hosts": [_write(one) for one in self.hosts],
        }
        if self.run_reads:
            found["run_reads"] = {source: list(read) for source, read in self.run_reads.items()}
        if self.tasks:
            found["tasks"] = _write_tasks(self.tasks, [load.executor for load in self.executors])
        pairs = [
            [*task.id, *target, sent, task.sent_rows.get(target, 0)]
            for task in self.tasks
            for target, sent in task.sent_bytes.items()
        ]
        told = {
            "pairs": pairs,
            "executor_bytes": [[*pair, sent] for pair, sent in self.executor_bytes.items()],
            "host_bytes": [[*pair, sent] for pair, sent in self.host_bytes.items()],
            "latency_seconds": [[*pair, _short(seconds)] for pair, seconds in self.latency_seconds.items()],
        }
        return found | {name: entries for name, entries in told.items() if entries}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchMeasures:
        """Read what ``to_json`` wrote."""
        executors = tuple(_read(ExecutorLoad, one) for one in data["executors"])
        return cls(
            tasks=_read_tasks(data.get("tasks", {}), data.get("pairs", ()), executors),
            executors=executors,
            hosts=tuple(_read(HostLoad, one) for one in data["hosts"]),
            run_reads=_read_reads(data.get("run_reads", {})),
            cpu_seconds=data["cpu_seconds"],
            utilisation=data["utilisation"],
            measuring_seconds=data["measuring_seconds"],
            **{
                name: {(sender, receiver): value for sender, receiver, value in data.get(name, ())}
                for name in ("executor_bytes", "host_bytes", "latency_seconds")
            },
        )


def keep_largest(figures: Mapping[tuple[str, str], Figure]) -> dict[tuple[str, str], Figure]:
    """Return the pairs with the most, the largest first, as many as are kept with a batch."""
    return dict(sorted(figures.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST_PAIRS])


def fold_pairs(tasks: Sequence[TaskMeasure]) -> tuple[TaskMeasure, ...]:
    """Return tasks that name only the pairs of slots with the most bytes; all others are told together."""
    if sum(len(task.sent_bytes) for task in tasks) <= MOST_PAIRS:
        return tuple(tasks)
    pairs = [(-sent, task.id, target) for task in tasks for target, sent in task.sent_bytes.items()]
    named = {(sender, target) for _, sender, target in sorted(pairs)[:MOST_PAIRS]}
    return tuple(
        replace(
            task,
            sent_bytes=_fold(task.sent_bytes, {target for target in task.sent_bytes if (task.id, target) in named}),
            sent_rows=_fold(task.sent_rows, {target for target in task.sent_rows if (task.id, target) in named}),
        )
        for task in tasks
    )


def _fold(sent: Mapping[SlotId, int], named: Iterable[SlotId]) -> dict[SlotId, int]:
    kept = {target: sent[target] for target in sorted(named)}
    rest = sum(sent.values()) - sum(kept.values())
    return kept | ({OTHER_SLOTS: rest} if rest else {})


_COLUMNS = (
    *("level", "slot", "cpu_seconds", "wall_seconds", "memory_bytes", "rows", "received_bytes", "state_bytes"),
    *("starting_seconds", "exchange_seconds", "meets"),
)
Load = TypeVar("Load", ExecutorLoad, HostLoad)
_DIGITS = 5
"""Of seconds: what is shorter than 10 µs is as good as nothing."""


def _short(value: float) -> float:
    return round(value, _DIGITS)


def _write(load: ExecutorLoad | HostLoad) -> dict[str, Any]:
    """Return what a load says; zeros go without saying."""
    written = {name: _short(value) if isinstance(value, float) else value for name, value in asdict(load).items()}
    return {name: value for name, value in written.items() if value or name in ("cores", "executors")}


def _read(kind: type[Load], data: Mapping[str, Any]) -> Load:
    """Return a load; figures that this version does not know are left out."""
    known = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in data.items() if name in known})


def _write_tasks(tasks: Sequence[TaskMeasure], executors: Sequence[str]) -> dict[str, list[Any]]:
    """Return tasks by column; executors are those of the batch, by their place."""
    columns: dict[str, list[Any]] = {"executor": [executors.index(task.executor) for task in tasks]}
    for name in _COLUMNS:
        values = [getattr(task, name) for task in tasks]
        if any(values):
            columns[name] = [_short(value) if isinstance(value, float) else int(value) for value in values]
    operators = [{name: _short(each) for name, each in task.operator_cpu_seconds.items()} for task in tasks]
    if any(operators):
        columns["operator_cpu_seconds"] = operators
    reads = [{source: list(read) for source, read in task.run_reads.items()} for task in tasks]
    if any(reads):
        columns["run_reads"] = reads
    return columns


def _read_tasks(
    columns: Mapping[str, Sequence[Any]], pairs: Iterable[Sequence[int]], executors: Sequence[ExecutorLoad]
) -> tuple[TaskMeasure, ...]:
    sent: dict[SlotId, dict[SlotId, tuple[int, int]]] = {}
    for level, slot, target_level, target, sent_bytes, sent_rows in pairs:
        sent.setdefault((level, slot), {})[target_level, target] = sent_bytes, sent_rows
    found = []
    for place, executor in enumerate(columns.get("executor", ())):
        told: dict[str, Any] = {name: columns[name][place] if name in columns else 0 for name in _COLUMNS}
        own = sent.get((told["level"], told["slot"]), {})
        found.append(
            TaskMeasure(
                **told | {"meets": bool(told["meets"])},
                executor=executors[executor].executor,
                host=executors[executor].host,
                run_reads=_read_reads(columns["run_reads"][place]) if "run_reads" in columns else {},
                sent_bytes={target: bytes_ for target, (bytes_, _) in own.items()},
                sent_rows={target: rows for target, (_, rows) in own.items() if rows},
                operator_cpu_seconds=columns["operator_cpu_seconds"][place]
                if "operator_cpu_seconds" in columns
                else {},
            )
        )
    return tuple(found)


def _read_reads(data: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, int]]:
    return {source: (runs, size) for source, (runs, size) in data.items()}
