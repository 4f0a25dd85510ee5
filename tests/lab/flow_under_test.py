"""A driver to be killed: reads prepared files, one a batch, and writes eight sinks behind none, one and two hops.

Run as a script. It prints ``ready``, then ``batch <n>`` after every batch, then ``done``; when the flow fails,
``failed <error>`` and ends with 3. Knobs for tests come by environment:

- ``UNDER_TEST_JVM``: options of the driver's JVM and of the executors';
- ``ANABRANCH_FAULT``: the engine's own fault points;
- ``UNDER_TEST_STOP=<moment>:<batch>``: stop with SIGSTOP at a fault point, or in the commit itself (``in-commit``);
- ``UNDER_TEST_CHECKPOINT=<place>``: where the checkpoint is, unless it is the folder's;
- ``UNDER_TEST_KEPT=<batches>``: how many batches are kept;
- ``UNDER_TEST_TRAPS=<folder>``: traps for tasks, see ``Trap``;
- ``UNDER_TEST_MOVES=<seed>``: move, split and merge keys at every boundary, as the seed says.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab

SCHEMA = {"key": pl.Int64, "ts": pl.Datetime("ms"), "whole": pl.Int64, "real": pl.Float64}
PATIENCE_SECONDS = 400.0
MOST_SLOTS = 3
"""While keys move: every slot is a task or two more in each batch."""
QUICK_JVM = {f"spark.{who}.extraJavaOptions": os.environ.get("UNDER_TEST_JVM", "") for who in ("driver", "executor")}


class Trap:
    """Springs once at a place that tasks pass: the trap with the lowest number, if it is for this place.

    A trap is a file ``<number>-<place>-<deed>``. Springing renames it to ``sprung-<number>-<pid>``, so that one task
    springs it, once. The deed is ``raise`` (fail this attempt) or ``wait`` (until ``go-<number>`` is there); the next
    trap counts only after the one before was let go.
    """

    def __init__(self, folder: str, place: str) -> None:
        self.folder = folder
        self.place = place

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            self._spring()
        return frame

    def _spring(self) -> None:
        folder = Path(self.folder)
        waiting = [name for name in os.listdir(folder) if name.startswith("sprung-")]
        if any(not (folder / f"go-{name.split('-')[1]}").exists() for name in waiting):
            return
        armed = sorted(name for name in os.listdir(folder) if name[:1].isdigit())
        if not armed:
            return
        number, place, deed = armed[0].split("-")
        if place != self.place:
            return
        try:
            os.rename(folder / armed[0], folder / f"sprung-{number}-{os.getpid()}")
        except FileNotFoundError:
            return
        if deed == "raise":
            (folder / f"go-{number}").touch()
            msg = f"trap {number} sprang"
            # What a host may be to blame for is what Spark tries again.
            raise OSError(msg)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (folder / f"go-{number}").exists() and time.monotonic() < deadline:
            time.sleep(0.02)


class Pauses(ab.Processor):
    """Says of every key how many rows it had, eight seconds after the first since it last said so."""

    rows = ab.value(pl.Int64(), default=0)

    def on_time(self, row, state, timers):
        if not state.rows:
            timers.at(row["ts"] + timedelta(seconds=8))
        state.rows += 1

    def on_timer(self, timer, state, timers):
        yield {"until": timer.time, "rows": state.rows}
        state.clear()


def make_flow(folder: Path, traps: str | None) -> ab.Flow:
    """Return the flow: running totals, windows, windows over them; sessions that are shown early; windows and timers in
    the time of their own keys; windows whose rows readers hold back, and windows that meet in a store."""

    def trap(stream, place):
        return stream.map_batches(Trap(traps, place), schema=stream.schema) if traps else stream

    flow = ab.Flow("under-test")
    rows = flow.read(ab.files(folder / "in", format="json", schema=SCHEMA, max_files=1))
    keyed = trap(rows, "read").watermark("ts", delay="5s").key_by("key")
    totals = keyed.agg(rows=ab.count(), total=ab.sum("whole"), volume=ab.sum("real"), name="totals")
    totals.write(ab.parquet(folder / "out" / "totals"))
    windows = keyed.window("10s").agg(
        rows=ab.count(),
        total=ab.sum("whole"),
        highest=ab.max("real"),
        opening=ab.first("whole"),
        closing=ab.last("real"),
    )
    windows = trap(windows, "first")
    windows.write(ab.parquet(folder / "out" / "windows"))
    grouped = windows.with_columns(group=pl.col("key") % 5).key_by("group").window("30s")
    groups = grouped.agg(
        keys=ab.count(), rows=ab.sum("rows"), total=ab.sum("total"), highest=ab.max("highest"), name="groups"
    )
    trap(groups, "second").write(ab.json_lines(folder / "out" / "groups"))
    visits = keyed.session("1s", early="5s").agg(rows=ab.count(), total=ab.sum("whole"), name="visits")
    visits.write(ab.parquet(folder / "out" / "visits"))
    stream = rows.watermark("ts", delay="5s")
    held = stream.key_by("key", merge=ab.LocalMerge(at="window")).window("20s", every="10s")
    held.agg(rows=ab.count(), total=ab.sum("whole"), name="held").write(ab.parquet(folder / "out" / "held"))
    merged = stream.key_by("key", exchange="global").window("10s")
    merged = merged.agg(
        rows=ab.count(), total=ab.sum("whole"), highest=ab.max("real"), mean=ab.mean("real"), name="merged"
    )
    merged.write(ab.global_store(folder / "out" / "merged.sqlite", table="windows"))
    timed = rows.watermark("ts", delay="2s", per="key").key_by("key")
    own = timed.window("10s", every="5s", late="update", lateness="20s")
    own.agg(rows=ab.count(), total=ab.sum("whole"), name="own").write(ab.parquet(folder / "out" / "own"))
    pauses = timed.process(Pauses(), schema={"key": pl.Int64, "until": pl.Datetime("us"), "rows": pl.Int64})
    pauses.write(ab.parquet(folder / "out" / "timed"))
    return flow


def run_wild(
    flow: ab.Flow, settings: dict[str, Any], session: Any, on_progress: Callable[[Any], None], seed: int
) -> None:
    """Run a flow to its end while its keys move at every boundary."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from anabranch.engine.settings import make_settings
    from anabranch.spark.driver import Driver
    from flows.wild_steering import WildSteering

    rows = [{"key": key, "group": key % 5} for key in range(30)]
    checked = make_settings(**settings)
    steer = lambda program: WildSteering(seed, program, rows, MOST_SLOTS)  # noqa: E731
    driver = Driver(flow, checked, lambda: session, on_progress, steer)
    driver.start()
    driver.wait()


