"""Vault monitoring: settlement of the crown of a vault, in a bridge or a tunnel, with warning levels.

Sensors say how far the vault has come down. What counts is the drift since a sensor's first reading, and its rate over
the last hour. A level is left only when both are well below what it was entered for, so that noise around a limit does
not make it flap; and only changes of level are emitted.

    anabranch run examples/vault_monitoring.py

The first run makes up readings in examples/output/vault_monitoring, or in ANABRANCH_EXAMPLE_FOLDER; the changes go to
levels/ there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import anabranch as ab

FOLDER = Path(os.environ.get("ANABRANCH_EXAMPLE_FOLDER", Path(__file__).parent / "output" / "vault_monitoring"))
RUN = {"checkpoint": FOLDER / "state", "trigger": "available-now", "drain": True}
MOMENT = pl.Datetime("ms")
READINGS = {"sensor": pl.String(), "ts": MOMENT, "mm": pl.Float64()}
CHANGES = {
    "sensor": pl.String(),
    "ts": MOMENT,
    "was": pl.String(),
    "level": pl.String(),
    "drift_mm": pl.Float64(),
    "mm_per_hour": pl.Float64(),
}
LEVELS = ("normal", "notice", "warning", "alarm")
# What each level but the first is entered for: a drift in mm, or a rate in mm an hour.
LIMITS = ((5.0, 0.8), (10.0, 1.6), (20.0, 3.2))
LEFT_BELOW = 0.8
RATE_OVER = timedelta(hours=1)


class Settlement(ab.Processor):
    """Follows each sensor's drift and rate, and emits the changes of its warning level."""

    first_mm = ab.value(pl.Float64())
    level = ab.value(pl.Int64(), default=0)
    recent = ab.listed(pl.Struct({"ts": MOMENT, "mm": pl.Float64}))

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        if state.first_mm is None:
            state.first_mm = row["mm"]
        state.recent.append({"ts": row["ts"], "mm": row["mm"]})
        # The oldest reading kept is the newest that is an hour old: the rate is taken from there.
        while len(state.recent) > 1 and state.recent[1]["ts"] <= row["ts"] - RATE_OVER:
            del state.recent[0]
        oldest = state.recent[0]
        hours = (row["ts"] - oldest["ts"]) / timedelta(hours=1)
        drift_mm = row["mm"] - state.first_mm
        mm_per_hour = (row["mm"] - oldest["mm"]) / hours if hours >= 1 else 0.0
        level = judge(drift_mm, mm_per_hour, state.level)
        if level != state.level:
            yield {
                "ts": row["ts"],
                "was": LEVELS[state.level],
                "level": LEVELS[level],
                "drift_mm": drift_mm,
                "mm_per_hour": mm_per_hour,
            }
            state.level = level


def judge(drift_mm: float, mm_per_hour: float, level: int) -> int:
    """Return the level to be on now: the highest that is entered, or held because it was on and is not left yet."""
    for number in range(len(LIMITS), 0, -1):
        part = LEFT_BELOW if number <= level else 1.0
        most_mm, most_mm_per_hour = LIMITS[number - 1]
        if drift_mm >= part * most_mm or mm_per_hour >= part * most_mm_per_hour:
            return number
    return 0


def make_flow(readings: Path, levels: Path) -> ab.Flow:
    """Return the flow from a folder of readings to a folder of changed levels."""
    flow = ab.Flow("vault-monitoring")
    (
        flow.read(ab.files(readings, format="json", schema=READINGS, max_files=1))
        .key_by("sensor")
        .watermark("ts", delay="30m", per="key")
        # Rates need the readings in order: each waits until its sensor is half an hour past it.
        .ordered("ts")
        .process(Settlement(), schema=CHANGES)
        .write(ab.parquet(levels))
    )
    return flow


def write_readings(folder: Path, sensors: int = 60, days: int = 4, files: int = 10, seed: int = 5) -> None:
    """Make up readings every ten minutes by the time they arrive; most vaults settle, few go on, one lets go."""
    chance = np.random.default_rng(seed)
    sensor, step = (grid.ravel() for grid in np.meshgrid(np.arange(sensors), np.arange(days * 144), indexing="ij"))
    hours = step / 6
    settled_mm = chance.gamma(2, 1.5, sensors)[sensor] * (1 - np.exp(-hours / 20))
    creep_mm = np.where(sensor % 10 == 3, 0.12 * hours, 0)
    slip_mm = np.where(sensor == 17, 0.6 * np.maximum(0, hours - 60) ** 1.5, 0)
    warmth_mm = 0.5 * np.sin(2 * np.pi * hours / 24)
    mm = chance.normal(100, 20, sensors)[sensor] + settled_mm + creep_mm + slip_mm + warmth_mm
    lag_hours = chance.choice([0, 0, 2, 6], sensors)[sensor]
    readings = pl.DataFrame(
        {
            "sensor": [f"crown-{number:02}" for number in sensor],
            "ts": pl.Series(step * 600_000).cast(pl.Duration("ms")) + datetime(2026, 1, 1),
            "mm": (mm + chance.normal(0, 0.08, sensor.size)).round(2),
            "arrived": hours + lag_hours + chance.uniform(0, 0.45, sensor.size),
        }
    )
    arrived = readings.sort("arrived").drop("arrived")
    unfinished = folder.with_suffix(".tmp")
    unfinished.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(arrived.iter_slices(-(-arrived.height // files))):
        part.write_ndjson(unfinished / f"readings-{number:02}.json")
    unfinished.rename(folder)


def flow() -> ab.Flow:
    """Return what ``anabranch run`` runs."""
    readings = FOLDER / "readings"
    if not readings.exists():
        write_readings(readings)
    return make_flow(readings, FOLDER / "levels")


if __name__ == "__main__":
    flow().run(**RUN)
    print(pl.read_parquet(FOLDER / "levels" / "part-*.parquet").sort("ts"))
