"""One flow in YAML, XML and Python, and what stands in for sources and sinks in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.query import Constructors, FlowGraph, load_flow
from unit.query.fakes import FakeSink, FakeSource

CODE = """
from dataclasses import dataclass

import polars as pl

@dataclass
class Limits:
    low: float = 0.0

def clean(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("volts") > Limits().low)

class Cleaner:
    @staticmethod
    def double(frame):
        return frame.with_columns(pl.col("volts") * 2)

def words(row):
    return [{"word": row["region"]}]

number = 3
"""

YAML = """
flow: low-voltage
python: readings.py
sources:
  readings:
    files: {path: readings/, format: json, schema: {sensor: Int64, region: String, ts: Datetime(ms), volts: Float64}}
  others:
    files: {path: /data/others, schema: {sensor: Int64, region: String, ts: "Datetime(ms)", volts: Float64}}
streams:
  cleaned:
    from: [readings, others]
    steps:
      - filter: volts > 0
      - map_batches: readings:clean
      - with_columns: {kilovolts: volts / 1000}
  alerts:
    from: cleaned
    steps:
      - key_by: [sensor, region]
      - watermark: {column: ts, delay: 2s}
      - window: {size: 10s, every: 5s}
      - agg: {readings: count, lowest: {min: volts}, spread: {variance: {argument: volts, ddof: 0}}}
        name: lowest
      - filter: lowest < 207
      - select: [sensor, region, {worst: lowest}]
    to: [{parquet: alerts/}, console]
  newcomers:
    from: cleaned
    steps:
      - distinct: sensor
        ttl: 1h
    to: {parquet: {path: "s3://bucket/new"}}
dead_letter: {parquet: rejected/}
run: {trigger: available-now, drain: true, slots: 8, checkpoint: state}
"""

XML = """<?xml version="1.0"?>
<flow name="low-voltage">
  <python>readings.py</python>
  <source name="readings">
    <files path="readings/" format="json">
      <schema><sensor>Int64</sensor><region>String</region><ts>Datetime(ms)</ts><volts>Float64</volts></schema>
    </files>
  </source>
  <source name="others">
    <files path="/data/others">
      <schema sensor="Int64" region="String" ts="Datetime(ms)" volts="Float64"/>
    </files>
  </source>
  <stream name="cleaned" from="readings, others">
    <filter>volts &gt; 0</filter>
    <map_batches>readings:clean</map_batches>
    <with_columns><column name="kilovolts">volts / 1000</column></with_columns>
  </stream>
  <stream name="alerts" from="cleaned">
    <key_by><column>sensor</column><column>region</column></key_by>
    <watermark column="ts" delay="2s"/>
    <window><size>10s</size><every>5s</every></window>
    <agg name="lowest">
      <readings>count</readings>
      <lowest><min>volts</min></lowest>
      <spread><variance argument="volts" ddof="0"/></spread>
    </agg>
    <filter>lowest &lt; 207</filter>
    <select><column>sensor</column><column>region</column><column name="worst">lowest</column></select>
    <to><parquet>alerts/</parquet></to>
    <to>console</to>
  </stream>
  <stream name="newcomers" from="cleaned">
    <distinct ttl="1h">sensor</distinct>
    <to><parquet path="s3://bucket/new"/></to>
  </stream>
  <dead_letter><parquet>rejected/</parquet></dead_letter>
  <run trigger="available-now" drain="true" slots="8" checkpoint="state"/>
</flow>
"""

PYTHON = """
from pathlib import Path

from anabranch.operators.aggregates.functions import count, min, variance
from anabranch.query import FlowGraph
from unit.query.fakes import FakeSink
from unit.query.flow_forms import files
from readings import clean

here = Path(__file__).parent
schema = {"sensor": "Int64", "region": "String", "ts": "Datetime(ms)", "volts": "Float64"}

def make():
    flow = FlowGraph("low-voltage")
    others = flow.read(files(str(here / "readings"), "json", schema=schema))
    cleaned = (
        others.union(flow.read(files("/data/others", schema=schema)))
        .filter("volts > 0").map_batches(clean).with_columns(kilovolts="volts / 1000")
    )
    (
        cleaned.key_by("sensor", "region").watermark("ts", "2s").window("10s", every="5s")
        .agg(readings=count(), lowest=min("volts"), spread=variance("volts", ddof=0), name="lowest")
        .filter("lowest < 207").select("sensor", "region", worst="lowest")
        .write(FakeSink(f"parquet {here / 'alerts'}")).write(FakeSink("console"))
    )
    cleaned.distinct("sensor", ttl="1h").write(FakeSink("parquet s3://bucket/new"))
    flow.dead_letter(FakeSink(f"parquet {here / 'rejected'}"))
    return flow

flow = make()
"""


def files(path: str, format: str = "json", *, schema: Mapping[str, Any], max_rows: int | None = None) -> FakeSource:
    """Return a source that only has columns."""
    from anabranch.model.type_names import parse_type

    columns = {name: parse_type(kind) if isinstance(kind, str) else kind for name, kind in schema.items()}
    return FakeSource(f"files {path.rstrip('/')} ({format})", columns)


def parquet(path: str) -> FakeSink:
    """Return a sink that only has a label."""
    return FakeSink(f"parquet {path.rstrip('/')}")


@dataclass(frozen=True)
class Zipf:
    n: int
    exponent: float = 1.0


def generate(rows_per_second: int, keys: Zipf) -> FakeSource:
    """Return a source that takes a value of a class of its own."""
    return FakeSource(f"generate {rows_per_second} {keys}")


def foreach(callback: Any) -> FakeSink:
    """Return a sink that takes a function."""
    return FakeSink(f"foreach {callback.__name__}")


CONSTRUCTORS = Constructors(
    sources={"files": files, "generate": generate},
    sinks={"parquet": parquet, "console": lambda: FakeSink("console"), "foreach": foreach},
    values={"zipf": Zipf},
)


def load(folder: Path, text: str, name: str = "changed.yaml") -> FlowGraph:
    """Return the flow that a text says."""
    (folder / name).write_text(text)
    return load_flow(folder / name, constructors=CONSTRUCTORS).graph


def minimal(steps: str = "[]", *, source: str = "{files: {path: x, schema: *columns}}", more: str = "") -> str:
    """Return a flow of one source, these steps and one sink, as YAML."""
    columns = "{sensor: Int64, region: String, ts: Datetime(ms), volts: Float64}"
    return f"""
flow: small
python: [readings.py]
sources:
  readings: {source.replace("*columns", columns)}
streams:
  all:
    from: readings
    steps: {steps}
    to: console
{more}
"""
