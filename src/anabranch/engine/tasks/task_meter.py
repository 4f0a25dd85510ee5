"""What one task takes and sends, measured in its process while it runs.

Processor time is that of the whole process: a task has threads that work for it (Polars, librdkafka), and a process
runs one task at a time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from anabranch.engine.tasks.blocks import Block
from anabranch.model.cluster import SlotId
from anabranch.model.measures import ExecutorSample, TaskMeasure, add_reads

NO_HOSTS: Mapping[str, float] = {}


class TaskMeter:
    """Measures one task from the moment it is made; the task says what it is, and shows what goes in and out."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        self._own = 0.0
        """Seconds of measuring, of this thread's processor time: on a busy host, the wall clock counts others', too."""
        self._id: SlotId | None = None
        self._meets = False
        self._rows = 0
        self._received_bytes = 0
        self._sent_bytes: dict[SlotId, int] = defaultdict(int)
        self._sent_rows: dict[SlotId, int] = defaultdict(int)
        self._operators: dict[str, float] = defaultdict(float)
        self._state_bytes = 0
        self._run_reads: dict[str, tuple[int, int]] = {}
        self._exchange_seconds = 0.0

    def name(self, level: int, slot: int, *, meets: bool = False) -> None:
        """Say which task it is."""
        self._id, self._meets = (level, slot), meets

    def read(self, rows: int) -> None:
        """Count rows that the task read from sources."""
        self._rows += rows

    def receive(self, blocks: Iterable[Block]) -> None:
        """Count what came to the task through an exchange; it has been named before."""
        began = time.thread_time()
        assert self._id is not None
        for block in blocks:
            self._received_bytes += len(block.payload)
            if block.level == self._id[0]:
                self._rows += block.rows
        self._own += time.thread_time() - began

    def sending(self, blocks: Iterable[Block], level: int, tasks: int, first: int = 0) -> Iterator[Block]:
        """Yield what is sent to the tasks of an exchange, of a level, the first of which has this number.

        As in Spark's exchange, a task takes blocks modulo the number of tasks, also those that it only passes on.
        """
        for block in blocks:
            began = time.thread_time()
            target = (level, first + block.slot % tasks)
            self._sent_bytes[target] += len(block.payload)
            if block.rows:
                self._sent_rows[target] += block.rows
            self._own += time.thread_time() - began
            yield block

    def sending_to_level(self, blocks: Iterator[Block], level: int, slots: Sequence[int]) -> Iterator[Block]:
        """Return what is sent to the slots of a level, counted; behind the last level, it is for the driver."""
        return self.sending(blocks, level, slots[level - 1]) if level <= len(slots) else blocks

    @contextmanager
    def advancing(self, operator: str) -> Iterator[None]:
        """Count the processor time of the block as that of an operator."""
        began = time.process_time()
        yield
        self._operators[operator] += time.process_time() - began

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Count the processor time of the block as that of exchanges."""
        began = time.process_time()
        yield
        self._exchange_seconds += time.process_time() - began

    def add_exchange(self, seconds: float) -> None:
        """Count processor time of exchanges that somebody else measured."""
        self._exchange_seconds += seconds

    def keep(self, state_bytes: int) -> None:
        """Count state that is left of an operator."""
        self._state_bytes += state_bytes

    def fetch(self, reads: Mapping[str, tuple[int, int]]) -> None:
        """Count runs of state that were read, and their bytes, by the place that they came from."""
        self._run_reads = add_reads([self._run_reads, reads])

    def measure(
        self,
        executor: str,
        host: str,
        memory_bytes: int,
        *,
        starting_seconds: float = 0.0,
        sample: ExecutorSample | None = None,
        latency_seconds: Mapping[str, float] = NO_HOSTS,
        measuring_since: float | None = None,
    ) -> TaskMeasure | None:
        """Return what was measured, up to now; None of a task that never said which it is.

        ``measuring_since`` is when whoever asks began to find out what else is told, by ``time.thread_time``.
        """
        if self._id is None:
            return None
        level, slot = self._id
        own = self._own + (0.0 if measuring_since is None else time.thread_time() - measuring_since)
        return TaskMeasure(
            level=level,
            slot=slot,
            executor=executor,
            host=host,
            cpu_seconds=time.process_time() - self._cpu,
            wall_seconds=time.perf_counter() - self._wall,
            memory_bytes=memory_bytes,
            rows=self._rows,
            received_bytes=self._received_bytes,
            sent_bytes=dict(self._sent_bytes),
            sent_rows=dict(self._sent_rows),
            state_bytes=self._state_bytes,
            run_reads=self._run_reads,
            operator_cpu_seconds=dict(self._operators) if len(self._operators) > 1 else {},
            starting_seconds=starting_seconds,
            exchange_seconds=self._exchange_seconds,
            measuring_seconds=own,
            meets=self._meets,
            sample=sample,
            latency_seconds=latency_seconds,
        )


class MeasuresTasks(Protocol):
    """Tells the driver what tasks take, beside the data: its bytes must be the same on every try."""

    def measured(self) -> AbstractContextManager[TaskMeter]:
        """Measure the block, which is a task, and tell it if the block ends without an error."""
        ...
