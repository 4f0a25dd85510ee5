"""A flow means the same whether it is written in YAML, in XML or in Python."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.errors import FlowError
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

from anabranch.operators.aggregates import count, min, variance
from anabranch.query import FlowGraph
from unit.query.fakes import FakeSink
from unit.query.test_flow_files import files
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
    from anabranch.query.column_types import parse_type

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # What flow.py imports from beside it must not be found by the next test's flow.
    monkeypatch.delitem(sys.modules, "readings", raising=False)
    (tmp_path / "readings.py").write_text(CODE)
    (tmp_path / "flow.yaml").write_text(YAML)
    (tmp_path / "flow.xml").write_text(XML)
    (tmp_path / "flow.py").write_text(PYTHON)
    return tmp_path


def load(folder: Path, text: str, name: str = "changed.yaml") -> FlowGraph:
    (folder / name).write_text(text)
    return load_flow(folder / name, constructors=CONSTRUCTORS).graph


def shape(flow: FlowGraph) -> list[object]:
    """Return what a flow is, without the functions themselves: those are new objects in every load."""
    return [
        flow.name,
        [(type(n.operation), n.inputs, dict(n.schema), n.label, n.time) for n in flow.nodes.values()],
        [sink.label for sink in flow.sinks],
        flow.dead_letter_sink.label if flow.dead_letter_sink else None,
        flow.explain(),
    ]


# -- the same flow in every form -------------------------------------------------------------------------------------


def test_yaml_xml_and_python_give_the_same_flow(folder: Path) -> None:
    from_yaml, from_xml, from_python = (
        load_flow(folder / name, constructors=CONSTRUCTORS) for name in ("flow.yaml", "flow.xml", "flow.py")
    )
    assert shape(from_yaml.graph) == shape(from_xml.graph) == shape(from_python.graph)
    from_yaml.graph.check()


def test_yaml_and_xml_give_the_same_run_defaults(folder: Path) -> None:
    expected = {"trigger": "available-now", "drain": True, "slots": 8, "checkpoint": str(folder / "state")}
    assert load_flow(folder / "flow.yaml", constructors=CONSTRUCTORS).run == expected
    assert load_flow(folder / "flow.xml", constructors=CONSTRUCTORS).run == expected


def test_paths_are_relative_to_the_flow_file_unless_they_are_addresses(folder: Path) -> None:
    flow = load_flow(folder / "flow.yaml", constructors=CONSTRUCTORS).graph
    assert [sink.label for sink in flow.sinks] == [f"parquet {folder / 'alerts'}", "console", "parquet s3://bucket/new"]
    assert [source.label for source in flow.sources] == [
        f"files {folder / 'readings'} (json)",
        "files /data/others (json)",
    ]


def test_flow_is_of_the_class_that_was_asked_for(folder: Path) -> None:
    class RunnableFlow(FlowGraph):
        pass

    loaded = load_flow(folder / "flow.yaml", flow_class=RunnableFlow, constructors=CONSTRUCTORS)
    assert type(loaded.graph) is RunnableFlow
    with pytest.raises(FlowError, match=r"'flow' is a FlowGraph; make it a RunnableFlow"):
        load_flow(folder / "flow.py", flow_class=RunnableFlow)


def test_a_stream_may_come_from_one_further_down(folder: Path) -> None:
    flow = load(
        folder,
        """
flow: upside-down
sources: {readings: {files: {path: x, schema: {sensor: Int64}}}}
streams:
  second: {from: first, steps: [{filter: sensor > 1}], to: console}
  first: {from: readings, steps: [{filter: sensor > 0}]}
