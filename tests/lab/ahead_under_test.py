"""A driver to be killed whose slots are partitions: reads numbered folders, and writes windows and running totals.

Run as a script: the folder, and the master; options for JVMs in ``UNDER_TEST_JVM``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl

import anabranch as ab

SCHEMA = {"key": pl.Int64, "ts": pl.Datetime("ms"), "whole": pl.Int64}
QUICK_JVM = {f"spark.{who}.extraJavaOptions": os.environ.get("UNDER_TEST_JVM", "") for who in ("driver", "executor")}


def main() -> None:
    """Run the flow to its end."""
    folder = Path(sys.argv[1])
    session = ab.local_session(sys.argv[2], "1g", QUICK_JVM | {"spark.shuffle.reduceLocality.enabled": "false"})
    flow = ab.Flow("ahead")
    source = ab.files(folder / "in", format="parquet", schema=SCHEMA, recursive=True, max_files=3)
    keyed = flow.read(source).watermark("ts", delay="5s").key_by("key", exchange="ahead")
    keyed.agg(rows=ab.count(), total=ab.sum("whole"), name="totals").write(ab.parquet(folder / "out" / "totals"))
    windows = keyed.window("10s").agg(rows=ab.count(), total=ab.sum("whole"))
    windows.write(ab.parquet(folder / "out" / "windows"))
    progress = flow.run(folder / "checkpoint", spark=session, trigger="available-now", drain=True)
    assert all(batch.exchanged_bytes == 0 for batch in progress)
    print("done", flush=True)


if __name__ == "__main__":
    main()
