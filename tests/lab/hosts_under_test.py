"""A flow of two levels whose executors are hosts that a test cuts off; a file of the folder's ``in`` is a batch.

Run as a script, on a host of a lab. It prints ``ready`` when all executors are there, and then what
``scripts.run_until_end`` prints.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl

import anabranch as ab
from lab.scripts import leaving_on_errors, run_until_end, wait_for_executors

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
    wait_for_executors(spark, HOSTS, PATIENCE_SECONDS)
    print("ready", flush=True)
    flow = ab.Flow("hosts")
    rows = flow.read(ab.files(folder / "in", format="json", schema=SCHEMA, max_files=1)).key_by("key")
    totals = rows.agg(rows=ab.count(), total=ab.sum("value"), name="totals")
    totals.write(ab.parquet(folder / "out" / "totals"))
    grouped = totals.with_columns(group=pl.col("key") % 5).key_by("group")
    grouped.agg(seen=ab.count(), most=ab.max("total"), name="groups").write(ab.parquet(folder / "out" / "groups"))
    run_until_end(flow, folder, spark=spark, slots=2 * HOSTS, replicas=REPLICAS)


if __name__ == "__main__":
    with leaving_on_errors():
        run(Path(sys.argv[1]))
