"""A running flow: its checkpoint, its streaming query, its batches."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.connectors import json_lines
from anabranch.errors import AnabranchError, EngineError
from anabranch.model import BatchProgress, Sink, Source
from anabranch.query.graph import FlowGraph
from anabranch.query.plan import Plan, make_plan
from anabranch.spark.batch import BatchInput, BatchRunner
from anabranch.spark.dataframes import SparkSource
from anabranch.spark.offsets import read_offset
from anabranch.spark.pipeline import DEAD_LETTER_SCHEMA
from anabranch.spark.publishing import Publisher
from anabranch.spark.session import flow_session
from anabranch.spark.settings import AVAILABLE_NOW, CONTINUOUS, ONCE, RunSettings
from anabranch.spark.spec import DEAD_LETTER, FlowProgram
from anabranch.spark.split_log import SplitLog, StepRequest
from anabranch.spark.split_source import FORMAT, ControlFolder, register
from anabranch.spark.structure import describe_flow, refuse_changed_flow
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.epochs import Lease, Owner, take_epoch
from anabranch.state.manifest import Manifest
from anabranch.state.retention import Retention
from anabranch.state.store import Store, open_store


class Driver:
    """Owns one run of a flow from the epoch it takes to the lease it gives back."""

    def __init__(
        self,
        graph: FlowGraph,
        settings: RunSettings,
        spark: SparkSession,
        on_progress: Callable[[BatchProgress], None] | None = None,
    ) -> None:
        graph.check()
        self.graph = graph
        self.settings = settings
        self.spark = flow_session(spark)
        self.store: Store = open_store(settings.checkpoint)
        self.progress: list[BatchProgress] = []
        self.error: BaseException | None = None
        self._on_progress = on_progress
        self._batch_lock = threading.Lock()
        self._stopping = False
        self._query: StreamingQuery | None = None
        self.checkpoint = Checkpoint(self.store, settings.kept_batches)
        latest = self.checkpoint.latest()
        self.plan: Plan = make_plan(graph, self._slots(latest), settings.strategy)
        self.program = FlowProgram(
            plan=self.plan,
            sources=tuple(graph.sources),
            sinks=self._sinks(),
            checkpoint=self.store.url,
            local_merge=settings.local_merge,
        )
        structure = describe_flow(self.program, settings.buckets)
        if latest is not None:
            refuse_changed_flow(latest, graph.name, structure)
        self._lease: Lease = take_epoch(self.store, Owner.this_process(), time.time, settings.takeover)
        # Whatever the last driver committed before the epoch was taken counts.
        self.checkpoint = Checkpoint(self.store, settings.kept_batches)
        self._claim_sinks()
        Retention(self.checkpoint).sweep(self._lease.epoch, time.time())
        self.control = ControlFolder(tempfile.mkdtemp(prefix="anabranch-control-"))
        self._log = SplitLog(self.store)
        publisher = Publisher(self.store, self.program.sinks, {"spark": self.spark})
        self._runner = BatchRunner(
            self.program, settings, self.checkpoint, self._lease, publisher, structure, self._query_id
        )

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the streaming query."""
        register(self.spark)
        split_sources: list[Source] = [
            source if not isinstance(source, SparkSource) else _NoSplits(source)  # type: ignore[misc]
            for source in self.graph.sources
        ]
        self.control.put_sources(split_sources)
        rows = self._read_splits()
        for index, source in enumerate(self.graph.sources):
            if isinstance(source, SparkSource):
                rows = rows.union(self._spark_rows(source, index))
        writer = (
            rows.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", self._spark_checkpoint())
            .queryName(f"anabranch-{self.graph.name}-{self._lease.epoch}")
        )
        trigger = self.settings.trigger
        if trigger in (AVAILABLE_NOW, ONCE):
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime="0 seconds" if trigger == CONTINUOUS else _spark_interval(trigger))
        self._query = writer.start()
        threading.Thread(target=self._keep_lease, daemon=True, name="anabranch-lease").start()

    def stop(self, drain: bool = False, timeout_seconds: float | None = None) -> None:
        """End after the running batch; with ``drain``, fire first what is still open."""
        query = self._query
        if query is None or not query.isActive:
            return
        if drain:
            self.control.ask(StepRequest(drain=True))
            deadline = time.monotonic() + (timeout_seconds or 300.0)
            while query.isActive and not (self.progress and self.progress[-1].drained):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        # Spark's stop() interrupts a running job: wait for the boundary, so that no work is thrown away.
        with self._batch_lock:
            self._stopping = True
        query.stop()
        self.close()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the flow ends; say whether it did. Raises what made it fail."""
        assert self._query is not None
        try:
            ended = self._await(timeout_seconds)
        except Exception as error:
            if self.error is None and not self._stopping:
                self.error = error
            ended = True
        if ended:
            self.close()
            if self.error is not None:
                ours = isinstance(self.error, AnabranchError)
                raise self.error if ours else EngineError(str(self.error)) from self.error
        return bool(ended)

    @property
    def active(self) -> bool:
        return self._query is not None and self._query.isActive

    def close(self) -> None:
        """Give the lease back and remove the control folder; a second time does nothing."""
        self._lease.release()
        shutil.rmtree(self.control.path, ignore_errors=True)

    # -- batches ---------------------------------------------------------------------------------------------------

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        with self._batch_lock:
            if self._stopping:
                # Returning would tell Spark that the batch was done.
                msg = "the flow is stopping; this batch runs at the next start"
                raise EngineError(msg)
            try:
                start, end = read_offset(self.store, batch - 1), read_offset(self.store, batch)
                self.run_batch(frame, batch, start, end)
            except BaseException as error:
                self.error = error
                raise

    def run_batch(self, frame: DataFrame, batch: int, start: Mapping[str, Any], end: Mapping[str, Any]) -> Manifest:
        """Run one batch and ask for an empty one if windows are due."""
        entries = self._log.between(start["entry"], end["entry"])
        given = BatchInput(
            batch=batch,
            frame=frame,
            start_offset=dict(start),
            end_offset=dict(end),
            drain=any(entry.drain for entry in entries),
            problems=tuple(problem for entry in entries for problem in entry.problems),
        )
        manifest, progress = self._runner.run(given)
        if self._runner.due_now(manifest):
            self.control.ask(StepRequest(tick_after=end["entry"]))
        self.progress.append(progress)
        if self._on_progress is not None:
            self._on_progress(progress)
        return manifest

    # -- inside ----------------------------------------------------------------------------------------------------

    def _await(self, timeout_seconds: float | None) -> bool:
        assert self._query is not None
        if timeout_seconds is None:
            self._query.awaitTermination()
            return True
        return bool(self._query.awaitTermination(timeout_seconds))  # type: ignore[arg-type]

    def _read_splits(self) -> DataFrame:
        settings = self.settings
        tasks = settings.read_tasks or self.spark.sparkContext.defaultParallelism
        return (
            self.spark.readStream.format(FORMAT)
            .option("checkpoint", self.store.url)
            .option("control", self.control.path)
            .option("tasks", str(tasks))
            .option("drain", "true" if settings.drain else "false")
            .option("most_entries", "1" if settings.trigger == ONCE else "")
            .load()
        )

    def _spark_rows(self, source: SparkSource, index: int) -> DataFrame:
        packed = source.packed(index)
        jvm = self.spark._jvm
        assert jvm is not None
        # The user's DataFrame belongs to the user's session; its plan, in ours, runs under our settings.
        java = jvm.org.apache.spark.sql.classic.Dataset.ofRows(
            self.spark._jsparkSession, packed._jdf.queryExecution().logical()
        )
        return DataFrame(java, self.spark)

    def _spark_checkpoint(self) -> str:
        path = self.store.local_path("spark")
        return str(path) if path is not None else f"{self.store.url.replace('s3://', 's3a://')}/spark"

    def _slots(self, latest: Manifest | None) -> int:
        if latest is not None and latest.levels and self.settings.strategy == "operator-set":
            return latest.levels[0].bucket_map.slots
        return self.settings.slots or max(2, self.spark.sparkContext.defaultParallelism)

    def _sinks(self) -> dict[int, Sink]:
        sinks: dict[int, Sink] = dict(enumerate(self.graph.sinks))
        dead = self.graph.dead_letter_sink
        if dead is None:
            local = self.store.local_path("dead-letter")
            dead = json_lines(local if local is not None else Path(tempfile.mkdtemp(prefix="anabranch-dead-letter-")))
        dead.check(DEAD_LETTER_SCHEMA)
        return {**sinks, DEAD_LETTER: dead}

    def _claim_sinks(self) -> None:
        batches = self.checkpoint.batches()
        last = batches[-1] if batches else None
        for sink in self.program.sinks.values():
            claim = getattr(sink, "claim", None)
            if claim is not None:
                claim(self.graph.name, last)

    def _query_id(self) -> str:
        return str(self._query.id) if self._query is not None else "backfill"

    def _keep_lease(self) -> None:
        while self.active:
            # A store that is out of reach for a moment must not end the heartbeat; commits will tell.
            with contextlib.suppress(Exception):
                self._lease.beat()
            time.sleep(2.0)


class _NoSplits:
    """Stands in for a source that Spark reads, in the process that plans splits."""

    def __init__(self, source: SparkSource) -> None:
        self.label = source.label
        self.schema: Mapping[str, pl.DataType] = source.schema

    def planner(self) -> _NoSplits:
        return self

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> Any:
        from anabranch.model import PlannedSplits

        return PlannedSplits((), position or {})

    def bound(self) -> None:
        """Spark bounds its own sources."""

    def more(self, position: dict[str, Any] | None) -> bool:
        return False


def _spark_interval(text: str) -> str:
    from anabranch.eventtime.durations import parse_duration

    return f"{parse_duration(text) // 1000} milliseconds"
