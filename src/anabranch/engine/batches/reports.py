"""Put the reports of a batch's tasks together into what the manifest says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.control.observe.load_sampling import LoadReport
from anabranch.control.observe.state_sizes import SizesReport
from anabranch.engine.ahead.partition_key_audit import KeysReport
from anabranch.engine.tasks.reader_buffers import HeldBuffers, HeldRows, merge_buffers
from anabranch.engine.tasks.task_reports import MeetReport, SlotReport, TaskReport, earliest_us, latest_us
from anabranch.eventtime.medians import TimeTally
from anabranch.eventtime.observations import merge_seen
from anabranch.model import BEGINNING_OF_TIME, RunRef, SplitKeyClocks, StagedFile
from anabranch.model.exchanges import ExchangeFigures, ExchangeTally
from anabranch.model.measures import TaskMeasure

NOTHING_HELD: HeldBuffers = {}


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What one stateful operator did in a batch, by slot."""

    runs: tuple[tuple[RunRef, ...], ...]
    rows: tuple[int, ...]
    next_due_us: int | None
    last_end_us: int | None
    loads: tuple[LoadReport, ...] = ()
    """What slots saw of their rows, if they were told to look and had any."""
    handoffs: tuple[tuple[RunRef, ...], ...] = ()
    """By target slot, what others wrote for it; empty when nothing was handed on."""
    slot_latest_us: tuple[int | None, ...] = ()
    """By slot, the latest event time of its rows, where slots look at it."""
    group_latest_us: Mapping[int, int] = field(default_factory=dict)
    """The same by group of keys."""
    forgotten_us: Mapping[int, int] = field(default_factory=dict)
    """By group of keys, the highest watermark of those that are forgotten now."""
    wake_us: int | None = None
    """When, by the wall clock, a slot wants to run even if no data comes."""
    fire_us: frozenset[int] = frozenset()
    """Up to when slots fired; one time, or something is wrong. Empty if they did not say."""
    split_keys: tuple[SplitKeyClocks, ...] = ()
    """The watermarks after the batch of keys that slots share, or will share, where keys have their own."""
    sizes: tuple[SizesReport, ...] = ()
    """How much state the slots have that measured it."""

    @property
    def handed_bytes(self) -> int:
        return sum(ref.bytes for slot in self.handoffs for ref in slot)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What all tasks of a batch did."""

    counters: Mapping[str, int]
    latest_us: Mapping[int, int]
    """Watermark node → largest event time that was seen."""
    staged: Mapping[int, tuple[StagedFile, ...]]
    operators: Mapping[int, OperatorReport]
    exchanged_bytes: int
    problems: tuple[str, ...]
    slot_seconds: tuple[float, ...]
    partitions_us: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Watermark node → partition of its sources → largest event time, where watermarks are kept per partition."""
    tallies: Mapping[int, TimeTally] = field(default_factory=dict)
    """Watermark node → how event times were spread, where the median counts."""
    buffers: Mapping[int, HeldRows] = field(default_factory=dict)
    """Stateful node → what readers hold back of it."""
    exchanges: Mapping[int, ExchangeTally] = field(default_factory=dict)
    """Stateful node → what its exchange did."""
    figures: Mapping[int, ExchangeFigures] = field(default_factory=dict)
    """Stateful node → the same as people are shown it, with what was chosen for the next batch."""
    partition_keys: Mapping[int, Mapping[int, KeysReport]] = field(default_factory=dict)
    """Stateful node → slot → what the task of that partition saw of its keys, where partitions are slots."""
    measures: tuple[TaskMeasure, ...] = ()
    """What each task took and sent, as it was measured where it ran."""
    measuring_seconds: float = 0.0
    """What the driver took to hear of it."""
    bad_files: Mapping[str, str] = field(default_factory=dict)
    """Path → reason of files that cannot be used and are to be set aside; then nothing else here counts."""

    def next_due_us(self, head: int) -> int | None:
        """Return the end of the first window of an operator that waits for anything, in a slot or at a reader."""
        operator, buffer = self.operators.get(head), self.buffers.get(head)
        return earliest_us((operator.next_due_us if operator else None, buffer.next_due_us if buffer else None))

    def last_end_us(self, head: int) -> int | None:
        """Return the end of the last window of an operator that fired, in a slot or into a store."""
        operator, buffer = self.operators.get(head), self.buffers.get(head)
        return latest_us((operator.last_end_us if operator else None, buffer.last_end_us if buffer else None))

    @property
    def heads(self) -> tuple[int, ...]:
        """The operators that have slots, and those that only readers work for."""
        return tuple(sorted({*self.operators, *self.buffers}))


