"""The task that is a slot: state, what arrived for it, what fires, and what is sent on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import polars as pl

from anabranch.control.observe.load_sampling import watch_rows
from anabranch.control.observe.state_sizes import measure_state
from anabranch.engine.faults import reach
from anabranch.engine.tasks.blocks import Block, BlockKind, decode, in_order
from anabranch.engine.tasks.content_order import order_by_content
from anabranch.engine.tasks.pipeline import BEHIND_A_HOP, Pipeline
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram, LoadsProgram
from anabranch.engine.tasks.task_errors import failing_step, pass_on, told_as_rows
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.engine.tasks.task_reports import SlotReport, read_times
from anabranch.eventtime.flow.in_batch_watermark import heads_told, last_level_told, times_in_slot
from anabranch.model import (
    ORDER,
    WINDOW_END,
    Fired,
    JoinKernel,
    JoinSpec,
    KeepsState,
    Kernel,
    Meeting,
    MeetingInTime,
    OperatorSpec,
    OperatorTime,
    OrderSpec,
    ProcessSpec,
    RunRef,
    SplitKeyClocks,
)
from anabranch.model.columns import PARTITION
from anabranch.model.exchanges import HoldingKernel
from anabranch.model.joins import LEFT
from anabranch.model.runs import Leaving
from anabranch.query.nodes import Stateful
from anabranch.query.plan import name_of
from anabranch.routing.join_slots import leaving_join
from anabranch.routing.phases import SlotStanding, moving_to
from anabranch.routing.routes import Routes
from anabranch.state.repair import advance_on_intact_runs
from anabranch.state.runs import RunFiles, WriteName
from anabranch.state.slots import RunsOfSlot


@dataclass(frozen=True, slots=True)
class Stayed:
    """Rows of an operator that are in the task that read them."""

    frames: tuple[pl.DataFrame, ...]
    combined: bool


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows of an operator that are at their slot."""

    inputs: list[list[pl.DataFrame]]
    """Input by input."""
    combined: bool = False
    held: list[pl.DataFrame] = field(default_factory=list)
    """Rows of earlier batches that waited where they were read."""

    @property
    def frames(self) -> list[pl.DataFrame]:
        """All of them."""
        return [*(frame for frames in self.inputs for frame in frames), *self.held]

    def advance(
        self, kernel: Kernel | JoinKernel, state: RunsOfSlot, now: OperatorTime, standing: SlotStanding | None
    ) -> Fired:
        """Let the operator take them in."""
        if isinstance(kernel, JoinKernel):
            return kernel.advance_inputs(self.inputs, state, now, standing)
        if self.held:
            holding = cast("HoldingKernel", kernel)
            return holding.advance_held(self.held, self.inputs[0], self.combined, state, now, standing)
        return kernel.advance(self.inputs[0], self.combined, state, now, standing)


