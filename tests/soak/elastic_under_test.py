"""A flow that may have one to three executors, under a load that becomes four times as high and is then as before.

Run as a script, with a folder of its own; prints what was seen, as JSON.
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
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.app import app
from anabranch.spark.executors import SparkExecutors
from lab.scripts import counts_every_row_once, make_work, tell_seen

PATIENCE_SECONDS = 150.0
EXECUTORS = 3
FRAME_SECONDS = 0.5
ROWS = 75
"""Of a frame; four times as many while the load is high."""
KEYS = 20_000
SECONDS_A_ROW = 0.001
"""With the load as it is at first, 0.15 of a core; what tasks cost besides comes on top, up to twice as much where
the machine is busy. One executor must then still do, and four times the load must still be too much for it."""
MOST_FRAMES = 8
"""Of a batch: on a machine that is busy with other tests, batches must not grow without end."""
ELASTICITY = ab.Elasticity(
    max_executors=EXECUTORS,
    target=0.4,
    upper=0.45,
    lower=0.2,
    samples_down=3,
    seconds_down=6.0,
    cool_down_seconds=20.0,
    # What a busy machine cannot do at once may wait: it is no reason for a second step.
    catch_up_seconds=3_600.0,
)
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.locality.wait": "20s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.executor.extraJavaOptions": os.environ.get("UNDER_TEST_JVM", ""),
}


class Feeder:
    """Adds a frame to a source every half second, from a thread of its own."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.load = 1
        self.fed = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def count_rows(self) -> int:
        """Return how many rows the next frame has."""
        return ROWS * self.load

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def _feed(self) -> None:
        due = time.monotonic()
        while not self._ends.wait(max(0.0, due - time.monotonic())):
            # Who is late on a busy machine catches up: the load is what it is said to be.
            due += FRAME_SECONDS
            rows = self.count_rows()
            self.source.add(make_rows(self.fed, rows))
            self.fed += rows


def make_rows(first: int, rows: int) -> pl.DataFrame:
    return pl.DataFrame({"key": [row % KEYS for row in range(first, first + rows)]}, schema={"key": pl.Int64})


class Watcher:
    """Looks at the flow while it runs."""

    def __init__(self, checkpoint: str, handle: Any) -> None:
        self.checkpoint, self.handle = checkpoint, handle
        self.seen: list[dict[str, Any]] = []

    def look(self) -> dict[str, Any]:
        runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"})
        shown: dict[str, Any] = json.loads(
            runner.invoke(app, ["ctl", self.checkpoint, "show", "--json", "--timeout", "60"]).stdout
        )
        executors = {one["id"]: one["is_warm"] for one in shown["executors"] if not one["is_leaving"]}
        (operator,) = shown["operators"]
        homes = sorted({home["executor"] for home in operator["homes"]})
        looked = {"batch": shown["batch"], "executors": executors, "homes": homes, "slots": operator["slots"]}
        self.seen.append(looked | shown["elasticity"])
        return self.seen[-1]

    def wait_for(self, what: str, least: int, most: int) -> float:
        """Wait until so many executors are wanted, and all are there and have slots; return after how many seconds."""
        began = time.monotonic()
        while True:
            if not self.handle.active:
                # Says what went wrong.
                self.handle.wait()
            assert self.handle.active, "the flow has ended"
            now = self.look()
            if len(now["homes"]) == len(now["executors"]) == now["wanted"] and least <= now["wanted"] <= most:
                return time.monotonic() - began
            assert time.monotonic() - began < PATIENCE_SECONDS, f"{what}: {self.seen[-3:]}"
            time.sleep(0.5)

    def wait_for_batches(self, count: int) -> None:
        until = len(self.handle.progress) + count
        began = time.monotonic()
        while len(self.handle.progress) < until:
            assert self.handle.active and time.monotonic() - began < PATIENCE_SECONDS
            time.sleep(0.1)

    def wait_for_rows(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(batch.rows_in for batch in self.handle.progress) < count:
            assert self.handle.active and time.monotonic() < deadline
            time.sleep(0.1)


def start_with_one_executor() -> Any:
    """Return a session on three workers with one executor: a standalone cluster gives an application all at first."""
    spark = ab.local_session(f"local-cluster[{EXECUTORS},1,768]", "600m", SETTINGS)
    executors = SparkExecutors(spark)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := executors.list()) < EXECUTORS:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    executors.kill([one.id for one in found[1:]])
    while len(found := executors.list()) > 1:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return spark


def make_flow(name: str, source: Any, sink: Any) -> ab.Flow:
    """Return a flow that counts rows by key, and takes its time for that."""
    flow = ab.Flow(name)
    counts = flow.read(source).key_by("key").agg(rows=ab.count(), name="counts")
    counts.map_batches(make_work(SECONDS_A_ROW), schema=counts.schema).write(sink)
    return flow


def run(folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    spark = start_with_one_executor()
    checkpoint = str(folder / "state")
    source, sink = ab.memory(schema={"key": pl.Int64}, max_frames=MOST_FRAMES), ab.to_memory(folder / "results")
    handle = make_flow("elastic", source, sink).start(checkpoint, spark=spark, elasticity=ELASTICITY, trigger="3s")
    watcher, feeder = Watcher(checkpoint, handle), Feeder(source)
    feeder.start()
    seen: dict[str, Any] = {"ready_seconds": time.monotonic() - began}
    # The first batch starts processes.
    watcher.wait_for_batches(4)
    seen["before"] = watcher.look()
    feeder.load = 4
    seen["grown_seconds"] = watcher.wait_for("grows", 2, EXECUTORS)
    watcher.wait_for_batches(2)
    seen["grown"] = watcher.look()
    feeder.load = 1
    seen["shrunk_seconds"] = watcher.wait_for("shrinks", 1, 1)
    feeder.stop()
    watcher.wait_for_rows(feeder.fed)
    seen["after"] = watcher.look()
    seen["looks"] = watcher.seen
    seen["batches"] = [
        {"batch": one.batch, "rows": one.rows_in, "seconds": one.batch_seconds, "replayed": one.replayed}
        for one in handle.progress
    ]
    handle.stop()
    handle.wait()
    seen["is_right"] = counts_every_row_once(sink, make_rows(0, feeder.fed))
    seen["rows"] = feeder.fed
    decisions = ab.history(checkpoint, kind="decision")
    seen["decisions"] = decisions.select("batch", "action", "sender", "reason").rows()
    seen["runs"] = ab.history(checkpoint, kind="start").height
    return seen


if __name__ == "__main__":
    tell_seen(lambda: run(Path(sys.argv[1])))
