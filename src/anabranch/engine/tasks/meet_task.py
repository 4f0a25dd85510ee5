"""The task in which parts of a key meet that several slots had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from anabranch.engine.tasks.blocks import Block, BlockKind, decode, in_order
from anabranch.engine.tasks.pipeline import BEHIND_A_HOP, Pipeline
from anabranch.engine.tasks.slot_task import fired_by, last_end_in
from anabranch.engine.tasks.spec import BatchSpec, LoadsProgram
from anabranch.engine.tasks.task_errors import failing_step, pass_on, told_as_rows
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.engine.tasks.task_reports import MeetReport, read_times
from anabranch.eventtime.flow.in_batch_watermark import times_in_slot
from anabranch.model import MeetingInTime


@dataclass(frozen=True, slots=True)
class MeetTask:
    """Between two levels: make results of what several slots of a level fired of the keys that they share."""

    program: LoadsProgram
    spec: BatchSpec
    level: int

    def blocks(self, part: int, arrived: Iterable[Block], meter: TaskMeter | None = None) -> Iterator[Block]:
        """Yield what is sent on, of what slots of the level sent."""
        received = in_order(arrived)
        meter = meter or TaskMeter()
        meter.name(self.level, self.spec.slots[self.level - 1] + part, meets=True)
        meter.receive(received)
        receivers = self.spec.receivers_behind(self.level)
        failed = pass_on(received, part, self.spec.slots[self.level - 1], receivers)
        if failed is not None:
            return iter(failed)
        told = told_as_rows(self._meet(part, received), self.level, part, receivers)
        return meter.sending_to_level(told, self.level + 1, self.spec.slots)

    def _meet(self, part: int, received: list[Block]) -> Iterator[Block]:
        program = self.program.load()
        # Slots of the level have the numbers below: names and sequences must differ from theirs.
        pipeline = Pipeline(program, self.spec, self.level, self.spec.slots[self.level - 1] + part)
        own = [block for block in received if block.level == self.level]
        met: dict[int, MeetReport] = {}
        told = read_times(block for block in own if block.kind is BlockKind.TIMES)
        times = times_in_slot(program.plan, self.spec.times, self.spec.in_batch, told)
        for head in program.plan.levels[self.level - 1]:
            shared = [
                decode(block.payload) for block in own if block.kind is BlockKind.SHARED and block.operator == head
            ]
            if shared:
                meeting = program.kernels[head].meeting
                with failing_step(program.plan.nodes[head].label):
                    if isinstance(meeting, MeetingInTime):
                        found = meeting.meet_in_time(shared, times[head])
                        results = found.frame
                        met[head] = MeetReport(
                            found.next_due_us,
                            last_end_in(results),
                            found.wake_us,
                            fired_by(program, self.spec, head, times[head]),
                            found.clocks,
                        )
                    else:
                        assert meeting is not None, "only slots that share keys send parts of them"
                        results = meeting.meet(shared)
                pipeline.push(head, results, BEHIND_A_HOP)
                yield from pipeline.drain_blocks()
        yield from (block for block in received if block.level > self.level)
        yield from pipeline.finish(met=met)
