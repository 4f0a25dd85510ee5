"""A flow on a cluster for ``test_measures.py``: master and checkpoint are its arguments."""

from __future__ import annotations

import sys

import polars as pl

import anabranch as ab
from anabranch.spark import job_runner

ROWS, BATCHES = 200_000, 5


def main(master: str, checkpoint: str) -> None:
    """Run the flow to its end."""
    job_runner.PROBE_SECONDS = 0.5
    spark = ab.local_session(master, "1g", {"spark.executor.memory": "768m", "spark.locality.wait": "1s"})
    flow = ab.Flow("measured")
    frame = pl.DataFrame({"key": pl.int_range(ROWS, eager=True) % 20_000})
    counts = flow.read(ab.memory(*[frame] * BATCHES, max_frames=1)).key_by("key").agg(rows=ab.count(), name="count")
    counts.key_by("rows").agg(keys=ab.count(), name="recount").write(ab.to_memory())
    flow.run(checkpoint, trigger="available-now", slots=4, spark=spark)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
