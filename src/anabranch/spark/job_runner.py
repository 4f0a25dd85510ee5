"""The Spark job of a batch: tasks that read, exchanges, slots where they are at home, meetings of split keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.engine.ahead.level import AheadLevel
from anabranch.engine.batches.jobs import BatchInput, JobFailed, describe_levels
from anabranch.engine.batches.reading_levels import number_packs
from anabranch.engine.tasks.blocks import Block
from anabranch.engine.tasks.exchange_meter import Costs
from anabranch.engine.tasks.meet_task import MeetTask
from anabranch.engine.tasks.read_task import ReadTask
from anabranch.engine.tasks.slot_task import SlotTask
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.engine.tasks.task_errors import find_reason, find_task_failure
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.model.cluster import Executor
from anabranch.model.measures import TaskMeasure
from anabranch.spark.anchors import anchor_frame, name_location
from anabranch.spark.arrow_blocks import EXCHANGE_SCHEMA, from_arrow, from_rows, to_arrow, to_table
from anabranch.spark.dataframes import SparkRows, unpack_rows
from anabranch.spark.programs import PickledProgram
from anabranch.spark.replica_carrier import ReplicaCarrier
from anabranch.spark.session import task_environment
from anabranch.spark.task_figures import TaskCosts, TaskMeasures, TaskWaits
from anabranch.spark.worker_process import NOBODY, Peers

PROBE_SECONDS = 60.0
"""So often it is found out how long it takes to reach other hosts."""
SILENT_ROW = ("cast(id as int) as source", "'' as kind", "cast('' as binary) as payload")


Anchored = tuple[tuple[str | None, ...], tuple[tuple[str, ...], ...]]
"""By slot: where it is at home, and on which hosts it may run without that."""


class SparkJobs:
    """Runs the tasks of a flow's batches on Spark: one job a batch, whose rows are for the driver."""

    def __init__(
        self, spark: SparkSession, program: FlowProgram, pickled: PickledProgram, ahead: AheadLevel, waits: TaskWaits
    ) -> None:
        self._spark = spark
        self._plan = program.plan
        self._ahead = ahead
        self._anchors: dict[int, tuple[Anchored, DataFrame]] = {}
        """By level, those of the last batch: they are made anew when a slot has another home."""
        self._silent: dict[range, DataFrame] = {}
        self._pinned: dict[range, tuple[tuple[str, ...], DataFrame]] = {}
        """The same, of tasks that prefer executors; made anew when these are others."""
        self._program = pickled
        self._reading_levels = program.reading_levels
        self._waits = waits
        self.carrier = ReplicaCarrier(spark, pickled, program.plan.flow)
        """Of replicas, beside the batches."""
        self._costs = TaskCosts.heard_by(spark.sparkContext)
        self._measures = TaskMeasures.heard_by(spark.sparkContext)
        self._probed_at: float | None = None
        self._probes = 0

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        """Run the job of one attempt at a batch and return the blocks that come out of it."""
        again = f", try {spec.attempt + 1}" if spec.attempt else ""
        self.name(spec.batch, f"{describe_levels(self._plan)}{again}")
        self._measures.take()
        try:
            told = replace(spec, costs=self._costs, homes={}, fallbacks={}, executors=())
            rows = self._make(given, told, spec).collect()
        except PySparkException as error:
            failure = find_task_failure(str(error))
            raise JobFailed(find_reason(str(error)) if failure is None else failure.message, failure) from error
        return from_rows(rows)

    def read_again(self, given: BatchInput) -> None:
        """Evaluate once the rows that Spark's own sources read: their state, if they have any, wants it every batch."""
        if isinstance(given.outer, SparkRows):
            self.name(given.batch, "read again, for Spark's own state")
            given.outer.frame.write.format("noop").mode("overwrite").save()

    def name(self, batch: int, doing: str) -> None:
        """Say in Spark's UI what the jobs are that follow on this thread."""
        self._spark.sparkContext.setJobDescription(f"{self._plan.flow}, batch {batch}: {doing}")

    def _make(self, given: BatchInput, spec: BatchSpec, where: BatchSpec) -> DataFrame:
        """Return what the job comes to; ``where`` says besides where its tasks are to run, which is nothing to them."""
        homes, executors = where.homes, where.executors
        # One partition a task: what it reads is in its task, found by the partition's number. Each has a row,
        # which says nothing, because Spark does not run tasks for a range that is empty.
        numbers = number_packs(self._reading_levels, given.packs)
        tasks = spec.slots[0] if self._ahead.active else max(1, len(numbers.get(0, ())))
        places = find_places(executors) if homes else ()
        rows = self._silent_rows(range(tasks), places)
        if isinstance(given.outer, SparkRows):
            rows = rows.union(given.outer.frame)
        measures = self._measures.asking(self._choose_peers(executors))
        with task_environment(self._spark):
            if self._ahead.active:
                # A partition is read where its slot is at home, and that is where its rows stay.
                rows = self._anchor_frame(1, tasks, where) if homes else rows
                reading: Reads = self._ahead.task(self._program, spec, given.packs)
            else:
                reading = ReadTask(self._program, spec, given.packs, self._reading_levels)
            blocks = rows.mapInArrow(self._waits.telling(_Reading(reading, measures)), EXCHANGE_SCHEMA)
            for level, slots in enumerate(spec.slots, start=1):
                if level == 1 and self._ahead.active:
                    continue
                receivers = spec.receivers_behind(level, self._plan.levels[level - 1])
                task = SlotTask(self._program, spec, level, receivers)
                exchanged = blocks.repartitionById(slots, "slot")
                if homes:
                    anchors = self._anchor_frame(level, slots, where)
                    blocks = (
                        anchors.groupBy("slot")
                        .cogroup(exchanged.groupBy("slot"))
                        .applyInArrow(_anchored(task, self._waits, measures), EXCHANGE_SCHEMA)
                    )
                else:
                    blocks = exchanged.mapInArrow(self._waits.telling(_Receiving(task, measures)), EXCHANGE_SCHEMA)
                if spec.meets(self._plan.levels[level - 1]):
                    # Blocks of later levels pass through; Spark takes their slots modulo the partitions.
                    meeting = MeetTask(self._program, spec, level)
                    met = _Receiving(meeting, measures)
                    blocks = blocks.repartitionById(slots, "slot").mapInArrow(met, EXCHANGE_SCHEMA)
                if level in numbers:
                    later = self._waits.telling(_ReadingLater(reading, measures))
                    blocks = blocks.union(self._silent_rows(numbers[level], places).mapInArrow(later, EXCHANGE_SCHEMA))
        return blocks

    def take_costs(self) -> Costs:
        return self._costs.take()

    def take_measures(self) -> tuple[TaskMeasure, ...]:
        return self._measures.take()

    def _choose_peers(self, executors: Sequence[Executor]) -> Peers:
        """Return the hosts that tasks are asked to reach: from time to time, if there are several."""
        ports = {executor.host: executor.port for executor in executors if executor.port}
        now = time.monotonic()
        if len(ports) < 2 or (self._probed_at is not None and now - self._probed_at < PROBE_SECONDS):
            return NOBODY
        self._probed_at = now
        self._probes += 1
        return Peers(self._probes, ports)

    def _silent_rows(self, numbers: range, places: Sequence[str]) -> DataFrame:
        """Return a row for each of these tasks, with its number as the source; they prefer these places, if any."""
        # Made once for the same tasks: Spark looks at every frame that is made.
        if places:
            wanted = tuple(places[number % len(places)] for number in numbers)
            if numbers not in self._pinned or self._pinned[numbers][0] != wanted:
                numbered = anchor_frame(self._spark, wanted).selectExpr(f"slot + {numbers.start} as id")
                self._pinned[numbers] = (wanted, numbered.selectExpr(*SILENT_ROW))
            return self._pinned[numbers][1]
        if numbers not in self._silent:
            rows = self._spark.range(numbers.start, numbers.stop, 1, len(numbers))
            self._silent[numbers] = rows.selectExpr(*SILENT_ROW)
        return self._silent[numbers]

    def _anchor_frame(self, level: int, slots: int, where: BatchSpec) -> DataFrame:
        found = [where.homes.get((level, slot)) for slot in range(slots)]
        locations = tuple(None if home is None else name_location(home.executor, home.host) for home in found)
        fallbacks = tuple(where.fallbacks.get((level, slot), ()) for slot in range(slots))
        if level not in self._anchors or self._anchors[level][0] != (locations, fallbacks):
            self._anchors[level] = ((locations, fallbacks), anchor_frame(self._spark, locations, fallbacks))
        return self._anchors[level][1]


