"""The Spark job of a batch: tasks that read, exchanges, slots where they are at home, meetings of split keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession

from anabranch.engine.ahead.level import AheadLevel
from anabranch.engine.blocks import EXCHANGE_SCHEMA
from anabranch.engine.spec import BatchSpec, FlowProgram
from anabranch.engine.tasks import MeetTask, ReadTask, SlotTask
from anabranch.model import Split
from anabranch.query.nodes import Node, Stateful
from anabranch.query.plan import Plan
from anabranch.spark.anchors import anchor_frame, executor_locations
from anabranch.spark.flow_waits import TaskWaits
from anabranch.spark.session import runs_locally, task_environment

SILENT_ROW = ("cast(id as int) as source", "'' as kind", "cast('' as binary) as payload")


@dataclass(frozen=True, slots=True)
class BatchInput:
    """What a batch is about to do, as the offset log says."""

    batch: int
    frame: DataFrame | None
    """The rows that Spark's own sources read, packed into blocks; None if the flow has none such."""
    packs: tuple[list[tuple[int, int, Split]], ...]
    """The splits of all other sources, by task."""
    start_offset: Any
    end_offset: Any
    triggered_at: float
    """When the trigger came, in seconds since 1970: a batch's time counts from there."""
    waits: TaskWaits
    """What hears of the servers that tasks wait for."""
    drain: bool = False
    problems: tuple[str, ...] = ()


class BatchJobs:
    """Makes the jobs of a run's batches, whose rows are the tasks' ledgers."""

    def __init__(self, spark: SparkSession, program: FlowProgram, anchors: bool | None, ahead: AheadLevel) -> None:
        self._spark = spark
        self._plan = program.plan
        self._wants_anchors = anchors
        self._ahead = ahead
        self._anchors: tuple[tuple[int, tuple[str, ...]], DataFrame] | None = None
        self._silent: dict[int, DataFrame] = {}
        self._pickled: bytes = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
        self._digest = hashlib.blake2b(self._pickled, digest_size=16).hexdigest()

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Row]:
        """Run the job of one attempt at a batch and return its rows."""
        again = f", try {spec.attempt + 1}" if spec.attempt else ""
        self.name(spec.batch, f"{describe_levels(self._plan)}{again}")
        return self._make(given, spec).collect()

    def read_again(self, given: BatchInput) -> None:
        """Evaluate once the rows that Spark's own sources read: their state, if they have any, wants it every batch."""
        if given.frame is not None:
            self.name(given.batch, "read again, for Spark's own state")
            given.frame.write.format("noop").mode("overwrite").save()

    def name(self, batch: int, doing: str) -> None:
        """Say in Spark's UI what the jobs are that follow on this thread."""
        self._spark.sparkContext.setJobDescription(f"{self._plan.flow}, batch {batch}: {doing}")

    def _make(self, given: BatchInput, spec: BatchSpec) -> DataFrame:
        # One partition a task: what it reads is in its task, found by the partition's number. Each has a row,
        # which says nothing, because Spark does not run tasks for a range that is empty.
        tasks = spec.slots[0] if self._ahead.active else max(1, len(given.packs))
        rows = self._silent_rows(tasks)
        if given.frame is not None:
            rows = rows.union(given.frame)
        locations = self._locations()
        with task_environment(self._spark):
            if self._ahead.active:
                # A partition is read where its slot is at home, and that is where its rows stay.
                rows = self._anchor_frame(tasks, locations) if locations else rows
                reading: Any = self._ahead.task(self._digest, self._pickled, spec, given.packs)
            else:
                reading = ReadTask(self._digest, self._pickled, spec, given.packs)
            blocks = rows.mapInArrow(given.waits.telling(reading), EXCHANGE_SCHEMA)
            for level, slots in enumerate(spec.slots, start=1):
                if level == 1 and self._ahead.active:
                    continue
                receivers = spec.receivers_behind(level, self._plan.levels[level - 1])
                task = SlotTask(self._digest, self._pickled, spec, level, receivers)
                exchanged = blocks.repartitionById(slots, "slot")
                if locations:
                    anchors = self._anchor_frame(slots, locations)
                    blocks = (
                        anchors.groupBy("slot")
                        .cogroup(exchanged.groupBy("slot"))
                        .applyInArrow(_anchored(task, given.waits), EXCHANGE_SCHEMA)
                    )
                else:
                    blocks = exchanged.mapInArrow(given.waits.telling(task), EXCHANGE_SCHEMA)
                if spec.meets(self._plan.levels[level - 1]):
                    # Blocks of later levels pass through; Spark takes their slots modulo the partitions.
                    meeting = MeetTask(self._digest, self._pickled, spec, level)
                    blocks = blocks.repartitionById(slots, "slot").mapInArrow(meeting, EXCHANGE_SCHEMA)
        return blocks

    def _silent_rows(self, tasks: int) -> DataFrame:
        # Made once for each number of tasks: Spark looks at every frame that is made.
        if tasks not in self._silent:
            self._silent[tasks] = self._spark.range(0, tasks, 1, tasks).selectExpr(*SILENT_ROW)
        return self._silent[tasks]

    def _anchor_frame(self, slots: int, locations: tuple[str, ...]) -> DataFrame:
        wanted = (slots, locations)
        if self._anchors is None or self._anchors[0] != wanted:
            self._anchors = (wanted, anchor_frame(self._spark, slots, locations))
        return self._anchors[1]

    def _locations(self) -> tuple[str, ...]:
        """Return where slots are pinned to; nowhere if there is but one executor."""
        if self._wants_anchors is False or runs_locally(self._spark):
            return ()
        locations = tuple(executor_locations(self._spark))
        return locations if self._wants_anchors or len(locations) > 1 else ()


def describe_levels(plan: Plan) -> str:
    """Return what a batch does, level by level: all are one job."""
    levels = ["level 0 reads"]
    for number, heads in enumerate(plan.levels, start=1):
        levels.append(f"level {number} {', '.join(_name(plan.nodes[head]) for head in heads)}")
    return ", ".join(levels)


def _name(node: Node) -> str:
    return node.operation.name if isinstance(node.operation, Stateful) else node.label


def _anchored(task: SlotTask, waits: TaskWaits) -> Callable[[pa.Table, pa.Table], pa.Table]:
    # Spark looks at the number of arguments: it wants a plain function.
    def run(anchor: pa.Table, blocks: pa.Table) -> pa.Table:
        with waits.told():
            return task.anchored(anchor, blocks)

    return run