def stop_at(wanted: str) -> None:
    """Let this process stop itself at a moment of a batch."""
    from anabranch.engine.batches import batch as batch_module
    from anabranch.state.checkpoint import commit_file
    from anabranch.state.store import LocalStore

    moment, number = wanted.rsplit(":", 1)

    def stop() -> None:
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)

    if moment == "in-commit":
        create = LocalStore.create

        def create_late(self: LocalStore, name: str, content: bytes) -> None:
            if name == commit_file(int(number)):
                stop()
            create(self, name, content)

        LocalStore.create = create_late  # type: ignore[method-assign]
        return
    reach = batch_module.reach

    def reach_or_stop(at: str, batch: int) -> None:
        if (at, batch) == (moment, int(number)):
            stop()
        reach(at, batch)

    batch_module.reach = reach_or_stop


def main() -> int:
    """Run the flow to its end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--conf", action="append", default=[])
    given = parser.parse_args()
    if wanted := os.environ.get("UNDER_TEST_STOP"):
        stop_at(wanted)
    config = QUICK_JVM | dict(item.split("=", 1) for item in given.conf)
    session = ab.local_session(given.master, "1g", config)
    print("ready", flush=True)
    flow = make_flow(given.folder, os.environ.get("UNDER_TEST_TRAPS"))
    settings = {"trigger": "available-now", "drain": True, "slots": given.slots}
    if kept := os.environ.get("UNDER_TEST_KEPT"):
        settings["kept_batches"] = int(kept)
    checkpoint = os.environ.get("UNDER_TEST_CHECKPOINT", str(given.folder / "checkpoint"))

    def report(progress: Any) -> None:
        print(f"batch {progress.batch}", flush=True)

    try:
        if seed := os.environ.get("UNDER_TEST_MOVES"):
            run_wild(flow, settings | {"checkpoint": checkpoint}, session, report, int(seed))
        else:
            flow.run(checkpoint, spark=session, on_progress=report, **settings)
    except Exception as error:
        print(f"failed {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        return 3
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
