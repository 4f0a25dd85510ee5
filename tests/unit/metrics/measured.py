"""Measures of tasks that nobody ran."""

from __future__ import annotations

from anabranch.model.cluster import Executor
from anabranch.model.measures import ExecutorSample, TaskMeasure

EXECUTORS = (Executor("1", "10.0.0.1", 2), Executor("2", "10.0.0.2", 2))


def reader(number: int = 0, executor: str = "1", *, slots: int = 2, sent: int = 1_000, cpu: float = 0.5) -> TaskMeasure:
    """Return a reader that sends the same to every slot."""
    return TaskMeasure(
        0,
        number,
        executor,
        f"10.0.0.{executor}",
        cpu_seconds=cpu,
        wall_seconds=1.0,
        memory_bytes=300_000_000,
        rows=50,
        sent_bytes={(1, slot): sent for slot in range(slots)},
        sent_rows={(1, slot): 10 for slot in range(slots)},
        measuring_seconds=0.001,
    )


def slot(number: int, executor: str, *, cpu: float = 0.25, sample: ExecutorSample | None = None) -> TaskMeasure:
    """Return a slot of the last level."""
    return TaskMeasure(
        1,
        number,
        executor,
        f"10.0.0.{executor}",
        cpu_seconds=cpu,
        wall_seconds=1.0,
        memory_bytes=200_000_000 + number,
        rows=10,
        received_bytes=1_000,
        state_bytes=5_000,
        starting_seconds=0.05,
        sample=sample,
    )
