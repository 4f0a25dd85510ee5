"""The demo's stream and flow: low voltage per sensor, in windows of a few seconds."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from anabranch.cli.demo.scale import DELAY_SECONDS, LOW_VOLTS, WINDOW_SECONDS, DemoScale
from anabranch.connectors import GeneratedValues, generate, parquet, zipf
from anabranch.connectors.generator.streams import GeneratorSource
from anabranch.operators.aggregates.functions import count, mean, min, sum
from anabranch.spark.flow import Flow


def make_source(scale: DemoScale, start: datetime) -> GeneratorSource:
    """Return readings in real time: few sensors send most of them, and each has a mean of its own."""
    return generate(
        scale.rows_per_second,
        total_rows=scale.rows,
        keys=zipf(scale.sensors, 1.1),
        columns=("sensor", "ts", "volts"),
        values=GeneratedValues(mean=230.0, sigma=4.0, key_sigma=6.0),
        disorder=f"{DELAY_SECONDS}s",
        start=start,
        seed=scale.seed,
    )


def make_flow(source: GeneratorSource, alerts: Path) -> Flow:
    """Return the flow that finds the windows in which a sensor went below the limit."""
    flow = Flow("low-voltage")
    (
        flow.read(source)
        .with_columns(low=f"CAST(volts < {LOW_VOLTS:g} AS BIGINT)")
        .key_by("sensor")
        .watermark("ts", delay=f"{DELAY_SECONDS}s")
        .window(f"{WINDOW_SECONDS}s")
        .agg(readings=count(), low_readings=sum("low"), lowest=min("volts"), mean=mean("volts"))
        .filter("low_readings > 0")
        .write(parquet(alerts))
    )
    return flow