def find_places(executors: Sequence[Executor]) -> tuple[str, ...]:
    """Return where reading is to be done, if it is not to be done everywhere: one place for each core.

    An executor that has just come would start its processes in the middle of a batch; one that leaves would be kept.
    """
    usable = [executor for executor in executors if executor.is_usable]
    if len(usable) == len(executors):
        return ()
    return tuple(name_location(one.id, one.host) for one in usable for _ in range(one.cores))


class Reads(Protocol):
    """A task that reads: splits that it finds by its number, and blocks that it is given."""

    def blocks(self, origin: int, outer: Iterable[tuple[int, bytes]], meter: TaskMeter) -> Iterator[Block]: ...


@dataclass(frozen=True, slots=True)
class _Reading:
    """A task that reads, as Spark calls it."""

    task: Reads
    measures: TaskMeasures

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self.measures.measured() as meter:
            yield from _handed_on(self.task.blocks(task_partition(), unpack_rows(batches), meter), meter)


@dataclass(frozen=True, slots=True)
class _ReadingLater:
    """Tasks that read beside those of a level, as Spark calls them: there, partitions have other numbers."""

    task: Reads
    measures: TaskMeasures

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("source").to_pylist():
                with self.measures.measured() as meter:
                    yield from _handed_on(self.task.blocks(number, (), meter), meter)


@dataclass(frozen=True, slots=True)
class _Receiving:
    """A task behind an exchange, as Spark calls it."""

    task: SlotTask | MeetTask
    measures: TaskMeasures

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self.measures.measured() as meter:
            with meter.exchanging():
                received = from_arrow(batches)
            yield from _handed_on(self.task.blocks(task_partition(), received, meter), meter)


def _handed_on(blocks: Iterable[Block], meter: TaskMeter) -> Iterator[pa.RecordBatch]:
    """Yield blocks as Spark takes them; what it does until it asks for the next ones is a part of the exchange."""
    for batch in to_arrow(blocks):
        with meter.exchanging():
            yield batch


def task_partition() -> int:
    """Return the number of the partition that this task is for."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _anchored(task: SlotTask, waits: TaskWaits, measures: TaskMeasures) -> Callable[[pa.Table, pa.Table], pa.Table]:
    # Spark looks at the number of arguments: it wants a plain function.
    def run(anchor: pa.Table, blocks: pa.Table) -> pa.Table:
        with waits.told(), measures.measured() as meter:
            # Its anchor row is there even if no block is.
            slot = (anchor if anchor.num_rows else blocks).column("slot")[0].as_py()
            with meter.exchanging():
                received = from_arrow(blocks.to_batches())
            return to_table(task.blocks(slot, received, meter))

    return run
