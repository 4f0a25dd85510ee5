"""``process()`` and ``ordered()`` in a flow: what they need, what leaves them, and how many exchanges they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.model import OrderSpec, ProcessSpec
from anabranch.operators.aggregates.functions import count
from anabranch.operators.processors.processor import FrameProcessor, Processor
from anabranch.query import Constructors, FlowGraph, load_flow, make_plan
from anabranch.query.nodes import Stateful, Watermark
from unit.query.fakes import FakeSink, FakeSource, read_readings, timed_readings

OUTPUT = {"sensor": pl.Int64, "text": pl.String()}


class Plain(Processor):
    pass


class Frames(FrameProcessor):
    pass


def spec_of(stream: Any) -> Any:
    assert isinstance(stream.node.operation, Stateful)
    return stream.node.operation.spec


def test_what_leaves_a_processor_is_what_its_schema_says() -> None:
    stream = timed_readings().process(Plain(), schema=OUTPUT)
    assert stream.schema == {"sensor": pl.Int64(), "text": pl.String()}
    assert stream.node.label == "process Plain by sensor"
    assert stream.node.time is None
    assert isinstance(spec_of(stream), ProcessSpec)
    assert spec_of(timed_readings().process(Frames(), schema=OUTPUT, name="other")).columns == timed_readings().schema


def test_ordering_right_before_a_processor_costs_no_exchange_of_its_own() -> None:
    flow = FlowGraph("test")
    stream = timed_readings(flow).ordered("ts").process(Plain(), schema=OUTPUT)
    stream.write(FakeSink())
    assert spec_of(stream).ordered
    assert make_plan(flow, 4).hops == 1


def test_ordering_that_others_read_too_stays_in_the_plan() -> None:
    flow = FlowGraph("test")
    ordered = timed_readings(flow).ordered("ts")
    ordered.process(Plain(), schema=OUTPUT).write(FakeSink())
    ordered.write(FakeSink())
    assert [len(level) for level in make_plan(flow, 4).levels] == [2]


def test_rows_leave_ordered_with_their_columns_their_keys_and_their_time() -> None:
    flow = FlowGraph("test")
    before = timed_readings(flow)
    stream = before.ordered("ts")
    assert (stream.schema, stream.keys, stream.node.time) == (before.schema, before.keys, before.node.time)
    behind = stream.window("10s").agg(rows=count())
    # Rows go on when the watermark has passed them: what is behind must not call them late for that.
    assert behind.node.id in make_plan(flow, 4).lagging


def test_behind_keys_in_their_own_time_there_is_no_time_that_all_rows_keep_to() -> None:
    stream = read_readings().key_by("sensor").watermark("ts", per="key").ordered("ts")
    assert stream.node.time is None


def test_without_a_watermark_ordered_follows_the_slowest_partition() -> None:
    flow = FlowGraph("test")
    stream = read_readings(flow).key_by("sensor").ordered("ts", idle="5s")
    watermark = flow.nodes[stream.node.inputs[0]].operation
    assert isinstance(watermark, Watermark)
    assert (watermark.clock.per, watermark.clock.delay_us, watermark.clock.idle_us) == ("partition", 0, 5_000_000)


def test_late_rows_of_ordered_can_be_had() -> None:
    stream = timed_readings().ordered("ts", late="side")
    assert isinstance(spec_of(stream), OrderSpec)
    assert stream.late_rows().schema == timed_readings().schema
    with pytest.raises(FlowError, match="late_rows"):
        timed_readings().ordered("ts").late_rows()


def test_processors_do_without_event_time() -> None:
    spec = spec_of(read_readings().key_by("sensor").process(Plain(), schema=OUTPUT))
    assert isinstance(spec, ProcessSpec)
    assert spec.time_column is None


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: read_readings().process(Plain(), schema=OUTPUT), "key_by"),
        (lambda: timed_readings().window("10s").process(Plain(), schema=OUTPUT), "has no windows"),
        (lambda: timed_readings().process(Plain, schema=OUTPUT), r"Plain\(\)"),
        (lambda: timed_readings().process(object(), schema=OUTPUT), "no processor"),
        (lambda: timed_readings().process(Plain(), schema={}), "which columns"),
        (lambda: timed_readings().with_columns(late="1").process(Frames(), schema=OUTPUT), "'late'"),
        (lambda: timed_readings().ordered("ts", late="side").process(Plain(), schema=OUTPUT), "on_late"),
        (lambda: timed_readings().ordered("volts"), "'ts', not 'volts'"),
        (lambda: timed_readings().ordered("ts", idle="5s"), r"\.watermark\('ts', idle='5s'\)"),
        (lambda: timed_readings().ordered("ts", late="update"), "drop, side"),
        (lambda: read_readings().key_by("sensor").ordered("volts"), "not a Datetime"),
        (lambda: read_readings().ordered("ts"), "key_by"),
        (
            lambda: read_readings().key_by("sensor", routing="pkg").watermark("ts").process(Plain(), schema=OUTPUT),
            "each key whole",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(build: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        build()


CODE = """
import polars as pl
from anabranch.operators.processors.declared_state import value
from anabranch.operators.processors.processor import Processor

