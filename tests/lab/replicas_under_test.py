"""A flow with replicas on a cluster of three executors, which a test kills; prints what slots read, as JSON.

Run as a script, with a folder of its own and a checkpoint on S3. All executors are on this host, so each stands for a
host: it has a part of the memory to itself, into which no other looks.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.app import app
from anabranch.model.replicas import ReplicaProgress
from anabranch.spark.executors import SparkExecutors
from anabranch.state.copies.hot import SHARED_MEMORY
from lab.homes_under_test import PATIENCE_SECONDS, SETTINGS, find_process, wait_until
from lab.scripts import tell_seen

FLOW = "replicas-under-test"
SLOTS = 4
KEYS = 400
ROWS = pl.DataFrame({"key": list(range(KEYS)) * 2}, schema={"key": pl.Int64})


class Stage:
    """The flow while it runs, and what a test does to it."""

    def __init__(self, folder: Path, checkpoint: str, spark: Any) -> None:
        self.checkpoint = checkpoint
        self.source = ab.memory(schema={"key": pl.Int64})
        self.sink = ab.to_memory(folder / "results")
        self.executors = SparkExecutors(spark)
        self.fed = 0
        flow = ab.Flow(FLOW)
        totals = flow.read(self.source).key_by("key").agg(rows=ab.count(), name="totals")
        totals.write(self.sink)
        self.handle = flow.start(checkpoint, spark=spark, slots=SLOTS, replicas=ab.Replicas(degree=2, memory_mb=64))

    def feed(self) -> dict[str, Any]:
        """Give the flow one batch more, and return where its slots ran, and what they read."""
        self.fed += 1
        self.source.add(ROWS)
        wait_until(lambda: not self.handle.active or self._rows_in() == self.fed * len(ROWS))
        assert self.handle.active, f"the flow has ended: {self.handle.read_progress()[-1:]}"
        done = self.handle.progress[-1]
        assert done.measures is not None
        slots = [task for task in done.measures.tasks if task.level == 1]
        return {
            "batch": done.batch,
            "ran": {task.slot: task.executor for task in slots},
            "reads": {task.slot: {source: runs for source, (runs, _) in task.run_reads.items()} for task in slots},
        }

    def _rows_in(self) -> int:
        return sum(batch.rows_in for batch in self.handle.progress)

    def settle(self) -> dict[str, Any]:
        """Feed until every slot has its replica, and return the last batch, and how replicas stand."""
        last = self.feed()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (stand := self.stand()).lag_bytes or stand.current < SLOTS:
            assert time.monotonic() < deadline, f"replicas still stand so: {stand}"
            time.sleep(0.5)
            if stand.problem or stand.placed < SLOTS:
                # Executors that have just come are seen by the next batch.
                last = self.feed()
        return last | {"stand": stand.to_json()}

    def stand(self) -> ReplicaProgress:
        runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"})
        shown = runner.invoke(app, ["ctl", self.checkpoint, "show", "--json", "--timeout", "60"])
        return ReplicaProgress.from_json(json.loads(shown.stdout)["replicas"])

    def kill(self, executor: str) -> float:
        """Kill an executor, and wait until Spark knows; return how long that took."""
        find_process(executor).send_signal(signal.SIGKILL)
        return wait_until(lambda: executor not in {one.id for one in self.executors.list()})


def list_replicas() -> list[Path]:
    home = SHARED_MEMORY / f"anabranch-{os.geteuid()}"
    return [path for folder in home.glob(f"{FLOW}_*_replicas-*") for path in folder.rglob("*") if path.is_file()]


def flip_bytes() -> int:
    """Damage every replica there is; return how many."""
    paths = list_replicas()
    for path in paths:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.unlink()
        path.write_bytes(bytes(content))
    return len(paths)


def lose(stage: Stage, before_loss: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Kill the executor of slot 0, and feed a batch; return what was seen."""
    stage.settle()
    steady = stage.settle()
    killed = steady["ran"][0]
    done = before_loss()
    detected_seconds = stage.kill(killed)
    return {
        "steady": steady,
        "killed": killed,
        "done": done,
        "detected_seconds": detected_seconds,
        "first": stage.feed(),
    }


def run(folder: Path, checkpoint: str) -> dict[str, Any]:
    config = json.loads(os.environ["UNDER_TEST_SETTINGS"])
    spark = ab.local_session("local-cluster[3,1,768]", "600m", {**SETTINGS, **config})
    stage = Stage(folder, checkpoint, spark)
    seen: dict[str, Any] = {"intact": lose(stage), "damaged": lose(stage, flip_bytes)}
    stage.handle.stop()
    stage.handle.wait()
    latest = stage.sink.frame().group_by("key").agg(pl.col("rows").max())
    seen["answers"] = [latest.height, *latest["rows"].unique().to_list()]
    seen["expected"] = [KEYS, stage.fed * len(ROWS) // KEYS]
    recoveries = ab.history(checkpoint, kind="recovery")
    seen["told"] = recoveries.filter(pl.col("action") == "replica")["reason"].to_list()
    seen["replicas_left"] = len(list_replicas())
    return seen


if __name__ == "__main__":
    try:
        tell_seen(lambda: run(Path(sys.argv[1]), sys.argv[2]))
    finally:
        for left in (SHARED_MEMORY / f"anabranch-{os.geteuid()}").glob(f"{FLOW}_*"):
            shutil.rmtree(left, ignore_errors=True)
