"""One run of a flow: the checkpoint that it takes, its batches up to their commit, and what it is told meanwhile."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import polars as pl

from anabranch.connectors import json_lines
from anabranch.connectors.databases.history_table import HistoryCopy
from anabranch.connectors.read_positions import ReadPositions
from anabranch.connectors.sink_ownership import claim_places, close_sinks, name_sinks, refuse_shared_places
from anabranch.control.commands import Command, Reply, Submits
from anabranch.control.decision_events import tell_holds
from anabranch.control.effects import ExecutorsSeen
from anabranch.control.rebalancer import Rebalancer
from anabranch.control.steering import SizesCluster, Steering
from anabranch.engine.ahead.level import AheadLevel, check_ahead, heads_ahead, pack_by_partition
from anabranch.engine.batches.batch import BatchRunner, FlowIdentity
from anabranch.engine.batches.cluster_readings import ClusterReadings
from anabranch.engine.batches.energy import find_limits, open_energy, tell_drawn
from anabranch.engine.batches.jobs import BatchInput, JobRunner, Packs, TellsWaits
from anabranch.engine.batches.latency import LatencyControl
from anabranch.engine.batches.outer_rows import OuterRows, refuse_to_hold, refuse_to_limit
from anabranch.engine.batches.publishing import Publisher
from anabranch.engine.batches.replicas.tier import ReplicaTier, WithoutReplicas, open_replicas
from anabranch.engine.batches.set_aside import tell_sources
from anabranch.engine.batches.slot_homes import SlotHomes, refuse_obstacles
from anabranch.engine.batches.split_steps import pack
from anabranch.engine.endpoints import find_endpoints
from anabranch.engine.progress import RunProgress
from anabranch.engine.run_events import RunEvents
from anabranch.engine.settings import AVAILABLE_NOW, ONCE, RunSettings
from anabranch.engine.structure import describe_flow, refuse_changed_flow
from anabranch.engine.tasks.dead_letters import DEAD_LETTER_SCHEMA
from anabranch.engine.tasks.reader_buffers import check_buffers
from anabranch.engine.tasks.spec import DEAD_LETTER, FlowProgram
from anabranch.errors import CheckpointError
from anabranch.eventtime.flow.alignment import Alignment, held_sources
from anabranch.eventtime.flow.flow_time import load_time
from anabranch.eventtime.flow.operator_times import is_due
from anabranch.metrics.energy_book import EnergyBook
from anabranch.model import BatchProgress, Hold, Sink
from anabranch.model.cluster import Executors
from anabranch.model.events import DecisionEvent
from anabranch.model.waits import PastWait
from anabranch.placement.elasticity import ClusterReading, find_use
from anabranch.query.graph import FlowGraph
from anabranch.query.nodes import Readable
from anabranch.query.plan import DEFAULT_SLOTS, Plan, check_powers, find_growth, make_plan, told_slots
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.epochs import Lease, Owner, take_epoch, was_released
from anabranch.state.event_log import EventLog
from anabranch.state.manifest import INITIAL_BATCH, Manifest
from anabranch.state.repair import explain_damage, refuse_lost_logs
from anabranch.state.retention import Retention
from anabranch.state.spark_logs import drop_orphans, mend_metadata
from anabranch.state.split_log import BEFORE_FIRST, LogEntry, SplitLog, digest_of
from anabranch.state.store import Store, open_store

SPARE_ENTRIES = 10

logger = logging.getLogger("anabranch")


class RunWaits(Protocol):
    """The waits for servers of one run, wherever they happen."""

    @property
    def in_tasks(self) -> TellsWaits:
        """What hears of those of tasks."""
        ...

    def begin_batch(self) -> None:
        """Forget what tasks of an earlier batch waited for when they were killed."""
        ...

    def noted(self) -> AbstractContextManager[None]:
        """Note the waits of this thread while the block runs."""
        ...

    def take_past(self) -> tuple[PastWait, ...]:
        """Return the waits that are over, each once."""
        ...


class FlowRun:
    """Owns one run of a flow from the epoch it takes to the lease it gives back; others say when a batch is run."""

    def __init__(
        self,
        graph: FlowGraph,
        settings: RunSettings,
        waits: RunWaits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the checkpoint and the sinks' places; nothing has to run yet for a refusal."""
        self._told_sources = tell_sources(graph, settings.checkpoint)
        graph.check(self._told_sources)
        self.graph = graph
        self.settings = settings
        self.waits = waits
        self.clock = clock
        self.store: Store = open_store(settings.checkpoint)
        self.checkpoint = Checkpoint(self.store, settings.kept_batches)
        latest = self.checkpoint.latest()
        if latest is not None:
            refuse_lost_logs(self.checkpoint, latest)
        self.endpoints = find_endpoints(graph, self.store, latest, settings.drop_sources)
        self._known_slots = self._find_slots(latest)
        self._make_program(self._known_slots or DEFAULT_SLOTS, latest)
        self._structure = describe_flow(self.program, settings.buckets, settings.parallelism)
        if latest is not None:
            refuse_changed_flow(latest, graph.name, self._structure)
        self.lease: Lease = take_epoch(self.store, Owner.this_process(), clock, settings.takeover)
        # Whatever the last driver committed before the epoch was taken counts.
        self.checkpoint = Checkpoint(self.store, settings.kept_batches)
        self.progress = RunProgress(self.store, self.lease.epoch, clock())
        self._tell_start()
        self._log = SplitLog(self.store)
        self._positions = ReadPositions(self.program.sources)
        committed = self.checkpoint.latest()
        has_read = committed is not None and committed.end_offset is not None
        self.last_entry: int = committed.end_offset["entry"] if committed is not None and has_read else BEFORE_FIRST
        with self.released_on_error():
            self._take_places()

    def open(
        self,
        executors: Executors,
        make_jobs: Callable[[FlowProgram, AheadLevel], JobRunner],
        context: Mapping[str, Any],
        query_id: Callable[[], str],
        on_progress: Callable[[BatchProgress], None] | None = None,
        make_steering: Callable[[FlowProgram], Steering] | None = None,
    ) -> None:
        """Get ready for batches, now that it is known who runs them, and where.

        ``context`` is handed to sinks; ``query_id`` names whoever asks for the batches.
        """
        elasticity, energy = self.settings.elasticity, self.settings.energy
        if elasticity is not None or (energy is not None and energy.releases_hosts):
            refuse_obstacles(executors.describe())
        self._homes = SlotHomes(executors, self.settings.anchors, find_limits(self.settings))
        self._homes.look()
        if self._known_slots is None:
            self._make_program(max(2, self._homes.cores), self.checkpoint.latest())
        self._on_progress = on_progress
        self.steering: Steering = (
            Rebalancer(
                self.program, time.monotonic, self.settings.slots is not None, elasticity, open_energy(self.settings)
            )
            if make_steering is None
            else make_steering(self.program)
        )
        ahead = AheadLevel(self.program)
        jobs = make_jobs(self.program, ahead)
        self._replicas: ReplicaTier | WithoutReplicas = open_replicas(
            self.program, executors.describe(), self.lease.epoch, jobs, self.events, self.clock
        )
        self._homes.choose_by(self._replicas.choose_homes, self._replicas.list_fallbacks)
        self._latency = LatencyControl(self.settings.latency_seconds)
        self._readings = None if elasticity is None and energy is None else ClusterReadings()
        self._energy = None if energy is None else EnergyBook(energy)
        self._looked_at = self.clock()
        self._alignment = Alignment(self.plan, ends=self.settings.trigger in (AVAILABLE_NOW, ONCE))
        self._alignment.end_batch(load_time(self.plan, self.checkpoint.latest()), int(self.clock() * 1e6))
        self._runner = BatchRunner(
            self.program,
            self.settings,
            self.checkpoint,
            self.lease,
            Publisher(
                self.checkpoint,
                self.program.sinks,
                {**context, "driver_epoch": self.lease.epoch},
                self.lease.check,
            ),
            FlowIdentity(self._structure, query_id),
            self.steering,
            jobs,
            homes=self._homes,
            ahead=ahead,
            alignment=self._alignment,
            events=self.events,
            clock=self.clock,
        )

    def begin(self, initial_state: Mapping[str, pl.DataFrame] | None) -> None:
        """Let state that is given count, where the checkpoint has none, and say what is to be feared of the flow."""
        for head, growth in find_growth(self.plan).items():
            logger.warning("%s: %s; give it a ttl if old rows need no partner", self.plan.nodes[head].label, growth)
        if initial_state and self.checkpoint.latest() is None:
            self._runner.commit_initial_state(initial_state)
        if self._copy is not None:
            self._copy.start()
        self._tell_last_positions()

    @property
    def is_untouched(self) -> bool:
        """Whether no batch has been committed, but for state that was given."""
        return self.checkpoint.batches() in ([], [INITIAL_BATCH])

    def run_batch(
        self,
        batch: int,
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        *,
        outer: OuterRows | None = None,
        triggered_at: float,
    ) -> Manifest:
        """Run one batch, from where the last one ended in the split log to where this one does."""
        self._homes.look()
        entries = self._entries_between(start["entry"], end["entry"])
        # The numbers alone would not tell a log that was planned anew from the old one.
        end = {**end, "splits": digest_of(entries)}
        given = BatchInput(
            batch=batch,
            outer=outer,
            packs=tuple(self.endpoints.keep_present(self._pack(entries))),
            triggered_at=triggered_at,
            waits=self.waits.in_tasks,
            start_offset=dict(start),
            end_offset=dict(end),
            drain=any(entry.drain for entry in entries),
            problems=tuple(problem for entry in entries for problem in entry.problems),
        )
        self.waits.begin_batch()
        held_before = self._name_held()
        with self.waits.noted(), self._failures_told(batch):
            manifest, progress = self._runner.run(given)
        if entries:
            self._positions.tell(entries[-1].positions)
        self.last_entry = end["entry"]
        # A batch takes at most one entry, so this one is older than every batch that can be gone back to.
        self._log.forget(end["entry"] - self.settings.kept_batches - SPARE_ENTRIES)
        waited = tuple(str(past) for past in self.waits.take_past())
        progress = replace(progress, problems=progress.problems + waited, held_back=self._name_held())
        waiting_rows = entries[-1].waiting_rows if entries else None
        # Sources are asked after the trigger, seconds later on a busy machine; what they have is of that moment.
        planned_at = entries[-1].planned_at if entries else None
        planned_at = triggered_at if planned_at is None else planned_at
        progress = self._tell_energy(self._latency.end_batch(progress, planned_at, waiting_rows, self._homes.spread))
        progress = self._replicas.end_batch(manifest, progress, self._homes.expected)
        self._read_cluster(progress, planned_at)
        self.events.end_batch(progress, start, end, [*tell_holds(batch, held_before, progress.held_back)])
        self.progress.add(progress, self.clock())
        if self._on_progress is not None:
            self._on_progress(progress)
        return manifest

    def submit(self, command: Command) -> Reply:
        """Answer a command, of any thread, also while a batch runs: what will happen, or why not."""
        assert isinstance(self.steering, Submits)
        reply = self.steering.submit(command)
        if reply.ok and command.action == "set":
            # It counts at once, and no commit tells of it.
            names = command.operator or "all operators"
            self.events.decide([DecisionEvent(self._last_batch or 0, names, "set", "ctl", reply.text)])
        if reply.ok and command.action == "show":
            latest = self.progress.latest
            measures = None if latest is None or latest.measures is None else latest.measures.to_json()
            told = {"decisions": self.events.list_decisions(), "measures": measures, **self._replicas.show()}
            if self.settings.energy is not None:
                told["drawn"] = tell_drawn(self.progress.totals, latest)
            return replace(reply, data={**reply.data, **told})
        return reply

    @property
    def holds(self) -> tuple[Hold, ...]:
        """The sources that are to bring nothing more for now."""
        return self._alignment.holds

    @property
    def max_rows(self) -> int | None:
        """What all sources together may bring in the next batch; None if that is left to them."""
        return self._latency.max_rows

    def wake_us(self, manifest: Manifest) -> int | None:
        """Return when a batch is wanted though no rows come, by the wall clock; None if never.

        Somebody's silence closes windows then, or executors may be too many for what comes.
        """
        idle_seconds = self.steering.idle_seconds if isinstance(self.steering, SizesCluster) else None
        idle_us = None if idle_seconds is None else int((self._looked_at + idle_seconds) * 1e6)
        return min((wake for wake in (manifest.engine.wake_us, idle_us) if wake is not None), default=None)

    def is_due(self, manifest: Manifest) -> bool:
        """Say whether windows are due that only another batch, with or without data, can fire."""
        return is_due(self.plan, manifest)

    def close(self, error: BaseException | None = None) -> None:
        """Give back what the run has taken; ``error`` is what it ended with."""
        self._replicas.stop()
        close_sinks(self.program.sinks.values())
        self._positions.close()
        if error is not None and not self.events.has_ended:
            self.events.fail(str(error) or type(error).__name__, ends_run=True)
        self.events.stop(self._last_batch)
        if self._copy is not None:
            self._copy.stop()
        with contextlib.suppress(Exception):
            self.lease.release()

    def abandon(self) -> None:
        """Leave everything as it is, but for connections."""
        self._replicas.stop()
        close_sinks(self.program.sinks.values())
        self._positions.close()
        if self._copy is not None:
            self._copy.stop()

    @contextlib.contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Let the next driver in if this one does not even start: its process lives on, and so would the lease."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(Exception):
                self.events.fail(str(error) or type(error).__name__, ends_run=True)
            with contextlib.suppress(Exception):
                self.lease.release()
            raise

    # -- inside ----------------------------------------------------------------------------------------------------

    def _tell_start(self) -> None:
        log = EventLog(
            self.store,
            self.lease.epoch,
            self.lease.check,
            self.settings.kept_records,
            self.settings.kept_summary_bytes,
        )
        was_killed = self.lease.epoch > 1 and not was_released(self.store, self.lease.epoch - 1)
        self.events = RunEvents(log, self.clock, self.checkpoint.latest(), was_killed=was_killed)
        self._copy: HistoryCopy | None = None
        if self.settings.history_to is not None and self.events.first_number is not None:
            first_number = self.events.first_number
            self._copy = HistoryCopy(self.settings.history_to, self.store, self.graph.name, first_number)

    @property
    def _last_batch(self) -> int | None:
        batches = self.checkpoint.batches()
        return batches[-1] if batches else None

    @contextlib.contextmanager
    def _failures_told(self, batch: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.events.fail(str(error) or type(error).__name__, batch, ends_run=True)
            raise

    def _tell_last_positions(self) -> None:
        """Tell how far the run before this one came: it may have been killed before it told."""
        if self._positions.are_told and self.last_entry != BEFORE_FIRST:
            # Whoever needs the entry will say what is wrong with it; telling is not worth a failure.
            with contextlib.suppress(CheckpointError):
                self._positions.tell(self._log.load(self.last_entry).positions)

    def _tell_energy(self, progress: BatchProgress) -> BatchProgress:
        if self._energy is None or progress.replayed:
            return progress
        drawn = self._energy.add(
            progress.measures,
            self._homes.executors,
            now_seconds=self.clock(),
            batch_seconds=progress.batch_seconds,
        )
        return replace(progress, energy=drawn)

    def _read_cluster(self, progress: BatchProgress, planned_at: float) -> None:
        if self._readings is None or not isinstance(self.steering, SizesCluster):
            return
        homes, now = self._homes, self.clock()
        self._looked_at = now
        reading = self._readings.read(
            progress,
            homes.executors,
            measures=homes.measures,
            held_bytes=homes.held_bytes,
            planned_at=planned_at,
            now_seconds=now,
            wait=self._replicas.tell_wait(),
        )
        if reading is not None:
            self.steering.see_cluster(reading)
            self._tell_use(progress.batch, reading)

    def _tell_use(self, batch: int, reading: ClusterReading) -> None:
        """Tell how busy executors are that have slots: decisions about them are judged by it."""
        serving, limits = self._homes.serving, self.settings.elasticity
        busy = find_use(reading, serving, None if limits is None else limits.cores_per_executor)
        if busy is not None:
            self.events.see_executors(batch, ExecutorsSeen(len(serving), busy))

    def _entries_between(self, after: int, to: int) -> list[LogEntry]:
        """Return entries of the split log; raise ``StateDamaged`` that names the batch to return to if one is lost."""
        try:
            return self._log.between(after, to)
        except CheckpointError as error:
            raise explain_damage(self.checkpoint, str(error)) from error

    def _name_held(self) -> dict[str, float]:
        names = {source.number: source.name for source in self.endpoints.known.sources}
        return {names[hold.source]: hold.ahead_us / 1e6 for hold in self.holds}

    def _pack(self, entries: list[LogEntry]) -> Packs:
        if heads_ahead(self.plan):
            labels = {number: source.label for number, source in self.program.sources.items()}
            return tuple(pack_by_partition(entries, labels))
        # Executors come and go, and every core is to read.
        elasticity = self.settings.elasticity
        per_executor = None if elasticity is None else elasticity.slots_per_executor
        tasks = self.settings.read_tasks or max(1, self._homes.count_tasks(per_executor))
        return tuple(pack(entries, tasks, self.program.reading_levels))

    def _find_slots(self, latest: Manifest | None) -> int | None:
        """Return the slots that settings or checkpoint name; else they depend on the cores, which are not known yet."""
        of_checkpoint = None if latest is None else latest.engine.slots
        return self.settings.slots or of_checkpoint or told_slots(self.graph)

    def _make_program(self, slots: int, latest: Manifest | None) -> None:
        self.plan: Plan = self.endpoints.number(make_plan(self.graph, slots, self.settings.parallelism))
        check_powers(self.plan)
        check_buffers(self.plan, self.settings.local_merge)
        check_ahead(self.plan, self.graph.sources, latest)
        sources: dict[int, Readable] = dict(zip(self.endpoints.sources, self._told_sources, strict=True))
        refuse_to_hold(sources, held_sources(self.plan))
        if self.settings.latency is not None:
            refuse_to_limit(sources)
        self.program = FlowProgram(
            plan=self.plan,
            sources=sources,
            sinks=self._sinks,
            checkpoint=self.store.url,
            local_merge=self.settings.local_merge,
            replicas=self.settings.replicas,
            keeps_hot_copies=self.settings.hot_copies,
        )

    @cached_property
    def _sinks(self) -> dict[int, Sink]:
        dead = self.graph.dead_letter_sink or json_lines(f"{self.store.url}/dead-letter")
        dead.check(DEAD_LETTER_SCHEMA)
        refuse_shared_places(name_sinks(self.graph.sinks, dead))
        return {**self.endpoints.sinks, DEAD_LETTER: dead}

    def _take_places(self) -> None:
        with self.waits.noted():
            self.endpoints.settle(self.store, self.lease.epoch)
            drop_orphans(self.store)
            latest = self.checkpoint.latest()
            if latest is not None and mend_metadata(self.store, latest.query_id):
                logger.warning("%s/spark/metadata was lost, and is written anew from the manifest", self.store.url)
            batches = self.checkpoint.batches()
            claim_places(self.program.sinks.values(), self.graph.name, batches[-1] if batches else None)
            self.lease.check()
            Retention(self.checkpoint).sweep(self.lease.epoch, self.clock())
