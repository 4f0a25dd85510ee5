"""From what the systems did with each join to the figures that are claimed; pure, so that each can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.joins.plan import HASHED, PARTS, SHOWN_ONLY
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import OURS, Rate, summarise_rates

SKEWED_FROM = 0.8
"""The zipf exponent from which on the interval join's figure is claimed."""


@dataclass(frozen=True, slots=True, order=True)
class JoinPoint:
    """One part of the bench, on files of one format, under one skew."""

    part: str
    file_format: str
    exponent: float

    def __str__(self) -> str:
        return f"{self.part}, {self.file_format}, z = {self.exponent:g}"

    @property
    def stem(self) -> str:
        """How figures about it begin; the format is told where there are several."""
        told = f"_{self.file_format}" if len(PARTS[self.part].formats) > 1 else ""
        return f"{self.part.replace('-', '_')}{told}"

    @property
    def ending(self) -> str:
        """How figures about it end."""
        return f"z{self.exponent:g}".replace(".", "_")


@dataclass(frozen=True, slots=True)
class JoinRun:
    """One system with one join, once."""

    point: JoinPoint
    system: str
    peer: str | None
    """Whom it stands for; none: us."""
    rows: int
    rows_per_second: float | None
    """Of all streams, in the steady state; none when the run was too short to have one."""
    batch_seconds: float | None
    """The longest batch after the warm-up; Flink's checkpoint interval."""
    run_seconds: float
    answer: AnswerCheck
    state_bytes: int | None = None
    peak_memory_bytes: int = 0
    peak_memory_bytes_by_role: Mapping[str, int] = field(default_factory=dict)
    other_cpu_share: float = 0.0
    """What other programs took of the machine's cores meanwhile; a rate beside a busy neighbour says little."""
    details: Mapping[str, Any] = field(default_factory=dict)


def find_rates(runs: Sequence[JoinRun]) -> dict[tuple[JoinPoint, str], Rate]:
    """Return rates by point and system; a system one of whose runs was too short has none."""
    return summarise_rates(((run.point, run.system), run.rows_per_second) for run in runs)


def find_fastest(runs: Sequence[JoinRun], point: JoinPoint, peer: str | None = None) -> str | None:
    """Return the fastest system that stands for a peer, or for any that counts; none where no run has a rate."""
    systems = {
        run.system
        for run in runs
        if run.point == point
        and run.peer is not None
        and (run.peer == peer if peer is not None else run.peer not in SHOWN_ONLY)
    }
    rates = find_rates(runs)
    timed = sorted(system for system in systems if (point, system) in rates)
    return max(timed, key=lambda system: rates[point, system].median, default=None)


def compute_figures(
    runs: Sequence[JoinRun],
    rows: int,
    other_answers: Sequence[AnswerCheck] = (),
    other_batches: Sequence[float | None] = (),
) -> dict[str, float]:
    """Return the figures by name; those of what was not run are absent. ``other_answers`` are those of other parts.

    ``batch_seconds`` is of the parts beside peers; where none of them ran, of ``other_batches``, the others' longest.
    Unequal answers leave no claim about speed: only ``answers_equal``, ``rows`` and ``batch_seconds`` remain.
    """
    answers = [*(run.answer for run in runs), *other_answers]
    figures: dict[str, float] = {
        "answers_equal": int(bool(answers) and all(answer.equal for answer in answers)),
        "rows": rows,
    }
    longest = [run.batch_seconds for run in runs if run.system == OURS] if runs else other_batches
    batches = [seconds for seconds in longest if seconds is not None]
    if batches:
        figures["batch_seconds"] = max(batches)
    if not figures["answers_equal"]:
        return figures
    rates = find_rates(runs)
    intervals = []
    for point in dict.fromkeys(run.point for run in runs):
        ours, hashed, peer = rates.get((point, OURS)), rates.get((point, HASHED)), find_fastest(runs, point)
        if ours is None:
            continue
        figures[f"{point.stem}_rows_per_second_{point.ending}"] = ours.median
        if hashed is not None:
            figures[f"{point.stem}_x_hash_{point.ending}"] = ours.median / hashed.median
        if peer is not None:
            ratio = ours.median / rates[point, peer].median
            figures[f"{point.stem}_x_best_peer_{point.ending}"] = ratio
            if point.part == "interval" and point.exponent >= SKEWED_FROM:
                intervals.append(ratio)
        for shown in SHOWN_ONLY:
            fastest = find_fastest(runs, point, shown)
            if fastest is not None:
                figures[f"{point.stem}_x_{shown}_{point.ending}"] = ours.median / rates[point, fastest].median
    if intervals:
        # The worst of formats and skews: what is claimed holds for all of them.
        figures["interval_x_best_peer"] = min(intervals)
    return figures
