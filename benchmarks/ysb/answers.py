"""The Yahoo Streaming Benchmark's check: counts of closed windows beside the right ones, and how late they came."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import polars as pl

from benchmarks.shared.answers import AnswerCheck
from benchmarks.ysb.events import ANSWER_SCHEMA, WINDOW_MS

_KEY = ["campaign_id", "window_start"]


@dataclass(frozen=True, slots=True)
class Latency:
    """From the end of a window to its last update in Redis, over all windows and campaigns."""

    p50_ms: float
    p99_ms: float
    largest_ms: float
    windows: int


def check_windows(found: pl.DataFrame, wanted: pl.DataFrame, closed_until_ms: int) -> AnswerCheck:
    """Compare the counts of windows that ended until then, row for row."""
    said, due = _close(found, closed_until_ms), _close(wanted, closed_until_ms)
    digest = hashlib.sha256(said.write_csv().encode()).hexdigest()
    if said.equals(due):
        return AnswerCheck(True, said.height, digest)
    both = due.join(said, on=_KEY, how="full", suffix="_found", coalesce=True)
    wrong = both.filter(pl.col("seen_count").ne_missing(pl.col("seen_count_found")))
    first = wrong.sort(_KEY).row(0, named=True) if wrong.height else {"rows": said.height, "due": due.height}
    difference = f"{wrong.height} of {due.height} windows are missing, too many or wrong; first: {first}"
    return AnswerCheck(False, said.height, digest, difference)


def measure_latency(found: pl.DataFrame, from_ms: int, until_ms: int) -> Latency | None:
    """Return how late the windows were that ended in this time; None if there was none."""
    end = pl.col("window_start") + WINDOW_MS
    late_ms = found.filter((end > from_ms) & (end <= until_ms)).select(pl.col("time_updated") - end).to_series()
    if late_ms.is_empty():
        return None
    values = late_ms.to_numpy()
    p50, p99 = np.percentile(values, [50, 99])
    return Latency(float(p50), float(p99), float(values.max()), len(values))


def _close(rows: pl.DataFrame, closed_until_ms: int) -> pl.DataFrame:
    return (
        rows.filter(pl.col("window_start") + WINDOW_MS <= closed_until_ms)
        .select(pl.col(name).cast(dtype) for name, dtype in ANSWER_SCHEMA.items())
        .sort(list(ANSWER_SCHEMA))
    )
