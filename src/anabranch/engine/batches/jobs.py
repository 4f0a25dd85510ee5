"""The job of a batch: tasks that read, exchanges, slots, meetings of split keys; who runs it, and copies beside it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from anabranch.engine.batches.outer_rows import OuterRows
from anabranch.engine.tasks.blocks import Block
from anabranch.engine.tasks.exchange_meter import Costs
from anabranch.engine.tasks.replica_task import Carried, CopyOrder
from anabranch.engine.tasks.spec import BatchSpec
from anabranch.engine.tasks.task_errors import TaskFailure
from anabranch.model import Split
from anabranch.model.measures import TaskMeasure
from anabranch.query.nodes import Node, Stateful
from anabranch.query.plan import Plan

Packs = tuple[list[tuple[int, int, Split]], ...]
"""By task, what it reads, as (ordinal, source, split)."""


class TellsWaits(Protocol):
    """What hears of the servers that tasks wait for."""

    def told(self) -> AbstractContextManager[None]:
        """Tell the waits of the block."""
        ...


@dataclass(frozen=True, slots=True)
class BatchInput:
    """What a batch is about to do, as the offset log says."""

    batch: int
    outer: OuterRows | None
    """The rows that do not come by splits; None if the flow has none such."""
    packs: Packs
    """The splits of all other sources, by task."""
    start_offset: Any
    end_offset: Any
    triggered_at: float
    """When the trigger came, in seconds since 1970: a batch's time counts from there."""
    waits: TellsWaits
    drain: bool = False
    problems: tuple[str, ...] = ()


class JobFailed(Exception):
    """An attempt at a batch failed; ``failure`` is what a task said of it, if one did."""

    def __init__(self, reason: str, failure: TaskFailure | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.failure = failure


class JobRunner(Protocol):
    """Runs the tasks of a flow's batches: Spark, or this process."""

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        """Run one attempt at a batch and return the blocks for the driver; raise ``JobFailed`` if a task failed."""
        ...

    def read_again(self, given: BatchInput) -> None:
        """Evaluate rows that do not come by splits, for a batch whose results are committed already."""
        ...

    def name(self, batch: int, doing: str) -> None:
        """Say for onlookers what is done from now on."""
        ...

    def take_costs(self) -> Costs:
        """Return the time that exchanges took in tasks since it was last asked."""
        ...

    def take_measures(self) -> tuple[TaskMeasure, ...]:
        """Return what tasks of the last attempt took, once."""
        ...


class CarriesReplicas(Protocol):
    """Copies state from host to host, in the thread that asks for it."""

    def carry(self, order: CopyOrder) -> Carried:
        """Carry out a round, and return what became of it; whatever goes wrong is said there."""
        ...

    def cancel(self) -> None:
        """End the round that is being carried out, from another thread."""
        ...


@runtime_checkable
class HasCarrier(Protocol):
    """Whoever runs jobs on several hosts."""

    @property
    def carrier(self) -> CarriesReplicas: ...


def describe_levels(plan: Plan) -> str:
    """Return what a batch does, level by level: all are one job."""
    levels = ["level 0 reads"]
    for number, heads in enumerate(plan.levels, start=1):
        levels.append(f"level {number} {', '.join(_name(plan.nodes[head]) for head in heads)}")
    return ", ".join(levels)


def _name(node: Node) -> str:
    return node.operation.name if isinstance(node.operation, Stateful) else node.label
