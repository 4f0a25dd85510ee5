"""How many slots a join needs when each may keep so many rows, and what it takes to add them while rows come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.joins.answers import check_answer
from benchmarks.joins.spread.points import SpreadPoint
from benchmarks.joins.spread.received import build_flow
from benchmarks.joins.spread.strategies import Spreading
from benchmarks.joins.spread.watching import watched
from benchmarks.shared.answers import AnswerCheck

MOST_SLOTS = 64
"""Nobody is given more: there may be no number that will do."""


@dataclass(frozen=True, slots=True)
class GrowthRun:
    """One strategy with one join, from its first slots on."""

    point: SpreadPoint
    strategy: str
    limit_rows: int
    """So many rows a slot may keep."""
    answer: AnswerCheck
    slots: int
    """How many there were in the end."""
    stored_most: int
    """Rows that the fullest of them keeps."""
    stored_rows: int
    """Rows that all of them keep."""
    adjustments: int
    """How often slots were added."""
    adjustment_seconds: float
    """All of that, from the wish to the commit of the batch, one without rows, in which state is handed over."""
    moved_rows: int
    moved_bytes: int
    """State that was handed over when slots were added."""
    batch_seconds: float | None = None
    """The longest batch after the warm-up, those in which slots are added not among them."""

    @property
    def fits(self) -> bool:
        """Whether no slot keeps more than it may."""
        return self.stored_most <= self.limit_rows


def measure_growth(
    point: SpreadPoint, spreading: Spreading, folder: Path, scratch: Path, limit_rows: int, most_slots: int = MOST_SLOTS
) -> GrowthRun:
    """Run a join over files in this process; add slots while one keeps more than it may, and adding some helps."""
    output = scratch / "output"
    slots = spreading.first_slots
    seconds: list[float] = []
    moved_rows = moved_bytes = 0
    with watched(build_flow(point.query, folder, output, spreading), scratch / "checkpoint", slots) as run:
        while run.step():
            stored, before = run.count_stored(), None
            # One more that spares the fullest nothing would be followed by another: the next batch may change it.
            while max(stored) > limit_rows and spreading.grow(slots) <= most_slots and max(stored) != before:
                before, slots = max(stored), spreading.grow(slots)
                seconds.append(run.resize(slots))
                moved_rows += run.batches[-1].moved_rows
                moved_bytes += run.batches[-1].moved_bytes
                stored = run.count_stored()
        longest = run.batch_seconds
    return GrowthRun(
        point=point,
        strategy=spreading.name,
        limit_rows=limit_rows,
        answer=check_answer(point.query, output, folder, "parquet"),
        slots=slots,
        stored_most=max(stored),
        stored_rows=sum(stored),
        adjustments=len(seconds),
        adjustment_seconds=sum(seconds),
        moved_rows=moved_rows,
        moved_bytes=moved_bytes,
        batch_seconds=longest,
    )
