"""From what the systems did in the Yahoo Streaming Benchmark to the figures that are claimed; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.shared.answers import AnswerCheck
from benchmarks.ysb.answers import Latency

OURS, FLINK, SPARK = "anabranch", "flink", "spark"
CATCH_UP, SECURED, SUSTAINED = "catch-up", "catch-up over TLS", "sustained"


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
    batches = [run.batch_seconds for run in runs if (run.system, run.mode) == (OURS, CATCH_UP)]
    if any(seconds is not None for seconds in batches):
        figures["batch_seconds"] = max(seconds for seconds in batches if seconds is not None)
    if not figures["answers_equal"]:
        return figures
    candidates: dict[str, float | None] = {}
    for mode, prefix in ((CATCH_UP, ""), (SECURED, "secured_")):
        candidates[f"{prefix}rows_per_second"] = find_rate(runs, OURS, mode)
        for peer in (FLINK, SPARK):
            candidates[f"{prefix}{peer}_rows_per_second"] = find_rate(runs, peer, mode)
            ratios = compare(runs, peer, mode)
            if ratios:
                candidates[f"{prefix}x_{peer}"] = median(ratios)
            if len(ratios) > 1:
                candidates[f"{prefix}x_{peer}_lowest"] = min(ratios)
                candidates[f"{prefix}x_{peer}_highest"] = max(ratios)
    for system, prefix in ((OURS, ""), (FLINK, "flink_"), (SPARK, "spark_")):
        late = find_latency(runs, system)
        if late is not None:
            candidates[f"{prefix}p50_ms"], candidates[f"{prefix}p99_ms"] = late
    ratios = compare_latencies(runs, FLINK)
    if ratios:
        candidates["ysb_p50_over_flink"] = median(ratios)
    if len(ratios) > 1:
        candidates["ysb_p50_over_flink_lowest"] = min(ratios)
        candidates["ysb_p50_over_flink_highest"] = max(ratios)
    return figures | {name: value for name, value in candidates.items() if value is not None}


def find_rate(runs: Sequence[YsbRun], system: str, mode: str) -> float | None:
    """Return the median rate of a system's runs in a mode."""
    rates = _list_rates(runs, system, mode)
    return median(rates) if rates else None


def find_latency(runs: Sequence[YsbRun], system: str) -> tuple[float, float] | None:
    """Return by how many ms the results of a system are late, p50 and p99: the medians of its sustained runs."""
    late = [found for found in _list_latencies(runs, system) if found is not None]
    return (median(one.p50_ms for one in late), median(one.p99_ms for one in late)) if late else None


def compare_latencies(runs: Sequence[YsbRun], peer: str) -> list[float]:
    """Return our p50 over a peer's, for each time that both were sustained after each other."""
    pairs = zip(_list_latencies(runs, OURS), _list_latencies(runs, peer), strict=False)
    return [ours.p50_ms / theirs.p50_ms for ours, theirs in pairs if ours is not None and theirs is not None]


def compare(runs: Sequence[YsbRun], peer: str, mode: str) -> list[float]:
    """Return our rate over a peer's, for each time that both ran after each other."""
    pairs = zip(_list_rates(runs, OURS, mode), _list_rates(runs, peer, mode), strict=False)
    return [ours / theirs for ours, theirs in pairs]


def _list_latencies(runs: Sequence[YsbRun], system: str) -> list[Latency | None]:
    """Return the latency of each turn; None where no window of it was looked at."""
    return [run.latency for run in runs if (run.system, run.mode) == (system, SUSTAINED)]


def _list_rates(runs: Sequence[YsbRun], system: str, mode: str) -> list[float]:
    return [run.rows_per_second for run in runs if (run.system, run.mode) == (system, mode) and run.rows_per_second]
