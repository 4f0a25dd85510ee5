"""A running flow: its checkpoint, its streaming query, its batches."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import polars as pl
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.connectors import json_lines
from anabranch.connectors.private_folders import PrivateFolder
from anabranch.connectors.sink_ownership import claim_places, close_sinks, name_sinks, refuse_shared_places
from anabranch.control.commands import Submits
from anabranch.engine.ahead.level import check_ahead, heads_ahead, pack_by_partition
from anabranch.engine.batch import BatchRunner, FlowIdentity
from anabranch.engine.clocks import is_due
from anabranch.engine.command_listening import CommandListener, open_channels
from anabranch.engine.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.engine.endpoints import find_endpoints
from anabranch.engine.flow_routes import Steering
from anabranch.engine.publishing import Publisher
from anabranch.engine.reader_buffers import check_lanes
from anabranch.engine.rebalancer import BalancingSteering
from anabranch.engine.run_progress import RunProgress
from anabranch.engine.set_aside import tell_sources
from anabranch.engine.settings import AVAILABLE_NOW, ONCE, RunSettings
from anabranch.engine.spec import DEAD_LETTER, FlowProgram
from anabranch.engine.split_steps import pack
from anabranch.engine.structure import describe_flow, refuse_changed_flow
from anabranch.engine.task_errors import find_our_error, find_reason
from anabranch.errors import AnabranchError, CheckpointError, EngineError, Fenced
from anabranch.model import BatchProgress, Sink, Split
from anabranch.query.graph import FlowGraph
from anabranch.query.nodes import Readable
from anabranch.query.plan import DEFAULT_SLOTS, Plan, check_powers, make_plan, told_slots
from anabranch.spark.anchors import warn_of_missing_settings
from anabranch.spark.batch_job import BatchInput
from anabranch.spark.flow_query import FlowQuery
from anabranch.spark.flow_waits import FlowWaits
from anabranch.spark.offsets import read_offset, read_trigger_time
from anabranch.spark.session import flow_session, runs_locally, spare_traces
from anabranch.spark.split_source import ControlFolder
from anabranch.spark.step_requests import StepRequests
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.epochs import Lease, Owner, take_epoch
from anabranch.state.manifest import INITIAL_BATCH, Manifest
from anabranch.state.repair import explain_damage, refuse_lost_logs
from anabranch.state.retention import Retention
from anabranch.state.spark_logs import drop_orphans, mend_metadata
from anabranch.state.split_log import BEFORE_FIRST, LogEntry, SplitLog, digest_of
from anabranch.state.store import Store, open_store

logger = logging.getLogger("anabranch")

DRAIN_SECONDS = 300.0
SPARE_ENTRIES = 10
BOUNDARY_SECONDS = 5.0
"""So long a stop waits for Spark to be done with a batch, and a batch for the stop that it is not to run for."""


class Driver:
    """Owns one run of a flow from the epoch it takes to the lease it gives back."""

    def __init__(
        self,
        graph: FlowGraph,
        settings: RunSettings,
        open_spark: Callable[[], SparkSession],
        on_progress: Callable[[BatchProgress], None] | None = None,
        make_steering: Callable[[FlowProgram], Steering] | None = None,
    ) -> None:
        """Take the checkpoint and the sinks' places, then open the session: a refusal does not wait for Spark."""
        sources = tell_sources(graph, settings.checkpoint)
        graph.check(sources)
        self.graph = graph
        self.settings = settings
        self.store: Store = open_store(settings.checkpoint)
        self.error: BaseException | None = None
        self._on_progress = on_progress
        self._batch_lock = threading.Lock()
        self._stopping = False
        self._next_began = threading.Event()
        self._started_at = time.time()
        self._finished = threading.Event()
        self._last_entry = BEFORE_FIRST
        self._listeners: list[CommandListener] = []
        self._query: StreamingQuery | None = None
        self._show_traces: Callable[[], None] = lambda: None
        self.checkpoint = Checkpoint(self.store, settings.kept_batches)
        latest = self.checkpoint.latest()
        if latest is not None:
            refuse_lost_logs(self.checkpoint, latest)
        self._endpoints = find_endpoints(graph, self.store, latest, settings.drop_sources)
        slots = self._known_slots(latest)
        self._make_program(sources, slots or DEFAULT_SLOTS, latest)
        structure = describe_flow(self.program, settings.buckets, settings.strategy)
        if latest is not None:
            refuse_changed_flow(latest, graph.name, structure)
        self._lease: Lease = take_epoch(self.store, Owner.this_process(), time.time, settings.takeover)
        # Whatever the last driver committed before the epoch was taken counts.
        self.checkpoint = Checkpoint(self.store, settings.kept_batches)
        self.progress = RunProgress(self.store, self._lease.epoch, settings.kept_records, time.time)
        self._control_folder = PrivateFolder("control")
        self.control = ControlFolder(self._control_folder.path)
        self.waits = FlowWaits(self.control)
        with self._released_on_error():
            self._take_places()
            self._open_session(open_spark)
            if slots is None:
                self._make_program(sources, max(2, self.spark.sparkContext.defaultParallelism), latest)
        self._flow_query = FlowQuery(self.spark, self.program.sources, settings, self.store, self.control)
        self._steps = StepRequests(self.control)
        self._log = SplitLog(self.store)
        context = {"spark": self.spark, "driver_epoch": self._lease.epoch}
        publisher = Publisher(self.checkpoint, self.program.sinks, context, self._lease.check)
        self._steering: Steering = (
            BalancingSteering(self.program, resizes=settings.slots is not None)
            if make_steering is None
            else make_steering(self.program)
        )
        self._runner = BatchRunner(
            self.spark,
            self.program,
            settings,
            self.checkpoint,
            self._lease,
            publisher,
            FlowIdentity(structure, self._query_id),
            self._steering,
        )

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self, initial_state: Mapping[str, pl.DataFrame] | None = None) -> None:
        """Start the streaming query, and a thread that sees it through to the end."""
        with self._released_on_error():
            self._listeners = self._make_listeners()
            self._begin(initial_state)
        for listener in self._listeners:
            listener.start()
        threading.Thread(target=self._keep_lease, daemon=True, name="anabranch-lease").start()
        threading.Thread(target=self._see_through, daemon=True, name="anabranch-driver").start()

    def _begin(self, initial_state: Mapping[str, pl.DataFrame] | None) -> None:
        if initial_state and self.checkpoint.latest() is None:
            self._runner.commit_initial_state(initial_state)
        self._flow_query.put_sources()
        latest = self.checkpoint.latest()
        if latest is not None and latest.end_offset is not None:
            self._last_entry = latest.end_offset["entry"]
        untouched = self.checkpoint.batches() in ([], [INITIAL_BATCH])
        if untouched and self._flow_query.reads_static_frames:
            # A static frame belongs to the first batch, which must come even if no other source has data.
            self._steps.ask(tick_after=BEFORE_FIRST)
        self._query = self._start_query()
        if latest is not None:
            self._steps.set_alarm(self._wake_us(latest), self._last_entry)

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
                start, end = read_offset(self.store, batch - 1), read_offset(self.store, batch)
                self.run_batch(frame, batch, start, end)
            except BaseException as error:
                self.error = error
                raise

    def run_batch(self, frame: DataFrame, batch: int, start: Mapping[str, Any], end: Mapping[str, Any]) -> Manifest:
        """Run one batch and ask for an empty one if windows are due."""
        entries = self._entries_between(start["entry"], end["entry"])
        # The numbers alone would not tell a log that was planned anew from the old one.
        end = {**end, "splits": digest_of(entries)}
        given = BatchInput(
            batch=batch,
            frame=self._flow_query.find_spark_rows(frame, batch),
            packs=tuple(self._endpoints.keep_present(self._pack(entries))),
            triggered_at=self._triggered_at(batch),
            waits=self.waits.in_tasks,
            start_offset=dict(start),
            end_offset=dict(end),
            drain=any(entry.drain for entry in entries),
            problems=tuple(problem for entry in entries for problem in entry.problems),
        )
        self._steps.begin_batch()
        self.waits.begin_batch()
        with self.waits.noted():
            manifest, progress = self._runner.run(given)
        self._last_entry = end["entry"]
        self._steps.end_batch(
            end["entry"],
            due=is_due(self.program.plan, manifest) and not self._drains_at_end,
            wake_us=self._wake_us(manifest),
        )
        # A batch takes at most one entry, so this one is older than every batch that can be gone back to.
        self._log.forget(end["entry"] - self.settings.kept_batches - SPARE_ENTRIES)
        waited = tuple(str(past) for past in self.waits.take_past())
        progress = replace(progress, problems=progress.problems + waited)
        self.progress.add(progress)
        if self._on_progress is not None:
            self._on_progress(progress)
        return manifest

    # -- inside ----------------------------------------------------------------------------------------------------

    def _entries_between(self, after: int, to: int) -> list[LogEntry]:
        """Return entries of the split log; raise ``StateDamaged`` that names the batch to return to if one is lost."""
        try:
            return self._log.between(after, to)
        except CheckpointError as error:
            raise explain_damage(self.checkpoint, str(error)) from error

    def _pack(self, entries: list[LogEntry]) -> list[list[tuple[int, int, Split]]]:
        if heads_ahead(self.plan):
            return pack_by_partition(entries, {number: one.label for number, one in self.program.sources.items()})
        return pack(entries, self.settings.read_tasks or self.spark.sparkContext.defaultParallelism)

    def _start_query(self, only_drain: bool = False) -> StreamingQuery:
        name = f"anabranch-{self.graph.name}-{self._lease.epoch}"
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
                self._lease.check()
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
            close_sinks(self.program.sinks.values())
            self.progress.flush()
            with contextlib.suppress(Exception):
                self._lease.release()
            self._control_folder.remove()
            self._finished.set()

    def _wait_for_stop(self) -> None:
        """Wait until Spark knows that the query is to end: what happens from then on is no failure of it."""
        deadline = time.monotonic() + BOUNDARY_SECONDS
        while self._query is not None and self._query.isActive and time.monotonic() < deadline:
            time.sleep(0.01)

    def _make_listeners(self) -> list[CommandListener]:
        if not isinstance(self._steering, Submits):
            return []
        channels = open_channels(self._lease, self.graph.name, self.settings.control)
        return [CommandListener(channel, self._steering, self._want_boundary) for channel in channels]

    def _want_boundary(self) -> None:
        self._steps.want_boundary(self._last_entry)

    def _wake_us(self, manifest: Manifest) -> int | None:
        # A flow that ends by itself does not wait for anybody's silence.
        return None if self.settings.trigger in (AVAILABLE_NOW, ONCE) else manifest.engine.get("wake_us")

    def _find_cause(self, error: BaseException) -> BaseException:
        """Return the error that the flow ends with, always one of ours.

        It is ``Fenced`` if another driver took over: whatever went wrong then, that is why.
        """
        # A store that cannot be asked is likely what went wrong in the first place.
        with contextlib.suppress(Exception):
            try:
                self._lease.check()
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
        return max(self._started_at, read_trigger_time(self.store, batch) or 0.0)

    def _drain_now(self, timeout_seconds: float) -> None:
        self._steps.ask(drain=True)
        deadline = time.monotonic() + timeout_seconds
        while self.active and not ((latest := self.progress.latest) is not None and latest.drained):
            if time.monotonic() > deadline:
                msg = f"the flow did not drain within {timeout_seconds:.0f} s; it goes on: stop it without drain"
                raise EngineError(msg)
            time.sleep(0.02)

    @property
    def _drains_at_end(self) -> bool:
        """Whether a drain will follow anyway, so that windows which are due need no batch of their own."""
        return self.settings.drain and self.settings.trigger in (AVAILABLE_NOW, ONCE)

    def _take_places(self) -> None:
        with self.waits.noted():
            self._endpoints.settle(self.store, self._lease.epoch)
            drop_orphans(self.store)
            latest = self.checkpoint.latest()
            if latest is not None and mend_metadata(self.store, latest.query_id):
                logger.warning("%s/spark/metadata was lost, and is written anew from the manifest", self.store.url)
            self._claim_sinks()
            self._lease.check()
            Retention(self.checkpoint).sweep(self._lease.epoch, time.time())

    def _open_session(self, open_spark: Callable[[], SparkSession]) -> None:
        self.spark = flow_session(open_spark())
        # Spark took its time to start, and drivers on other hosts listen for signs of life.
        self._lease.beat()
        self.waits.open(self.spark.sparkContext)
        if self.settings.anchors is not False and not runs_locally(self.spark):
            warn_of_missing_settings(self.spark)

    def _make_program(self, sources: tuple[Readable, ...], slots: int, latest: Manifest | None) -> None:
        self.plan: Plan = self._endpoints.number(make_plan(self.graph, slots, self.settings.strategy))
        check_powers(self.plan)
        check_lanes(self.plan, self.settings.local_merge)
        check_ahead(self.plan, self.graph.sources, latest)
        self.program = FlowProgram(
            plan=self.plan,
            sources=dict(zip(self._endpoints.sources, sources, strict=True)),
            sinks=self._sinks,
            checkpoint=self.store.url,
            local_merge=self.settings.local_merge,
        )

    def _known_slots(self, latest: Manifest | None) -> int | None:
        """Return the slots that settings or checkpoint name; else they depend on the cores, which only Spark knows."""
        of_checkpoint = None if latest is None else int(latest.engine["slots"])
        return self.settings.slots or of_checkpoint or told_slots(self.graph)

    @cached_property
    def _sinks(self) -> dict[int, Sink]:
        dead = self.graph.dead_letter_sink or json_lines(f"{self.store.url}/dead-letter")
        dead.check(DEAD_LETTER_SCHEMA)
        refuse_shared_places(name_sinks(self.graph.sinks, dead))
        return {**self._endpoints.sinks, DEAD_LETTER: dead}

    def _claim_sinks(self) -> None:
        batches = self.checkpoint.batches()
        claim_places(self.program.sinks.values(), self.graph.name, batches[-1] if batches else None)

    def _query_id(self) -> str:
        return str(self._query.id) if self._query is not None else "backfill"

    @contextlib.contextmanager
    def _released_on_error(self) -> Iterator[None]:
        """Let the next driver in if this one does not even start: its process lives on, and so would the lease."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                self._lease.release()
            raise

    def _keep_lease(self) -> None:
        while self.active:
            # A store that is out of reach for a moment must not end the heartbeat; commits will tell.
            with contextlib.suppress(Exception):
                self._lease.beat()
            with contextlib.suppress(Exception):
                self.waits.log_others()
            time.sleep(2.0)
