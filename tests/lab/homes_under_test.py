"""A flow of two levels on a cluster of three executors, which come, go and die; prints where its slots ran, as JSON.

Run as a script, with a folder of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from pyspark import TaskContext
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli.app import app
from anabranch.spark.executors import SparkExecutors
from anabranch.spark.worker_process import find_owner
from contracts.executors import change_executors, measure_listing
from lab.scripts import tell_seen

SLOTS = 4
KEYS = 40
ROWS = pl.DataFrame({"key": [row % KEYS for row in range(400)]}, schema={"key": pl.Int64})
PATIENCE_SECONDS = 200.0
SETTINGS = {
    "spark.executor.memory": "512m",
    # Nobody holds Python to it on such a cluster; it is what the flow reckons with.
    "spark.executor.memoryOverhead": "300m",
    # A first batch on a busy machine takes longer than the usual three seconds, and then Spark waits no more. For an
    # executor that died in the middle of a batch, it waits as long, once a level.
    "spark.locality.wait": "20s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
    "spark.executor.extraJavaOptions": os.environ.get("UNDER_TEST_JVM", ""),
}


class Where:
    """Notes on which executor the slots of a level ran, and in which batch."""

    def __init__(self, folder: str, level: int) -> None:
        self.folder = Path(folder)
        self.level = level

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        context = TaskContext.get()
        if frame.height and context is not None:
            batch = (self.folder / "batch").read_text()
            note = f"{batch} {self.level} {context.partitionId()} {find_owner(os.getpid()).executor}\n"
            with (self.folder / f"ran-{os.getpid()}").open("a") as file:
                file.write(note)
        return frame


class Stage:
    """The flow while it runs, and what a test does to it."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder = folder
        self.checkpoint = str(folder / "state")
        self.source = ab.memory(schema={"key": pl.Int64})
        self.sink = ab.to_memory(folder / "results")
        self.fed = 0
        flow = ab.Flow("homes")
        totals = flow.read(self.source).key_by("key").agg(rows=ab.count(), name="first")
        totals = totals.map_batches(Where(str(folder), 1), schema=totals.schema).key_by("key")
        totals = totals.agg(seen=ab.count(), rows=ab.max("rows"), name="second")
        totals.map_batches(Where(str(folder), 2), schema=totals.schema).write(self.sink)
        # Rows of a key are merged behind no level: every key is in every slot's work in every batch.
        self.handle = flow.start(self.checkpoint, spark=spark, slots=SLOTS)

    def feed(self) -> dict[str, Any]:
        """Give the flow one batch more, and return where its slots were at home and where they ran."""
        (self.folder / "batch").write_text(str(self.fed))
        self.fed += 1
        self.source.add(ROWS)
        wait_until(lambda: not self.handle.active or self._rows_in() == self.fed * len(ROWS))
        assert self.handle.active, f"the flow has ended: {self.handle.read_progress()[-1:]}"
        shown = self.show()
        homes = {
            f"{level} {home['slot']}": home["executor"]
            for level, operator in enumerate(shown["operators"], start=1)
            for home in operator["homes"]
        }
        ran: dict[str, list[str]] = {}
        for path in self.folder.glob("ran-*"):
            for line in path.read_text().splitlines():
                batch, level, slot, executor = line.split()
                if int(batch) == self.fed - 1:
                    ran.setdefault(f"{level} {slot}", []).append(executor)
        return {"homes": homes, "ran": {slot: sorted(set(where)) for slot, where in sorted(ran.items())}}

    def _rows_in(self) -> int:
        return sum(batch.rows_in for batch in self.handle.progress)

    def feed_until(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Go on until homes are as they should be; return the first batch of which they are."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not fits(seen := self.feed()):
            assert time.monotonic() < deadline, f"homes are still {seen['homes']}"
            time.sleep(0.3)
        return seen

    def tell(self, *words: str) -> str:
        runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"})
        outcome = runner.invoke(app, ["ctl", self.checkpoint, *words, "--timeout", "60"])
        return outcome.stdout + outcome.stderr

    def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.tell("show", "--json"))
        return shown


def wait_until(condition: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE_SECONDS, "waited too long"
        time.sleep(0.02)
    return time.monotonic() - began


def find_process(executor: str) -> psutil.Process:
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if f"--executor-id {executor} " in " ".join(process.cmdline()) and "java" in process.name():
                return process
    msg = f"no process of executor {executor}"
    raise AssertionError(msg)


def try_executors(executors: SparkExecutors) -> dict[str, Any]:
    """Let one go and ask for another, without a flow; return what was seen."""
    wait_until(lambda: len(executors.list()) == 3)
    list_ms = measure_listing(executors)
    changed = change_executors(executors, wait_until)
    described = executors.describe()
    return {
        **changed,
        "cluster": described.manager,
        "costs": described.costs,
        "memory_bytes": executors.list()[0].memory_bytes,
        "figures": {"list_ms": list_ms, **changed["figures"]},
    }


def run(folder: Path) -> dict[str, Any]:
    spark = ab.local_session("local-cluster[3,1,768]", "600m", SETTINGS)
    executors = SparkExecutors(spark)
    seen: dict[str, Any] = {"changed": try_executors(executors)}
    stage = Stage(folder, spark)
    seen["steady"] = [stage.feed() for _ in range(3)]
    homes = seen["steady"][-1]["homes"]
    there = sorted(set(homes.values()))
    wanted = next(id for id in there if id != homes["1 0"])
    seen["refused"] = [stage.tell("home", "0", place, "--operator", "first") for place in ("99", "1")]
    seen["told"] = [wanted, stage.tell("home", "0", wanted, "--operator", "first")]
    seen["shown"] = stage.tell("show")
    seen["moved"] = stage.feed_until(lambda batch: batch["homes"]["1 0"] == wanted)
    killed = next(id for id in there if id != wanted)
    find_process(killed).send_signal(signal.SIGKILL)
    seen["killed"] = [killed, stage.feed()]
    seen["settled"] = stage.feed_until(lambda batch: killed not in batch["homes"].values())
    # Spark starts another in its place, which gets slots once it is warm.
    seen["replaced"] = stage.feed_until(lambda batch: len(set(batch["homes"].values())) == 3)
    released = next(id for id in seen["replaced"]["homes"].values() if id not in (wanted, killed))
    executors.decommission([released])
    seen["released"] = [released, stage.feed(), stage.feed()]
    stage.handle.stop()
    stage.handle.wait()
    latest = stage.sink.frame().group_by("key").agg(pl.col("rows").max(), pl.col("seen").max())
    seen["answers"] = latest.select("rows", "seen").unique().rows()
    seen["expected"] = [stage.fed * len(ROWS) // KEYS, stage.fed]
    seen["keys"] = latest.height
    actions = ab.history(stage.checkpoint, kind="decision").filter(pl.col("action") == "home")
    seen["decisions"] = actions.select("sender", "reason").rows()
    print("figures", json.dumps(seen["changed"]["figures"]), flush=True)
    return seen


if __name__ == "__main__":
    tell_seen(lambda: run(Path(sys.argv[1])))
