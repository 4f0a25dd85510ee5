"""Move state while a stream runs, or stop it and start it with other slots; note every commit."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.control.rebalancer import Rebalancer
from anabranch.engine.settings import make_settings
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import BatchProgress
from anabranch.routing import hash_keys
from anabranch.routing.keys import KeyBatch
from anabranch.routing.routes import Routes
from anabranch.spark.driver import Driver
from benchmarks.migration.inputs import SCHEMA, hand_out
from benchmarks.shared.peers.our_outcome import describe_commit
from benchmarks.shared.peers.steerings import ScriptedSteering, Step

_WAIT_SECONDS = 600.0


class CommitLog:
    """Note what every batch did, and by the wall clock when it was committed."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    @property
    def files_done(self) -> int:
        """Batches with rows; a file is a batch."""
        return sum(bool(batch["rows"]) for batch in self.batches)

    def note(self, batch: BatchProgress) -> None:
        """Take one committed batch."""
        described = describe_commit(batch, "batch", "moved_bytes", "state_bytes")
        self.batches.append({**described, "slots": len(batch.slot_rows)})


def build_flow(folder: Path, output: Path, window: str) -> ab.Flow:
    """Return the flow of the bench: four aggregates over long windows."""
    source = ab.files(str(folder), format="parquet", schema=SCHEMA, max_files=1, max_bytes=None)
    flow = ab.Flow("migration")
    (
        flow.read(source)
        .with_columns(ts=pl.from_epoch("ts", "ms"))
        # Keys are alike, and what moves is for the script to say.
        .key_by("sensor", balance=None)
        .watermark("ts")
        .window(window)
        .agg(readings=ab.count(), total=ab.sum("value"), low=ab.min("value"), high=ab.max("value"))
        .write(ab.parquet(str(output)))
    )
    return flow


def move(spark: SparkSession, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the whole stream under a script of moves."""
    script = {int(batch): Step(**step) for batch, step in json.loads(arguments.script).items()}
    steered: list[ScriptedSteering] = []

    def steer(program: FlowProgram) -> ScriptedSteering:
        steered.append(ScriptedSteering(program, script))
        return steered[0]

    log = CommitLog()
    settings = make_settings(
        checkpoint=arguments.checkpoint,
        trigger="available-now",
        drain=True,
        slots=arguments.slots,
        local_merge=False,
    )
    flow = build_flow(Path(arguments.input), Path(arguments.output), arguments.window)
    driver = Driver(flow, settings, lambda: spark, on_progress=log.note, make_steering=steer)
    driver.start()
    driver.wait()
    moved = {
        batch: 100 * _find_moved_share(before, after, arguments.keys)
        for batch, (before, after) in steered[0].done.items()
    }
    return {"batches": log.batches, "moved_keys_pct": moved}


def restart(spark: SparkSession, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run some files, stop, and run the others with another number of slots."""
    watched = Path(arguments.checkpoint).with_name("watched")
    log = CommitLog()
    hand_out(Path(arguments.input), watched, 0, arguments.files_before)
    driver = _start(spark, arguments, watched, arguments.slots, log)
    _wait_until(lambda: log.files_done >= arguments.files_before, driver)
    stop_called_at = time.time()
    driver.stop()
    stopped_at = time.time()
    hand_out(Path(arguments.input), watched, arguments.files_before, arguments.files)
    again = _start(spark, arguments, watched, arguments.slots_after, log)
    started_at = time.time()
    _wait_until(lambda: log.files_done >= arguments.files, again)
    again.stop(drain=True)
    return {
        "batches": log.batches,
        "stop_called_at": stop_called_at,
        "stop_seconds": stopped_at - stop_called_at,
        "start_seconds": started_at - stopped_at,
    }


def _start(spark: SparkSession, arguments: argparse.Namespace, watched: Path, slots: int, log: CommitLog) -> Driver:
    settings = make_settings(
        checkpoint=arguments.checkpoint, trigger="continuous", slots=slots, local_merge=False, kept_batches=10
    )
    flow = build_flow(watched, Path(arguments.output), arguments.window)
    driver = Driver(
        flow,
        settings,
        lambda: spark,
        on_progress=log.note,
        make_steering=lambda program: Rebalancer(program, time.monotonic, resizes=True),
    )
    driver.start()
    return driver


def _wait_until(condition: Callable[[], bool], driver: Driver) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        if driver.error is not None or not driver.active or time.monotonic() > deadline:
            driver.wait(0)
            msg = f"the flow did not get on within {_WAIT_SECONDS:.0f} s"
            raise RuntimeError(msg)
        time.sleep(0.005)


def _find_moved_share(before: Routes, after: Routes, keys: int) -> float:
    hashes = hash_keys(pl.DataFrame({"sensor": np.arange(keys)}), ["sensor"]).to_numpy()
    return float(np.mean(before.home_slots(KeyBatch(hashes)) != after.home_slots(KeyBatch(hashes))))


def main() -> None:
    """Run one way to move state, and write all commits as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=("move", "restart"), required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--memory", required=True)
    parser.add_argument("--window", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--script", default="{}")
    parser.add_argument("--slots-after", type=int, default=0)
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--files-before", type=int, default=0)
    arguments = parser.parse_args()
    spark = ab.local_session(master="local[2]", memory=arguments.memory)
    outcome = move(spark, arguments) if arguments.way == "move" else restart(spark, arguments)
    spark.stop()
    Path(arguments.result).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