""",
    )
    assert [node.label for node in flow.nodes.values()][1:3] == ["filter sensor > 0", "filter sensor > 1"]


@pytest.mark.parametrize(
    ("step", "label"),
    [
        ("session: 30s", "agg rows=count by sensor over sessions of gap 30s"),
        ("window: 1m", "agg rows=count by sensor over windows of 1m"),
        ("window: {size: 1h, offset: 15m}", "agg rows=count by sensor over windows of 1h from 15m"),
        (
            "window: {size: 10s, late: update, lateness: 1m, early: 5s}",
            "agg rows=count by sensor over windows of 10s, late rows update for 1m, early every 5s",
        ),
        ("session: {gap: 30s, late: side}", "agg rows=count by sensor over sessions of gap 30s, late rows aside"),
        ("count_window: 100", "agg rows=count by sensor over windows of 100 rows"),
        ("count_window: {rows: 100, every: 10}", "agg rows=count by sensor over windows of 100 rows every 10"),
    ],
)
def test_every_window_can_be_written(folder: Path, step: str, label: str) -> None:
    text = minimal(f"[{{key_by: sensor}}, {{watermark: ts}}, {{{step}}}, {{agg: {{rows: count}}}}]")
    assert list(load(folder, text).nodes.values())[-2].label == label


@pytest.mark.parametrize(
    ("step", "label"),
    [
        ("watermark: ts", "watermark ts, delay 0s"),
        ("watermark: {column: ts, delay: 2s, per: key}", "watermark ts, delay 2s per key"),
        ("watermark: {column: ts, per: group, groups: 64}", "watermark ts, delay 0s per group of 64"),
        (
            "watermark: {column: ts, per: slot, idle: 30s, behind: 10m}",
            "watermark ts, delay 0s per slot, idle after 30s, at most 10m behind",
        ),
        (
            "watermark: {column: ts, earliest: 2020-01-01, ahead: 1h}",
            "watermark ts, delay 0s, from 2020-01-01 00:00:00, at most 1h ahead",
        ),
        ("watermark: {column: ts, earliest: null}", "watermark ts, delay 0s, no earliest time"),
        (
            "watermark: {column: ts, earliest: none, ahead: none}",
            "watermark ts, delay 0s, no earliest time, however far ahead",
        ),
    ],
)
def test_every_watermark_can_be_written(folder: Path, step: str, label: str) -> None:
    assert list(load(folder, minimal(f"[{{{step}}}]")).nodes.values())[-2].label == label


def test_windows_of_every_kind_are_the_same_in_xml(folder: Path) -> None:
    flow = """<flow name="counted">
      <source name="readings">
        <files path="x"><schema><sensor>Int64</sensor><ts>Datetime(ms)</ts></schema></files>
      </source>
      <stream name="few" from="readings">
        <key_by>sensor</key_by><count_window rows="100" every="10"/><agg><rows>count</rows></agg><to>console</to>
      </stream>
      <stream name="long" from="readings">
        <key_by>sensor</key_by><watermark column="ts" per="group" groups="8"/>
        <session gap="30s" late="update" lateness="1m"/><agg><rows>count</rows></agg><to>console</to>
      </stream>
    </flow>"""
    labels = [node.label for node in load(folder, flow, "windows.xml").nodes.values()]
    assert "agg rows=count by sensor over windows of 100 rows every 10" in labels
    assert "watermark ts, delay 0s per group of 8" in labels
    assert "agg rows=count by sensor over sessions of gap 30s, late rows update for 1m" in labels


@pytest.mark.parametrize(
    ("steps", "columns"),
    [
        ("[{select: sensor}]", ["sensor"]),
        ("[{select: [sensor, volts / 1000 AS kv]}]", ["sensor", "kv"]),
        ("[{map_batches: {function: readings:clean, schema: {volts: Float64}}}]", ["volts"]),
        ("[{map_batches: readings:Cleaner.double}]", ["sensor", "region", "ts", "volts"]),
        ("[{flat_map: {function: readings:words, schema: {word: String}}}]", ["word"]),
        (
            "[{key_by: region}, {top_k: {k: 3, by: volts, columns: sensor}, ttl: 1d}]",
            ["region", "volts", "sensor", "rank"],
        ),
    ],
)
def test_every_step_can_be_written(folder: Path, steps: str, columns: list[str]) -> None:
    assert set(list(load(folder, minimal(steps)).nodes.values())[-2].schema) == set(columns)


def test_arguments_may_be_values_of_their_own_and_functions(folder: Path) -> None:
    flow = load(
        folder,
        """
