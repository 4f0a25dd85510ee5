"""Flows under test, and rows for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import polars as pl

import anabranch as ab

START = datetime(2026, 1, 1)
SCHEMA: dict[str, pl.DataType] = {"sensor": pl.Int64(), "ts": pl.Datetime("us"), "volts": pl.Float64()}


def at(seconds: float, sensor: int | None = 1, volts: float = 1.0) -> dict[str, Any]:
    """Return a row so many seconds after the start."""
    return {"sensor": sensor, "ts": START + timedelta(seconds=seconds), "volts": volts}


def topic() -> Any:
    """Return a source that no test reaches."""
    return ab.kafka("broker.invalid:9092", "readings", schema=SCHEMA, format="json")


def window_flow(late: Any = "drop", delay: str = "2s") -> ab.Flow:
    """Count readings in windows of 10 s, as in production; late rows that are put aside go to a sink."""
    flow = ab.Flow("windows")
    windows = (
        flow.read(topic())
        .filter(pl.col("volts") >= 0)
        .key_by("sensor")
        .watermark("ts", delay=delay)
        .window("10s", late=late)
        .agg(readings=ab.count(), total=ab.sum("volts"))
    )
    windows.write(ab.postgres("postgresql://db.invalid/x", table="windows"), name="windows")
    if late == "side":
        windows.late_rows().write(ab.json_lines("/nowhere/late"), name="late")
    return flow


class Silence(ab.Processor):
    """Says who was silent for 30 s of the wall clock, or for a minute of event time."""

    readings = ab.value(pl.Int64(), default=0)

    def on_time(self, row: Mapping[str, Any], state: ab.KeyState, timers: ab.Timers) -> None:
        state.readings += 1
        timers.cancel_all()
        timers.after_processing("30s", tag="wall")
        timers.at(row["ts"] + timedelta(minutes=1), tag="event")

    def on_timer(self, timer: ab.Timer, state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
        yield {"why": timer.tag, "readings": state.readings, "now": timers.now}


SILENCE_SCHEMA: dict[str, pl.DataType] = {
    "sensor": pl.Int64(),
    "why": pl.String(),
    "readings": pl.Int64(),
    "now": pl.Datetime("us"),
}


def silence_flow(processor: ab.Processor | None = None) -> ab.Flow:
    """Let a processor with timers look at readings."""
    flow = ab.Flow("silence")
    stream = flow.read(topic()).key_by("sensor").watermark("ts")
    stream.process(processor or Silence(), schema=SILENCE_SCHEMA, name="silence").write(ab.console())
    return flow
