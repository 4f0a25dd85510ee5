"""Traffic cameras: fake plates, wanted cars, cloned plates and speeding, each told within three seconds.

Each camera of a city reads a plate a second, and sends it with where, when and what it saw: 22 attributes. Readings
that are not sure are dropped; plates are looked up in the register and in the list of wanted cars; and of each plate,
two sightings after each other say how fast it must have gone at least. Faster than any car can go, it is two cars.

    anabranch run examples/traffic_cameras.py

The first run makes up forty seconds of a small city in examples/output/traffic_cameras, or in
ANABRANCH_EXAMPLE_FOLDER; a file is what arrives in a second, and a batch. The alerts go to alerts/ there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import anabranch as ab

FOLDER = Path(os.environ.get("ANABRANCH_EXAMPLE_FOLDER", Path(__file__).parent / "output" / "traffic_cameras"))
RUN = {"checkpoint": FOLDER / "state", "trigger": "available-now", "drain": True}
MOMENT = pl.Datetime("ms")
SIGHTINGS = {
    **{"camera": pl.Int64(), "lane": pl.Int64(), "heading": pl.String(), "district": pl.Int64(), "road": pl.String()},
    **{"x_km": pl.Float64(), "y_km": pl.Float64(), "ts": MOMENT, "serial": pl.Int64(), "firmware": pl.String()},
    **{"plate": pl.String(), "plate_colour": pl.String(), "sureness": pl.Float64(), "kind": pl.String()},
    **{"make": pl.String(), "colour": pl.String(), "length_m": pl.Float64(), "limit_kmh": pl.Float64()},
    **{"light": pl.Float64(), "photo": pl.String(), "photo_bytes": pl.Int64(), "checksum": pl.Int64()},
}
SEEN = ("plate", "ts", "camera", "x_km", "y_km", "limit_kmh")
ALERTS = {"plate": pl.String(), "ts": MOMENT, "alert": pl.String(), "camera": pl.Int64(), "detail": pl.String()}
SURE = 0.8
OVER_LIMIT = 1.1
FASTEST_KMH = 250.0


class Journeys(ab.Processor):
    """Follows each plate from camera to camera: in a straight line, so that it went at least so fast."""

    last = ab.value(pl.Struct({"ts": MOMENT, "camera": pl.Int64, "x_km": pl.Float64, "y_km": pl.Float64}))

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        last = state.last
        state.last = {name: row[name] for name in ("ts", "camera", "x_km", "y_km")}
        if last is None or last["camera"] == row["camera"]:
            return
        km = hypot(row["x_km"] - last["x_km"], row["y_km"] - last["y_km"])
        hours = (row["ts"] - last["ts"]).total_seconds() / 3_600
        told = {"ts": row["ts"], "camera": row["camera"], "detail": f"{km:.1f} km from camera {last['camera']}"}
        if km > FASTEST_KMH * hours:
            yield {**told, "alert": "cloned"}
        elif km > OVER_LIMIT * row["limit_kmh"] * hours:
            yield {**told, "alert": "speeding"}


def make_flow(sightings: Path, register: Path, wanted: Path, alerts: Path) -> ab.Flow:
    """Return the flow from a folder of sightings to a folder of alerts."""
    flow = ab.Flow("traffic-cameras")
    sure = flow.read(ab.files(sightings, format="json", schema=SIGHTINGS, max_files=1)).filter(
        pl.col("sureness") > SURE
    )
    known = sure.lookup(ab.parquet_table(register), on="plate", columns=["registered_make", "registered_colour"])
    is_other = (pl.col("make") != pl.col("registered_make")) | (pl.col("colour") != pl.col("registered_colour"))
    registered = pl.format("registered as {} {}", "registered_colour", "registered_make")
    fake = known.filter(pl.col("registered_make").is_null() | is_other).select(
        *("plate", "ts", "camera"), alert=pl.lit("fake"), detail=registered.fill_null("in no register")
    )
    listed = sure.lookup(ab.parquet_table(wanted), on="plate", columns=["reason"], missing="drop")
    blacklist = listed.select("plate", "ts", "camera", alert=pl.lit("blacklist"), detail=pl.col("reason"))
    journeys = (
        sure.select(*SEEN)
        .key_by("plate")
        # A second is waited for cameras that are slow: two sightings in the wrong order would look like two cars.
        .watermark("ts", delay="1s")
        .ordered("ts")
        .process(Journeys(), schema=ALERTS)
    )
    found = [alerted.select(*ALERTS) for alerted in (fake, blacklist, journeys)]
    found[0].union(*found[1:]).write(ab.parquet(alerts))
    return flow


def write_city(folder: Path, cameras: int = 36, seconds: int = 40, seed: int = 10) -> None:
    """Make up a city: its register, its list of wanted cars, and for each second a file of what arrives in it.

    Cars drive from camera to camera, some of them too fast. Whoever else passes is seen once.
    """
    chance = np.random.default_rng(seed)
    side = int(cameras**0.5)
    x_km, y_km = 0.3 * (np.arange(cameras) % side), 0.3 * (np.arange(cameras) // side)
    makes, colours = np.array(["Volvo", "Fiat", "Lada", "BYD"]), np.array(["white", "grey", "red"])
    cars = 8 * cameras + cameras * seconds
    looks = {"make": makes[chance.integers(0, 4, cars)], "colour": colours[chance.integers(0, 3, cars)]}
    passing: dict[tuple[int, int], int] = {}
    for car in range(8 * cameras):
        camera, second = int(chance.integers(cameras)), float(chance.uniform(0, seconds))
        kmh = chance.normal(115, 15) if car % 9 == 0 else chance.normal(42, 5)
        while second < seconds:
            passing.setdefault((camera, int(second)), car)
            onwards = int(chance.integers(cameras))
            km = np.hypot(x_km[onwards] - x_km[camera], y_km[onwards] - y_km[camera])
            camera, second = onwards, second + max(2.0, 3_600 * km / kmh)
    others = iter(range(8 * cameras, cars))
    grid = [(camera, second) for second in range(seconds) for camera in range(cameras)]
    car = np.array([passing.get(place) if place in passing else next(others) for place in grid])
    # Some carry the plate of a car that drives elsewhere, some one that is in no register.
    plate = np.where(chance.random(car.size) < 0.01, chance.integers(0, 8 * cameras, car.size), car)
    plate = np.where(chance.random(car.size) < 0.01, cars + car, plate)
    camera, second = (np.array(numbers) for numbers in zip(*grid, strict=True))
    at_ms = second * 1_000 + chance.integers(0, 1_000, car.size)
    sureness = chance.uniform(0.82, 1, car.size) - np.where(chance.random(car.size) < 0.05, 0.3, 0)
    seen = pl.DataFrame(
        {
            **{"camera": camera, "lane": camera % 3, "heading": "N", "district": camera // 9, "road": "ring"},
            **{"x_km": x_km[camera], "y_km": y_km[camera]},
            "ts": pl.Series(at_ms).cast(pl.Duration("ms")) + datetime(2026, 1, 1, 8),
            **{"serial": np.arange(car.size), "firmware": "4.1", "plate_colour": "blue", "sureness": sureness},
            "plate": [f"A{number:05}" for number in np.where(sureness > SURE, plate, plate + 50_000)],
            **{"kind": "car", "make": looks["make"][car], "colour": looks["colour"][car], "length_m": 4.4},
            **{"limit_kmh": 60.0, "light": 0.7, "photo": [f"{number}.jpg" for number in range(car.size)]},
            **{
                "photo_bytes": chance.integers(200_000, 400_000, car.size),
                "checksum": chance.integers(0, 1 << 32, car.size),
            },
            "arrived": at_ms + chance.integers(20, 900, car.size),
        }
    )
    unfinished = folder.with_suffix(".tmp")
    (unfinished / "sightings").mkdir(parents=True, exist_ok=True)
    for (arrived,), rows in seen.sort("arrived").group_by(pl.col("arrived") // 1_000, maintain_order=True):
        rows.select(*SIGHTINGS).write_ndjson(unfinished / "sightings" / f"second-{arrived:03}.json")
    plates = pl.DataFrame({"plate": [f"A{number:05}" for number in range(cars)]})
    register = plates.with_columns(registered_make=looks["make"], registered_colour=looks["colour"])
    register.write_parquet(unfinished / "register.parquet")
    wanted = plates.gather_every(97).with_columns(reason=pl.lit("reported stolen"))
    wanted.write_parquet(unfinished / "wanted.parquet")
    unfinished.rename(folder)


def flow() -> ab.Flow:
    """Return what ``anabranch run`` runs."""
    city = FOLDER / "city"
    if not city.exists():
        write_city(city)
    return make_flow(city / "sightings", city / "register.parquet", city / "wanted.parquet", FOLDER / "alerts")


if __name__ == "__main__":
    flow().run(**RUN)
    print(pl.read_parquet(FOLDER / "alerts" / "part-*.parquet").group_by("alert").len().sort("alert"))
