"""The answers that processor-bound flows must give, found without any of the systems."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.shared.answers import AnswerCheck, Expected, canonicalise, compute_digest, describe_difference
from benchmarks.shared.workload import WATERMARK_DELAY_MS, WINDOW_MS, list_files
from benchmarks.skew.peers.lehmer import take_steps

_QUARTERS = 1_000
"""Values are so many quarters at most: a table of all of them is the whole of the arithmetic."""


def ask_busy_oracle(folder: Path, steps: int) -> Expected:
    """Return how often each key came in each window, and the sum of what the steps make of its values."""
    made = pl.DataFrame(
        {
            "value": [quarters / 4 for quarters in range(_QUARTERS)],
            "made": [float(take_steps(quarters / 4, steps)) for quarters in range(_QUARTERS)],
        }
    )
    answer = (
        pl.scan_parquet(list_files(folder))
        .with_columns(window_start=pl.col("ts") - pl.col("ts") % WINDOW_MS)
        .group_by("window_start", "sensor", "value")
        .agg(readings=pl.len().cast(pl.Int64), latest=pl.col("ts").max())
        .join(made.lazy(), on="value")
        .group_by("window_start", "sensor")
        .agg(pl.col("readings").sum(), total=(pl.col("readings") * pl.col("made")).sum(), latest=pl.col("latest").max())
        .collect()
    )
    closed_until_ms = int(answer.select(pl.col("latest").max()).item()) - WATERMARK_DELAY_MS
    return Expected(canonicalise(answer, closed_until_ms), closed_until_ms)


def check_top_answer(answer: pl.DataFrame, expected: Expected, count: int) -> AnswerCheck:
    """Compare the most frequent keys of each window with the oracle's.

    Of keys that come equally often, any may be the last of them: counts must be the largest there are, and each must be
    that of the key it is given for.
    """
    found = canonicalise(answer, expected.closed_until_ms)
    order = ["window_start", "readings"]
    wanted = (
        expected.answer.sort(order, descending=[False, True]).group_by("window_start", maintain_order=True).head(count)
    )
    true = found.join(expected.answer, on=found.columns, how="semi")
    equal = (
        true.height == found.height
        and found.select("window_start", "sensor").is_unique().all()
        and found.select(order).sort(order).equals(wanted.select(order).sort(order))
    )
    return AnswerCheck(equal, found.height, compute_digest(found), "" if equal else describe_difference(found, wanted))
