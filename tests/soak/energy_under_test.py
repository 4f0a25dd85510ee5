"""A flow on the hosts of a lab, whose load is low, then high: hosts go to sleep and come back.

Run as a script, on a host of a lab, with a folder of its own; prints ``seen`` and what was seen, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from lab.scripts import counts_every_row_once, leaving_on_errors, make_work, wait_for_executors

HOSTS = 3
PATIENCE_SECONDS = 240.0
FRAME_SECONDS = 0.5
LOW, HIGH = 20, 600
"""Rows of a frame."""
SECONDS_A_ROW = 0.001
"""High is 1.2 cores: more than one host has for tasks, less than this machine has."""
KEYS = 5_000
ENERGY = ab.Energy(
    latency_seconds=20, window_seconds=6, windows_down=2, cool_down_seconds=5, restart_seconds=60, headroom=0.1
)
SETTINGS = {
    "spark.locality.wait": "20s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.executor.extraJavaOptions": os.environ.get("UNDER_TEST_JVM", ""),
}


def make_rows(first: int, rows: int) -> pl.DataFrame:
    return pl.DataFrame({"key": [row % KEYS for row in range(first, first + rows)]}, schema={"key": pl.Int64})


class Flowing:
    """The flow, what is fed to it, and what is seen of it."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.source = ab.memory(schema={"key": pl.Int64}, max_frames=12)
        self.sink = ab.to_memory(folder / "results")
        flow = ab.Flow("thrifty")
        counts = flow.read(self.source).key_by("key").agg(rows=ab.count(), name="counts")
        counts.map_batches(make_work(SECONDS_A_ROW), schema=counts.schema).write(self.sink)
        self.batches: list[dict[str, Any]] = []
        self.fed, self.rows = 0, LOW
        self._ends = threading.Event()
        self.handle = flow.start(
            str(folder / "state"), spark=spark, slots=6, trigger="3s", energy=ENERGY, on_progress=self._note
        )
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def _note(self, progress: Any) -> None:
        hosts = sorted({task.host for task in progress.measures.tasks if task.level}) if progress.measures else []
        self.batches.append(
            {
                "batch": progress.batch,
                "rows": progress.rows_in,
                "hosts": hosts,
                "seconds": progress.batch_seconds,
                "energy": None if progress.energy is None else progress.energy.describe(),
            }
        )

    def _feed(self) -> None:
        while not self._ends.wait(FRAME_SECONDS):
            self.source.add(make_rows(self.fed, self.rows))
            self.fed += self.rows

    def wait_for_hosts(self, least: int, most: int) -> None:
        """Wait until a few batches in a row had slots on so many hosts."""
        deadline, since = time.monotonic() + PATIENCE_SECONDS, len(self.batches)
        while True:
            latest = self.batches[max(since, len(self.batches) - 3) :]
            if len(latest) == 3 and all(least <= len(batch["hosts"]) <= most for batch in latest):
                return
            if not self.handle.active:
                self.handle.wait()
            assert self.handle.active and time.monotonic() < deadline, self.batches[-5:]
            time.sleep(0.2)

    def end(self) -> None:
        """Let all rows that were fed come through."""
        self._ends.set()
        self._feeder.join()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(batch["rows"] for batch in self.batches) < self.fed:
            assert self.handle.active and time.monotonic() < deadline, self.batches[-5:]
            time.sleep(0.2)
        self.handle.stop()
        self.handle.wait()


def run(folder: Path) -> dict[str, Any]:
    spark = ab.local_session(memory="600m", config=SETTINGS)
    assert wait_for_executors(spark, HOSTS, PATIENCE_SECONDS)
    flowing = Flowing(folder, spark)
    flowing.wait_for_hosts(HOSTS, HOSTS)
    flowing.wait_for_hosts(1, 1)
    asleep = len(flowing.batches)
    flowing.rows = HIGH
    flowing.wait_for_hosts(2, HOSTS)
    flowing.end()
    decisions = ab.history(str(folder / "state"), kind="decision").filter(pl.col("sender") == "energy")
    return {
        "batches": flowing.batches,
        "asleep": asleep,
        "is_right": counts_every_row_once(flowing.sink, make_rows(0, flowing.fed)),
        "decisions": decisions.select("batch", "action", "reason").rows(),
    }


if __name__ == "__main__":
    with leaving_on_errors():
        print("seen", json.dumps(run(Path(sys.argv[1]))), flush=True)
