"""Low voltage per sensor, among sensors that disagree about time.

Some sensors are on slow links, half an hour behind, others have clocks that lead. With one watermark for all, the slow
ones would always be late. Here each has its own: only readings that fall behind their own sensor are late, and they
correct what was said.

    anabranch run examples/low_voltage.py

The first run makes up readings in examples/output/low_voltage, or in ANABRANCH_EXAMPLE_FOLDER; results go to windows/
there. ANABRANCH_EXAMPLE_DATA=household.parquet takes a file of your own with the columns ts and voltage, such as the
UCI data set "Individual household electric power consumption", and makes a sensor of every day.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

import anabranch as ab

FOLDER = Path(os.environ.get("ANABRANCH_EXAMPLE_FOLDER", Path(__file__).parent / "output" / "low_voltage"))
RUN = {"checkpoint": FOLDER / "state", "trigger": "available-now", "drain": True}
READINGS = {"sensor": pl.Int64, "ts": pl.Datetime("ms"), "volts": pl.Float64}
START = datetime(2026, 1, 1)


def find_low_voltage(readings: ab.Stream, low_volts: float) -> ab.Stream:
    """Return the quarters of an hour in which a sensor was below the limit, again whenever a late reading changes one.

    For each sensor and window, the result with the most readings counts.
    """
    is_low = (pl.col("volts") < low_volts).cast(pl.Float64)
    return (
        readings.key_by("sensor")
        .watermark("ts", delay="2m", per="key")
        .window("15m", late="update", lateness="1h")
        .agg(readings=ab.count(), low_share=ab.mean(is_low), lowest=ab.min("volts"))
        # No correction is lost by this: a window that had a low reading keeps it.
        .filter(pl.col("low_share") > 0)
    )


def read_generated(flow: ab.Flow) -> ab.Stream:
    """Return made-up readings; the first time, they are made up."""
    folder = FOLDER / "readings"
    if not folder.exists():
        write_readings(folder)
    return flow.read(ab.files(folder, format="json", schema=READINGS, max_files=1))


def read_household(flow: ab.Flow, file: Path) -> ab.Stream:
    """Return the readings of one household as if every day were a sensor."""
    schema = {"ts": pl.Datetime("us"), "voltage": pl.Float64}
    source = ab.files(file.parent, pattern=file.name, format="parquet", schema=schema, max_rows=500_000)
    return flow.read(source).select("ts", sensor=pl.col("ts").dt.date(), volts=pl.col("voltage"))


def write_readings(folder: Path, sensors: int = 80, hours: int = 8, files: int = 12, seed: int = 4) -> None:
    """Make up a reading a minute of each sensor, by the time they arrive: one in twenty is held up on its way."""
    chance = np.random.default_rng(seed)
    minutes = hours * 60
    sensor, minute = (grid.ravel() for grid in np.meshgrid(np.arange(sensors), np.arange(minutes), indexing="ij"))
    lead_s = chance.choice([0, 0, 90, 600], sensors)[sensor]
    lag_s = chance.choice([0, 5, 120, 1_800], sensors)[sensor]
    held_up_s = np.where(chance.random(sensor.size) < 0.05, chance.uniform(0, 2_700, sensor.size), 0)
    # Sags of some minutes, each in one sensor, below a level that is each sensor's own.
    sag = chance.random((sensors, minutes // 10)) < 0.03
    volts = chance.normal(230, 4, sensors)[sensor] + chance.normal(0, 2, sensor.size) - 22 * sag[sensor, minute // 10]
    readings = pl.DataFrame(
        {
            "sensor": sensor,
            "ts": pl.Series((minute * 60 + lead_s) * 1_000).cast(pl.Duration("ms")) + START,
            "volts": volts.round(1),
            "arrived": minute * 60 + lag_s + held_up_s + chance.random(sensor.size),
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
    made = ab.Flow("low-voltage-by-sensor")
    data = os.environ.get("ANABRANCH_EXAMPLE_DATA")
    if data is None:
        found = find_low_voltage(read_generated(made), low_volts=0.9 * 230)
    else:
        # A good supply: 0.9 of the nominal 240 V was never seen there.
        found = find_low_voltage(read_household(made, Path(data).resolve()), low_volts=0.95 * 240)
    found.write(ab.parquet(FOLDER / "windows"))
    return made


if __name__ == "__main__":
    progress = flow().run(**RUN)
    print(pl.read_parquet(FOLDER / "windows" / "part-*.parquet").sort("window_start", "sensor", "readings"))
    late, slot_late = sum(batch.late_rows for batch in progress), sum(batch.slot_late_rows for batch in progress)
    print(f"{late} readings were late by their own sensor's clock, {slot_late} would have been by that of a slot")
