"""Jobs in this process: the same tasks, one after the other, with blocks handed from one to the next."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from anabranch.engine.ahead.level import AheadLevel, AheadTask
from anabranch.engine.batches.jobs import BatchInput, JobFailed
from anabranch.engine.batches.reading_levels import number_packs
from anabranch.engine.tasks.blocks import Block
from anabranch.engine.tasks.exchange_meter import Costs, add_costs
from anabranch.engine.tasks.meet_task import MeetTask
from anabranch.engine.tasks.process_figures import peak_memory_bytes
from anabranch.engine.tasks.read_task import ReadTask
from anabranch.engine.tasks.slot_task import SlotTask
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.engine.tasks.task_errors import TaskFailed, find_task_failure
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.model.cluster import Executor
from anabranch.model.measures import TaskMeasure

THIS_PROCESS = Executor("driver", "localhost", cores=1)
"""Its tasks run one after the other."""


@dataclass(slots=True)
class HeardCosts:
    """What exchanges of tasks in this process took."""

    spent: Costs = field(default_factory=dict)

    def tell(self, costs: Costs) -> None:
        """Say what a task took."""
        self.spent = add_costs(self.spent, costs)

    def take(self) -> Costs:
        """Return what tasks took since it was last asked."""
        spent, self.spent = self.spent, {}
        return spent


@dataclass(slots=True)
class HeardMeasures:
    """What tasks in this process took."""

    told: list[TaskMeasure] = field(default_factory=list)

    @contextmanager
    def measured(self) -> Iterator[TaskMeter]:
        """Measure the block, which is a task."""
        meter = TaskMeter()
        yield meter
        began = time.thread_time()
        found = meter.measure(THIS_PROCESS.id, THIS_PROCESS.host, peak_memory_bytes(), measuring_since=began)
        if found is not None:
            self.told.append(found)

    def take(self) -> tuple[TaskMeasure, ...]:
        """Return what tasks took since it was last asked."""
        told, self.told = self.told, []
        return tuple(told)


class LocalJobs:
    """Runs the tasks of a flow's batches in this process."""

    def __init__(self, program: FlowProgram, ahead: AheadLevel) -> None:
        self._program = program
        self._ahead = ahead
        self._costs = HeardCosts()
        self._measures = HeardMeasures()

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        """Run all tasks, level by level; a task that fails as it might not elsewhere ends the attempt."""
        self._measures.take()
        with given.waits.told():
            try:
                return self._run(given, replace(spec, costs=self._costs))
            except TaskFailed as error:
                failure = find_task_failure(str(error))
                reason = str(error) if failure is None else failure.message
                raise JobFailed(reason, failure) from error

    def read_again(self, given: BatchInput) -> None:
        """Nothing to do: what came with the batch has no state."""

    def name(self, batch: int, doing: str) -> None:
        """Nobody looks on."""

    def take_costs(self) -> Costs:
        return self._costs.take()

    def take_measures(self) -> tuple[TaskMeasure, ...]:
        return self._measures.take()

    def _run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        plan = self._program.plan
        numbers = number_packs(self._program.reading_levels, given.packs)
        readers = spec.slots[0] if self._ahead.active else max(1, len(numbers.get(0, ())))
        reading = (
            self._ahead.task(self._program, spec, given.packs)
            if self._ahead.active
            else ReadTask(self._program, spec, given.packs, self._program.reading_levels)
        )
        blocks = [block for reader in range(readers) for block in self._read(reading, reader)]
        for level, slots in enumerate(spec.slots, start=1):
            heads = plan.levels[level - 1]
            if not (level == 1 and self._ahead.active):
                receivers = spec.receivers_behind(level, heads)
                blocks = self._exchange(SlotTask(self._program, spec, level, receivers), blocks, slots)
            if spec.meets(heads):
                blocks = self._exchange(MeetTask(self._program, spec, level), blocks, slots)
            blocks += [block for number in numbers.get(level, ()) for block in self._read(reading, number)]
        return blocks

    def _read(self, reading: ReadTask | AheadTask, number: int) -> list[Block]:
        with self._measures.measured() as meter:
            return list(reading.blocks(number, meter=meter))

    def _exchange(self, task: SlotTask | MeetTask, blocks: Iterable[Block], slots: int) -> list[Block]:
        """Return what the slots of a level send on; as in Spark's exchange, a slot takes blocks modulo their number."""
        received: list[list[Block]] = [[] for _ in range(slots)]
        for block in blocks:
            received[block.slot % slots].append(block)
        return [block for slot in range(slots) for block in self._run_slot(task, slot, received[slot])]

    def _run_slot(self, task: SlotTask | MeetTask, slot: int, received: list[Block]) -> list[Block]:
        with self._measures.measured() as meter:
            return list(task.blocks(slot, received, meter))
