"""From the rows that slots received to how even they were, and how soon; pure, so that every claim can be tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.routing.strategies.scores import score_loads
from benchmarks.shared.answers import AnswerCheck

EVEN = 1.05
"""A batch is even when its fullest slot has at most this times the mean."""
SETTLING_BATCHES = 3
"""Batches after the one in which a distribution is new; from then on loads must be even."""


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What one strategy made of one stream."""

    system: str
    stream: str
    slots: int
    max_over_mean: tuple[float, ...]
    """By batch."""
    settled_max_over_mean: float
    """The worst batch of those that are long enough after a change."""
    balance: float
    """The least rows of a slot over the most, in all such batches of a phase together; of the worst phase."""
    extra_time: float
    """What the fullest slot has beyond the mean, as a part of it, likewise."""
    batches_until_even: int | None
    """After the batch in which the change is seen first; of the worst phase. None where one was never evened out."""
    changes: int
    moved_bytes: int
    answer: AnswerCheck


def is_zipf(run: LoadRun) -> bool:
    """Say whether the run is one of those under which skew grows from stream to stream."""
    return run.stream.startswith("zipf")


def is_four_cases(run: LoadRun) -> bool:
    """Say whether the run is one of keys × data, each even or not."""
    return run.stream.endswith("data")


def evaluate_loads(
    system: str,
    stream: str,
    slot_rows: Sequence[Sequence[int]],
    first_batches: Sequence[int],
    *,
    settling_batches: int = SETTLING_BATCHES,
    changes: int,
    moved_bytes: int,
    answer: AnswerCheck,
) -> LoadRun:
    """Return how even the slots were; ``slot_rows`` is by batch and slot, ``first_batches`` where each phase begins."""
    rows = np.asarray(slot_rows, np.float64)
    evenness = [score_loads(batch).max_over_mean for batch in rows]
    ends = [*first_batches[1:], len(rows)]
    settled = [range(first + settling_batches, end) for first, end in zip(first_batches, ends, strict=True)]
    scores = [score_loads(rows[list(batches)].sum(axis=0)) for batches in settled]
    waits = [_count_until_even(evenness[first:end]) for first, end in zip(first_batches, ends, strict=True)]
    return LoadRun(
        system=system,
        stream=stream,
        slots=rows.shape[1],
        max_over_mean=tuple(evenness),
        settled_max_over_mean=max(evenness[batch] for batches in settled for batch in batches),
        balance=min(score.balance for score in scores),
        extra_time=max(score.extra_time for score in scores),
        batches_until_even=None if None in waits else max(wait for wait in waits if wait is not None),
        changes=changes,
        moved_bytes=moved_bytes,
        answer=answer,
    )


def evaluate_whole_run(system: str, stream: str, slot_rows: Sequence[int], answer: AnswerCheck) -> LoadRun:
    """Return how even the slots of a system without batches were: all rows of a run together, and nothing changes."""
    score = score_loads(slot_rows)
    return LoadRun(
        system=system,
        stream=stream,
        slots=len(slot_rows),
        max_over_mean=(score.max_over_mean,),
        settled_max_over_mean=score.max_over_mean,
        balance=score.balance,
        extra_time=score.extra_time,
        batches_until_even=0 if score.max_over_mean <= EVEN else None,
        changes=0,
        moved_bytes=0,
        answer=answer,
    )


def _count_until_even(evenness: Sequence[float]) -> int | None:
    return next((batch for batch, worst in enumerate(evenness) if worst <= EVEN), None)
