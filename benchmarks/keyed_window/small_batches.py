"""Where the time of a small batch goes: parts from one trigger to the next, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.shared.figures import Sample

OURS, SPARKS, BOTH = "ours", "Spark's", "both"
WARM_BATCHES = 30

_READERS, _SLOTS = "0", "1"


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A part of a small batch: what happens in it, who does it, and the median milliseconds that it takes."""

    name: str
    whose: str
    milliseconds: float


_PARTS = (
    ("between two triggers", SPARKS),
    ("offsets: splits are planned, and written to the split log", OURS),
    ("Spark's offset log", SPARKS),
    ("Spark's plan of the query", SPARKS),
    ("the call of our function, from the JVM and back", SPARKS),
    ("the job: made, launched, blocks carried; all but its tasks", BOTH),
    ("read tasks, in Python", OURS),
    ("slot tasks, in Python", OURS),
    ("commit: time, manifest", OURS),
    ("publish; look at loads, sweep", OURS),
    ("Spark's commit log", SPARKS),
)
"""In their order; a batch that lacks the figures for one of them has no part of that name."""


def take_apart(
    samples: Sequence[Sample], batches: Sequence[Mapping[str, Any]], warm_batches: int = WARM_BATCHES
) -> list[BatchPart]:
    """Return the parts of the last batches, medians each, so that they need not add up to the median of the whole.

    ``samples`` are commits by the wall clock, one a batch. Nothing, where there are fewer batches than wanted.
    """
    intervals = [after - before for (before, _), (after, _) in pairwise(samples)]
    with_rows = [batch for batch in batches if batch["rows"]]
    if len(intervals) < warm_batches or len(with_rows) != len(samples):
        return []
    found: dict[str, list[float]] = {}
    for interval, batch in list(zip(intervals, with_rows[1:], strict=True))[-warm_batches:]:
        for (name, _), seconds in zip(_PARTS, _measure(interval, batch), strict=True):
            if seconds is not None:
                found.setdefault(name, []).append(seconds)
    return [BatchPart(name, whose, 1_000 * median(found[name])) for name, whose in _PARTS if name in found]


def _measure(interval: float, batch: Mapping[str, Any]) -> list[float | None]:
    """Return the seconds of each part of one batch, in their order; None where nobody measured it."""
    spark = {name: ms / 1_000 for name, ms in batch.get("spark_ms", {}).items()}
    phases: Mapping[str, float] = batch.get("phase_seconds", {})
    tasks: Mapping[str, float] = batch.get("task_seconds", {})
    work = [phases.get(name) for name in ("job", "commit", "publish")]
    return [
        _less(interval, spark.get("triggerExecution")),
        spark.get("latestOffset"),
        spark.get("walCommit"),
        _sum(spark.get("queryPlanning"), spark.get("getBatch", 0.0)),
        _less(spark.get("addBatch"), *work),
        # Spark carries the blocks of a job, ours or not; what it does between two tasks is in no task of ours.
        _less(phases.get("job"), tasks.get(_READERS), tasks.get(_SLOTS)),
        tasks.get(_READERS),
        tasks.get(_SLOTS),
        phases.get("commit"),
        phases.get("publish"),
        spark.get("commitOffsets"),
    ]


def _sum(*seconds: float | None) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None


def _less(whole: float | None, *parts: float | None) -> float | None:
    """Return what parts leave of a whole, never less than nothing: two clocks may differ by a millisecond."""
    taken = _sum(*parts)
    return None if whole is None or taken is None else max(0.0, whole - taken)
