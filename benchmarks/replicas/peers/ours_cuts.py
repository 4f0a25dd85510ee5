"""A flow with replicas on hosts that lose their wires: where its slots went on, and when batches were committed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engine.batches.replicas.tier import ReplicaTier
from anabranch.lab.lab import Lab
from anabranch.lab.record import RecordFile
from anabranch.model import BatchProgress
from anabranch.model.measures import TaskMeasure
from anabranch.spark.driver import Driver
from anabranch.spark.executors import list_executors
from benchmarks.replicas.peers.ours_recovery import Watched, make_frames
from benchmarks.shared.peers.cluster import wait_for_executors
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import list_versions

STEADY_BATCHES = 3
"""That are looked at before hosts are cut off …"""
LATER_BATCHES = 3
"""… and that must be committed after each slot has run elsewhere."""


class Feeder(threading.Thread):
    """Gives a flow some rows every so often, of other keys each time, until it is told to stop."""

    def __init__(self, watched: Watched, given: Mapping[str, Any]) -> None:
        super().__init__(daemon=True)
        self._watched = watched
        self._keys, self._rows, self._seconds = given["keys"], given["rows"], given["interval_seconds"]
        self._chance = np.random.default_rng(given["seed"] + 1)
        self._stopped = threading.Event()
        self.fed = np.ones(self._keys, np.int64)
        """How often each key was given; once, to build its state."""

    def run(self) -> None:
        """Feed; rows that the flow has no time for wait at its source."""
        while not self._stopped.wait(self._seconds):
            keys = self._chance.integers(0, self._keys, self._rows)
            np.add.at(self.fed, keys, 1)
            self._watched.source.add(pl.DataFrame({"key": keys, "payload": ["new"] * len(keys)}))
            self._watched.fed += len(keys)

    def stop(self) -> None:
        """Feed nothing more."""
        self._stopped.set()
        self.join()


def cut_off(spark: SparkSession, lab: Lab, given: Mapping[str, Any], checkpoint: str, output: Path) -> dict[str, Any]:
    """Let a flow run, cut hosts off, and note what becomes of it until batches are committed without them."""
    names: Mapping[str, str] = given["names"]
    watched = Watched(spark, given, checkpoint, output)
    watched.feed(pl.concat(make_frames(given["keys"], given["seed"])))
    feeder = Feeder(watched, given)
    feeder.start()
    built = len(watched.batches)
    watched.wait(lambda: _count(watched, built) >= STEADY_BATCHES, "batches")
    watched.wait_for_replicas()
    steady = [batch for _, batch in watched.batches[built:] if batch.rows_in]
    tier = _tier_of(watched)
    known = tier._known
    assert known is not None
    homes = {slot: names[home.host] for slot, home in known.homes.items()}
    placed = {slot: [names[host] for host in hosts] for slot, hosts in tier._placed.items()}
    changed = {
        slot: sum(run.bytes for run in runs.values() if run.batch == known.batch) for slot, runs in known.runs.items()
    }
    state = {slot: known.state_bytes(slot) for slot in known.runs}
    lost = {slot for slot, home in homes.items() if home in given["cut"]}
    cut_at = time.monotonic()
    for host in given["cut"]:
        lab.cut(host)
    gone = {address for address, name in names.items() if name in given["cut"]}
    watched.wait(lambda: not gone & {one.host for one in list_executors(spark)}, "the loss to be found")
    found_at = time.monotonic()
    watched.wait(
        lambda: _count(watched, _find_elsewhere(watched, cut_at, lost, gone)) >= LATER_BATCHES, "batches without them"
    )
    feeder.stop()
    watched.wait(lambda: sum(batch.rows_in for _, batch in watched.batches) == watched.fed, "rows")
    watched.stop()
    answer = watched.sink.frame().group_by("key").agg(pl.col("rows").max()).sort("key")
    began = watched.batches[built - 1][0]
    return {
        "kind": "lab",
        "name": given["name"],
        "placement": given["placement"],
        "cut": list(given["cut"]),
        "homes": _write(homes),
        "replicas": _write(placed),
        "slots": [
            {
                "slot": slot[1],
                "cpu_seconds_a_row": fmean(_cpu_a_row(batch, slot) for batch in steady),
                "state_bytes": state[slot],
                "changed_bytes_a_row": changed[slot] / max(1, steady[-1].rows_in),
            }
            for slot in sorted(homes)
        ],
        "steady_seconds": median(batch.batch_seconds for batch in steady),
        "sources": {str(slot[1]): sorted(_task_of(watched, slot, cut_at, gone).run_reads) for slot in sorted(lost)},
        "ran": {str(slot[1]): names[_task_of(watched, slot, cut_at, gone).host] for slot in sorted(lost)},
        "commits": [[at - began, batch.rows_in] for at, batch in watched.batches[built:] if batch.rows_in],
        "cut_seconds": cut_at - began,
        "found_seconds": found_at - began,
        "is_right": answer["rows"].to_list() == feeder.fed.tolist(),
    }


def _count(watched: Watched, start: int | None) -> int:
    """Return the batches with rows from a place on; none if there is no such place yet."""
    return 0 if start is None else sum(batch.rows_in > 0 for _, batch in list(watched.batches)[start:])


def _tier_of(watched: Watched) -> ReplicaTier:
    driver: Driver = watched.handle._driver
    tier = driver.run._replicas
    assert isinstance(tier, ReplicaTier)
    return tier


def _ran_elsewhere(batch: BatchProgress, slot: tuple[int, int], gone: Collection[str]) -> bool:
    tasks = () if batch.measures is None else batch.measures.tasks
    return any(task.id == slot and task.host not in gone for task in tasks)


def _find_elsewhere(
    watched: Watched, cut_at: float, lost: Collection[tuple[int, int]], gone: Collection[str]
) -> int | None:
    """Return the place of the first batch after the cut in which every lost slot ran on a host that is left."""
    for place, (at, batch) in enumerate(list(watched.batches)):
        if at > cut_at and all(_ran_elsewhere(batch, slot, gone) for slot in lost):
            return place
    return None


def _task_of(watched: Watched, slot: tuple[int, int], cut_at: float, gone: Collection[str]) -> TaskMeasure:
    """Return what a slot's task did the first time that it ran on a host that is left."""
    return next(
        task
        for at, batch in watched.batches
        if at > cut_at and batch.measures is not None
        for task in batch.measures.tasks
        if task.id == slot and task.host not in gone
    )


