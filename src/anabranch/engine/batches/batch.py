"""Run one micro-batch: job, manifest, sinks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from anabranch.control.apply import check_decision, find_split_keys, store_levels
from anabranch.control.decision_events import tell_changes, tell_homes, tell_looks, tell_places, tell_switches
from anabranch.control.decisions import Decision
from anabranch.control.exchanges import ExchangeWatch
from anabranch.control.steering import SeesHomes, SizesCluster, Steering, TriesStrategies
from anabranch.engine.ahead.level import AheadLevel
from anabranch.engine.batches.batch_routes import begin_homes, count_slots, load_routes
from anabranch.engine.batches.first_look import FirstLook
from anabranch.engine.batches.job_attempts import JobAttempts
from anabranch.engine.batches.jobs import BatchInput, JobRunner
from anabranch.engine.batches.publishing import Publisher
from anabranch.engine.batches.reports import BatchReport
from anabranch.engine.batches.set_aside import PassedOver
from anabranch.engine.batches.slot_homes import SlotHomes
from anabranch.engine.batches.state_repartition import repartition_state
from anabranch.engine.faults import reach
from anabranch.engine.progress import describe_batch
from anabranch.engine.run_events import RunEvents, find_slots_seen
from anabranch.engine.settings import RunSettings
from anabranch.engine.states import write_initial_state
from anabranch.engine.tasks.reader_buffers import store_buffers
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.errors import SinkError
from anabranch.eventtime.flow.alignment import Alignment
from anabranch.eventtime.flow.flow_time import (
    advance_time,
    describe_watermarks,
    load_time,
    next_silence_us,
    store_time,
)
from anabranch.eventtime.flow.in_batch_watermark import InBatchWatermark, fires_at_once, settle_times
from anabranch.eventtime.flow.operator_times import (
    FlowClocks,
    advance_clocks,
    follow_split_keys,
    load_clocks,
    next_wake_us,
    operator_times,
    store_clocks,
)
from anabranch.eventtime.watermarks import FlowTime
from anabranch.metrics.cluster_load import LoadBook
from anabranch.model import BatchProgress, OperatorTime
from anabranch.model.events import DecisionEvent, tell_decisions
from anabranch.model.measures import BatchMeasures
from anabranch.query.plan import Plan, name_of
from anabranch.routing.phases import FlowRoutes
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.engine_state import EngineState
from anabranch.state.epochs import Lease
from anabranch.state.manifest import INITIAL_BATCH, LevelState, Manifest
from anabranch.state.retention import Retention
from anabranch.state.runs import WriteName


@dataclass(frozen=True, slots=True)
class FlowIdentity:
    """What every manifest of a run says of the flow."""

    structure: Mapping[str, Any]
    query_id: Callable[[], str]
    """Known only once the query has started."""


class BatchRunner:
    """Runs batches one after the other, on the driver."""

    def __init__(  # noqa: PLR0913 - what a run consists of
        self,
        program: FlowProgram,
        settings: RunSettings,
        checkpoint: Checkpoint,
        lease: Lease,
        publisher: Publisher,
        identity: FlowIdentity,
        steering: Steering,
        jobs: JobRunner,
        *,
        homes: SlotHomes,
        ahead: AheadLevel,
        alignment: Alignment,
        events: RunEvents,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._program = program
        self._plan: Plan = program.plan
        self._settings = settings
        self._checkpoint = checkpoint
        self._lease = lease
        self._publisher = publisher
        self._identity = identity
        self._steering = steering
        self._passed_over = PassedOver(checkpoint.store.url)
        self._clock = clock
        self._listening_since_us = int(clock() * 1e6)
        self._retention = Retention(checkpoint)
        self._exchanges = ExchangeWatch(program, checkpoint.latest())
        self._homes = homes
        self._ahead = ahead
        self._alignment = alignment
        self._events = events
        self._fires_at_once = fires_at_once(program.plan)
        self._look = FirstLook(program, settings.buckets)
        self._jobs = jobs
        self._attempts = JobAttempts(
            program,
            settings,
            checkpoint,
            lease,
            jobs,
            steering=steering,
            homes=homes,
            ahead=ahead,
            events=events,
            exchanges=self._exchanges,
            passed_over=self._passed_over,
            fires_at_once=self._fires_at_once,
        )
        self._loads = LoadBook()

    def run(self, given: BatchInput) -> tuple[Manifest, BatchProgress]:
        """Run a batch to its commit and publish it; one that was committed before is only published again."""
        waited = max(0.0, self._clock() - given.triggered_at)
        began = time.perf_counter() - waited
        self._lease.check()
        committed = self._checkpoint.find_replay(given.batch, given.start_offset, given.end_offset)
        if committed is not None:
            return self._publish_again(given, committed, began)
        given = self._passed_over.leave_out(given)
        before = self._checkpoint.latest()
        if before is not None:
            writer = WriteName(self._lease.epoch, given.batch, 0, uuid.uuid4().hex[:12])
            before = repartition_state(self._program, before, self._settings.buckets, writer)
        now_us, since_us = int(self._clock() * 1e6), self._listening_since_us
        known = self._ahead.begin(load_routes(self._plan, before, self._settings.buckets), before, given.packs)
        routes = self._look.route(given, before, known, lambda told: self._look_spec(given, before, told, now_us))
        in_batch, times = self._begin_time(given, before, routes, now_us)
        decision = self._decide(given.batch, routes, before)
        changes = list(tell_changes(self._plan, routes, decision))
        reach("before-job", given.batch)
        given, report = self._attempts.run(given, before, times, routes, decision, in_batch)
        job_seconds = time.perf_counter() - began
        reach("after-job", given.batch)
        partition_keys = self._ahead.check(report, times)
        time_after = advance_time(
            self._plan,
            in_batch.before,
            report,
            now_us=now_us,
            since_us=since_us,
            drained=given.drain,
            fires_at_once=self._fires_at_once,
        )
        if self._fires_at_once:
            times = settle_times(self._plan, times, time_after, report)
        levels = store_levels(self._plan, routes, decision, times, time_after, report)
        clocks = advance_clocks(
            self._plan,
            load_clocks(self._plan, before),
            report,
            times,
            time_after,
            drained=given.drain,
            changed=frozenset(decision.routes),
        )
        clocks = follow_split_keys(self._plan, clocks, report, find_split_keys(routes, decision))
        self._homes.end(decision.homes)
        manifest = self._manifest(given, before, report, levels, time_after, clocks, now_us, partition_keys)
        decided = [
            *tell_looks(self._plan, given.batch, known, routes),
            *tell_homes(self._plan, given.batch, self._homes.settled),
            *changes,
            *tell_places(self._plan, decision, self._homes.count_moved(decision.homes), self._homes.executors),
            *tell_switches(given.batch, report.figures),
        ]
        self._events.decide(decided)
        reach("before-manifest", given.batch)
        # A driver that was replaced may have committed the batch just before: then its manifest stands.
        standing = self._checkpoint.commit(manifest)
        self._look.forget(given.batch)
        reach("after-manifest", given.batch)
        commit_seconds = time.perf_counter() - began - job_seconds
        self.publish(standing)
        reach("after-publish", given.batch)
        self._change_executors(decision)
        self._alignment.end_batch(time_after, self._read_clock())
        self._sweep(standing)
        self._steering.observe(standing, report, routes)
        self._events.see_slots(given.batch, dict(find_slots_seen(self._plan, report, routes)))
        total = time.perf_counter() - began
        phases = {
            "trigger": waited,
            "job": job_seconds - waited,
            "commit": commit_seconds,
            "publish": total - job_seconds - commit_seconds,
        }
        progress = describe_batch(self._plan, standing, report, total, phases, drained=given.drain)
        moved = sum(operator.handed_bytes for operator in report.operators.values())
        measures = self._measure(report, total)
        return standing, replace(progress, moved_bytes=moved, measures=measures, **self._describe_changes(decided))

    def _publish_again(self, given: BatchInput, committed: Manifest, began: float) -> tuple[Manifest, BatchProgress]:
        """Publish a batch that was committed before; nothing of it is computed."""
        self._jobs.read_again(given)
        self.publish(committed)
        self._events.recover("publish", f"it was committed by epoch {committed.epoch}", given.batch)
        self._alignment.end_batch(load_time(self._plan, committed), self._read_clock())
        seconds = time.perf_counter() - began
        return committed, describe_batch(self._plan, committed, None, seconds, {}, drained=given.drain)

    def _begin_time(
        self, given: BatchInput, before: Manifest | None, routes: FlowRoutes, now_us: int
    ) -> tuple[InBatchWatermark, dict[int, OperatorTime]]:
        """Return the time that a batch begins with; nobody counts as silent whose source was held back."""
        since_us = self._listening_since_us
        flow_time = self._alignment.begin_batch(load_time(self._plan, before), now_us)
        times = operator_times(
            self._plan, before, given.batch, routes, draining=given.drain, now_us=now_us, since_us=since_us
        )
        listening = {
            head: replace(time, since_us=self._alignment.listened_since_us(self._plan.watermarks[head], time.since_us))
            for head, time in times.items()
        }
        return InBatchWatermark(flow_time, now_us, since_us), listening

    def _decide(self, batch: int, routes: FlowRoutes, before: Manifest | None) -> Decision:
        """Settle where the slots of a batch are at home, and return what changes at its end."""
        begin_homes(self._homes, self._plan, routes, before)
        if isinstance(self._steering, SeesHomes):
            self._steering.see_homes(self._homes.executors, self._homes.settled.kept)
        return check_decision(self._plan, routes, self._steering.decide(batch, routes))

    def _change_executors(self, decision: Decision) -> None:
        refused = self._homes.carry_out(decision)
        if refused is not None:
            self._events.fail(refused, decision.batch)
            if isinstance(self._steering, SizesCluster):
                self._steering.see_refusal()

    def _measure(self, report: BatchReport, batch_seconds: float) -> BatchMeasures:
        """Return what tasks took, with what it takes here to add it up."""
        began = time.thread_time()
        measures = self._loads.add(report.measures, self._homes.executors, batch_seconds)
        self._homes.learn(report.measures, batch_seconds)
        here = time.thread_time() - began + report.measuring_seconds
        return replace(measures, measuring_seconds=measures.measuring_seconds + here)

    def _read_clock(self) -> int:
        return int(self._clock() * 1e6)

    def _describe_changes(self, decided: Sequence[DecisionEvent]) -> dict[str, Any]:
        """Return what the progress of a batch says of the changes at its end, and of how strategies do."""
        return {
            **tell_decisions(decided),
            **(
                {"strategies": self._steering.strategies(), "scores": self._steering.scores()}
                if isinstance(self._steering, TriesStrategies)
                else {}
            ),
        }

    def publish(self, manifest: Manifest) -> None:
        """Publish, unless another driver has taken over: then it does that, and may move the files meanwhile."""
        self._lease.check()
        self._jobs.name(manifest.batch, "publish")
        try:
            self._publisher.publish(manifest)
        except SinkError:
            self._lease.check()
            raise

    def _sweep(self, manifest: Manifest) -> None:
        """Remove what only old batches need, unless another driver has taken over: it may keep more of them."""
        self._lease.check()
        self._retention.advance(manifest)

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
                created_at=self._clock(),
                engine=EngineState(slots=self._plan.subquery_slots),
            )
        )

    # -- inside ----------------------------------------------------------------------------------------------------

    def _look_spec(self, given: BatchInput, before: Manifest | None, routes: FlowRoutes, now_us: int) -> BatchSpec:
        """Return what steps must know that run for the sake of keys alone."""
        times = operator_times(
            self._plan, before, given.batch, routes, draining=False, now_us=now_us, since_us=self._listening_since_us
        )
        return BatchSpec(
            batch=given.batch,
            epoch=self._lease.epoch,
            attempt=0,
            job="look",
            times=times,
            slots=count_slots(self._plan, routes),
            routes=routes,
            runs={},
            chosen=self._exchanges.chosen,
            now_us=now_us,
        )

    def _manifest(
        self,
        given: BatchInput,
        before: Manifest | None,
        report: BatchReport,
        levels: tuple[LevelState, ...],
        time_after: FlowTime,
        clocks: FlowClocks,
        now_us: int,
        partition_keys: Mapping[str, Mapping[str, Any]],
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
            problems=report.problems + given.problems,
            reader_buffers=store_buffers(self._plan, report.buffers),
            created_at=self._clock(),
            engine=EngineState(
                slots=self._plan.subquery_slots,
                next_due_us={name_of(self._plan, head): report.next_due_us(head) for head in report.heads},
                clocks=store_clocks(self._plan, clocks),
                now_us=now_us,
                wake_us=next_wake_us(self._plan, clocks, report, silent_us, self._listening_since_us),
                partition_keys=partition_keys,
                exchanges=self._exchanges.store(),
                followed=tuple(describe_watermarks(self._plan).values()),
                homes=self._homes.kept,
            ),
        )
