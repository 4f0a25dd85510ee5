"""A flow whose load stays around the share at which more executors are asked for, for five minutes.

Run as a script, with a folder of its own; prints what was seen, as JSON.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from lab.scripts import counts_every_row_once, tell_seen
from soak.elastic_under_test import (
    EXECUTORS,
    MOST_FRAMES,
    ROWS,
    Feeder,
    Watcher,
    make_flow,
    make_rows,
    start_with_one_executor,
)

LIVE_SECONDS = 300.0
LOOK_SECONDS = 3.0
NOISE = 0.2
"""Of the rows of a frame, more or fewer, by chance."""
SEED = 16
ELASTICITY = ab.Elasticity(
    max_executors=EXECUTORS,
    # So little that the machine has something left for whoever else runs on it.
    cores_per_executor=0.5,
    samples_down=3,
    seconds_down=6.0,
    cool_down_seconds=20.0,
    catch_up_seconds=3_600.0,
)
CALIBRATIONS, CALIBRATION_BATCHES, SETTLING_BATCHES = 4, 4, 10


class NoisyFeeder(Feeder):
    """Adds frames whose rows are around a number."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._random = random.Random(SEED)
        self.rows = float(ROWS)

    def count_rows(self) -> int:
        return round(self.rows * self._random.uniform(1 - NOISE, 1 + NOISE))


def busy_of(looked: dict[str, Any]) -> float:
    """Return what comes as a share of the cores of one executor, however many there are."""
    return float(looked["utilisation"] * looked["wanted"])


def calibrate(watcher: Watcher, feeder: NoisyFeeder) -> None:
    """Let so much come that one executor is at the threshold."""
    for _ in range(CALIBRATIONS):
        watcher.wait_for_batches(CALIBRATION_BATCHES)
        # What tasks cost besides their rows does not follow them: a step is not enough.
        feeder.rows *= min(2.0, max(0.5, ELASTICITY.upper / busy_of(watcher.look())))


def run(folder: Path) -> dict[str, Any]:
    spark = start_with_one_executor()
    checkpoint = str(folder / "state")
    source, sink = ab.memory(schema={"key": pl.Int64}, max_frames=MOST_FRAMES), ab.to_memory(folder / "results")
    handle = make_flow("threshold", source, sink).start(checkpoint, spark=spark, elasticity=ELASTICITY, trigger="3s")
    watcher, feeder = Watcher(checkpoint, handle), NoisyFeeder(source)
    feeder.start()
    calibrate(watcher, feeder)
    watcher.wait_for_batches(SETTLING_BATCHES)
    watcher.wait_for("settles", 1, EXECUTORS)
    watcher.seen.clear()
    seen: dict[str, Any] = {"settled": watcher.look(), "rows_a_frame": feeder.rows}
    until = time.monotonic() + LIVE_SECONDS
    while time.monotonic() < until:
        assert handle.active, "the flow has ended"
        watcher.look()
        time.sleep(LOOK_SECONDS)
    seen["busy"] = [busy_of(looked) for looked in watcher.seen]
    seen["after"] = watcher.look()
    feeder.stop()
    watcher.wait_for_rows(feeder.fed)
    handle.stop()
    handle.wait()
    seen["is_right"] = counts_every_row_once(sink, make_rows(0, feeder.fed))
    told = ab.history(checkpoint, kind="decision").filter(pl.col("operator") == "executors")
    between = (pl.col("batch") > seen["settled"]["batch"] + 1) & (pl.col("batch") <= seen["after"]["batch"])
    seen["decisions"] = told.filter(between).select("batch", "action", "reason").rows()
    seen["all_decisions"] = told.select("batch", "action", "reason").rows()
    seen["runs"] = ab.history(checkpoint, kind="start").height
    return seen


if __name__ == "__main__":
    tell_seen(lambda: run(Path(sys.argv[1])))
