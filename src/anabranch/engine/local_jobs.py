"""Jobs in this process: the same tasks, one after the other, with blocks handed from one to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from anabranch.engine.ahead.level import AheadLevel
from anabranch.engine.blocks import Block
from anabranch.engine.exchange_meter import Costs, add_costs
from anabranch.engine.jobs import BatchInput, JobFailed
from anabranch.engine.reading_levels import number_packs
from anabranch.engine.spec import BatchSpec, FlowProgram
from anabranch.engine.task_errors import TaskFailed, find_task_failure
from anabranch.engine.tasks import MeetTask, ReadTask, SlotTask


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


class LocalJobs:
    """Runs the tasks of a flow's batches in this process."""

    def __init__(self, program: FlowProgram, ahead: AheadLevel) -> None:
        self._program = program
        self._ahead = ahead
        self._costs = HeardCosts()

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        """Run all tasks, level by level; a task that fails as it might not elsewhere ends the attempt."""
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

    def _run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        plan = self._program.plan
        numbers = number_packs(self._program.reading_levels, given.packs)
        readers = spec.slots[0] if self._ahead.active else max(1, len(numbers.get(0, ())))
        reading = (
            self._ahead.task(self._program, spec, given.packs)
            if self._ahead.active
            else ReadTask(self._program, spec, given.packs, self._program.reading_levels)
        )
        blocks = [block for reader in range(readers) for block in reading.blocks(reader)]
        for level, slots in enumerate(spec.slots, start=1):
            heads = plan.levels[level - 1]
            if not (level == 1 and self._ahead.active):
                receivers = spec.receivers_behind(level, heads)
                blocks = _exchange(SlotTask(self._program, spec, level, receivers), blocks, slots)
            if spec.meets(heads):
                blocks = _exchange(MeetTask(self._program, spec, level), blocks, slots)
            blocks += [block for number in numbers.get(level, ()) for block in reading.blocks(number)]
        return blocks


def _exchange(task: SlotTask | MeetTask, blocks: Iterable[Block], slots: int) -> list[Block]:
    """Return what the slots of a level send on; as in Spark's exchange, a slot takes blocks modulo their number."""
    received: list[list[Block]] = [[] for _ in range(slots)]
    for block in blocks:
        received[block.slot % slots].append(block)
    return [sent for slot in range(slots) for sent in task.blocks(slot, received[slot])]
