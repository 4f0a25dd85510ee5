"""What a flow waits for, in whichever of its processes: the driver, the one that plans splits, tasks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TypeVar

from pyspark import SparkContext

from anabranch.connectors.waits import LOGGER, WaitBoard, noted_on
from anabranch.model.waits import PastWait, Wait
from anabranch.spark.split_source import ControlFolder
from anabranch.spark.task_figures import TaskWaits

logger = logging.getLogger(LOGGER)
T = TypeVar("T", Wait, PastWait)


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
        self.in_tasks = TaskWaits.heard_by(context, self._control)

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
