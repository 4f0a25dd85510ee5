"""The flows whose checkpoints are kept in ``gauges-0.1.tar.gz``, their input in two parts, and what must come of it.

``python -m kept.gauges_flow FOLDER``, with ``tests`` on the path, writes such a sample without Spark. It has what
``readings_flow`` has not: keys with their own time, a key that slots share, rows that readers hold back, timers by a
key's time, and partitions as slots.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.control.decisions import Decision, RouteChange
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import RoutingTable
from anabranch.routing import hash_keys
from anabranch.routing.phases import FlowRoutes

START = datetime(2026, 1, 1)
SCHEMA = {"gauge": pl.Int64(), "ts": pl.Datetime("us"), "level": pl.Int64()}
PARTS = {"first": range(3), "second": range(3, 6)}
"""Part → the numbers of its files, in the order they are read."""
GAUGES = 5
SHARED = 1
"""The gauge that both slots have from the second batch on."""
LATE = (SHARED, 2)
"""Gauges with a row that is too late by their own time, and by no other; the clocks of the checkpoint say so."""
SETTINGS = {"slots": 2, "buckets": 32, "kept_batches": 4}


class Alarm(ab.Processor):
    """Says how many rows a gauge had when none came for 15 s of its own time."""

    last = ab.value(pl.Datetime("us"))
    rows = ab.value(pl.Int64(), default=0)

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> None:
        if state.last is not None:
            timers.cancel(state.last + timedelta(seconds=15))
        state.last = row["ts"]
        state.rows += 1
        timers.at(row["ts"] + timedelta(seconds=15))

    def on_timer(self, timer: ab.Timer, state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        yield {"rows": state.rows}


def rows_of(number: int) -> list[dict[str, Any]]:
    """Return the rows of a file, each gauge's in order of time; gauges are an hour apart."""
    return [
        {
            "gauge": gauge,
            "ts": START + timedelta(hours=gauge, seconds=number * 16 + place),
            "level": (place * 7 + gauge * 3 + number) % 50,
        }
        for place in range(14)
        for gauge in (*range(GAUGES), SHARED)
    ]


def late_rows() -> list[dict[str, Any]]:
    """Return rows of windows that have fired, of gauges whose time the checkpoint knows."""
    return [{"gauge": gauge, "ts": START + timedelta(hours=gauge, seconds=5), "level": 1_000} for gauge in LATE]


def write_inputs(folder: Path, part: str) -> None:
    """Write the files of a part; the second begins with rows that are late."""
    for number in PARTS[part]:
        rows = rows_of(number)
        _write(folder / "gauges" / f"{number:03d}.json", (late_rows() if number == PARTS["second"][0] else []) + rows)
        for partition in range(2):
            own = [row for row in rows if row["gauge"] % 2 == partition]
            _write(folder / "depots" / f"{partition}" / f"{number:03d}.json", own)


def write_strangers(folder: Path) -> None:
    """Write, into the first partition, a row of a gauge that the second had before, in a window that is open."""
    number = PARTS["first"][-1]
    row = next(row for row in reversed(rows_of(number)) if row["gauge"] == SHARED)
    _write(folder / "depots" / "0" / "003.json", [row])


def make_gauges(folder: Path) -> ab.Flow:
    """Return the flow with keys that have their own time, with inputs and results below a folder."""
    flow = ab.Flow("kept-gauges")
    source = ab.files(str(folder / "gauges"), format="json", schema=SCHEMA, max_files=1)
    levels = flow.read(source, formerly="gauges")
    keyed = levels.watermark("ts", delay="2s", per="key").key_by("gauge")
    grouped = levels.watermark("ts", delay="2s", per="group").key_by("gauge", merge=ab.LocalMerge(at="window"))
    results = {
        "windows": keyed.window("10s").agg(rows=ab.count(), total=ab.sum("level"), name="windows"),
        "held": grouped.window("20s").agg(rows=ab.count(), highest=ab.max("level"), name="held"),
        "totals": keyed.agg(rows=ab.count(), total=ab.sum("level"), name="totals"),
        "alarms": keyed.process(Alarm(), schema={"gauge": pl.Int64, "rows": pl.Int64}, name="alarms"),
    }
    for name, stream in results.items():
        # A sample is unpacked elsewhere than it was made.
        stream.write(ab.parquet(str(folder / "results" / name)), formerly=name)
    return flow