def merge_reports(
    payloads: Iterable[bytes], slots_of: Mapping[int, int], held: HeldBuffers = NOTHING_HELD
) -> BatchReport:
    """Return the report of a batch; ``slots_of`` is stateful node → number of slots, each of which must have reported.

    So must every reader that held something back. Raises ``RuntimeError`` if one is missing: committing without it
    would lose its state.
    """
    tasks = [TaskReport.decode(payload) for payload in payloads]
    counters: dict[str, int] = defaultdict(int)
    staged: dict[int, list[StagedFile]] = defaultdict(list)
    exchanges: dict[int, ExchangeTally] = defaultdict(ExchangeTally)
    partition_keys: dict[int, dict[int, KeysReport]] = defaultdict(dict)
    for task in tasks:
        for name, value in task.counters.items():
            counters[name] += value
        for sink, file in task.staged.items():
            staged[sink].append(file)
        for node, tally in task.exchanges.items():
            exchanges[node] += tally
        for node, keys in task.partition_keys.items():
            partition_keys[node][task.task] = keys
    seen = merge_seen(task.seen for task in tasks)
    buffers = merge_buffers(tasks, held)
    seconds = {task.task: task.seconds for task in tasks if task.seconds is not None}
    by_slot = {node: _by_slot(node, count, tasks) for node, count in slots_of.items()}
    return BatchReport(
        counters=dict(counters),
        latest_us=seen.latest_us,
        staged={
            sink: tuple(sorted(files, key=lambda file: (file.slot, file.file)))
            for sink, files in sorted(staged.items())
        },
        operators={node: _operator(node, slots, tasks) for node, slots in by_slot.items()},
        exchanged_bytes=sum(task.exchanged_bytes for task in tasks),
        problems=tuple(problem for slots in by_slot.values() for slot in slots for problem in slot.problems)
        + tuple(problem for buffer in buffers.values() for problem in buffer.problems),
        slot_seconds=tuple(seconds[slot] for slot in sorted(seconds)),
        partitions_us=seen.partitions_us,
        tallies=seen.tallies,
        buffers=buffers,
        exchanges=dict(exchanges),
        partition_keys=dict(partition_keys),
        bad_files={path: reason for task in tasks for path, reason in task.bad_files.items()},
    )


def _by_slot(node: int, count: int, tasks: Iterable[TaskReport]) -> list[SlotReport]:
    """Return what an operator did on each of its slots."""
    slots = {task.task: task.operators[node] for task in tasks if node in task.operators}
    missing = [slot for slot in range(count) if slot not in slots]
    if missing:
        msg = f"operator {node}: slots {missing} did not report; the batch is not committed"
        raise RuntimeError(msg)
    return [slots[slot] for slot in range(count)]


def _operator(node: int, slots: Sequence[SlotReport], tasks: Iterable[TaskReport]) -> OperatorReport:
    """Return what an operator did, by its slots and by what other tasks say of its rows."""
    # What is due of keys that slots share, they know where the parts met.
    everywhere: list[SlotReport | MeetReport] = [*slots, *(task.met[node] for task in tasks if node in task.met)]
    split_keys = [report.split_keys for report in everywhere if report.split_keys is not None]
    sent = [task.slot_latest_us[node] for task in tasks if node in task.slot_latest_us]
    # Rows that wait in the tasks before the slots have raised the clocks of their groups.
    waiting = [task.group_latest_us[node] for task in tasks if node in task.group_latest_us]
    return OperatorReport(
        runs=tuple(slot.runs for slot in slots),
        rows=tuple(slot.rows for slot in slots),
        next_due_us=earliest_us(report.next_due_us for report in everywhere),
        last_end_us=latest_us(report.last_end_us for report in everywhere),
        slot_latest_us=_latest_by_slot([slot.latest_us for slot in slots], sent),
        group_latest_us=_latest_by_group([*(slot.group_latest_us for slot in slots), *waiting]),
        forgotten_us=_latest_by_group(slot.forgotten_us for slot in slots),
        wake_us=earliest_us(report.wake_us for report in everywhere),
        fire_us=frozenset(report.fire_us for report in everywhere if report.fire_us is not None),
        split_keys=tuple(sorted(split_keys, key=SplitKeyClocks.to_text)),
        loads=tuple(slot.load for slot in slots if slot.load is not None),
        sizes=tuple(slot.sizes for slot in slots if slot.sizes is not None),
        handoffs=_handoffs(slots),
    )


def _latest_by_slot(found: Sequence[int | None], sent: Sequence[Sequence[int]]) -> tuple[int | None, ...]:
    """Return by slot the latest event time that it found itself, or that those saw who sent it rows."""
    latest = list(found)
    for values in sent:
        for slot, value in enumerate(values[: len(latest)]):
            known = latest[slot]
            if value > BEGINNING_OF_TIME:
                latest[slot] = value if known is None else max(value, known)
    return tuple(latest)


def _latest_by_group(reported: Iterable[Mapping[int, int]]) -> dict[int, int]:
    latest: dict[int, int] = {}
    for found in reported:
        for group, us in found.items():
            latest[group] = max(us, latest.get(group, us))
    return latest


def _handoffs(slots: Iterable[SlotReport]) -> tuple[tuple[RunRef, ...], ...]:
    """Return by target what was written for it, in the order of the slots that wrote it."""
    by_target: dict[int, list[RunRef]] = defaultdict(list)
    for slot in slots:
        for target, ref in slot.handed.items():
            by_target[target].append(ref)
    return tuple(tuple(by_target[slot]) for slot in range(max(by_target, default=-1) + 1))
