"""What a flow waits for, in whichever of its processes: the driver, the one that plans splits, tasks."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark import Accumulator, AccumulatorParam, SparkContext

from anabranch.connectors.waits import LOGGER, WaitBoard, noted_on
from anabranch.model.waits import PastWait, Wait
from anabranch.spark.split_source import ControlFolder

logger = logging.getLogger(LOGGER)
T = TypeVar("T", Wait, PastWait)


class _Collecting(AccumulatorParam[tuple[PastWait, ...]]):
    """Puts the waits of all tasks one behind the other."""

    def zero(self, value: tuple[PastWait, ...]) -> tuple[PastWait, ...]:
        return ()

    def addInPlace(self, value1: tuple[PastWait, ...], value2: tuple[PastWait, ...]) -> tuple[PastWait, ...]:
        return value1 + value2


@dataclass(frozen=True, slots=True)
class TaskWaits:
    """Tells the driver what tasks wait for: at once if they run on its host, when they are over from everywhere.

    Nothing of it goes through an exchange, whose bytes must be the same on every try.
    """

    control: str
    past: Accumulator[tuple[PastWait, ...]]

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


class FlowWaits:
    """The waits of one run of a flow, as its driver knows them."""

    in_tasks: TaskWaits

    def __init__(self, control: ControlFolder) -> None:
        self._control = control
        self._board = WaitBoard()
        self._lock = threading.Lock()
        self._told: dict[str, Wait] = {}

    def open(self, context: SparkContext) -> None:
        """Hear of the waits of tasks, too, from now on."""
        self.in_tasks = TaskWaits(self._control.path, context.accumulator((), _Collecting()))

    @property
    def current(self) -> tuple[Wait, ...]:
        """The waits that are under way, each place once, the longest first."""
        found = (*self._board.current, *self._control.waits())
        return _each_place_once(sorted(found, key=lambda wait: wait.since_seconds))

    def noted(self) -> AbstractContextManager[None]:
        """Note the waits of this thread while the block runs."""
        return noted_on(self._board)

    def begin_batch(self) -> None:
        """Forget what tasks of an earlier batch waited for when they were killed."""
        self._control.forget_waits("task-")

    def take_past(self) -> tuple[PastWait, ...]:
        """Return the waits of the driver and of tasks that are over, each place once with its longest; each time once.

        Those of the process that plans splits are not among them: it tells of them itself, with the splits.
        """
        in_tasks, self.in_tasks.past.value = self.in_tasks.past.value, ()
        past = (*self._board.take_past(), *in_tasks)
        return _each_place_once(sorted(past, key=lambda wait: -wait.seconds))

    def log_others(self) -> None:
        """Log the waits of other processes, whose own words end up where nobody looks; call it every few seconds."""
        with self._lock:
            waits = {wait.place: wait for wait in self._control.waits()}
            for place in waits.keys() - self._told.keys():
                logger.warning("%s is out of reach (%s): waiting for it", place, waits[place].reason)
            for place in self._told.keys() - waits.keys():
                logger.warning("%s is back after %.0f s", place, time.time() - self._told[place].since_seconds)
            self._told = waits


def _each_place_once(waits: Iterable[T]) -> tuple[T, ...]:
    """Return the first wait for every place."""
    first: dict[str, T] = {}
    for wait in waits:
        first.setdefault(wait.place, wait)
    return tuple(first.values())
