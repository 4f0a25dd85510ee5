"""The answers that a processor-bound flow must give, found without any of the systems."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from anabranch.bench.answers import Expected, canonicalise
from anabranch.bench.peers.lehmer import take_steps
from anabranch.bench.workload import WATERMARK_DELAY_MS, WINDOW_MS, list_files

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
