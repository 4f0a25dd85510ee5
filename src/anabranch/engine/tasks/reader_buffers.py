"""What tasks hold back of rows that leave them: the next batch's share it out, send what is due, and leave the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import polars as pl

from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.engine.tasks.task_reports import BufferReport, TaskReport, earliest_us, latest_us
from anabranch.errors import FlowError
from anabranch.model.exchanges import HoldingKernel, HoldSpec, ReaderBuffer, TellsGroups
from anabranch.operators.windows.buffered_premerge import BufferTally, Sending, merge_in_buffer
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan
from anabranch.routing.phases import window_of
from anabranch.state.manifest import Manifest
from anabranch.state.repair import advance_on_intact_runs
from anabranch.state.runs import WriteName
from anabranch.state.slots import RunsOfSlot

HeldBuffers = Mapping[int, Mapping[int, ReaderBuffer]]
"""Stateful node → task of the level before it → what it holds."""

_AT_WINDOW_ENDS = HoldSpec()


@dataclass(frozen=True, slots=True)
class HeldRows:
    """What all tasks before one operator hold of it after a batch."""

    held: tuple[ReaderBuffer, ...] = ()
    next_due_us: int | None = None
    wake_us: int | None = None
    last_end_us: int | None = None
    """The end of the last window that was merged into a store by a drain."""
    problems: tuple[str, ...] = ()


class TaskBuffers:
    """The rows that one task holds back, while it runs: a read task, or a slot of a level before the last."""

    def __init__(self, program: FlowProgram, spec: BatchSpec, level: int, origin: int) -> None:
        """``level`` is the task's own; it holds rows of operators of the next one."""
        self._program = program
        self._spec = spec
        self._level = level
        self._origin = origin
        self._arrived: dict[int, list[pl.DataFrame]] = defaultdict(list)
        self._rows_read: dict[int, int] = defaultdict(int)
        self.reports: dict[int, BufferReport] = {}
        self._more_rows: dict[int, int] = {}
        self.group_latest_us: dict[int, dict[int, int]] = defaultdict(dict)

    def keeps(self, head: int) -> bool:
        """Say whether merged rows of an operator pass through here, because they may wait, or some waited before."""
        if holding_level(self._program.plan, head) != self._level:
            return False
        if self._program.plan.is_global(head) or self._origin in self._spec.held.get(head, {}):
            return True
        return self._spec.way_of(head, self._program) == "held"

    def take(self, head: int, combined: pl.DataFrame, rows_read: int) -> None:
        """Take combined rows of an operator in; what they tell of time is told now, whenever they are sent."""
        self._arrived[head].append(combined)
        self._rows_read[head] += rows_read
        kernel = self._program.kernels[head]
        if self._spec.times[head].shared is not None and isinstance(kernel, TellsGroups):
            latest = self.group_latest_us[head]
            for group, latest_us in kernel.group_latest_us(combined).items():
                latest[group] = max(latest_us, latest.get(group, latest_us))

    @property
    def heads(self) -> list[int]:
        """The operators that something was read or held of."""
        plan = self._program.plan
        held = [
            head
            for head, buffers in self._spec.held.items()
            if self._origin in buffers and holding_level(plan, head) == self._level
        ]
        return sorted({*self._arrived, *held})

    def settle(self, head: int) -> Sending:
        """Return what is to be sent of an operator now; the rest is written as runs, and reported."""
        program, spec = self._program, self._spec
        operation = program.plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        before = spec.held.get(head, {}).get(self._origin) or ReaderBuffer(self._origin, ())
        name = WriteName(spec.epoch, spec.batch, spec.attempt, spec.job)
        files = program.open_runs(f"state/{head}/buffers/{self._origin}", name)

        def merge(state: RunsOfSlot) -> Sending:
            return merge_in_buffer(
                cast("HoldingKernel", program.kernels[head]),
                self._hold_of(operation, head),
                state,
                self._arrived[head],
                self._rows_read[head],
                BufferTally(before.rows, before.since_us),
                spec.times[head],
            )

        recovered = advance_on_intact_runs(before.runs, files, merge)
        sending = recovered.outcome
        after = ReaderBuffer(self._origin, recovered.state.runs(), sending.tally.rows, sending.tally.since_us)
        self._more_rows[head] = _count_rows(after) - _count_rows(before)
        self.reports[head] = BufferReport(
            after, sending.next_due_us, sending.wake_us, problems=tuple(recovered.problems)
        )
        return sending

    def more_rows(self, head: int) -> int:
        """Return by how many rows more is held of an operator than before it was settled."""
        return self._more_rows[head]

    def say_last_end(self, head: int, last_end_us: int) -> None:
        """Report the end of the last window that was merged into a store, by a drain."""
        self.reports[head] = replace(self.reports[head], last_end_us=last_end_us)

    def _hold_of(self, operation: Stateful, head: int) -> HoldSpec | None:
        """Return until when rows are held back; None if whatever is held is to be sent."""
        hold = operation.routing.exchange.hold
        if not self._program.plan.is_global(head):
            return hold if self._spec.way_of(head, self._program) == "held" else None
        if hold is None and window_of(operation.spec) is not None:
            # A window that is merged into a store once it has closed is whole when it appears there.
            return _AT_WINDOW_ENDS
        return hold


