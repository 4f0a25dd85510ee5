"""From what the systems did in the Yahoo Streaming Benchmark to the figures that are claimed; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.bench.answers import AnswerCheck
from anabranch.bench.ysb_answers import Latency

OURS, FLINK, SPARK = "anabranch", "flink", "spark"
CATCH_UP, SUSTAINED = "catch-up", "sustained"


@dataclass(frozen=True, slots=True)
class YsbRun:
    """One system in one mode."""

    system: str
    mode: str
    rows: int
    answer: AnswerCheck
    rows_per_second: float | None = None
    """Of the second half of the rows, in catch-up mode."""
    batch_seconds: float | None = None
    """The longest batch after the warm-up; Flink's checkpoint interval."""
    latency: Latency | None = None
    """In sustained mode."""
    run_seconds: float = 0.0
    peak_memory_bytes: int = 0
    peak_memory_bytes_by_role: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


def compute_figures(runs: Sequence[YsbRun], rows: int) -> dict[str, float]:
    """Return the figures by name; those of absent peers are absent.

    Unequal answers leave no claim about speed: only ``answers_equal``, ``rows`` and ``batch_seconds`` remain.
    """
    figures: dict[str, float] = {"answers_equal": int(bool(runs) and all(run.answer.equal for run in runs))}
    figures["rows"] = rows
    found = {(run.system, run.mode): run for run in runs}
    ours = found.get((OURS, CATCH_UP))
    if ours is not None and ours.batch_seconds is not None:
        figures["batch_seconds"] = ours.batch_seconds
    if not figures["answers_equal"]:
        return figures
    candidates: dict[str, float | None] = {}
    own_rate = ours.rows_per_second if ours is not None else None
    for peer in (FLINK, SPARK):
        run = found.get((peer, CATCH_UP))
        rate = run.rows_per_second if run is not None else None
        candidates[f"x_{peer}"] = own_rate / rate if own_rate and rate else None
        candidates[f"{peer}_rows_per_second"] = rate
    candidates["rows_per_second"] = own_rate
    for system, prefix in ((OURS, ""), (FLINK, "flink_"), (SPARK, "spark_")):
        run = found.get((system, SUSTAINED))
        if run is not None and run.latency is not None:
            candidates[f"{prefix}p50_ms"] = run.latency.p50_ms
            candidates[f"{prefix}p99_ms"] = run.latency.p99_ms
    return figures | {name: value for name, value in candidates.items() if value is not None}
