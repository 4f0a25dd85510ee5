"""Run the job of a batch as often as it takes: without files that cannot be used, without executors that were lost."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

from anabranch.control.decisions import Decision
from anabranch.control.exchanges import ExchangeWatch
from anabranch.control.steering import Steering
from anabranch.engine.ahead.level import AheadLevel
from anabranch.engine.batches.batch_routes import begin_homes, count_slots
from anabranch.engine.batches.jobs import BatchInput, JobFailed, JobRunner
from anabranch.engine.batches.reports import BatchReport, merge_reports
from anabranch.engine.batches.set_aside import PassedOver
from anabranch.engine.batches.slot_homes import SlotHomes
from anabranch.engine.run_events import RunEvents
from anabranch.engine.settings import RunSettings
from anabranch.engine.tasks.blocks import BlockKind
from anabranch.engine.tasks.reader_buffers import deal_buffers, holding_level, load_buffers
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.engine.tasks.task_errors import TaskFailure, TaskTrace, first_failure
from anabranch.errors import AnabranchError, EngineError, FlowError, StateDamaged
from anabranch.eventtime.flow.in_batch_watermark import InBatchWatermark
from anabranch.model import OperatorTime
from anabranch.query.plan import Plan, name_of
from anabranch.routing.phases import FlowRoutes
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.epochs import Lease
from anabranch.state.manifest import Manifest
from anabranch.state.repair import explain_damage

logger = logging.getLogger("anabranch")


class JobAttempts:
    """Tries the jobs of a run's batches, and tells the history what went wrong."""

    def __init__(  # noqa: PLR0913 - what a job and its next try need
        self,
        program: FlowProgram,
        settings: RunSettings,
        checkpoint: Checkpoint,
        lease: Lease,
        jobs: JobRunner,
        *,
        steering: Steering,
        homes: SlotHomes,
        ahead: AheadLevel,
        events: RunEvents,
        exchanges: ExchangeWatch,
        passed_over: PassedOver,
        fires_at_once: bool,
    ) -> None:
        self._program = program
        self._plan: Plan = program.plan
        self._settings = settings
        self._checkpoint = checkpoint
        self._lease = lease
        self._jobs = jobs
        self._steering = steering
        self._homes = homes
        self._ahead = ahead
        self._events = events
        self._exchanges = exchanges
        self._passed_over = passed_over
        self._fires_at_once = fires_at_once

    def run(
        self,
        given: BatchInput,
        before: Manifest | None,
        times: Mapping[int, OperatorTime],
        routes: FlowRoutes,
        decision: Decision,
        in_batch: InBatchWatermark,
    ) -> tuple[BatchInput, BatchReport]:
        """Run the job, and again without files that cannot be used; return what was read in the end, and the report."""
        report = self._run_once(given, before, times, routes, decision, in_batch)
        while report.bad_files:
            # Some tasks may have read rows of these files, so that none of what was computed counts.
            logger.warning("batch %d is run again without %s", given.batch, ", ".join(report.bad_files))
            given = self._passed_over.set_aside(report.bad_files, given)
            self._events.recover("set aside", "; ".join(report.bad_files.values()), given.batch)
            self._lease.check()
            report = self._run_once(given, before, times, routes, decision, in_batch)
        for problem in report.problems:
            self._events.recover("repair", problem, given.batch)
        return given, report

    def _run_once(
        self,
        given: BatchInput,
        before: Manifest | None,
        times: Mapping[int, OperatorTime],
        routes: FlowRoutes,
        decision: Decision,
        in_batch: InBatchWatermark,
    ) -> BatchReport:
        known = {level.operator: level for level in before.levels} if before is not None else {}
        states = {node.id: known.get(name_of(self._plan, node.id)) for node in self._plan.stateful}
        slots = count_slots(self._plan, routes)
        readers = slots[0] if self._ahead.active else max(1, len(given.packs))
        tasks = (readers, *slots)
        held = deal_buffers(load_buffers(self._plan, before), lambda head: tasks[holding_level(self._plan, head)])
        for attempt in range(self._settings.job_attempts):
            if attempt:
                # Whoever was lost must not be asked for again.
                self._homes.look()
                begin_homes(self._homes, self._plan, routes, before)
            spec = BatchSpec(
                batch=given.batch,
                epoch=self._lease.epoch,
                attempt=attempt,
                job=uuid.uuid4().hex[:12],
                times=times,
                slots=slots,
                routes=routes,
                runs={head: state.runs if state is not None else () for head, state in states.items()},
                without_meeting=self._program.without_meeting,
                handoffs={head: state.handoffs for head, state in states.items() if state is not None},
                watches=self._steering.watches(routes),
                next_routes=decision.moved_routes,
                held=held,
                chosen=self._exchanges.chosen,
                homes=self._homes.homes,
                fallbacks=self._homes.fallbacks,
                executors=self._homes.executors,
                now_us=in_batch.now_us,
                in_batch=in_batch if self._fires_at_once else None,
            )
            try:
                blocks = self._jobs.run(given, spec)
            except JobFailed as failed:
                self._events.fail(failed.reason, given.batch, attempt + 1)
                if failed.failure is not None and failed.failure.is_final:
                    # It says itself what is wrong, and was tried wherever it could be.
                    raise self._explain(failed.failure, given.batch) from self._shown(failed)
                if attempt + 1 == self._settings.job_attempts:
                    msg = f"{failed.reason}\n  batch {given.batch} failed {attempt + 1} times and is not committed"
                    raise EngineError(msg) from self._shown(failed)
                logger.warning("batch %d failed and is run again (%d): %s", given.batch, attempt + 1, failed.reason)
                logger.debug("what was said of it", exc_info=failed)
                self._lease.check()
                continue
            failure = first_failure(blocks)
            if failure is not None:
                logger.debug("a task of batch %d failed: %s", given.batch, failure.trace)
                raise self._explain(failure, given.batch) from self._shown(TaskTrace(failure.trace))
            slots_of = {node.id: slots[self._plan.level_of(node.id) - 1] for node in self._plan.stateful}
            if attempt:
                self._events.recover("attempts", f"its job succeeded at try {attempt + 1}", given.batch)
            told = (block.payload for block in blocks if block.kind is BlockKind.REPORT)
            report = merge_reports(told, slots_of, held)
            figures = self._exchanges.observe(report.exchanges, self._jobs.take_costs())
            began = time.thread_time()
            measures = self._jobs.take_measures()
            seconds = time.thread_time() - began
            return replace(report, figures=figures, measures=measures, measuring_seconds=seconds)
        raise AssertionError

    def _explain(self, failure: TaskFailure, batch: int) -> AnabranchError:
        error = failure.to_error()
        if isinstance(error, StateDamaged):
            return explain_damage(self._checkpoint, str(error))
        if isinstance(error, FlowError):
            return FlowError(
                f"{error}\n  batch {batch} is not committed; correct the flow or its input, and start again"
            )
        return error

    def _shown(self, cause: BaseException) -> BaseException | None:
        """Return what stands behind an error where the engine itself is looked into; for all others its words do."""
        return cause if self._settings.debug else None
