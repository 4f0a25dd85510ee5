"""A flow with replicas on the hosts of a lab, whose hosts sleep while load is low, and which a test disturbs.

Run as a script, on a host of a lab, with a folder of its own: files of its ``in`` are read as they come. It prints
``ready`` when all executors are there, ``batch <n> <rows> <hosts> <where state was read from>`` after every batch with
rows, and ``done`` once as many rows are through as the file ``end`` says.
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
PATIENCE_SECONDS = 400.0
SETTINGS = {
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.locality.wait": "2s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.executor.extraJavaOptions": os.environ.get("UNDER_TEST_JVM", ""),
}
KEYS = 2_000
SECONDS_A_ROW = 0.0005
SCHEMA = {"key": pl.Int64, "value": pl.Int64}
REPLICAS = ab.Replicas(degree=2, memory_mb=16, bandwidth_mbit=1000)
ENERGY = ab.Energy(
    latency_seconds=30,
    min_hosts=2,
    window_seconds=6,
    windows_down=1,
    cool_down_seconds=5,
    restart_seconds=30,
    headroom=0.1,
)


def work(frame: pl.DataFrame) -> pl.DataFrame:
    """Take processor time for every row, however busy the machine is."""
    until = time.thread_time() + frame.height * SECONDS_A_ROW
    while time.thread_time() < until:
        pass
    return frame


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
            there = sorted({task.host for task in progress.measures.tasks if task.level}) if progress.measures else []
            reads = sorted(progress.measures.run_reads) if progress.measures else []
            told = ",".join(there) or "nowhere", ",".join(reads) or "nowhere"
            print(f"batch {progress.batch} {progress.rows_in} {' '.join(told)}", flush=True)

    flow = ab.Flow("disturbed")
    rows = flow.read(ab.files(folder / "in", format="json", schema=SCHEMA, max_files=4)).key_by("key")
    totals = rows.agg(rows=ab.count(), total=ab.sum("value"), name="totals")
    totals.map_batches(work, schema=totals.schema).write(ab.parquet(folder / "out"))
    handle = flow.start(
        str(folder / "state"),
        spark=spark,
        slots=8,
        trigger="2s",
        replicas=REPLICAS,
        energy=ENERGY,
        job_attempts=8,
        on_progress=report,
    )
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