def make_depots(folder: Path) -> ab.Flow:
    """Return the flow whose partitions are its slots."""
    flow = ab.Flow("kept-depots")
    source = ab.files(str(folder / "depots"), format="json", schema=SCHEMA, max_files=2, recursive=True)
    levels = flow.read(source, formerly="depots").watermark("ts", delay="4h")
    windows = levels.key_by("gauge", exchange="ahead").window("10s").agg(rows=ab.count(), name="depots")
    windows.write(ab.parquet(str(folder / "results" / "depots")), formerly="depots")
    return flow


def answers() -> dict[str, pl.DataFrame]:
    """Return what the results must be after both parts and a drain, computed by Polars alone; sinks by folder."""
    rows = pl.DataFrame([row for numbers in PARTS.values() for n in numbers for row in rows_of(n)], schema=SCHEMA)
    every = pl.concat([rows, pl.DataFrame(late_rows(), schema=SCHEMA)])
    start = {size: pl.col("ts").dt.truncate(size).alias("window_start") for size in ("10s", "20s")}
    count = pl.len().cast(pl.Int64).alias("rows")
    return {
        "windows": rows.group_by("gauge", start["10s"]).agg(count, total=pl.col("level").sum()),
        "held": rows.group_by("gauge", start["20s"]).agg(count, highest=pl.col("level").max()),
        # A total has no windows, and no row is too late for it.
        "totals": every.group_by("gauge").agg(count, total=pl.col("level").sum()),
        "alarms": rows.group_by("gauge").agg(count),
        "depots": rows.group_by("gauge", start["10s"]).agg(count),
    }


class SharesAGauge:
    """Gives half of one gauge's rows to each slot, at the end of the first batch."""

    def __init__(self, program: FlowProgram) -> None:
        self._program = program
        (self._hash,) = hash_keys(pl.DataFrame({"gauge": [SHARED]}, schema={"gauge": pl.Int64}), ["gauge"]).to_list()

    def watches(self, routes: FlowRoutes) -> dict[int, Any]:
        return {}

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        return Decision(batch) if batch else self.place(batch, routes, {0: 0.5, 1: 0.5})

    def place(self, batch: int, routes: FlowRoutes, shares: Mapping[int, float]) -> Decision:
        """Decide that slots have these shares of the gauge's rows from the next batch on."""
        table = RoutingTable.of({self._hash: shares})
        changes = {
            head: RouteChange(phases.routes.with_table(table), "state")
            for head, phases in routes.items()
            if self._program.kernels[head].meeting is not None
        }
        return Decision(batch, changes)

    def observe(self, manifest: object, report: object, routes: FlowRoutes) -> None:
        pass


def run_flow(flow: ab.Flow, checkpoint: Path, **settings: Any) -> None:
    """Run a flow to its end in this process."""
    steer = settings.pop("steer", None)
    run = LocalRun(flow, make_settings(checkpoint=str(checkpoint), **SETTINGS, **settings), make_steering=steer)
    try:
        run.run_to_end()
    finally:
        run.close()


def _write(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({**row, "ts": row["ts"].isoformat(timespec="microseconds")}) for row in rows]
    file.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_inputs(target, "first")
    # Each run is one batch: a file of gauges, or one of each depot.
    for _ in PARTS["first"]:
        run_flow(make_gauges(target), target / "gauges-checkpoint", trigger="once", steer=SharesAGauge)
        run_flow(make_depots(target), target / "depots-checkpoint", trigger="once")