class Quiet(Processor):
    rows = value(pl.Int64(), default=0)

    def __init__(self, limit: int = 1) -> None:
        self.limit = limit

nothing = 3
"""
YAML = """
flow: test
python: quiet.py
sources: {readings: readings}
streams:
  alerts:
    from: readings
    steps:
      - key_by: sensor
      - watermark: ts
      - ordered: ts
      - process: {processor: {"quiet:Quiet": {limit: 3}}, schema: {sensor: Int64, rows: Int64}}
        name: quiet
    to: nowhere
"""
XML = """
<flow name="test">
  <python>quiet.py</python>
  <source name="readings">readings</source>
  <stream name="alerts" from="readings">
    <key_by>sensor</key_by>
    <watermark column="ts"/>
    <ordered>ts</ordered>
    <process name="quiet">
      <processor><python name="quiet:Quiet" limit="3"/></processor>
      <schema><sensor>Int64</sensor><rows>Int64</rows></schema>
    </process>
    <to>nowhere</to>
  </stream>
</flow>
"""
CONSTRUCTORS = Constructors(sources={"readings": FakeSource}, sinks={"nowhere": FakeSink})


def load(folder: Path, name: str, text: str) -> FlowGraph:
    (folder / "quiet.py").write_text(CODE)
    (folder / name).write_text(text)
    return load_flow(folder / name, constructors=CONSTRUCTORS).graph


@pytest.mark.parametrize(("name", "text"), [("flow.yaml", YAML), ("flow.xml", XML)])
def test_flow_files_name_processors(tmp_path: Path, name: str, text: str) -> None:
    plan = make_plan(load(tmp_path, name, text), 2)
    (node,) = plan.stateful
    assert isinstance(node.operation, Stateful)
    spec = node.operation.spec
    assert isinstance(spec, ProcessSpec)
    assert (node.operation.name, spec.ordered, spec.processor.limit) == ("quiet", True, 3)  # type: ignore[attr-defined]
    assert node.schema == {"sensor": pl.Int64(), "rows": pl.Int64()}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('{"quiet:Quiet": {limit: 3}}', "quiet:nothing", "int is no processor"),
        ('{"quiet:Quiet": {limit: 3}}', "quiet", "unknown processor 'quiet'"),
        ("{limit: 3}", "{limits: 3}", "did you mean 'limit'"),
        (", schema: {sensor: Int64, rows: Int64}", "", "'schema' is missing"),
    ],
)
def test_flow_files_say_what_is_wrong_with_a_processor(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        load(tmp_path, "flow.yaml", YAML.replace(old, new))
