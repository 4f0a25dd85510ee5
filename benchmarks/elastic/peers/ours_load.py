"""A flow on a lab whose load becomes four times as high and is then as before; notes every batch and decision."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.engine.settings import make_settings
from anabranch.model import BatchProgress
from anabranch.spark.driver import Driver
from anabranch.spark.executors import SparkExecutors
from benchmarks.elastic.stream import SCHEMA, Feeder, Readings
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import describe_commit, list_versions
from benchmarks.skew.peers.lehmer import LehmerSum

_PATIENCE_SECONDS = 300.0


def build_flow(folder: Path, output: Path, window_ms: int, steps: int) -> ab.Flow:
    """Return the flow: windows whose aggregate takes processor time for every row, in the slots."""
    flow = ab.Flow("elastic-load")
    source = ab.files(str(folder), format="parquet", schema=SCHEMA, max_files=None, max_bytes=None)
    (
        flow.read(source)
        .with_columns(ts=pl.from_epoch("ts", "ms"))
        .key_by("sensor", balance=None)
        .watermark("ts")
        .window(f"{window_ms}ms")
        .agg(readings=ab.count(), total=LehmerSum("value", steps))
        .write(ab.parquet(str(output)))
    )
    return flow


class Notes:
    """What every batch did, and what was wanted of the cluster after it."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.driver: Driver | None = None
        self.load = 1

    def note(self, batch: BatchProgress) -> None:
        """Take one committed batch."""
        assert self.driver is not None
        shown = self.driver.run.submit(Command("1", "show")).data
        executors = [one for one in shown["executors"] if not one["is_leaving"]]
        (operator,) = shown["operators"]
        self.batches.append(
            {
                **describe_commit(batch, "batch", "waiting_rows"),
                "load": self.load,
                "elasticity": shown["elasticity"],
                "executors": len(executors),
                "warm": sum(one["is_warm"] for one in executors),
                "slots": operator["slots"],
                "homes": len({home["executor"] for home in operator["homes"]}),
            }
        )

    @property
    def latest(self) -> dict[str, Any]:
        """The last batch."""
        return self.batches[-1]


def main() -> None:
    """Run the flow through both changes, and write what was seen as JSON."""
    given = read_options(rows=int, sensors=int, seed=int, window_ms=int, steps=int, settings=str, elasticity=str)
    began = time.time()
    spark = ab.local_session(memory="512m", config=json.loads(given.settings))
    elasticity = ab.Elasticity(**json.loads(given.elasticity))
    _leave_one(SparkExecutors(spark), elasticity.max_executors)
    watched = Path(given.checkpoint).with_name("watched")
    feeder = Feeder(Readings(given.rows, given.sensors, given.seed), watched)
    settings = make_settings(
        checkpoint=given.checkpoint, trigger="3s", latency="4s", local_merge=False, elasticity=elasticity
    )
    notes = Notes()
    flow = build_flow(watched, Path(given.output), given.window_ms, given.steps)
    driver = Driver(flow, settings, lambda: spark, on_progress=notes.note)
    notes.driver = driver
    driver.start()
    feeder.start()

    def wait_until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if not driver.active or time.monotonic() > deadline:
                driver.wait(0)
                msg = f"{what} did not come within {_PATIENCE_SECONDS:.0f} s: {notes.batches[-3:]}"
                raise RuntimeError(msg)
            time.sleep(0.02)

    def wait_for_batches(count: int) -> None:
        until = len(notes.batches) + count
        wait_until(lambda: len(notes.batches) >= until, f"{count} batches")

    def change_load(load: int) -> float:
        feeder.load = notes.load = load
        return time.time()

    def has(executors: int) -> bool:
        latest = notes.latest
        return {latest["homes"], latest["executors"], latest["elasticity"]["wanted"]} == {executors}

    # Processes start, and what batches cost is learnt.
    wait_for_batches(8)
    changed_up = change_load(4)
    wait_until(lambda: has(elasticity.max_executors), "executors")
    wait_for_batches(6)
    changed_down = change_load(1)
    wait_until(lambda: has(1), "the end of executors that are too many")
    wait_for_batches(6)
    files = feeder.stop()
    rows = files * given.rows
    wait_until(lambda: sum(batch["rows"] for batch in notes.batches) >= rows, "the last rows")
    driver.stop(drain=True)
    decisions = ab.history(given.checkpoint, kind="decision")
    spark.stop()
    outcome = {
        "began_at": began,
        "batches": notes.batches,
        "changed_up_at": changed_up,
        "changed_down_at": changed_down,
        "files": files,
        "decisions": decisions.select("batch", "action", "sender", "reason").rows(named=True),
        "runs": ab.history(given.checkpoint, kind="start").height,
        "versions": list_versions(),
    }
    Path(given.result).write_text(json.dumps(outcome))


def _leave_one(executors: SparkExecutors, count: int) -> None:
    """Give all executors back but one: a standalone cluster gives an application all it has at first."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(found := executors.list()) < count:
        _check(deadline, f"{count} executors, of which {len(found)} have come")
        time.sleep(0.1)
    executors.kill([one.id for one in found[1:]])
    while len(executors.list()) > 1:
        _check(deadline, "one executor")
        time.sleep(0.1)


def _check(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        msg = f"waited too long for {what}"
        raise RuntimeError(msg)


if __name__ == "__main__":
    main()
