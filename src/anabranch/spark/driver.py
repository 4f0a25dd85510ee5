"""A running flow: its checkpoint, its streaming query, its batches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.connectors.control_channels.opening import open_channels
from anabranch.connectors.private_folders import PrivateFolder
from anabranch.control.commands import Submits
from anabranch.control.listening import CommandListener
from anabranch.control.steering import Steering
from anabranch.engine.ahead.level import AheadLevel
from anabranch.engine.flow_run import FlowRun
from anabranch.engine.settings import AVAILABLE_NOW, ONCE, RunSettings
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.engine.tasks.task_errors import find_our_error, find_reason
from anabranch.errors import AnabranchError, EngineError, Fenced
from anabranch.model import BatchProgress
from anabranch.query.graph import FlowGraph
from anabranch.spark.anchors import warn_of_missing_settings
from anabranch.spark.executors import SparkExecutors, open_executors, warn_of_unsteady_executors
from anabranch.spark.flow_query import FlowQuery
from anabranch.spark.flow_waits import FlowWaits
from anabranch.spark.job_runner import SparkJobs
from anabranch.spark.programs import PickledProgram
from anabranch.spark.session import flow_session, runs_locally, spare_traces
from anabranch.spark.split_source import ControlFolder
from anabranch.spark.step_requests import StepRequests
from anabranch.state.manifest import Manifest
from anabranch.state.spark_logs import read_offset, read_trigger_time
from anabranch.state.split_log import BEFORE_FIRST

DRAIN_SECONDS = 300.0
BOUNDARY_SECONDS = 5.0
"""So long a stop waits for Spark to be done with a batch, and a batch for the stop that it is not to run for."""


class Driver:
    """Drives one run of a flow by Structured Streaming: it asks for the batches, and Spark runs them."""

    def __init__(
        self,
        graph: FlowGraph,
        settings: RunSettings,
        open_spark: Callable[[], SparkSession],
        on_progress: Callable[[BatchProgress], None] | None = None,
        make_steering: Callable[[FlowProgram], Steering] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the checkpoint and the sinks' places, then open the session: a refusal does not wait for Spark."""
        self.settings = settings
        self.error: BaseException | None = None
        self._batch_lock = threading.Lock()
        self._stopping = False
        self._next_began = threading.Event()
        self._started_at = time.time()
        self._finished = threading.Event()
        self._listeners: list[CommandListener] = []
        self._query: StreamingQuery | None = None
        self._show_traces: Callable[[], None] = lambda: None
        self._control_folder = PrivateFolder("control")
        self.control = ControlFolder(self._control_folder.path)
        self.waits = FlowWaits(self.control)
        try:
            self.run = FlowRun(graph, settings, self.waits, clock)
        except BaseException:
            self._control_folder.remove()
            raise
        with self.run.released_on_error():
            self._open_session(open_spark)
            self.executors = open_executors(self.spark)
            self.run.open(
                self.executors,
                self._make_jobs,
                {"spark": self.spark},
                self._query_id,
                on_progress,
                make_steering,
            )
        self._flow_query = FlowQuery(self.spark, self.run.program.sources, settings, self.run.store, self.control)
        self._steps = StepRequests(self.control)

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self, initial_state: Mapping[str, pl.DataFrame] | None = None) -> None:
        """Start the streaming query, and a thread that sees it through to the end."""
        with self.run.released_on_error():
            self._listeners = self._make_listeners()
            self._begin(initial_state)
        for listener in self._listeners:
            listener.start()
        threading.Thread(target=self._keep_lease, daemon=True, name="anabranch-lease").start()
        threading.Thread(target=self._see_through, daemon=True, name="anabranch-driver").start()

    def _begin(self, initial_state: Mapping[str, pl.DataFrame] | None) -> None:
        self.run.begin(initial_state)
        self._flow_query.put_sources()
        self._steps.limit(self.run.holds, self.run.max_rows)
        if self.run.is_untouched and self._flow_query.reads_static_frames:
            # A static frame belongs to the first batch, which must come even if no other source has data.
            self._steps.ask(tick_after=BEFORE_FIRST)
        self._query = self._start_query()
        latest = self.run.checkpoint.latest()
        if latest is not None:
            self._steps.set_alarm(self._wake_us(latest), self.run.last_entry)

    def stop(self, drain: bool = False, timeout_seconds: float | None = None) -> None:
        """End after the running batch; with ``drain``, fire first what is still open."""
        if not self.active:
            return
        if drain:
            self._drain_now(timeout_seconds or DRAIN_SECONDS)
        # In a thread of its own: a second Ctrl-C must not break into what is said to Spark.
        threading.Thread(target=self._end_query, daemon=True, name="anabranch-stop").start()
        self._finished.wait()

    def _end_query(self) -> None:
        # Spark's stop() interrupts whatever is going on: wait for the boundary, so that no work is thrown away.
        with self._batch_lock:
            self._stopping = True
        assert self._query is not None
        deadline = time.monotonic() + BOUNDARY_SECONDS
        with contextlib.suppress(Exception):
            # The batch is done, and Spark may still be writing that down: until it waits, or begins the next one.
            while self._query.status["isTriggerActive"] and not self._next_began.wait(0.01):
                if time.monotonic() > deadline:
                    break
        self._query.stop()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the flow ends; say whether it did. Raises what made it fail."""
        ended = self._finished.wait(timeout_seconds)
        if ended and self.error is not None:
            # How the error came through Spark's threads says nothing to those who wait for the flow.
            raise self.error if self.settings.debug else self.error.with_traceback(None)
        return ended

    @property
    def active(self) -> bool:
        return self._query is not None and not self._finished.is_set()

    # -- batches ---------------------------------------------------------------------------------------------------

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        with self._batch_lock:
            if self._stopping:
                self._next_began.set()
                self._wait_for_stop()
                # Returning would tell Spark that the batch was done.
                msg = "the flow is stopping; this batch runs at the next start"
                raise EngineError(msg)
            try:
                start, end = read_offset(self.run.store, batch - 1), read_offset(self.run.store, batch)
                self._run_batch(frame, batch, start, end)
            except BaseException as error:
                self.error = error
                raise

    def _run_batch(self, frame: DataFrame, batch: int, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        """Run one batch and ask for an empty one if windows are due."""
        self._steps.begin_batch()
        manifest = self.run.run_batch(
            batch,
            start,
            end,
            outer=self._flow_query.find_spark_rows(frame, batch),
            triggered_at=self._triggered_at(batch),
        )
        self._steps.limit(self.run.holds, self.run.max_rows)
        self._steps.end_batch(
            end["entry"],
            due=self.run.is_due(manifest) and not self._drains_at_end,
            wake_us=self._wake_us(manifest),
        )

    # -- inside ----------------------------------------------------------------------------------------------------

    def _start_query(self, only_drain: bool = False) -> StreamingQuery:
        name = f"anabranch-{self.run.graph.name}-{self.run.lease.epoch}"
        if not self.settings.debug:
            self._show_traces()
            self._show_traces = spare_traces(self.spark, name)
        return self._flow_query.start(name, self._on_batch, only_drain=only_drain)

    def _see_through(self) -> None:
        try:
            assert self._query is not None
            self._query.awaitTermination()
            if not self._stopping:
                # Spark ends a query without a word when another one takes its checkpoint over.
                self.run.lease.check()
            if self._drains_at_end and self._flow_query.reads_spark_streams and not self._stopping:
                # Only the end of the query says that Spark's own sources have no more: the drain comes after it.
                self._steps.ask(drain=True)
                self._query = self._start_query(only_drain=True)
                self._query.awaitTermination()
        except Exception as error:
            if self.error is None and not self._stopping:
                self.error = error
        finally:
            if self._stopping:
                # What the interrupted stream thread said on its way out is not a failure.
                self.error = None
            elif self.error is not None:
                self.error = self._find_cause(self.error)
            self._show_traces()
            self._steps.close()
            for listener in self._listeners:
                listener.stop()
            self.run.close(self.error)
            self._control_folder.remove()
            self._finished.set()

    def _wait_for_stop(self) -> None:
        """Wait until Spark knows that the query is to end: what happens from then on is no failure of it."""
        deadline = time.monotonic() + BOUNDARY_SECONDS
        while self._query is not None and self._query.isActive and time.monotonic() < deadline:
            time.sleep(0.01)

    def _make_listeners(self) -> list[CommandListener]:
        if not isinstance(self.run.steering, Submits):
            return []
        channels = open_channels(self.run.lease, self.run.graph.name, self.settings.control)
        return [CommandListener(channel, self.run, self._want_boundary) for channel in channels]

    def _want_boundary(self) -> None:
        self._steps.want_boundary(self.run.last_entry)

    def _wake_us(self, manifest: Manifest) -> int | None:
        # A flow that ends by itself does not wait for anybody's silence.
        return None if self.settings.trigger in (AVAILABLE_NOW, ONCE) else self.run.wake_us(manifest)

    def _find_cause(self, error: BaseException) -> BaseException:
        """Return the error that the flow ends with, always one of ours.

        It is ``Fenced`` if another driver took over: whatever went wrong then, that is why.
        """
        # A store that cannot be asked is likely what went wrong in the first place.
        with contextlib.suppress(Exception):
            try:
                self.run.lease.check()
            except Fenced as fenced:
                fenced.__cause__ = self._behind(error)
                return fenced
        if isinstance(error, AnabranchError):
            return error
        ours = find_our_error(str(error)) if isinstance(error, PySparkException) else None
        reason = find_reason(str(error)) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"
        found = ours or EngineError(f"{reason}\n  the flow has ended; what was committed is intact: start it again")
        found.__cause__ = self._behind(error)
        return found

    def _behind(self, error: BaseException) -> BaseException | None:
        """Return the cause to show: Spark's own words are long and say the same, whatever else failed shows where."""
        return error if self.settings.debug or not isinstance(error, PySparkException) else None

    def _triggered_at(self, batch: int) -> float:
        # A batch that an earlier driver began counts from the start of this one.
        return max(self._started_at, read_trigger_time(self.run.store, batch) or 0.0)

    def _drain_now(self, timeout_seconds: float) -> None:
        self._steps.ask(drain=True)
        deadline = time.monotonic() + timeout_seconds
        while self.active and not ((latest := self.run.progress.latest) is not None and latest.drained):
            if time.monotonic() > deadline:
                msg = f"the flow did not drain within {timeout_seconds:.0f} s; it goes on: stop it without drain"
                raise EngineError(msg)
            time.sleep(0.02)

    @property
    def _drains_at_end(self) -> bool:
        """Whether a drain will follow anyway, so that windows which are due need no batch of their own."""
        return self.settings.drain and self.settings.trigger in (AVAILABLE_NOW, ONCE)

    def _open_session(self, open_spark: Callable[[], SparkSession]) -> None:
        self.spark = flow_session(open_spark())
        # Spark took its time to start, and drivers on other hosts listen for signs of life.
        self.run.lease.beat()
        self.waits.open(self.spark.sparkContext)
        if self.settings.anchors is not False and not runs_locally(self.spark):
            warn_of_missing_settings(self.spark)
            warn_of_unsteady_executors(self.spark)

    def _make_jobs(self, program: FlowProgram, ahead: AheadLevel) -> SparkJobs:
        pickled = PickledProgram.of(program, shares_host_out=self.executors.describe().shares_host_out)
        if isinstance(self.executors, SparkExecutors):
            self.executors.warm_with(pickled)
        return SparkJobs(self.spark, program, pickled, ahead, self.waits.in_tasks)

    def _query_id(self) -> str:
        return str(self._query.id) if self._query is not None else "backfill"

    def _keep_lease(self) -> None:
        while self.active:
            # A store that is out of reach for a moment must not end the heartbeat; commits will tell.
            with contextlib.suppress(Exception):
                self.run.lease.beat()
            with contextlib.suppress(Exception):
                self.waits.log_others()
            time.sleep(2.0)
