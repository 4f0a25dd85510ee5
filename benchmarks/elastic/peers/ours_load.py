"""A flow on a lab whose load becomes four times as high and is then as before; notes every batch and decision."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
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
_CATCH_UP_SECONDS = 150.0
"""For at most so long the higher load stays until nothing waits: executors at their target have little to spare."""
_SEEN_BATCHES = 4
"""By so many, the last ones, it is seen how busy the flow is."""


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
                **describe_commit(batch, "batch", "waiting_rows", "replayed"),
                "load": self.load,
                "busy_seconds": 0.0
                if batch.measures is None
                else sum(one.busy_seconds for one in batch.measures.executors),
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


class Course:
    """The load that a running flow goes through."""

    def __init__(
        self, driver: Driver, notes: Notes, feeder: Feeder, rows_of_file: int, batches: tuple[int, int]
    ) -> None:
        """``batches``: after so many, the costs of a batch are known, and so many belong to a load once it holds."""
        self._driver, self._notes, self._feeder, self._rows_of_file = driver, notes, feeder, rows_of_file
        self._warm_up_batches, self._settled_batches = batches

    def run(self, target: float) -> dict[str, Any]:
        """Bring one executor to its target, and let the load become four times as high and be as before; say when."""
        # Processes start in the first batch, for long on a part of a core, and rows would wait for minutes.
        self._feeder.add(1)
        self._wait_for_batches(1)
        self._feeder.start()
        # What batches cost is learnt.
        self._wait_for_batches(self._warm_up_batches)
        self._wait_until(self._has_caught_up, "the end of what waits")
        seen = [batch["elasticity"]["utilisation"] for batch in self._notes.batches[-_SEEN_BATCHES:]]
        self._feeder.tick_seconds *= mean(seen) / target
        moments = {"calibrated_at": time.time()}
        self._wait_for_batches(self._settled_batches)
        self._refuse_growth(mean(seen))
        moments["changed_up_at"] = self._change_load(4)
        self._wait_until(self._has_settled_on_more, "executors")
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        self._wait_until(lambda: self._has_caught_up() or time.monotonic() > deadline, "the end of what waits")
        self._wait_for_batches(self._settled_batches)
        moments["changed_down_at"] = self._change_load(1)
        self._wait_until(self._has_settled_on_one, "the end of executors that are too many")
        self._wait_for_batches(self._settled_batches)
        moments["ended_at"] = time.time()
        files = self._feeder.stop()
        rows = files * self._rows_of_file
        self._wait_until(lambda: sum(batch["rows"] for batch in self._notes.batches) >= rows, "the last rows")
        return {**moments, "files": files, "rows_per_second": self._rows_of_file / self._feeder.tick_seconds}

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if not self._driver.active or time.monotonic() > deadline:
                self._driver.wait(0)
                msg = f"{what} did not come within {_PATIENCE_SECONDS:.0f} s: {self._notes.batches[-3:]}"
                raise RuntimeError(msg)
            time.sleep(0.02)

    def _wait_for_batches(self, count: int) -> None:
        until = len(self._notes.batches) + count
        self._wait_until(lambda: len(self._notes.batches) >= until, f"{count} batches")

    def _change_load(self, load: int) -> float:
        # Just after a plan: else the next batch has something of both loads.
        planned = self._last_plan
        self._wait_until(lambda: self._last_plan != planned, "the next plan")
        self._feeder.load = self._notes.load = load
        return time.time()

    @property
    def _last_plan(self) -> str:
        return max(path.name for path in (Path(self._driver.settings.checkpoint) / "sources").glob("*.json"))

    def _has_settled_on_more(self) -> bool:
        return self._has_settled() and self._notes.latest["executors"] > 1

    def _has_settled_on_one(self) -> bool:
        return self._has_settled() and self._notes.latest["executors"] == 1

    def _has_caught_up(self) -> bool:
        return (self._notes.latest["waiting_rows"] or 0) < self._rows_of_file

    def _has_settled(self) -> bool:
        latest = self._notes.latest
        return bool(latest["homes"] == latest["executors"] == latest["elasticity"]["wanted"])

    def _refuse_growth(self, utilisation: float) -> None:
        """Raise if one executor was not enough for the load that is to be the base."""
        elasticity = self._notes.latest["elasticity"]
        if elasticity["wanted"] > 1:
            msg = f"one executor was to be at its target; it was busy to {utilisation:.0%}, and then more were wanted: "
            raise RuntimeError(f"{msg}{elasticity['reason']}; is the machine busy with something else?")


def main() -> None:
    """Run the flow through both changes, and write what was seen as JSON."""
    given = read_options(
        rows=int, sensors=int, seed=int, window_ms=int, steps=int, settings=str, elasticity=str, batches=str
    )
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
    seen = Course(driver, notes, feeder, given.rows, tuple(json.loads(given.batches))).run(elasticity.target)
    driver.stop(drain=True)
    decisions = ab.history(given.checkpoint, kind="decision")
    spark.stop()
    outcome = {
        "began_at": began,
        **seen,
        "batches": notes.batches,
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
