"""A flow of two levels whose executors are hosts that a test cuts off; a file of the folder's ``in`` is a batch.

Run as a script, on a host of a lab. It prints ``ready`` when all executors are there, ``batch <n> <hosts> <where state
was read from>`` after every batch with rows, and ``done`` when the file ``end`` is there and all rows are through.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.spark.executors import list_executors

HOSTS = 4
DETECTION_SECONDS = 10.0
"""After so long without a sign of life, Spark gives an executor up …"""
LOOK_SECONDS = 2.0
"""… and looks so often."""
PATIENCE_SECONDS = 200.0
REPLICAS = ab.Replicas(degree=2, memory_mb=16, bandwidth_mbit=1000)
SCHEMA = {"key": pl.Int64, "value": pl.Int64}
SETTINGS = {
    "spark.network.timeout": f"{DETECTION_SECONDS:.0f}s",
    "spark.network.timeoutInterval": f"{LOOK_SECONDS:.0f}s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.locality.wait": "2s",
    "spark.executor.extraJavaOptions": os.environ.get("UNDER_TEST_JVM", ""),
}


def run(folder: Path) -> None:
    """Run the flow until the test ends it."""
    spark = ab.local_session(memory="600m", config=SETTINGS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(list_executors(spark)) < HOSTS and time.monotonic() < deadline:
        time.sleep(0.1)
    print("ready", flush=True)
    rows_in = 0

    def report(progress: Any) -> None:
        nonlocal rows_in
        rows_in += progress.rows_in
        if progress.rows_in:
            there = sorted({task.host for task in progress.measures.tasks}) if progress.measures else []
            reads = sorted(progress.measures.run_reads) if progress.measures else []
            print(f"batch {progress.batch} {','.join(there)} {','.join(reads) or 'nowhere'}", flush=True)

    flow = ab.Flow("hosts")
    rows = flow.read(ab.files(folder / "in", format="json", schema=SCHEMA, max_files=1)).key_by("key")
    totals = rows.agg(rows=ab.count(), total=ab.sum("value"), name="totals")
    totals.write(ab.parquet(folder / "out" / "totals"))
    grouped = totals.with_columns(group=pl.col("key") % 5).key_by("group")
    grouped.agg(seen=ab.count(), most=ab.max("total"), name="groups").write(ab.parquet(folder / "out" / "groups"))
    handle = flow.start(str(folder / "state"), spark=spark, slots=2 * HOSTS, replicas=REPLICAS, on_progress=report)
    end = folder / "end"
    while handle.active and not (end.exists() and rows_in >= int(end.read_text() or sys.maxsize)):
        time.sleep(0.05)
    if handle.active:
        handle.stop()
    handle.wait()
    print("done", flush=True)


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]))
    except Exception as error:
        print(f"failed {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        os._exit(3)
