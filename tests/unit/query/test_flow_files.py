"""A flow means the same whether it is written in YAML, in XML or in Python."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.query import FlowGraph, load_flow
from unit.query.flow_forms import CONSTRUCTORS, load, minimal


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
            "watermark: {column: ts, per: key, idle: 30s, forget: 1d}",
            "watermark ts, delay 0s per key, idle after 30s, forgotten after 1d",
        ),
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
        "from anabranch.operators.aggregates.functions import max as highest\n"
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


def test_sources_are_named_as_in_the_file_and_sinks_as_it_says(tmp_path: Path) -> None:
    flow = load(
        tmp_path,
        """
flow: named
sources:
  north: {files: {path: n, schema: {sensor: Int64}, formerly: arctic}}
  south: {files: {path: s, schema: {sensor: Int64}}}
streams:
  both:
    from: [north, south]
    to: [{parquet: {path: out/, name: results, formerly: alerts}}, console]
""",
    )
    assert [(source.name, source.formerly) for source in flow.named_sources()] == [("north", "arctic"), ("south", None)]
    assert [(output.name, output.formerly) for output in flow.outputs()] == [("results", "alerts"), (None, None)]
