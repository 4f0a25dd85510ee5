"""From commits to what moving state costs; pure, so that every claim can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.shared.answers import AnswerCheck

AT_OLD_RATE = 1.25
"""A batch that takes at most this times the median shows that the stream flows as before."""
WARM_UP_BATCHES = 3
SETTLING_BATCHES = 1
"""Batches after the one with the change in which new owners take state in."""


@dataclass(frozen=True, slots=True)
class MoveStep:
    """One change while the stream ran."""

    change: str
    batch: int
    protocol: str
    slots_before: int
    slots_after: int
    moved_keys_pct: float
    moved_bytes: int
    state_bytes: int
    slowest_over_median: float
    lost_seconds: float
    """What the batches of the change took longer than the median, together."""

    @property
    def moved_bytes_pct(self) -> float:
        """Bytes that travelled over all bytes of state."""
        return 100 * self.moved_bytes / max(self.state_bytes, 1)


@dataclass(frozen=True, slots=True)
class MoveRun:
    """A stream whose state moved while it ran."""

    system: str
    median_seconds: float
    noise_seconds: float
    """How far a usual batch is from the median one."""
    slowest_other_over_median: float
    """The slowest batch with no change nearby: runs of state are merged from time to time."""
    steps: tuple[MoveStep, ...]
    batch_seconds: tuple[float, ...]
    answer: AnswerCheck


@dataclass(frozen=True, slots=True)
class RestartRun:
    """A stream that was stopped, and started again over another number of slots."""

    system: str
    median_seconds: float
    lost_seconds: float
    """From the wish to stop until batches take as long as before, less what these batches take anyway."""
    parts: Mapping[str, float]
    """Seconds of stopping, repartitioning and the like, as far as they are known."""
    state_bytes: int
    answer: AnswerCheck


def evaluate_moves(
    system: str,
    batches: Sequence[Mapping[str, Any]],
    moved_keys_pct: Mapping[int, float],
    changes: Mapping[int, tuple[str, str]],
    answer: AnswerCheck,
) -> MoveRun:
    """Return what each change did to the batches around it; ``changes`` is batch → (what, protocol)."""
    rows = _usual_rows(batches)
    intervals = {after["batch"]: after["committed_at"] - before["committed_at"] for before, after in pairwise(batches)}
    usual = [batch for batch in batches if batch["rows"] == rows and batch["batch"] in intervals]
    touched = {at + offset for at in changes for offset in range(SETTLING_BATCHES + 1)}
    steady = [intervals[batch["batch"]] for batch in usual[WARM_UP_BATCHES:] if batch["batch"] not in touched]
    typical = median(steady)
    by_batch = {batch["batch"]: batch for batch in batches}
    steps = []
    for at, (change, protocol) in sorted(changes.items()):
        near = [intervals[at + offset] for offset in range(SETTLING_BATCHES + 1)]
        steps.append(
            MoveStep(
                change=change,
                batch=at,
                protocol=protocol,
                slots_before=by_batch[at]["slots"],
                slots_after=by_batch[at + 1]["slots"],
                moved_keys_pct=moved_keys_pct[at],
                moved_bytes=by_batch[at]["moved_bytes"],
                state_bytes=by_batch[at - 1]["state_bytes"],
                slowest_over_median=max(near) / typical,
                lost_seconds=sum(seconds - typical for seconds in near),
            )
        )
    return MoveRun(
        system=system,
        median_seconds=typical,
        noise_seconds=median(abs(seconds - typical) for seconds in steady),
        slowest_other_over_median=max(steady) / typical,
        steps=tuple(steps),
        batch_seconds=tuple(intervals[batch["batch"]] for batch in usual),
        answer=answer,
    )


def evaluate_restart(
    system: str,
    batches: Sequence[Mapping[str, Any]],
    stop_called_at: float,
    parts: Mapping[str, float],
    answer: AnswerCheck,
) -> RestartRun:
    """Return what stopping and starting again cost; a stream that never gets back to its old rate counts to its end."""
    rows = _usual_rows(batches)
    with_rows = [batch for batch in batches if batch["rows"] == rows]
    before = [batch for batch in with_rows if batch["committed_at"] <= stop_called_at]
    after = [batch for batch in with_rows if batch["committed_at"] > stop_called_at]
    typical = median(batch["seconds"] for batch in before)
    back = next(
        (number for number, batch in enumerate(after) if batch["seconds"] <= AT_OLD_RATE * typical), len(after) - 1
    )
    lost = after[back]["committed_at"] - stop_called_at - (back + 1) * typical
    return RestartRun(
        system=system,
        median_seconds=typical,
        lost_seconds=lost,
        parts=dict(parts),
        state_bytes=before[-1]["state_bytes"],
        answer=answer,
    )


def compute_figures(moves: Sequence[MoveRun], restarts: Sequence[RestartRun], rows: int) -> dict[str, float]:
    """Return the figures by name; unequal answers leave no claim.

    What a move adds is at least the noise of a batch: less than that cannot be told from nothing.
    """
    answers = [run.answer.equal for run in moves] + [run.answer.equal for run in restarts]
    by_state = next(run for run in moves if run.system == "anabranch")
    figures: dict[str, float] = {
        "answers_equal": int(all(answers)),
        "rows": rows,
        "batch_seconds": by_state.median_seconds,
    }
    if not figures["answers_equal"]:
        return figures
    resized = next(step for step in by_state.steps if step.slots_after > step.slots_before)
    shifted = next(step for step in by_state.steps if step.slots_after == step.slots_before)
    added = max(resized.lost_seconds, by_state.noise_seconds)
    figures |= {
        "slowest_over_median": max(step.slowest_over_median for run in moves for step in run.steps),
        "moved_bytes_pct": shifted.moved_bytes_pct,
        "moved_keys_pct": shifted.moved_keys_pct,
        "state_bytes": shifted.state_bytes,
        "move_adds_seconds": added,
        "slowest_without_move_over_median": max(run.slowest_other_over_median for run in moves),
    }
    for run in restarts:
        name = "x_stop_restart" if run.system == "spark-rocksdb" else "x_own_restart"
        figures[name] = run.lost_seconds / added
    return figures


def _usual_rows(batches: Sequence[Mapping[str, Any]]) -> int:
    """Return the rows of most batches that have some: the first and the last differ."""
    counts = [int(batch["rows"]) for batch in batches if batch["rows"]]
    return max(set(counts), key=counts.count)
