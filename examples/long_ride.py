"""Long rides: say that a taxi has been under way for two hours, while it still is.

Each ride has a START and an END, which come out of order; some ENDs never come. So nobody can wait for the END: START
sets a timer, END takes it back, and what is left goes off.

    anabranch run examples/long_ride.py

The first run makes up a night of rides in examples/output/long_ride, or in ANABRANCH_EXAMPLE_FOLDER; the alerts go to
alerts/ there. Rides that are still under way when the input ends are left waiting; with --drain, their timers go off.
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

FOLDER = Path(os.environ.get("ANABRANCH_EXAMPLE_FOLDER", Path(__file__).parent / "output" / "long_ride"))
RUN = {"checkpoint": FOLDER / "state", "trigger": "available-now"}
MOMENT = pl.Datetime("ms")
EVENTS = {"ride": pl.Int64(), "event": pl.String(), "ts": MOMENT}
ALERTS = {"ride": pl.Int64(), "started": MOMENT, "alerted": MOMENT}


class LongRides(ab.Processor):
    """Emits a ride when it has lasted as long as the limit, in event time."""

    started = ab.value(MOMENT)
    ended = ab.value(MOMENT)

    def __init__(self, limit: timedelta = timedelta(hours=2)) -> None:
        self.limit = limit

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> None:
        if row["event"] == "START":
            state.started = row["ts"]
            timers.at(row["ts"] + self.limit, tag="alert")
        else:
            state.ended = row["ts"]
            # For an END whose START never comes: nothing is kept for ever.
            timers.at(row["ts"] + self.limit, tag="forget")
        if state.started and state.ended and state.ended - state.started < self.limit:
            timers.cancel_all()
            state.clear()

    # An END may overtake its START, which is late then by the clock of its ride, and means the same.
    on_late = on_time

    def on_timer(self, timer: ab.Timer, state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        if timer.tag == "alert":
            yield {"started": state.started, "alerted": timer.time}
        timers.cancel_all()
        state.clear()


def make_flow(events: Path, alerts: Path) -> ab.Flow:
    """Return the flow from a folder of events to a folder of alerts."""
    flow = ab.Flow("long-ride")
    (
        flow.read(ab.files(events, format="json", schema=EVENTS, max_files=1))
        .key_by("ride")
        # A ride without its END says nothing any more; ten minutes behind the others, it has their time. Events that
        # are on their way for longer could come after a wrong alert.
        .watermark("ts", per="key", behind="10m")
        .process(LongRides(), schema=ALERTS)
        .write(ab.parquet(alerts))
    )
    return flow


def write_events(folder: Path, rides: int = 15_000, files: int = 16, seed: int = 3) -> None:
    """Make up a night of eight hours: events by the time they arrive, up to ten minutes after they happened."""
    chance = np.random.default_rng(seed)
    minutes = np.clip(chance.lognormal(3.0, 0.8, rides), 1, 110)
    is_long = chance.random(rides) < 0.02
    minutes[is_long] = chance.uniform(115, 300, int(is_long.sum()))
    started_ms = np.sort(chance.integers(0, 8 * 3_600_000, rides))
    times_ms = np.concatenate([started_ms, started_ms + (minutes * 60_000).astype(np.int64)])
    on_their_way_ms = np.minimum(chance.exponential(120_000, 2 * rides), 600_000)
    was_lost = np.concatenate([np.zeros(rides, bool), chance.random(rides) < 0.01])
    events = pl.DataFrame(
        {
            "ride": np.tile(np.arange(rides), 2),
            "event": ["START"] * rides + ["END"] * rides,
            "ts": pl.Series(times_ms).cast(pl.Duration("ms")) + datetime(2026, 1, 1, 20),
            "arrived": times_ms + on_their_way_ms,
        }
    )
    arrived = events.filter(pl.Series(~was_lost)).sort("arrived").drop("arrived")
    unfinished = folder.with_suffix(".tmp")
    unfinished.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(arrived.iter_slices(-(-arrived.height // files))):
        part.write_ndjson(unfinished / f"events-{number:02}.json")
    unfinished.rename(folder)


def flow() -> ab.Flow:
    """Return what ``anabranch run`` runs."""
    events = FOLDER / "events"
    if not events.exists():
        write_events(events)
    return make_flow(events, FOLDER / "alerts")


if __name__ == "__main__":
    flow().run(**RUN)
    print(pl.read_parquet(FOLDER / "alerts" / "part-*.parquet").sort("alerted"))
