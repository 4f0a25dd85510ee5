"""Flows with much state on a lab, with and without replicas: a host is killed, and then results come again."""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.lab.lab import Lab
from anabranch.lab.record import RecordFile
from anabranch.lab.wires import WireLimit
from anabranch.model import BatchProgress
from anabranch.spark.driver import Driver
from anabranch.spark.executors import list_executors
from anabranch.state import open_store
from anabranch.state.copies.hot import SHARED_MEMORY
from benchmarks.shared.peers.cluster import wait_for_executors
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import list_versions

PAYLOAD_LETTERS = 200
"""Of each key, that no compression makes shorter by much."""
BUILDING_BATCHES = 12
WARM_UP_BATCHES = 5
COST_BATCHES = 20
_PATIENCE_SECONDS = 900.0
_SCHEMA = {"key": pl.Int64(), "payload": pl.String()}


class Watched:
    """A flow that keeps the last payload of each key, and what is seen of it."""

    def __init__(self, spark: SparkSession, given: Mapping[str, Any], checkpoint: str, output: Path) -> None:
        self.batches: list[tuple[float, BatchProgress]] = []
        self.source = ab.memory(schema=_SCHEMA)
        self.sink = ab.to_memory(output)
        flow = ab.Flow(f"replicas-{given['name']}")
        last = flow.read(self.source).key_by("key", balance=None).agg(rows=ab.count(), payload=ab.last("payload"))
        last.select("key", "rows").write(self.sink)
        replicas = (
            ab.Replicas(given["degree"], given.get("placement", "mrp"), memory_mb=given["memory_mb"])
            if given["degree"] > 1
            else None
        )
        self.handle = flow.start(
            checkpoint,
            spark=spark,
            slots=given["slots"],
            kept_batches=2,
            replicas=replicas,
            on_progress=lambda batch: self.batches.append((time.monotonic(), batch)),
        )
        self.fed = 0

    def feed(self, frame: pl.DataFrame) -> None:
        """Give it rows, and wait until they are through."""
        self.source.add(frame)
        self.fed += frame.height
        self.wait(lambda: sum(batch.rows_in for _, batch in self.batches) == self.fed, "rows")

    def wait_for_replicas(self) -> dict[str, Any]:
        """Wait until replicas hold all state, and return how they stand."""
        driver: Driver = self.handle._driver
        shown: dict[str, Any] = {}

        def stand() -> bool:
            shown.update(driver.run.submit(Command("1", "show")).data.get("replicas", {"current": 0, "wanted": 0}))
            return shown["current"] == shown["wanted"] and not shown.get("lag_bytes")

        self.wait(stand, "replicas")
        return shown

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if not self.handle.active:
                self.handle.wait()
                msg = "the flow has ended"
                raise RuntimeError(msg)
            if time.monotonic() > deadline:
                msg = f"waited {_PATIENCE_SECONDS:.0f} s for {what}"
                raise RuntimeError(msg)
            time.sleep(0.01)

    def stop(self) -> None:
        self.handle.stop()
        self.handle.wait()


