"""Run one micro-batch: job, manifest, sinks."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import EngineError, SinkError, StateDamaged
from anabranch.eventtime.watermarks import FlowTime
from anabranch.model import BatchProgress, OperatorTime, Split
from anabranch.query.plan import Plan
from anabranch.spark.ahead import PROMISES, AheadLevel
from anabranch.spark.anchors import anchor_frame, executor_locations
from anabranch.spark.batch_progress import describe_batch
from anabranch.spark.blocks import EXCHANGE_SCHEMA, LEDGER
from anabranch.spark.clocks import (
    FlowClocks,
    advance_clocks,
    follow_split_keys,
    load_clocks,
    next_wake_us,
    operator_times,
    store_clocks,
)
from anabranch.spark.faults import reach
from anabranch.spark.flow_routes import (
    Change,
    FlowRoutes,
    Steering,
    check_changes,
    count_slots,
    load_routes,
    name_of,
    store_levels,
)
from anabranch.spark.flow_times import advance_time, load_time, next_silence_us, store_time
from anabranch.spark.flow_waits import TaskWaits
from anabranch.spark.lanes import deal_lanes, load_lanes, store_lanes
from anabranch.spark.merge_watch import MergeWatch
from anabranch.spark.publishing import Publisher
from anabranch.spark.rehoming import rehome_state
from anabranch.spark.reports import BatchReport, merge_ledgers
from anabranch.spark.rising_times import fires_at_once, settle_times
from anabranch.spark.session import runs_locally, task_environment
from anabranch.spark.settings import RunSettings
from anabranch.spark.spec import BatchSpec, FlowProgram, RisingTime
from anabranch.spark.states import write_initial_state
from anabranch.spark.task_errors import find_task_error
from anabranch.spark.tasks import MeetTask, ReadTask, SlotTask
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.epochs import Lease
from anabranch.state.manifest import INITIAL_BATCH, LevelState, Manifest
from anabranch.state.repair import explain_damage
from anabranch.state.retention import Retention
from anabranch.state.runs import WriteName

logger = logging.getLogger("anabranch")


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


@dataclass(frozen=True, slots=True)
class FlowIdentity:
    """What every manifest of a run says of the flow."""

    structure: Mapping[str, Any]
    query_id: Callable[[], str]
    """Known only once the query has started."""


class BatchRunner:
    """Runs batches one after the other, on the driver."""

    def __init__(
        self,
        spark: SparkSession,
        program: FlowProgram,
        settings: RunSettings,
        checkpoint: Checkpoint,
        lease: Lease,
        publisher: Publisher,
        identity: FlowIdentity,
        steering: Steering,
    ) -> None:
        self._spark = spark
        self._program = program
        self._plan: Plan = program.plan
        self._settings = settings
        self._checkpoint = checkpoint
        self._lease = lease
        self._publisher = publisher
        self._identity = identity
        self._steering = steering
        self._listening_since_us = int(time.time() * 1e6)
        self._retention = Retention(checkpoint)
        self._merging = MergeWatch(program)
        self._ahead = AheadLevel(program)
        self._fires_at_once = fires_at_once(program.plan)
        self._anchors: tuple[tuple[SparkSession, int, tuple[str, ...]], DataFrame] | None = None
        self._silent: dict[int, DataFrame] = {}
        self._pickled: bytes = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
        self._digest = hashlib.blake2b(self._pickled, digest_size=16).hexdigest()

    def run(self, given: BatchInput) -> tuple[Manifest, BatchProgress]:
        """Run a batch to its commit and publish it; one that was committed before is only published again."""
        waited = max(0.0, time.time() - given.triggered_at)
        began = time.perf_counter() - waited
        self._lease.check()
        committed = self._checkpoint.find_replay(given.batch, given.start_offset, given.end_offset)
        if committed is not None:
            if given.frame is not None:
                # Spark's own state, if the sources have any, wants every batch to be evaluated once.
                given.frame.write.format("noop").mode("overwrite").save()
            self._publish(committed)
            seconds = time.perf_counter() - began
            return committed, describe_batch(self._plan, committed, None, seconds, {}, drained=given.drain)
        before = self._checkpoint.latest()
        if before is not None:
            writer = WriteName(self._lease.epoch, given.batch, 0, uuid.uuid4().hex[:12])
            before = rehome_state(self._program, before, self._settings.buckets, writer)
        routes = self._ahead.begin(load_routes(self._plan, before, self._settings.buckets), before, given.packs)
        now_us, since_us = int(time.time() * 1e6), self._listening_since_us
        rising = RisingTime(load_time(self._plan, before), now_us, since_us)
        times = operator_times(
            self._plan, before, given.batch, routes, draining=given.drain, now_us=now_us, since_us=since_us
        )
        changes = check_changes(self._plan, routes, self._steering.decide(given.batch, routes, before))
        reach("before-job", given.batch)
        report = self._run_job(given, before, times, routes, changes, rising)
        job_seconds = time.perf_counter() - began
        reach("after-job", given.batch)
        partitions = self._ahead.check(report, times)
        time_after = advance_time(
            self._plan,
            rising.before,
            report,
            now_us=now_us,
            since_us=since_us,
            drained=given.drain,
            fires_at_once=self._fires_at_once,
        )
        if self._fires_at_once:
            times = settle_times(self._plan, times, time_after, report)
        levels = store_levels(self._plan, routes, changes, times, time_after, report)
        clocks = advance_clocks(
            self._plan,
            load_clocks(self._plan, before),
            report,
            time_after,
            now_us=now_us,
            since_us=since_us,
            drained=given.drain,
            changed=frozenset(changes),
        )
        clocks = follow_split_keys(clocks, report, routes, changes)
        manifest = self._manifest(given, before, report, levels, time_after, clocks, now_us, partitions)
        reach("before-manifest", given.batch)
        # A driver that was replaced may have committed the batch just before: then its manifest stands.
        standing = self._checkpoint.commit(manifest)
        reach("after-manifest", given.batch)
        commit_seconds = time.perf_counter() - began - job_seconds
        self._publish(standing)
        reach("after-publish", given.batch)
        self._retention.advance(standing)
        self._steering.observe(standing, report, routes)
        total = time.perf_counter() - began
        phases = {
            "trigger": waited,
            "job": job_seconds - waited,
            "commit": commit_seconds,
            "publish": total - job_seconds - commit_seconds,
        }
        progress = describe_batch(self._plan, standing, report, total, phases, drained=given.drain)
        moved = sum(operator.handed_bytes for operator in report.operators.values())
        described = tuple(f"{name_of(self._plan, head)}: {change}" for head, change in changes.items())
        return standing, replace(progress, moved_bytes=moved, changes=described)

    def _publish(self, manifest: Manifest) -> None:
        """Publish, unless another driver has taken over: then it does that, and may move the files meanwhile."""
        self._lease.check()
        try:
            self._publisher.publish(manifest)
        except SinkError:
            self._lease.check()
            raise

    def commit_initial_state(self, given: Mapping[str, pl.DataFrame]) -> None:
        """Commit given state as the batch before the first."""
        levels = write_initial_state(
            self._program, given, self._settings.buckets, self._lease.epoch, uuid.uuid4().hex[:12]
        )
        self._checkpoint.commit(
            Manifest(
                flow=self._plan.flow,
                flow_structure=self._identity.structure,
                batch=INITIAL_BATCH,
                epoch=self._lease.epoch,
                query_id="",
                start_offset=None,
                end_offset=None,
                levels=levels,
                created_at=time.time(),
                engine={"slots": self._plan.subquery_slots, "next_due": {}},
            )
        )

    # -- inside ----------------------------------------------------------------------------------------------------

    def _run_job(
        self,
        given: BatchInput,
        before: Manifest | None,
        times: Mapping[int, OperatorTime],
        routes: FlowRoutes,
        changes: Mapping[int, Change],
        rising: RisingTime,
    ) -> BatchReport:
        known = {level.operator: level for level in before.levels} if before is not None else {}
        states = {node.id: known.get(name_of(self._plan, node.id)) for node in self._plan.stateful}
        slots = count_slots(self._plan, routes)
        held = deal_lanes(load_lanes(self._plan, before), max(1, len(given.packs)))
        for attempt in range(self._settings.job_attempts):
            spec = BatchSpec(
                batch=given.batch,
                epoch=self._lease.epoch,
                attempt=attempt,
                job=uuid.uuid4().hex[:12],
                times=times,
                slots=slots,
                routes=routes,
                runs={head: state.runs if state is not None else () for head, state in states.items()},
                handoffs={head: state.handoffs for head, state in states.items() if state is not None},
                watches=self._steering.watches(routes),
                next_routes={head: change.routes for head, change in changes.items() if change.protocol == "state"},
                held=held,
                plain=self._merging.plain,
                now_us=rising.now_us,
                rising=rising if self._fires_at_once else None,
            )
            try:
                rows = self._job(given, spec).collect()
            except PySparkException as error:
                found = find_task_error(str(error))
                if isinstance(found, StateDamaged):
                    raise explain_damage(self._checkpoint, str(found)) from error
                if found is not None:
                    raise found from error
                if attempt + 1 == self._settings.job_attempts:
                    msg = f"batch {given.batch} failed {attempt + 1} times and is not committed: {_short(error)}"
                    raise EngineError(msg) from error
                logger.warning("batch %d failed and is run again (%d): %s", given.batch, attempt + 1, _short(error))
                self._lease.check()
                continue
            slots_of = {node.id: slots[self._plan.level_of(node.id) - 1] for node in self._plan.stateful}
            ledgers = (bytes(row["block"]) for row in rows if row["head"] == LEDGER)
            report = merge_ledgers(ledgers, slots_of, held)
            self._merging.observe(report.merged)
            return report
        raise AssertionError

    def _job(self, given: BatchInput, spec: BatchSpec) -> DataFrame:
        spark = self._spark
        # One partition a task: what it reads is in its task, found by the partition's number. Each has a row,
        # which says nothing, because Spark does not run tasks for a range that is empty.
        tasks = spec.slots[0] if self._ahead.active else max(1, len(given.packs))
        rows = self._silent_rows(tasks)
        if given.frame is not None:
            rows = rows.union(given.frame)
        locations = self._locations(spark)
        with task_environment(spark):
            if self._ahead.active:
                # A partition is read where its slot is at home, and that is where its rows stay.
                rows = self._anchor_frame(spark, tasks, tuple(locations)) if locations else rows
                reading: Any = self._ahead.task(self._digest, self._pickled, spec, given.packs)
            else:
                reading = ReadTask(self._digest, self._pickled, spec, given.packs)
            blocks = rows.mapInArrow(given.waits.telling(reading), EXCHANGE_SCHEMA)
            for level, slots in enumerate(spec.slots, start=1):
                if level == 1 and self._ahead.active:
                    continue
                task = SlotTask(self._digest, self._pickled, spec, level)
                exchanged = blocks.repartitionById(slots, "slot")
                if locations:
                    anchors = self._anchor_frame(spark, slots, tuple(locations))
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

    def _anchor_frame(self, spark: SparkSession, slots: int, locations: tuple[str, ...]) -> DataFrame:
        wanted = (spark, slots, locations)
        if self._anchors is None or self._anchors[0] != wanted:
            self._anchors = (wanted, anchor_frame(spark, slots, locations))
        return self._anchors[1]

    def _locations(self, spark: SparkSession) -> list[str]:
        """Return where slots are pinned to; nowhere if there is but one executor."""
        if self._settings.anchors is False or runs_locally(spark):
            return []
        locations = executor_locations(spark)
        return locations if self._settings.anchors or len(locations) > 1 else []

    def _manifest(
        self,
        given: BatchInput,
        before: Manifest | None,
        report: BatchReport,
        levels: tuple[LevelState, ...],
        time_after: FlowTime,
        clocks: FlowClocks,
        now_us: int,
        partitions: Mapping[str, Any],
    ) -> Manifest:
        silent_us = next_silence_us(self._plan, time_after, report, now_us=now_us, since_us=self._listening_since_us)
        totals = dict(before.totals) if before is not None else {}
        for name, value in report.counters.items():
            totals[name] = totals.get(name, 0) + value
        return Manifest(
            flow=self._plan.flow,
            flow_structure=self._identity.structure,
            batch=given.batch,
            epoch=self._lease.epoch,
            query_id=self._identity.query_id(),
            start_offset=given.start_offset,
            end_offset=given.end_offset,
            levels=levels,
            watermarks=store_time(self._plan, time_after),
            sinks=report.staged,
            totals=totals,
            problems=given.problems + report.problems,
            lanes=store_lanes(self._plan, report.lanes),
            created_at=time.time(),
            engine={
                "slots": self._plan.subquery_slots,
                "next_due": {name_of(self._plan, head): report.next_due_us(head) for head in report.heads},
                "clocks": store_clocks(self._plan, clocks),
                "now_us": now_us,
                "wake_us": next_wake_us(self._plan, clocks, report, silent_us, self._listening_since_us),
                PROMISES: partitions,
            },
        )


def _anchored(task: SlotTask, waits: TaskWaits) -> Callable[[pa.Table, pa.Table], pa.Table]:
    # Spark looks at the number of arguments: it wants a plain function.
    def run(anchor: pa.Table, blocks: pa.Table) -> pa.Table:
        with waits.told():
            return task.anchored(anchor, blocks)

    return run


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else type(error).__name__
