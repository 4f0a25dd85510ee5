"""The flow whose checkpoint is kept in ``readings-0.1.tar.gz``, its input in two parts, and what must come out of it.

``python -m kept.readings_flow FOLDER``, with ``tests`` on the path, writes such a sample: the first part is read and
the flow stopped, with windows, sessions, timers and nested state open.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
from pyspark import cloudpickle

import anabranch as ab

# Workers cannot import from tests/.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

START = datetime(2026, 1, 1)
SCHEMA = {"sensor": pl.Int64(), "ts": pl.Datetime("ms"), "volts": pl.Float64(), "paid": pl.Decimal(12, 2)}
PARTS = {"first": range(3), "second": range(3, 6)}
"""Part → the numbers of its files, in the order they are read."""
SITES = ("north", "south")
MADE_ROWS = 3_000


class Journal(ab.Processor):
    """Keeps a list and a map of every sensor, and says how long they are when the sensor was silent for 30 s."""

    last = ab.value(pl.Datetime("us"))
    volts = ab.listed(pl.Float64())
    tens = ab.mapped(pl.Int64(), pl.Int64())

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> None:
        if state.last is not None:
            timers.cancel(state.last + timedelta(seconds=30))
        state.last = row["ts"]
        state.volts.append(row["volts"])
        ten = int(row["volts"]) // 10
        state.tens[ten] = state.tens.get(ten, 0) + 1
        timers.at(row["ts"] + timedelta(seconds=30))

    def on_timer(self, timer: ab.Timer, state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        yield {"readings": len(state.volts), "tens": len(state.tens), "most": max(state.tens.values())}


def rows_of(site: str, number: int) -> list[dict[str, Any]]:
    """Return the rows of a site's file: in order of time, file by file; values are eighths and cents."""
    offset = 0 if site == "north" else 3
    return [
        {
            "sensor": (place * 5 + offset) % 9 if place % 3 else 1,
            "ts": START + timedelta(seconds=number * 14 + place * 0.25),
            "volts": 200 + ((place * 7 + number * 3 + offset) % 256) / 8,
            "paid": Decimal((place * 37 + offset) % 1000) / 100,
        }
        for place in range(48)
    ]


def write_inputs(folder: Path, part: str) -> None:
    """Write the files of a part, and one broken line."""
    for number in PARTS[part]:
        north = [
            json.dumps({**row, "ts": row["ts"].isoformat(timespec="milliseconds"), "paid": float(row["paid"])})
            for row in rows_of("north", number)
        ]
        (folder / "north").mkdir(parents=True, exist_ok=True)
        (folder / "north" / f"{number:03d}.json").write_text("\n".join([*north, '{"sensor": "broken"}']) + "\n")
        (folder / "south").mkdir(parents=True, exist_ok=True)
        pl.DataFrame(rows_of("south", number), schema=SCHEMA).write_csv(
            folder / "south" / f"{number:03d}.csv", datetime_format="%Y-%m-%dT%H:%M:%S%.3f"
        )


def make_flow(folder: Path) -> ab.Flow:
    """Return the flow, with inputs and results below a folder."""
    flow = ab.Flow("kept-readings")
    north = flow.read(ab.files(str(folder / "north"), format="json", schema=SCHEMA, max_files=1))
    south = flow.read(ab.files(str(folder / "south"), format="csv", schema=SCHEMA, max_files=1))
    readings = north.union(south).watermark("ts", delay="2s")
    windows = readings.key_by("sensor").window("10s").agg(rows=ab.count(), volts=ab.sum("volts"), name="windows")
    windows.write(ab.parquet(str(folder / "results" / "windows")))
    odd = windows.with_columns(odd=pl.col("sensor") % 2 == 1).key_by("odd")
    best = odd.window("1m").top_k(2, by="rows", columns=["sensor"], name="best")
    best.write(ab.json_lines(str(folder / "results" / "best")))
    sessions = readings.key_by("sensor").session("3s").agg(rows=ab.count(), least=ab.min("volts"), name="sessions")
    sessions.write(ab.parquet(str(folder / "results" / "sessions")))
    totals = readings.key_by("sensor").agg(rows=ab.count(), paid=ab.sum("paid"), name="totals")
    totals.write(ab.parquet(str(folder / "results" / "totals")))
    journal = readings.key_by("sensor").process(
        Journal(), schema={"sensor": pl.Int64, "readings": pl.Int64, "tens": pl.Int64, "most": pl.Int64}, name="journal"
    )
    journal.write(ab.parquet(str(folder / "results" / "journal")))
    made = flow.read(ab.generate(rows_per_second=None, total_rows=MADE_ROWS, keys=20, max_rows=500))
    made.key_by("key").agg(rows=ab.count(), name="made").write(ab.parquet(str(folder / "results" / "made")))
    return flow


def answers() -> dict[str, pl.DataFrame]:
    """Return what the results must be after both parts and a drain, computed by Polars alone; sinks by folder."""
    parts = [row for numbers in PARTS.values() for number in numbers for site in SITES for row in rows_of(site, number)]
    rows = pl.DataFrame(parts, schema={**SCHEMA, "ts": pl.Datetime("us")}).sort("ts")
    windows = rows.group_by("sensor", window_start=pl.col("ts").dt.truncate("10s")).agg(
        rows=pl.len().cast(pl.Int64), volts=pl.col("volts").sum()
    )
    minutes = windows.group_by(odd=pl.col("sensor") % 2 == 1, window_start=pl.col("window_start").dt.truncate("1m"))
    begins = (pl.col("ts").diff() >= timedelta(seconds=3)).fill_null(value=True)
    numbered = rows.with_columns(session=begins.cum_sum().over("sensor"))
    sessions = numbered.group_by("sensor", "session").agg(
        window_start=pl.col("ts").min(), rows=pl.len().cast(pl.Int64), least=pl.col("volts").min()
    )
    tens = rows.group_by("sensor", ten=pl.col("volts").cast(pl.Int64) // 10).len()
    journal = tens.group_by("sensor").agg(
        readings=pl.col("len").sum().cast(pl.Int64),
        tens=pl.len().cast(pl.Int64),
        most=pl.col("len").max().cast(pl.Int64),
    )
    totals = rows.group_by("sensor").agg(rows=pl.len().cast(pl.Int64), paid=pl.col("paid").sum())
    return {
        "windows": windows,
        "best": minutes.agg(pl.col("rows").top_k(2)).explode("rows"),
        "sessions": sessions.drop("session"),
        "totals": totals,
        "journal": journal,
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_inputs(target, "first")
    # Each run is one batch: a file of each site, and some of the generated rows.
    for _ in PARTS["first"]:
        make_flow(target).run(str(target / "checkpoint"), trigger="once", slots=2, buckets=32, kept_batches=4)