@dataclass(frozen=True, slots=True)
class SlotTask:
    """Level 1 …: load state, take what arrived, fire, and send on."""

    program: LoadsProgram
    spec: BatchSpec
    level: int
    receivers: int = 1
    """How many tasks get what slots of this level send on."""

    def blocks(self, slot: int, arrived: Iterable[Block], meter: TaskMeter | None = None) -> Iterator[Block]:
        """Yield what the slot sends on, of blocks that came through an exchange."""
        received = in_order(arrived)
        meter = meter or TaskMeter()
        meter.name(self.level, slot)
        meter.receive(received)
        failed = pass_on(received, slot, self.spec.slots[self.level - 1], self.receivers)
        if failed is not None:
            return iter(failed)
        return told_as_rows(self.run(slot, received, {}, meter), self.level, slot, self.receivers)

    def run(self, slot: int, received: list[Block], stayed: Mapping[int, Stayed], meter: TaskMeter) -> Iterator[Block]:
        """Be the slot for blocks that came through an exchange, in order, and frames that did not have to."""
        program = self.program.load()
        blocks = self._run(program, slot, received, stayed, meter)
        if self.spec.meets(program.plan.levels[self.level - 1]):
            slots = self.spec.slots[self.level - 1]
            yield from meter.sending(blocks, self.level, slots, first=slots)
        else:
            yield from meter.sending_to_level(blocks, self.level + 1, self.spec.slots)

    def _run(
        self, program: FlowProgram, slot: int, received: list[Block], stayed: Mapping[int, Stayed], meter: TaskMeter
    ) -> Iterator[Block]:
        started = time.perf_counter()
        pipeline = Pipeline(program, self.spec, self.level, slot)
        operators: dict[int, SlotReport] = {}
        own = [block for block in received if block.level == self.level]
        told = [block for block in own if block.kind is BlockKind.TIMES]
        times = times_in_slot(program.plan, self.spec.times, self.spec.in_batch, read_times(told))
        for head in program.plan.levels[self.level - 1]:
            blocks = [block for block in own if block.operator == head]
            node = program.plan.nodes[head]
            with meter.advancing(name_of(program.plan, head) or node.label):
                if isinstance(node.operation, Stateful):
                    report = self._advance(program, pipeline, slot, head, blocks, stayed.get(head), times[head], meter)
                    operators[head] = report
                    meter.keep(sum(run.bytes for run in report.runs))
                else:
                    _relay(program, pipeline, head, blocks, meter)
            yield from pipeline.drain_blocks()
        for block in received:
            if block.level > self.level:
                # A shorter branch's rows wait for the level of the operator that they are for.
                yield pipeline.forward(block) if block.kind is BlockKind.REPORT else block
        yield from self._tell_next_level(program, slot, told)
        meets = self.spec.meets(program.plan.levels[self.level - 1])
        if meets:
            # Where parts of keys meet, it is the same time.
            yield from told
        # Only the last level may tell the time: what crosses an exchange must be the same on every try.
        is_last = self.level == program.plan.hops and not meets
        yield from pipeline.finish(operators, seconds=time.perf_counter() - started if is_last else None)
        meter.add_exchange(pipeline.send_seconds)

    def _tell_next_level(self, program: FlowProgram, slot: int, told: Iterable[Block]) -> Iterator[Block]:
        """Pass on what tasks before this level saw of time; every slot of the next one hears it from one of this."""
        if self.level < last_level_told(program.plan):
            slots, next_slots = self.spec.slots[self.level - 1 : self.level + 1]
            for block in told:
                for target in range(slot, next_slots, slots):
                    yield replace(block, level=self.level + 1, slot=target)

    def _advance(
        self,
        program: FlowProgram,
        pipeline: Pipeline,
        slot: int,
        head: int,
        blocks: list[Block],
        stayed: Stayed | None,
        time_of_batch: OperatorTime,
        meter: TaskMeter,
    ) -> SlotReport:
        kernel = program.kernels[head]
        with meter.exchanging():
            arrived = _gather(program, head, blocks, stayed)
        operation = program.plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        name = WriteName(self.spec.epoch, self.spec.batch, self.spec.attempt, self.spec.job)
        files = program.open_runs(f"state/{head}/{slot}", name)
        time_of_operator = time_of_batch.on_slot(slot, operation.spec.clock)
        phases = self.spec.routes[head]
        standing = SlotStanding(phases, slot) if phases.needs_standing else None
        handed = self.spec.handoffs_of(head, slot)

        def advance(state: RunsOfSlot) -> tuple[Fired, SplitKeyClocks | None, dict[int, RunRef]]:
            state.changes_hands = bool(handed) or head in self.spec.next_routes
            if handed and isinstance(kernel.meeting, MeetingInTime):
                kernel.meeting.absorb_parts(handed, state, time_of_operator)
            elif handed:
                kernel.absorb(handed, state)
            fired = arrived.advance(kernel, state, time_of_operator, standing)
            # This may be the first to open a run, so damage is found here, too.
            clocks = self._clocks_to_split(kernel, head, state, time_of_operator)
            return fired, clocks, self._hand_off(program, head, slot, state, files, time_of_batch)

        with failing_step(program.plan.nodes[head].label):
            recovered = advance_on_intact_runs(self.spec.runs_of(head, slot), files, advance)
        meter.fetch(files.reads)
        (fired, clocks, handing), state = recovered.outcome, recovered.state
        reach("in-slot-after-state", self.spec.batch)
        pipeline.counters["late_rows"] += fired.late_rows
        pipeline.counters["slot_late_rows"] += fired.slot_late_rows
        pipeline.counters["updated_rows"] += fired.updated_rows
        pipeline.push(head, fired.frame, BEHIND_A_HOP)
        if fired.late is not None:
            pipeline.push_late(head, fired.late, BEHIND_A_HOP)
        if fired.shared is not None:
            pipeline.send_to_meet(head, fired.shared)
        load, sizes = None, None
        watch = self.spec.watches.get(head)
        if watch is not None:
            left_frames = len(arrived.inputs[LEFT]) if isinstance(kernel, JoinKernel) else None
            load = watch_rows(arrived.frames, operation.spec.keys, watch, left_frames)
            # Where state changes hands, nothing is planned before it has arrived.
            if watch.sizes and head not in self.spec.next_routes:
                routed = phases.routes.table.keys
                keys = np.unique(routed) if load is None else np.union1d(load.named_keys, routed)
                passed_us = _passed_us(time_of_batch)
                sizes = measure_state(state, files, kernel, passed_us, watch.buckets, keys)
        return SlotReport(
            runs=state.runs(),
            handed=handing,
            rows=sum(frame.height for frame in arrived.frames),
            next_due_us=fired.next_due_us,
            last_end_us=_last_end_us(kernel, fired, operation.spec),
            wake_us=fired.wake_us,
            latest_us=fired.latest_us,
            group_latest_us=fired.group_latest_us or {},
            forgotten_us=fired.forgotten_us or {},
            fire_us=fired_by(program, self.spec, head, time_of_batch),
            split_keys=clocks,
            load=load,
            sizes=sizes,
            problems=tuple(recovered.problems),
        )

    def _clocks_to_split(
        self, kernel: KeepsState, head: int, state: RunsOfSlot, time_of_operator: OperatorTime
    ) -> SplitKeyClocks | None:
        """Return the watermarks of keys that several slots share from the next batch on, and one slot so far."""
        routes = self.spec.next_routes.get(head)
        meeting = kernel.meeting
        if routes is None or not isinstance(meeting, MeetingInTime):
            return None
        now, following = self.spec.routes[head].routes.table.split_keys(), routes.table.split_keys()
        return meeting.clocks_of(state, np.setdiff1d(following, now), time_of_operator)

    def _hand_off(
        self,
        program: FlowProgram,
        head: int,
        slot: int,
        state: RunsOfSlot,
        files: RunFiles,
        time_of_batch: OperatorTime,
    ) -> dict[int, RunRef]:
        """Write the state that belongs to other slots from the next batch on, one run for each of them."""
        routes = self.spec.next_routes.get(head)
        if routes is None:
            return {}
        operation = program.plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        passed_us = _passed_us(time_of_batch)
        written = {}
        for target, frames in state.hand_off(self._leave(operation.spec, routes, head, slot)).items():
            rows = program.kernels[head].stored(frames, passed_us)
            if rows.height:
                written[target] = files.write(rows)
        return written

    def _leave(self, spec: OperatorSpec, routes: Routes, head: int, slot: int) -> Callable[[pl.DataFrame], Leaving]:
        """Return the function that says where rows of the state belong from the next batch on."""
        if isinstance(spec, JoinSpec):
            return leaving_join(self.spec.routes[head].routes, routes, spec, slot, order_by_content)
        return moving_to(routes, spec.keys, slot)


