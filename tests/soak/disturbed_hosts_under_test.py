"""A flow with replicas on the hosts of a lab, whose hosts sleep while load is low, and which a test disturbs.

Run as a script, on a host of a lab, with a folder of its own: files of its ``in`` are read as they come. It prints
``ready`` when all executors are there, and then what ``scripts.run_until_end`` prints.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anabranch as ab
from lab.hosts_under_test import HOSTS, REPLICAS, SCHEMA, SETTINGS
from lab.scripts import leaving_on_errors, make_work, run_until_end, wait_for_executors

PATIENCE_SECONDS = 400.0
DECOMMISSIONS = {"spark.decommission.enabled": "true", "spark.storage.decommission.enabled": "true"}
KEYS = 2_000
SECONDS_A_ROW = 0.0005
ENERGY = ab.Energy(
    latency_seconds=30,
    min_hosts=2,
    window_seconds=6,
    windows_down=1,
    cool_down_seconds=5,
    restart_seconds=30,
    headroom=0.1,
)


def run(folder: Path) -> None:
    """Run the flow until the test ends it."""
    spark = ab.local_session(memory="600m", config=SETTINGS | DECOMMISSIONS)
    wait_for_executors(spark, HOSTS, PATIENCE_SECONDS)
    print("ready", flush=True)
    flow = ab.Flow("disturbed")
    rows = flow.read(ab.files(folder / "in", format="json", schema=SCHEMA, max_files=4)).key_by("key")
    totals = rows.agg(rows=ab.count(), total=ab.sum("value"), name="totals")
    totals.map_batches(make_work(SECONDS_A_ROW), schema=totals.schema).write(ab.parquet(folder / "out"))
    run_until_end(flow, folder, spark=spark, slots=8, trigger="2s", replicas=REPLICAS, energy=ENERGY, job_attempts=8)


if __name__ == "__main__":
    with leaving_on_errors():
        run(Path(sys.argv[1]))