def _cpu_a_row(batch: BatchProgress, slot: tuple[int, int]) -> float:
    tasks = () if batch.measures is None else batch.measures.tasks
    return sum(task.cpu_seconds for task in tasks if task.id == slot) / batch.rows_in


def _write(by_slot: Mapping[tuple[int, int], Any]) -> dict[str, Any]:
    return {str(slot): found for (_, slot), found in sorted(by_slot.items())}


def main() -> None:
    """Run what a JSON file says, one after the other in one session, and write what was seen as JSON."""
    given = read_options(runs=str, master=str, memory=str, settings=str, record=str, executors=int)
    lab = Lab(RecordFile(Path(given.record)))
    spark = ab.local_session(given.master, given.memory, json.loads(given.settings))
    seen = []
    runs = json.loads(Path(given.runs).read_text())
    for number, one in enumerate(runs):
        wait_for_executors(spark, given.executors)
        output = Path(given.output) / str(number)
        output.parent.mkdir(parents=True, exist_ok=True)
        seen.append(cut_off(spark, lab, one, one["checkpoint"], output))
        for host in one["cut"] if one is not runs[-1] else ():
            # A worker that was away may or may not be taken back: a new one is.
            lab.heal(host)
            lab.kill(host)
            lab.add(host)
    spark.stop()
    Path(given.result).write_text(json.dumps({"runs": seen, "versions": list_versions()}))


if __name__ == "__main__":
    main()
