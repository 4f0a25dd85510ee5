"""A driver to be killed that writes to servers: reads prepared files, one a batch, and writes each result twice.

Run as a script, with the servers' addresses (``UNDER_TEST_POSTGRES``, …) and the JVM's options (``UNDER_TEST_JVM``) in
the environment. What it writes to a server it writes as Parquet, too, whose exactly-once other tests prove. It prints
what ``flow_under_test.py`` prints.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab

SCHEMA = {"key": pl.Int64, "ts": pl.Datetime("ms"), "whole": pl.Int64, "real": pl.Float64}
TOPIC, TABLE, HASHES = "windows", "totals", "total:{key}"
QUICK_JVM = {"spark.driver.extraJavaOptions": os.environ.get("UNDER_TEST_JVM", "")}


def make_flow(folder: Path) -> ab.Flow:
    """Return the flow: running totals to databases, windows to Kafka and Delta Lake."""
    flow = ab.Flow("to-servers")
    rows = flow.read(ab.files(folder / "in", format="json", schema=SCHEMA, max_files=1))
    keyed = rows.watermark("ts", delay="5s").key_by("key")
    totals = keyed.agg(rows=ab.count(), total=ab.sum("whole"), name="totals")
    totals.write(ab.parquet(folder / "out" / "totals"))
    if url := os.environ.get("UNDER_TEST_POSTGRES"):
        totals.write(ab.postgres(url, TABLE, keys="key", batch_column="batch"))
    if url := os.environ.get("UNDER_TEST_MARIADB"):
        totals.write(ab.mariadb(url, TABLE, keys="key", batch_column="batch"))
    if url := os.environ.get("UNDER_TEST_REDIS"):
        totals.write(ab.redis_hashes(url, HASHES, on_loss="republish"))
    windows = keyed.window("10s").agg(rows=ab.count(), total=ab.sum("whole"), highest=ab.max("real"), name="windows")
    windows.write(ab.parquet(folder / "out" / "windows"))
    if servers := os.environ.get("UNDER_TEST_KAFKA"):
        windows.write(ab.kafka_topic(servers, TOPIC, key="key", headers={"until": "window_end"}))
    windows.write(ab.delta(folder / "out" / "delta"))
    return flow


def main() -> int:
    """Run the flow to its end."""
    folder = Path(sys.argv[1])
    session = ab.local_session("local[2]", "1g", QUICK_JVM)
    print("ready", flush=True)

    def report(progress: Any) -> None:
        print(f"batch {progress.batch}", flush=True)

    try:
        make_flow(folder).run(
            folder / "checkpoint",
            spark=session,
            on_progress=report,
            trigger="available-now",
            drain=True,
            slots=2,
            kept_batches=30,
        )
    except Exception as error:
        print(f"failed {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        return 3
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
