"""From what the systems did to the figures that are claimed; pure, so that every claim can be tested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.mixed_json import MIXED_JSON

OURS = "anabranch"
NATIVE_STORES = ("spark-memory", "spark-rocksdb")
READERS_ONLY = ("two-duckdb",)
"""Those who read the rows, and do nothing else with them."""

# The first half of the rows is warm-up for every system: a JVM compiles its hot loops for tens of seconds.
WARM_UP_SHARE = 0.5

Sample = tuple[float, int]
"""Seconds since some start, and rows that were through by then."""


@dataclass(frozen=True, slots=True)
class SystemRun:
    """One system on one file format."""

    system: str
    file_format: str
    rows: int
    rows_per_second: float | None
    """In the steady state; none when the run was too short to have one."""
    batch_seconds: float | None
    """The longest batch after the warm-up; Flink's checkpoint interval; none where there are no batches."""
    run_seconds: float
    """The whole process, start-up and imports included."""
    answer: AnswerCheck
    peak_memory_bytes: int
    peak_memory_bytes_by_role: Mapping[str, int]
    other_cpu_share: float
    """What other programs took of the machine's cores meanwhile; a rate beside a busy neighbour says little."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Settings, versions and batches, as the system reported them."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows a second of a system in several runs: their median, and the slowest and fastest of them."""

    median: float
    slowest: float
    fastest: float


KeyT = TypeVar("KeyT")


def summarise_rates(rates: Iterable[tuple[KeyT, float | None]]) -> dict[KeyT, Rate]:
    """Return rates by whatever they are told apart by; what was too short for a rate in one run has none."""
    found: dict[KeyT, list[float | None]] = {}
    for key, rate in rates:
        found.setdefault(key, []).append(rate)
    return {
        key: Rate(median(known), min(known), max(known))
        for key, told in found.items()
        if len(known := [rate for rate in told if rate is not None]) == len(told)
    }


def compute_steady_rate(samples: Sequence[Sample], warm_up_rows: float) -> float | None:
    """Return rows a second between the end of the warm-up and the last sample, by the wall clock.

    A micro-batch system gives one sample a commit, so the gaps between its batches count. Fewer than two samples
    after the warm-up give no rate.
    """
    steady = [(seconds, done) for seconds, done in samples if done >= warm_up_rows]
    if len(steady) < 2:
        return None
    (first_seconds, first_rows), (last_seconds, last_rows) = steady[0], steady[-1]
    if last_rows <= first_rows or last_seconds <= first_seconds:
        return None
    return (last_rows - first_rows) / (last_seconds - first_seconds)


def find_longest_steady_batch(batches: Sequence[Mapping[str, float]], warm_up_rows: float) -> float | None:
    """Return the seconds of the longest batch that began after the warm-up; batches without rows do not count."""
    done = 0
    longest: float | None = None
    for batch in batches:
        if done >= warm_up_rows and batch["rows"]:
            longest = max(longest or 0.0, batch["seconds"])
        done += int(batch["rows"])
    return longest


def compute_small_batch_ms(samples: Sequence[Sample], warm_batches: int = 30) -> float | None:
    """Return the median milliseconds from commit to commit over the last batches.

    Batches follow each other at once, so this is the whole way from trigger to commit, Spark's own logs included.
    """
    intervals = [after[0] - before[0] for before, after in pairwise(samples)]
    if len(intervals) < warm_batches:
        return None
    return 1_000 * median(intervals[-warm_batches:])


def compute_figures(
    runs: Sequence[SystemRun],
    rows: int,
    small_batch_ms: float | None,
    curves: Sequence[Mapping[str, Any]] = (),
) -> dict[str, float]:
    """Return the figures by name; those of absent peers are absent.

    Unequal answers leave no claim about speed: only ``answers_equal``, ``rows`` and ``batch_seconds`` remain.
    """
    answers = [run.answer.equal for run in runs] + [bool(point["answers_equal"]) for point in curves]
    figures: dict[str, float] = {
        "answers_equal": int(bool(answers) and all(answers)),
        "rows": rows,
    }
    ours = [run.batch_seconds for run in runs if run.system == OURS and run.batch_seconds is not None]
    if ours:
        figures["batch_seconds"] = max(ours)
    if not figures["answers_equal"]:
        return figures
    rates = {(run.system, run.file_format): run.rows_per_second for run in runs}
    candidates: dict[str, float | None] = {
        "json_x_spark": _divide(rates.get((OURS, "json")), _fastest_native(rates, "json")),
        "json_x_flink": _divide(rates.get((OURS, "json")), rates.get(("flink", "json"))),
        "csv_x_spark": _divide(rates.get((OURS, "csv")), _fastest_native(rates, "csv")),
        "csv_x_flink": _divide(rates.get((OURS, "csv")), rates.get(("flink", "csv"))),
        "parquet_x_spark": _divide(rates.get((OURS, "parquet")), _fastest_native(rates, "parquet")),
        "json_x_two_polars": _divide(rates.get((OURS, "json")), rates.get(("two-polars", "json"))),
        "mixed_json_x_spark": _divide(rates.get((OURS, MIXED_JSON)), _fastest_native(rates, MIXED_JSON)),
        "mixed_json_x_flink": _divide(rates.get((OURS, MIXED_JSON)), rates.get(("flink", MIXED_JSON))),
        "mixed_json_x_two_duckdb": _divide(rates.get((OURS, MIXED_JSON)), rates.get(("two-duckdb", MIXED_JSON))),
        "mixed_json_rows_per_second": rates.get((OURS, MIXED_JSON)),
        "json_rows_per_second": rates.get((OURS, "json")),
        "csv_rows_per_second": rates.get((OURS, "csv")),
        "parquet_rows_per_second": rates.get((OURS, "parquet")),
        "small_batch_ms": small_batch_ms,
        "rows_flatness": _compute_flatness(curves),
    }
    return figures | {name: value for name, value in candidates.items() if value is not None}


def _compute_flatness(curves: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the slowest run over the fastest as rows grow: 1 is flat."""
    rates = [point["rows_per_second"] for point in curves if point["curve"] == "rows" and point["rows_per_second"]]
    return min(rates) / max(rates) if len(rates) > 1 else None


def _fastest_native(rates: Mapping[tuple[str, str], float | None], file_format: str) -> float | None:
    found = [rate for store in NATIVE_STORES if (rate := rates.get((store, file_format))) is not None]
    return max(found, default=None)


def _divide(ours: float | None, peer: float | None) -> float | None:
    return ours / peer if ours is not None and peer else None