def make_frames(keys: int, seed: int) -> Iterator[pl.DataFrame]:
    """Yield the keys in batches, each with a payload of its own."""
    chance = np.random.default_rng(seed)
    for part in np.array_split(np.arange(keys), BUILDING_BATCHES):
        text = base64.b64encode(chance.bytes(len(part) * PAYLOAD_LETTERS * 3 // 4)).decode()
        payloads = [text[place : place + PAYLOAD_LETTERS] for place in range(0, len(text), PAYLOAD_LETTERS)]
        yield pl.DataFrame({"key": part, "payload": payloads}, schema=_SCHEMA)


def recover(spark: SparkSession, lab: Lab, given: Mapping[str, Any], checkpoint: str, output: Path) -> dict[str, Any]:
    """Build state up, kill a host that has some of it, and note when results come again."""
    watched = Watched(spark, given, checkpoint, output)
    for frame in make_frames(given["keys"], given["seed"]):
        watched.feed(frame)
    # Little to do, and once before the loss, so that what follows it is told from what any batch takes. Other keys each
    # time: a key that has just been changed is found in the newest run, and all others are left alone.
    changed = [touch(given["keys"], number) for number in (0, 1)]
    watched.feed(changed[0])
    usual_seconds = watched.batches[-1][1].batch_seconds
    stand = watched.wait_for_replicas()
    state_bytes = watched.batches[-1][1].state_bytes
    lab.limit(given["store"], WireLimit(given["store_mbit"]))
    lost = next(executor for executor in list_executors(spark) if executor.host == given["address"])
    measures = watched.batches[-1][1].measures
    assert measures is not None
    slots_lost = sum(task.executor == lost.id for task in measures.tasks if task.level == 1)
    killed_at = time.monotonic()
    lab.kill(given["host"])
    watched.wait(lambda: lost.id not in {one.id for one in list_executors(spark)}, "the loss to be found")
    found_at = time.monotonic()
    watched.feed(changed[1])
    committed_at, last = watched.batches[-1]
    lab.limit(given["store"], None)
    watched.stop()
    rows = watched.sink.frame().group_by("key").agg(pl.col("rows").max())
    expected = 1 + rows["key"].is_in(pl.concat(changed)["key"].implode()).cast(pl.Int64)
    assert last.measures is not None
    return {
        "kind": "recovery",
        "name": given["name"],
        "degree": given["degree"],
        "is_right": rows.height == given["keys"] and bool((rows["rows"] == expected).all()),
        "slots_lost": slots_lost,
        "state_bytes": state_bytes,
        "usual_seconds": usual_seconds,
        "detection_seconds": found_at - killed_at,
        "recovery_seconds": committed_at - found_at,
        "run_reads": last.measures.run_reads,
        "replicas": stand,
        "told": ab.history(checkpoint, kind="recovery")["reason"].to_list(),
    }


def touch(keys: int, first: int) -> pl.DataFrame:
    """Return a thousand rows of keys that lie apart, from a key on."""
    some = range(first, keys, max(2, keys // 1000))
    return pl.DataFrame({"key": some, "payload": ["new"] * len(some)}, schema=_SCHEMA)


def measure_cost(spark: SparkSession, given: Mapping[str, Any], checkpoint: str, output: Path) -> dict[str, Any]:
    """Feed a flow whose state changes in every batch, as fast as it goes, and note its rows a second."""
    watched = Watched(spark, given, checkpoint, output)
    chance = np.random.default_rng(given["seed"])
    rows, keys = given["rows_a_batch"], given["keys"]
    frames = []
    for number in range(WARM_UP_BATCHES + COST_BATCHES):
        drawn = {"key": chance.integers(0, keys, rows), "payload": [f"{number}"] * rows}
        frames.append(pl.DataFrame(drawn, schema=_SCHEMA))
    for frame in frames:
        watched.source.add(frame)
    watched.fed = rows * len(frames)
    watched.wait(lambda: sum(batch.rows_in for _, batch in watched.batches) == watched.fed, "rows")
    moments = [at for at, batch in watched.batches if batch.rows_in]
    batches = [batch for _, batch in watched.batches if batch.rows_in]
    watched.stop()
    counted = watched.sink.frame().group_by("key").agg(pl.col("rows").max())["rows"].sum()
    stood = [batch.replicas for batch in batches if batch.replicas is not None]
    return {
        "kind": "cost",
        "name": given["name"],
        "degree": given["degree"],
        "is_right": counted == watched.fed,
        "rows_per_second": rows * (len(moments) - WARM_UP_BATCHES) / (moments[-1] - moments[WARM_UP_BATCHES - 1]),
        "copied_bytes": sum(one.copied_bytes for one in stood),
        "most_batches_behind": max((one.lag_batches for one in stood), default=0),
    }


def forget(given: Mapping[str, Any]) -> None:
    """Give back the memory that a run's state takes: that of its store's server, and that of the hosts.

    Runs of one call are the same, and six times 600 MB in several versions, twice, is more than machines have.
    """
    store = open_store(given["checkpoint"])
    store.delete([entry.name for entry in store.list("")])
    for copies in (SHARED_MEMORY / f"anabranch-{os.geteuid()}").glob(f"replicas-{given['name']}_*"):
        shutil.rmtree(copies, ignore_errors=True)


def main() -> None:
    """Run what a JSON file says, one after the other in one session, and write what was seen as JSON."""
    arguments = read_options(runs=str, master=str, memory=str, settings=str, record=str, executors=int)
    lab = Lab(RecordFile(Path(arguments.record)))
    spark = ab.local_session(arguments.master, arguments.memory, json.loads(arguments.settings))
    seen = []
    for number, given in enumerate(json.loads(Path(arguments.runs).read_text())):
        wait_for_executors(spark, arguments.executors)
        output = Path(arguments.output) / str(number)
        output.parent.mkdir(parents=True, exist_ok=True)
        if given["kind"] == "recovery":
            seen.append(recover(spark, lab, given, given["checkpoint"], output))
            lab.add(given["host"])
        else:
            seen.append(measure_cost(spark, given, given["checkpoint"], output))
        forget(given)
    spark.stop()
    Path(arguments.result).write_text(json.dumps({"runs": seen, "versions": list_versions()}))


if __name__ == "__main__":
    main()