flow: generated
sources: {made: {generate: {rows_per_second: 5, keys: {zipf: {n: 10, exponent: 1.5}}}}}
streams: {all: {from: made, to: {foreach: readings:clean}}}
""",
    )
    assert flow.sources[0].label == "generate 5 Zipf(n=10, exponent=1.5)"
    assert flow.sinks[0].label == "foreach clean"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "own.yaml",
            """
flow: own
sources: {readings: own:source}
streams:
  all: {from: readings, steps: [{key_by: sensor}, {agg: {top: {"own:highest": volts}}}], to: own:sink}
""",
        ),
        (
            "own.xml",
            """
<flow name="own">
  <source name="readings">own:source</source>
  <stream name="all" from="readings">
    <key_by>sensor</key_by>
    <agg><top><python name="own:highest">volts</python></top></agg>
    <to>own:sink</to>
  </stream>
</flow>
""",
        ),
    ],
)
def test_own_sources_sinks_and_aggregates_are_named_by_module_and_name(folder: Path, name: str, text: str) -> None:
    (folder / "own.py").write_text(
        "from anabranch.operators.aggregates import max as highest\n"
        "from unit.query.fakes import FakeSink, FakeSource\n"
        "sink = FakeSink('own sink')\n"
        "def source():\n    return FakeSource('own source')\n"
    )
    flow = load(folder, text, name)
    assert [node.label for node in flow.nodes.values()] == ["own source", "agg top=max by sensor", "own sink"]


# -- Python -----------------------------------------------------------------------------------------------------------


def test_python_flow_may_be_a_function_and_have_another_name(folder: Path) -> None:
    assert load_flow(f"{folder / 'flow.py'}:make").graph.name == "low-voltage"


def test_python_flow_may_be_in_an_importable_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "importable_flow.py").write_text("from anabranch.query import FlowGraph\nmine = FlowGraph('imported')\n")
    monkeypatch.syspath_prepend(folder)
    assert load_flow("importable_flow:mine").graph.name == "imported"


def test_python_file_says_in_a_dictionary_how_its_flow_is_run(folder: Path) -> None:
    source = "from anabranch.query import FlowGraph\nfrom pathlib import Path\nflow = FlowGraph('a')\n"
    (folder / "own.py").write_text(source + "RUN = {'checkpoint': Path('kept'), 'slots': 3}\n")
    assert load_flow(folder / "own.py").run == {"checkpoint": str(folder / "kept"), "slots": 3}
    (folder / "own.py").write_text(source + "RUN = {'slot': 3}\n")
    with pytest.raises(FlowError, match=r"own\.py: RUN: .*slot"):
        load_flow(folder / "own.py")


def test_python_function_that_wants_arguments_is_refused(folder: Path) -> None:
    (folder / "wants.py").write_text("def flow(name):\n    return name\n")
    with pytest.raises(FlowError, match=r"flow\(\) must work without arguments: missing a required argument: 'name'"):
        load_flow(folder / "wants.py")


def test_missing_attribute_names_the_flows_that_are_there(folder: Path) -> None:
    (folder / "other.py").write_text("from anabranch.query import FlowGraph\nlow_voltage = FlowGraph('a')\n")
    with pytest.raises(FlowError, match=r"other\.py: no attribute 'flow'; its flows are low_voltage"):
        load_flow(folder / "other.py")


def test_python_file_that_fails_says_so_with_its_error(folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    with pytest.raises(FlowError, match=r"broken\.py: running it failed: ZeroDivisionError"):
        load_flow(folder / "broken.py")


def test_functions_of_flow_files_are_not_importable_so_that_they_are_pickled_by_value(folder: Path) -> None:
    flow = load_flow(folder / "flow.yaml", constructors=CONSTRUCTORS).graph
    function = next(n.operation.function for n in flow.nodes.values() if n.label.startswith("map_batches"))  # type: ignore[union-attr]
    assert function.__module__ not in sys.modules
    with pytest.raises((pickle.PicklingError, ImportError)):
        pickle.dumps(function)
    assert function(pl.DataFrame({"volts": [1.0, -1.0]})).height == 1


@pytest.mark.parametrize("reference", ["flow", "flow.json"])
def test_what_is_no_flow_file_is_refused_with_the_forms(reference: str) -> None:
    with pytest.raises(FlowError, match=r"is no flow file; give flow\.yaml, flow\.xml, flow\.py"):
        load_flow(reference)


def test_missing_file_names_its_neighbours(folder: Path) -> None:
    with pytest.raises(FlowError, match=r"no such flow file; did you mean 'flow\.yaml'\? beside it are flow\.py"):
        load_flow(folder / "flows.yaml")


# -- what is wrong, where, and what is allowed -----------------------------------------------------------------------


def minimal(steps: str = "[]", *, source: str = "{files: {path: x, schema: *columns}}", more: str = "") -> str:
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (minimal(more="sink: x"), r"unknown field 'sink'; allowed are flow, python, sources, streams"),
        (minimal("[{fliter: volts > 0}]"), r"streams\.all\.steps\[0\]: unknown step 'fliter'; did you mean 'filter'\?"),
        (minimal("[filter]"), r"streams\.all\.steps\[0\]: unknown step 'filter'"),
        (
            minimal("[{watermark: {colum: ts}}]"),
            r"steps\[0\]\.watermark: unknown field 'colum'; did you mean 'column'\? allowed are column, delay",
        ),
        (minimal("[{watermark: {delay: 2s}}]"), r"steps\[0\]\.watermark: the field 'column' is missing"),
        (minimal("[{watermark: {column: ts, delay: 2}}]"), r"steps\[0\]\.watermark\.delay: .*'10s'"),
        (minimal("[{filter: volts > 0, ttl: 1h}]"), r"steps\[0\]\.filter: unknown field 'ttl'; allowed are filter"),
        (minimal("[{filter: 3}]"), r"steps\[0\]\.filter: is 3; input should be a valid string"),
        (minimal("[{filter: volt > 0}]"), r"streams\.all\.steps\[0\]: filter volt > 0: no column 'volt'"),
        (minimal("[{key_by: volts}]"), r"streams\.all\.steps\[0\]: key_by: 'volts' is Float64"),
        (minimal("[{key_by: sensor}, {agg: {x: {avg: volts}}}]"), r"steps\[1\]: unknown aggregate 'avg'; .*'mean'"),
        (
            minimal("[{key_by: sensor}, {agg: {x: {min: {by: volts}}}}]"),
            r"min has no argument 'by'; there are arg",
        ),
        (minimal("[{key_by: sensor}, {agg: {x: min}}]"), r"steps\[1\]: min: missing a required argument: 'argument'"),
        (minimal("[{map_batches: clean}]"), r"'clean' names no code; write module:name"),
        (minimal("[{map_batches: readings:claen}]"), r"no 'claen' in it; did you mean 'clean'\? there are"),
        (minimal("[{map_batches: readings:number}]"), r"readings:number is a int, not a function"),
        (minimal("[{map_batches: nowhere:clean}]"), r"cannot import 'nowhere'.*put nowhere\.py beside the flow file"),
        (minimal("[{flat_map: readings:words}]"), r"say which columns the function returns"),
        (minimal(source="{fils: {path: x}}"), r"sources\.readings: unknown source 'fils'; did you mean 'files'\?"),
        (minimal(source="{files: {pth: x, schema: *columns}}"), r"files has no argument 'pth'; did you mean 'path'\?"),
        (minimal(source="{files: {path: x}}"), r"files: missing a required .*'schema'; its arguments are path, format"),
        (minimal(source="{files: {path: x, schema: {a: Int65}}}"), r"column 'a': unknown type 'Int65'; did you mean"),
        (minimal(source="[files]"), r"sources\.readings: is a list of 1; give a name, or a mapping of one name"),
        (minimal(more="run: {trigger: sometimes}"), r"run\.trigger: is 'sometimes'; triggers are available-now, once"),
        (minimal(more="run: {strategy: fast}"), r"run\.strategy: is 'fast'; allowed are 'operator-set', 'operator'"),
        (minimal(more="run: {slots: 0}"), r"run\.slots: is 0; input should be greater than or equal to 1"),
        (minimal().replace("from: readings", "from: readngs"), r"from: unknown 'readngs'; did you mean 'readings'\?"),
        (minimal().replace("to: console", ""), r"streams\.all: goes nowhere; give it a sink"),
        (minimal().replace("to: console", "to: parket"), r"streams\.all\.to\[0\]: unknown sink 'parket'; did you mean"),
        (minimal().replace("flow: small", "flow: sm all"), r"flow: a flow's name has letters"),
        (minimal().replace("readings.py", "reading.py"), r"no file 'reading\.py'; did you mean 'readings\.py'\?"),
        (minimal() + "  all: {from: readings}\nsources: {}", r"line \d+: 'sources' was given before, in line 4"),
        (minimal() + "more: {from: x", r"line \d+, column \d+: not YAML"),
        ("[1, 2]", r"is a list of 2; give a mapping with flow, python, sources"),
        ("", r"is empty; give a mapping with flow"),
    ],
)
def test_wrong_yaml_names_the_place_and_what_is_allowed(folder: Path, text: str, message: str) -> None:
    with pytest.raises(FlowError, match=re.escape(str(folder)) + r"[\s\S]*" + message):
        load(folder, text)


def test_streams_in_a_circle_are_refused(folder: Path) -> None:
    text = minimal(more="  one: {from: [two, readings], to: console}\n  two: {from: one, to: console}")
    with pytest.raises(FlowError, match="streams one, two come from one another in a circle"):
        load(folder, text)


def test_source_that_nobody_reads_is_refused(folder: Path) -> None:
    text = minimal().replace("streams:", "  spare: {files: {path: y, schema: {a: Int64}}}\nstreams:")
    with pytest.raises(FlowError, match=r"sources\.spare: no stream reads it"):
        load(folder, text)


def test_all_problems_are_named_at_once(folder: Path) -> None:
    with pytest.raises(FlowError) as caught:
        load(folder, minimal("[{fliter: x}, {key_by: []}]", more="run: {slots: many}"))
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<flow", r"not XML: .*line 1"),
        ("<flows/>", r"outermost element is <flows>; it must be <flow"),
        ("<flow name='a'><sink/></flow>", r"<flow> holds <sink>; allowed are python, source"),
        ("<flow name='a'><source name='x'><a/><b/></source></flow>", r"<source> holds <a>, <b>; give one of them"),
        ("<flow name='a'><source/></flow>", r"a <source> has no name"),
        ("<flow name='a'><source name='x'>f</source><source name='x'>f</source></flow>", r"two elements are <source"),
        (
            "<flow name='a'><stream name='s'><key_by><key>a</key></key_by></stream></flow>",
            r"<key_by> holds <key>",
        ),
        ("<flow name='a'><source name='x'>f</source></flow>", r"the field 'streams' is missing"),
        ('<!DOCTYPE f [<!ENTITY e "x">]><flow name="&e;"/>', r"document types and entities are refused"),
    ],
)
def test_wrong_xml_names_what_is_allowed(folder: Path, text: str, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        load(folder, text, "changed.xml")


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("int64", pl.Int64()),
        ("long", pl.Int64()),
        ("Datetime", pl.Datetime("us")),
        ("datetime[ms]", pl.Datetime("ms")),
        ("Datetime(us, UTC)", pl.Datetime("us", "UTC")),
        ("Decimal(18, 2)", pl.Decimal(18, 2)),
        ("List(List(Int32))", pl.List(pl.List(pl.Int32()))),
        ("Duration(ms)", pl.Duration("ms")),
    ],
)
def test_types_are_written_as_polars_prints_them_or_as_people_say(text: str, dtype: pl.DataType) -> None:
    from anabranch.query.column_types import parse_type

    assert parse_type(text) == dtype