def _passed_us(time_of_batch: OperatorTime) -> int:
    """Return the watermark up to which everything has fired once the batch is over."""
    return max(time_of_batch.fired_us, time_of_batch.closed_us, time_of_batch.fire_us)


def fired_by(program: FlowProgram, spec: BatchSpec, head: int, time_of_batch: OperatorTime) -> int | None:
    """Return what the driver compares with its own knowledge of time."""
    told = spec.in_batch is not None and head in heads_told(program.plan)
    return time_of_batch.fire_us if told else None


def _last_end_us(kernel: KeepsState, fired: Fired, spec: OperatorSpec) -> int | None:
    """Return the end of the last window that fired here."""
    if isinstance(spec, ProcessSpec | OrderSpec | JoinSpec):
        # What a processor emits may well have a column of that name.
        return fired.reached_us
    frames = [fired.frame]
    if fired.shared is not None and isinstance(kernel.meeting, Meeting):
        frames.append(kernel.meeting.meet([fired.shared]))
    ends = [end for end in map(last_end_in, frames) if end is not None]
    return max(ends, default=None)


def last_end_in(frame: pl.DataFrame) -> int | None:
    if frame.is_empty() or WINDOW_END not in frame.columns:
        return None
    return int(frame.get_column(WINDOW_END).dt.timestamp("us").max())  # type: ignore[arg-type]


def _gather(program: FlowProgram, head: int, blocks: Iterable[Block], stayed: Stayed | None) -> Arrived:
    """Return the rows of an operator that came through an exchange, or did not have to."""
    kernel = program.kernels[head]
    rows = [block for block in blocks if block.kind is BlockKind.ROWS]
    if isinstance(kernel, JoinKernel):
        numbers = range(len(program.plan.nodes[head].inputs))
        return Arrived([[decode(block.payload) for block in rows if block.input == number] for number in numbers])
    held = [decode(block.payload) for block in blocks if block.kind is BlockKind.BUFFERED]
    if stayed is not None:
        return Arrived([list(stayed.frames)], stayed.combined, held)
    frames, combined = _decode_alike(kernel, rows)
    return Arrived([frames], combined, held)


def _decode_alike(kernel: Kernel, blocks: list[Block]) -> tuple[list[pl.DataFrame], bool]:
    """Return the frames of blocks, and whether they are combined: a reader that holds rows back may be the only one."""
    if len({block.combined for block in blocks}) < 2:
        return [decode(block.payload) for block in blocks], any(block.combined for block in blocks)
    frames = [decode(block.payload) for block in blocks]
    pairs = zip(frames, blocks, strict=True)
    return [frame if block.combined else kernel.combine(frame) for frame, block in pairs], True


def _relay(program: FlowProgram, pipeline: Pipeline, head: int, blocks: list[Block], meter: TaskMeter) -> None:
    for block in blocks:
        with meter.exchanging():
            frame = decode(block.payload)
        ordinal = int(frame.get_column(ORDER)[0])
        pipeline.read_from(str(frame.get_column(PARTITION)[0]))
        pipeline.push(head, pipeline.apply(program.plan.nodes[head], frame.drop(ORDER, PARTITION)), ordinal)