def holding_level(plan: Plan, head: int) -> int:
    """Return the level whose tasks hold rows of a stateful node back: the one before its own."""
    return 0 if plan.is_global(head) else plan.level_of(head) - 1


def check_buffers(plan: Plan, local_merge: bool) -> None:
    """Raise ``FlowError`` if an operator is told to hold rows back, or to do without slots, where it cannot."""
    for node in (*plan.stateful, *plan.merged_globally):
        operation = node.operation
        assert isinstance(operation, Stateful)
        if plan.is_global(node.id):
            if node.id not in plan.subqueries[0].members:
                msg = (
                    f"{node.label}: Global Merge is done where rows are read, and the parallelism {plan.parallelism!r} "
                    "puts tasks between; use 'operator-set'"
                )
                raise FlowError(msg)
        elif operation.routing.exchange.hold is not None and not local_merge:
            msg = f"{node.label} is told to hold merged rows back, and local_merge=False merges none; change one"
            raise FlowError(msg)


def load_buffers(plan: Plan, before: Manifest | None) -> dict[int, dict[int, ReaderBuffer]]:
    """Return what tasks held after the batch before."""
    if before is None or not before.reader_buffers:
        return {}
    nodes = {node.operation.name: node.id for node in plan.nodes.values() if isinstance(node.operation, Stateful)}
    return {
        nodes[operator]: {buffer.reader: buffer for buffer in buffers}
        for operator, buffers in before.reader_buffers.items()
    }


def deal_buffers(held: HeldBuffers, tasks_of: Callable[[int], int]) -> dict[int, dict[int, ReaderBuffer]]:
    """Return what each of the tasks before a stateful node takes over of what was held before.

    ``tasks_of`` is how many there are that surely run. Batches have different numbers of tasks, and those that read for
    Spark's own sources come after all others. Were there a task for every buffer, each batch would begin new buffers
    behind the old ones, and their number would grow.
    """
    dealt: dict[int, dict[int, ReaderBuffer]] = {}
    for head, buffers in held.items():
        for number in sorted(buffers):
            buffer, task = buffers[number], number % tasks_of(head)
            known = dealt.setdefault(head, {}).get(task)
            dealt[head][task] = (
                ReaderBuffer(task, buffer.runs, buffer.rows, buffer.since_us)
                if known is None
                else ReaderBuffer(
                    task, known.runs + buffer.runs, known.rows + buffer.rows, min(known.since_us, buffer.since_us)
                )
            )
    return dealt


def store_buffers(plan: Plan, buffers: Mapping[int, HeldRows]) -> dict[str, tuple[ReaderBuffer, ...]]:
    """Return what the manifest says of the rows that are held back, by operator."""
    stored = {}
    for head, report in sorted(buffers.items()):
        operation = plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        if report.held:
            stored[operation.name] = report.held
    return stored


def merge_buffers(told: Iterable[TaskReport], held: HeldBuffers) -> dict[int, HeldRows]:
    """Put together what the tasks of a batch hold back; ``held`` is what was held before it.

    Raises ``RuntimeError`` if a task is missing that held something: committing without it would lose rows.
    """
    found: dict[int, list[BufferReport]] = defaultdict(list)
    for task in told:
        for head, buffer in task.buffers.items():
            found[head].append(buffer)
    for head, buffers in held.items():
        missing = sorted(set(buffers) - {buffer.held.reader for buffer in found[head]})
        if missing:
            msg = f"operator {head}: tasks {missing} did not report what they hold; the batch is not committed"
            raise RuntimeError(msg)
    return {head: _held_rows(buffers) for head, buffers in sorted(found.items())}


def _held_rows(buffers: list[BufferReport]) -> HeldRows:
    held = sorted((buffer.held for buffer in buffers), key=lambda buffer: buffer.reader)
    return HeldRows(
        held=tuple(buffer for buffer in held if buffer.runs),
        next_due_us=earliest_us(buffer.next_due_us for buffer in buffers),
        wake_us=earliest_us(buffer.wake_us for buffer in buffers),
        last_end_us=latest_us(buffer.last_end_us for buffer in buffers),
        problems=tuple(problem for buffer in buffers for problem in buffer.problems),
    )


def _count_rows(buffer: ReaderBuffer) -> int:
    return sum(run.live_rows for run in buffer.runs)
