"""What tasks tell the driver beside their data, by Spark's accumulators: what they wait for, and what they took.

Nothing of it may go through an exchange, whose bytes must be the same on every try.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark import Accumulator, AccumulatorParam, SparkContext

from anabranch.connectors.waits import WaitBoard, noted_on
from anabranch.engine.tasks.exchange_meter import Costs, add_costs
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.model.cluster import SlotId
from anabranch.model.measures import TaskMeasure
from anabranch.model.waits import PastWait
from anabranch.spark.split_source import ControlFolder
from anabranch.spark.worker_process import NOBODY, THIS_WORKER, Peers


class _Collecting(AccumulatorParam[tuple[PastWait, ...]]):
    """Puts the waits of all tasks one behind the other."""

    def zero(self, value: tuple[PastWait, ...]) -> tuple[PastWait, ...]:
        return ()

    def addInPlace(self, value1: tuple[PastWait, ...], value2: tuple[PastWait, ...]) -> tuple[PastWait, ...]:
        return value1 + value2


@dataclass(frozen=True, slots=True)
class TaskWaits:
    """Tells the driver what tasks wait for: at once if they run on its host, when they are over from everywhere."""

    control: str
    past: Accumulator[tuple[PastWait, ...]]

    @classmethod
    def heard_by(cls, context: SparkContext, control: ControlFolder) -> TaskWaits:
        """Return what tells the driver of this context."""
        return cls(control.path, context.accumulator((), _Collecting()))

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell the waits of the block, which is a task."""
        folder, name = ControlFolder(self.control), f"task-{os.getpid()}"
        board = WaitBoard(lambda waits: folder.show_waits(name, waits))
        try:
            with noted_on(board):
                yield
        finally:
            for wait in board.current:
                board.end(wait.place)
        past = board.take_past()
        if past:
            self.past.add(past)

    def telling(self, task: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return a task that does the same and tells what it waits for."""

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            with self.told():
                yield from task(batches)

        return run


class _Adding(AccumulatorParam[Costs]):
    """Adds what tasks took, operator by operator."""

    def zero(self, value: Costs) -> Costs:
        return {}

    def addInPlace(self, value1: Costs, value2: Costs) -> Costs:
        return add_costs(value1, value2)


@dataclass(frozen=True, slots=True)
class TaskCosts:
    """Tells the driver what exchanges took."""

    spent: Accumulator[Costs]

    @classmethod
    def heard_by(cls, context: SparkContext) -> TaskCosts:
        """Return what tells the driver of this context."""
        return cls(context.accumulator({}, _Adding()))

    def tell(self, costs: Costs) -> None:
        """Say what a task took."""
        if costs:
            self.spent.add(costs)

    def take(self) -> Costs:
        """Return what tasks took since it was last asked."""
        spent, self.spent.value = self.spent.value, {}
        return spent


class _KeepingLast(AccumulatorParam[Mapping[SlotId, TaskMeasure]]):
    """Keeps one measure a task: one whose results were lost, and which ran again, is not counted twice."""

    def zero(self, value: Mapping[SlotId, TaskMeasure]) -> Mapping[SlotId, TaskMeasure]:
        return {}

    def addInPlace(
        self, value1: Mapping[SlotId, TaskMeasure], value2: Mapping[SlotId, TaskMeasure]
    ) -> Mapping[SlotId, TaskMeasure]:
        return {**value1, **value2}


@dataclass(frozen=True, slots=True)
class TaskMeasures:
    """Tells the driver what tasks took; Spark hears only those that came to their end."""

    heard: Accumulator[Mapping[SlotId, TaskMeasure]]
    peers: Peers = NOBODY
    """What tasks are asked to find the latency of, if anything."""

    @classmethod
    def heard_by(cls, context: SparkContext) -> TaskMeasures:
        """Return what tells the driver of this context."""
        return cls(context.accumulator({}, _KeepingLast()))

    def asking(self, peers: Peers) -> TaskMeasures:
        """Return the same, with hosts to be reached."""
        return replace(self, peers=peers)

    @contextmanager
    def measured(self) -> Iterator[TaskMeter]:
        """Measure the block, which is a task, and tell it if the block ends without an error."""
        found: list[TaskMeasure] = []
        with THIS_WORKER.measured(self.peers, found) as meter:
            yield meter
        for measure in found:
            self.heard.add({measure.id: measure})

    def take(self) -> tuple[TaskMeasure, ...]:
        """Return what tasks took since it was last asked."""
        heard, self.heard.value = self.heard.value, {}
        return tuple(heard.values())
