"""Tasks that nobody measures, to find out what measuring costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from anabranch.engine.tasks.blocks import Block
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.spark.task_figures import TaskMeasures


class SilentMeter(TaskMeter):
    """Takes note of nothing."""

    def __init__(self) -> None:
        pass

    def name(self, level: int, slot: int, *, meets: bool = False) -> None:
        """Forget it."""

    def read(self, rows: int) -> None:
        """Forget it."""

    def receive(self, blocks: Iterable[Block]) -> None:
        """Forget them."""

    def sending(self, blocks: Iterable[Block], level: int, tasks: int, first: int = 0) -> Iterator[Block]:
        """Return them as they are."""
        return iter(blocks)

    @contextmanager
    def advancing(self, operator: str) -> Iterator[None]:
        """Do nothing about it."""
        yield

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Do nothing about it."""
        yield

    def add_exchange(self, seconds: float) -> None:
        """Forget it."""

    def keep(self, state_bytes: int) -> None:
        """Forget it."""

    def fetch(self, reads: Mapping[str, tuple[int, int]]) -> None:
        """Forget them."""


@dataclass(frozen=True, slots=True)
class Unmeasured(TaskMeasures):
    """Tells the driver nothing."""

    @contextmanager
    def measured(self) -> Iterator[TaskMeter]:
        """Run the block, which is a task."""
        yield SilentMeter()


@contextmanager
def without_measures() -> Iterator[None]:
    """Let flows that begin in the block run tasks that are not measured."""
    with patch.object(TaskMeasures, "heard_by", Unmeasured.heard_by):
        yield
