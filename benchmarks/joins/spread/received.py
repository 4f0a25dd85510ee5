"""What slots receive: all rows of a join's exchanges, copies included, as the slots themselves report them."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anabranch as ab
from benchmarks.joins.answers import check_answer
from benchmarks.joins.peers import ours
from benchmarks.joins.spread.points import SpreadPoint
from benchmarks.joins.spread.strategies import Spreading
from benchmarks.joins.spread.watching import SlotBatch, add_by_slot, watched
from benchmarks.shared.answers import AnswerCheck


@dataclass(frozen=True, slots=True)
class Received:
    """Rows that the slots of all joins of a flow received in some batches."""

    mean: float
    """A slot, copies included: the measure of the first paper's figure 6."""
    most: int
    """Of the most loaded slot."""

    @property
    def max_over_mean(self) -> float:
        """The most loaded slot over the mean; 1 is even."""
        return self.most / self.mean if self.mean else 1.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What it cost to keep slots even, in a whole run."""

    plans: int
    """Changes of routes that a planner made, of all joins."""
    planning_seconds: float
    """O1: the time of all plans."""
    table_rows: int
    """O2: rows of the routing tables at the end."""
    moved_rows: int
    moved_bytes: int
    """O3: state that was written for other slots."""
    copied_rows: int
    """O4: rows that slots received beyond what they would if each row went to one slot."""


@dataclass(frozen=True, slots=True)
class ReceivedRun:
    """One strategy with one join."""

    point: SpreadPoint
    strategy: str
    slots: int
    answer: AnswerCheck
    batches: int
    sent_rows: int
    """What came to the exchanges of all joins, each row once."""
    sent_bytes: int
    """What went through them, as blocks."""
    whole: Received
    """Of all batches, those in which a strategy did not know the keys yet among them."""
    settled: Received
    """Of the second half of the batches."""
    costs: Costs
    run_seconds: float
    batch_seconds: float | None = None
    """The longest batch after the warm-up; none when the run was too short to have one."""


def build_flow(query: str, folder: Path, output: Path, spreading: Spreading) -> ab.Flow:
    """Return the flow of a query over Parquet files, a file of each stream a batch."""
    flow = ab.Flow("joins")
    given = Namespace(query=query, input=folder, format="parquet", files_per_batch=1)
    ours.build(flow, given, spreading.placing).write(ab.parquet(output))
    return flow


def measure_received(point: SpreadPoint, spreading: Spreading, folder: Path, scratch: Path, slots: int) -> ReceivedRun:
    """Run a join over files in this process, compare its answer with the oracle's, and count what slots received."""
    output = scratch / "output"
    began = time.monotonic()
    with watched(build_flow(point.query, folder, output, spreading), scratch / "checkpoint", slots) as run:
        while run.step():
            pass
        batches, longest = run.batches, run.batch_seconds
    seconds = time.monotonic() - began
    return ReceivedRun(
        point=point,
        strategy=spreading.name,
        slots=slots,
        answer=check_answer(point.query, output, folder, "parquet"),
        batches=len(batches),
        sent_rows=sum(batch.sent_once for batch in batches),
        sent_bytes=sum(batch.sent_bytes for batch in batches),
        whole=_summarise(batches),
        settled=_summarise(batches[len(batches) // 2 :]),
        costs=_add_costs(batches),
        run_seconds=seconds,
        batch_seconds=longest,
    )


def _summarise(batches: Sequence[SlotBatch]) -> Received:
    by_slot = add_by_slot(batches)
    return Received(sum(by_slot) / len(by_slot), max(by_slot))


def _add_costs(batches: Sequence[SlotBatch]) -> Costs:
    plans = [costs for batch in batches for costs in batch.costs]
    return Costs(
        plans=len(plans),
        planning_seconds=sum(costs.planning_seconds or 0.0 for costs in plans),
        table_rows=batches[-1].table_rows,
        moved_rows=sum(batch.moved_rows for batch in batches),
        moved_bytes=sum(batch.moved_bytes for batch in batches),
        copied_rows=sum(sum(batch.received) - batch.sent_once for batch in batches),
    )
