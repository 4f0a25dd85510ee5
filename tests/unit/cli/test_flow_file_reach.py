"""Whatever Python can say about a flow, a flow file can say, or the page of flow files says that it cannot."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.cli.loading import constructors, load
from anabranch.engine.settings import RunSettings
from anabranch.errors import FlowError
from anabranch.model.balance import Balance, BalanceTrigger
from anabranch.operators.aggregates.registry import registry
from anabranch.query import Stream
from anabranch.query.files.documents import RunDefaults
from anabranch.query.files.steps import STEPS, BalanceArguments, MergeArguments, Step, TriggerArguments
from anabranch.query.merging import LocalMerge

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "flow-files.md"
NOT_THERE = PAGE.read_text(encoding="utf-8").partition("## What is not there")[2].partition("\n## ")[0]
SCHEMA = "{sensor: Int64, ts: Datetime(ms), volts: Float64}"


def arguments_of(function: Any) -> set[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {n for n, p in inspect.signature(function).parameters.items() if p.kind not in kinds} - {"self"}


def fields_of(section: Any) -> set[str]:
    """Return the fields of a section and of the sections in it."""
    found = set()
    for name, field in section.model_fields.items():
        found.add(field.alias or name)
        if hasattr(field.annotation, "model_fields"):
            found |= fields_of(field.annotation)
    return found


def step_forms() -> dict[str, Any]:
    """Return the form of each step, by its verb."""
    forms = Step.__origin__.__args__  # type: ignore[attr-defined]
    return {form.__metadata__[0].tag: form.__origin__ for form in forms}


@pytest.mark.parametrize(
    "method", [n for n, m in vars(Stream).items() if not n.startswith("_") and inspect.isfunction(m)]
)
def test_every_method_of_a_stream_is_a_step_with_all_its_arguments(method: str) -> None:
    if method in ("union", "write", "late_rows"):
        word = {"union": "`from`", "write": "`to`", "late_rows": "`late_rows`"}[method]
        assert word in PAGE.read_text(encoding="utf-8")
        return
    assert method in STEPS
    single = {"filter": {"predicate"}, "join": {"other"}, "join_where": {"other"}, "join_asof": {"other"}}.get(
        method, set()
    )
    assert arguments_of(getattr(Stream, method)) - single - fields_of(step_forms()[method]) == set()


@pytest.mark.parametrize(
    ("made", "section"), [(Balance, BalanceArguments), (BalanceTrigger, TriggerArguments), (LocalMerge, MergeArguments)]
)
def test_every_option_beside_key_by_is_there(made: Any, section: Any) -> None:
    assert arguments_of(made) - fields_of(section) == set()


def test_every_setting_of_a_run_is_there_or_said_not_to_be() -> None:
    missing = set(RunSettings.model_fields) - set(RunDefaults.model_fields)
    assert [name for name in missing if f"`{name}`" not in NOT_THERE] == []
    assert [name for name in set(RunDefaults.model_fields) if f"`{name}`" not in PAGE.read_text(encoding="utf-8")] == []


def test_every_source_sink_table_and_aggregate_is_there_or_said_not_to_be() -> None:
    known = constructors()
    named = {*known.sources, *known.sinks, *known.tables, *known.values, *registry}
    public = [n for n in ab.__all__ if n[0].islower() and callable(getattr(ab, n))]
    assert len(public) > 30
    assert [name for name in public if name not in named and f"`{name}`" not in NOT_THERE] == []
    assert [
        name
        for name in named
        if f"`{name}`" not in PAGE.read_text(encoding="utf-8") and f"{{{name}:" not in PAGE.read_text(encoding="utf-8")
    ] == []


def read(folder: Path, text: str, name: str) -> ab.Flow:
    (folder / "readings").mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return load(str(folder / name)).graph


def shape(flow: ab.Flow) -> list[object]:
    nodes = [(type(n.operation), n.inputs, dict(n.schema), n.label, n.time) for n in flow.nodes.values()]
    return [nodes, [sink.label for sink in flow.sinks], flow.explain()]


def write_yaml(steps: str, *, more: str = "", first: str = "from: readings", schema: str = SCHEMA) -> str:
    return f"""
flow: reached
sources:
  readings: {{files: {{path: readings, schema: {schema}}}}}
streams:
  all: {{{first}, steps: [{steps}], to: console}}
{more}
"""


def write_xml(steps: str, *, more: str = "", first: str = 'from="readings"', schema: str = "") -> str:
    columns = schema or "<sensor>Int64</sensor><ts>Datetime(ms)</ts><volts>Float64</volts>"
    source = f'<files path="readings"><schema>{columns}</schema></files>'
    stream = f'<stream name="all" {first}>{steps}<to>console</to></stream>'
    return f'<flow name="reached"><source name="readings">{source}</source>{stream}{more}</flow>'


def test_a_union_is_written_in_both_forms_of_xml(tmp_path: Path) -> None:
    two = "<stream name='{name}' from='readings'><filter>volts &gt; {limit}</filter></stream>"
    branches = two.format(name="low", limit=1) + two.format(name="high", limit=2)
    attribute = read(tmp_path, write_xml("", first='from="low, high"', more=branches), "attribute.xml")
    elements = read(tmp_path, write_xml("<from>low</from><from>high</from>", first="", more=branches), "elements.xml")
    lower = "  low: {from: readings, steps: [{filter: volts > 1}]}\n"
    upper = "  high: {from: readings, steps: [{filter: volts > 2}]}\n"
    from_yaml = read(tmp_path, write_yaml("", first="from: [low, high]", more=lower + upper), "flow.yaml")
    assert shape(attribute) == shape(elements) == shape(from_yaml)
    assert "union of 2" in [node.label for node in elements.nodes.values()]


LATE_STEPS = [
    (
        "{window: {size: 10s, late: side}}, {agg: {n: count}, late_rows: too-late}",
        '<window size="10s" late="side"/><agg late_rows="too-late"><n>count</n></agg>',
    ),
    (
        "{session: {gap: 10s, late: side}}, {top_k: {k: 1, by: volts}, late_rows: too-late}",
        '<session gap="10s" late="side"/><top_k k="1" by="volts" late_rows="too-late"/>',
    ),
    ("{ordered: {by: ts, late: side}, late_rows: too-late}", '<ordered by="ts" late="side" late_rows="too-late"/>'),
]


@pytest.mark.parametrize(("in_yaml", "in_xml"), LATE_STEPS)
def test_late_rows_are_a_stream_under_the_name_that_their_step_gives(tmp_path: Path, in_yaml: str, in_xml: str) -> None:
    aside = "  aside: {from: too-late, steps: [{filter: volts > 0}], to: {json_lines: late}}"
    from_yaml = read(tmp_path, write_yaml("{key_by: sensor}, {watermark: ts}, " + in_yaml, more=aside), "flow.yaml")
    steps_aside = "<filter>volts &gt; 0</filter><to><json_lines>late</json_lines></to>"
    aside = f'<stream name="aside" from="too-late">{steps_aside}</stream>'
    steps = "<key_by>sensor</key_by><watermark>ts</watermark>" + in_xml
    assert shape(read(tmp_path, write_xml(steps, more=aside), "flow.xml")) == shape(from_yaml)
    late = next(node for node in from_yaml.nodes.values() if node.label.startswith("late rows of"))
    assert list(late.schema) == ["sensor", "ts", "volts"]
    assert [sink.label for sink in from_yaml.sinks][1] == f"json {tmp_path / 'late'}"


def test_late_rows_of_a_file_are_those_of_python(tmp_path: Path) -> None:
    aside = "  aside: {from: too-late, steps: [{filter: volts > 0}], to: {json_lines: late}}"
    steps = "{key_by: sensor}, {watermark: {column: ts, delay: 2s}}, " + LATE_STEPS[0][0]
    from_file = read(tmp_path, write_yaml(steps, more=aside), "flow.yaml")
    flow = ab.Flow("reached")
    columns = {"sensor": "Int64", "ts": "Datetime(ms)", "volts": "Float64"}
    rows = flow.read(ab.files(tmp_path / "readings", schema=columns)).key_by("sensor").watermark("ts", delay="2s")
    windows = rows.window("10s", late="side").agg(n=ab.count())
    late = windows.late_rows()
    windows.write(ab.console())
    late.filter("volts > 0").write(ab.json_lines(tmp_path / "late"))
    assert shape(from_file) == shape(flow)


@pytest.mark.parametrize(
    ("steps", "more", "message"),
    [
        (
            "{window: 10s}, {agg: {n: count}, late_rows: aside}",
            "  b: {from: aside, to: console}",
            r'say late="side"|late="side"',
        ),
        (
            "{window: {size: 10s, late: side}}, {agg: {n: count}, late_rows: aside}",
            "",
            r"its late rows 'aside' go nowhere",
        ),
        (
            "{window: {size: 10s, late: side}}, {agg: {n: count}, late_rows: readings}",
            "",
            r"late_rows: 'readings' is the name of another",
        ),
        (
            "{window: {size: 10s, late: side}}, {agg: {n: count}, late_rows: all}",
            "",
            r"late_rows: 'all' is the name of another",
        ),
    ],
)
def test_late_rows_that_cannot_be_had_say_why(tmp_path: Path, steps: str, more: str, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        read(tmp_path, write_yaml("{key_by: sensor}, {watermark: ts}, " + steps, more=more), "flow.yaml")


def test_a_stream_may_end_in_its_late_rows_alone(tmp_path: Path) -> None:
    text = """
flow: reached
sources:
  readings: {files: {path: readings, schema: {sensor: Int64, ts: Datetime(ms)}}}
streams:
  aside: {from: too-late, to: console}
  all:
    from: readings
    steps:
      - key_by: sensor
      - watermark: ts
      - window: {size: 10s, late: side}
      - agg: {n: count}
        late_rows: too-late
"""
    assert len(read(tmp_path, text, "flow.yaml").sinks) == 1


def test_columns_of_every_type_are_written_in_yaml_and_in_xml(tmp_path: Path) -> None:
    in_yaml = (
        "{place: {lat: Float64, where: {town: String}}, places: [{lat: Float64}], tags: List(String), "
        "paid: 'Decimal(18, 2)', level: 'Enum(low, high)', at: 'Datetime(us, Europe/Berlin)', "
        "vector: 'Array(Float32, 3)', 'odd name': Int64}"
    )
    in_xml = (
        "<place><lat>Float64</lat><where><town>String</town></where></place><places>List(Struct(lat: Float64))</places>"
        "<tags>List(String)</tags><paid>Decimal(18, 2)</paid><level>Enum(low, high)</level>"
        "<at>Datetime(us, Europe/Berlin)</at><vector>Array(Float32, 3)</vector><column name='odd name'>Int64</column>"
    )
    from_yaml = read(tmp_path, write_yaml("", schema=in_yaml), "flow.yaml")
    from_xml = read(tmp_path, write_xml("", schema=in_xml), "flow.xml")
    assert dict(from_yaml.sources[0].schema) == dict(from_xml.sources[0].schema)
    assert [str(kind) for kind in from_yaml.sources[0].schema.values()] == [
        "Struct({'lat': Float64, 'where': Struct({'town': String})})",
        "List(Struct({'lat': Float64}))",
        "List(String)",
        "Decimal(precision=18, scale=2)",
        "Enum(categories=['low', 'high'])",
        "Datetime(time_unit='us', time_zone='Europe/Berlin')",
        "Array(Float32, shape=(3,))",
        "Int64",
    ]


@pytest.mark.parametrize(
    ("in_yaml", "in_xml"),
    [
        (
            "{key_by: sensor}, {agg: {both: {quantiles: [volts, 0.5, 0.9]}}}",
            "<key_by>sensor</key_by><agg><both><quantiles argument='volts'><fractions>0.5</fractions>"
            "<fractions>0.9</fractions></quantiles></both></agg>",
        ),
        (
            "{key_by: sensor}, {agg: {watts: {sum: [{sql: volts * 2}]}, most: {max: {argument: {sql: volts * 2}}}}}",
            "<key_by>sensor</key_by><agg><watts><sum><argument><sql>volts * 2</sql></argument></sum></watts>"
            "<most><max><argument><sql>volts * 2</sql></argument></max></most></agg>",
        ),
        ("{key_by: sensor}, {distinct: }", "<key_by>sensor</key_by><distinct/>"),
        ("{key_by: sensor}, {distinct: [], ttl: 1h}", "<key_by>sensor</key_by><distinct ttl='1h'/>"),
        (
            "{key_by: sensor, balance: {trigger: {every_seconds: 60, imbalance_above: none}}}, {agg: {n: count}}",
            "<key_by>sensor<balance><trigger every_seconds='60' imbalance_above='none'/></balance></key_by>"
            "<agg><n>count</n></agg>",
        ),
        (
            "{lookup: {table: {sql_table: {url: 'sqlite:///a.db', table: t, patience_seconds: 5}}, on: sensor,"
            " columns: {place: {lat: Float64}}, expires: none, cache: 10}}",
            "<lookup on='sensor' expires='none' cache='10'><table><sql_table url='sqlite:///a.db' table='t'"
            " patience_seconds='5'/></table><columns><place><lat>Float64</lat></place></columns></lookup>",
        ),
    ],
)
def test_the_same_step_means_the_same_in_yaml_and_in_xml(tmp_path: Path, in_yaml: str, in_xml: str) -> None:
    from_yaml = read(tmp_path, write_yaml(in_yaml), "flow.yaml")
    from_xml = read(tmp_path, write_xml(in_xml), "flow.xml")
    assert shape(from_yaml) == shape(from_xml)
    for made, other in zip(from_yaml.nodes.values(), from_xml.nodes.values(), strict=True):
        for part in ("routing", "table", "cache", "expires_us"):
            assert getattr(made.operation, part, None) == getattr(other.operation, part, None)


@pytest.mark.parametrize(
    ("said", "conditions"),
    [
        ("{}", {"imbalance_above": 1.2}),
        ("{cool_down_batches: 3}", {"imbalance_above": 1.2}),
        ("{every_seconds: 60}", {"every_seconds": 60}),
        ("{every_seconds: 60, imbalance_above: none}", {"every_seconds": 60}),
        ("{every_rows: 9, imbalance_above: 1.5}", {"every_rows": 9, "imbalance_above": 1.5}),
        ("{imbalance_above: none}", {"imbalance_above": float("inf")}),
    ],
)
def test_a_trigger_in_a_file_goes_by_what_it_says(tmp_path: Path, said: str, conditions: dict[str, float]) -> None:
    """One that takes the only condition away asks for no plans, as ever."""
    steps = f"{{key_by: sensor, balance: {{tolerance: 0.2, trigger: {said}}}}}, {{agg: {{n: count}}}}"
    flow = read(tmp_path, write_yaml(steps), "flow.yaml")
    (balance,) = [node.operation.routing.balance for node in flow.nodes.values() if node.stateful]
    assert balance.planning.conditions == conditions


def test_paths_in_addresses_and_schemas_are_relative_to_the_flow_file(tmp_path: Path) -> None:
    steps = "{key_by: sensor, exchange: global}, {agg: {n: count}}"
    text = write_yaml(steps).replace("to: console", "to: {global_store: {url: results.sqlite, table: t}}")
    assert read(tmp_path, text, "flow.yaml").sinks[0].label == f"global store sqlite:///{tmp_path / 'results.sqlite'} t"
    (tmp_path / "event.avsc").write_text('{"type": "record", "name": "e", "fields": [{"name": "n", "type": "long"}]}')
    kafka = "{kafka: {servers: 'host:1', topic: t, format: avro, value_schema: event.avsc, start: 2026-01-31}}"
    flow = read(tmp_path, f"flow: a\nsources: {{a: {kafka}}}\nstreams: {{b: {{from: a, to: console}}}}\n", "kafka.yaml")
    assert list(flow.sources[0].schema) == ["n"]


def test_dates_of_yaml_are_times_to_begin_with(tmp_path: Path) -> None:
    made = "{generate: {total_rows: 10, start: 2026-01-31}}"
    text = f"flow: a\nsources: {{a: {made}}}\nstreams: {{b: {{from: a, to: console}}}}\n"
    quoted = text.replace("2026-01-31", "'2026-01-31T00:00:00'")
    assert read(tmp_path, text, "flow.yaml").sources[0] == read(tmp_path, quoted, "quoted.yaml").sources[0]


def test_results_named_like_options_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=r"a result cannot be called 'name'"):
        read(tmp_path, write_yaml("{key_by: sensor}, {agg: {name: count}}"), "flow.yaml")


def test_an_attribute_that_a_step_does_not_have_is_not_passed_over(tmp_path: Path) -> None:
    steps = "<key_by rooting='hash'>sensor</key_by><agg><n>count</n></agg>"
    with pytest.raises(FlowError, match=r"<key_by> has an attribute 'rooting'; did you mean 'routing'\?"):
        read(tmp_path, write_xml(steps), "flow.xml")


def test_a_type_that_yaml_cut_at_its_comma_says_to_quote_it(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=r"column 'paid': the type is cut off: 'Decimal\(18'; in YAML, quote"):
        read(tmp_path, write_yaml("", schema="{paid: Decimal(18, 2)}"), "flow.yaml")


def test_names_of_digits_stay_names_in_xml(tmp_path: Path) -> None:
    flow = read(tmp_path, write_xml("<to><parquet>0815</parquet></to><to><parquet>2026</parquet></to>"), "flow.xml")
    assert [sink.label for sink in flow.sinks[:2]] == [f"parquet {tmp_path / name}" for name in ("0815", "2026")]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("distinct", r"steps\[0\]: is 'distinct'; a step is a mapping of its name"),
        ("{key_by: sensor}, {agg: }", r"agg: is empty; give a mapping of names"),
        ("{key_by: sensor}, {agg: [count]}", r"agg: is a list of 1; give a mapping of names"),
        ("{key_by: []}", r"key_by: is a list of 0; give at least one"),
        ("{key_by: sensor}, {agg: {n: {sum: [{sql: volts **}]}}}", r"sql: unable to parse 'volts \*\*'"),
        ("{key_by: sensor}, {agg: {n: {sum: {argument: [volts]}}}}", r"an aggregate takes a column's name or .* found"),
        ("{lookup: {table: 'x:y', on: sensor, columns: [5]}}", r"columns: is a list of 1; give names of columns"),
    ],
)
def test_mistakes_in_steps_say_what_to_write(tmp_path: Path, steps: str, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        read(tmp_path, write_yaml(steps), "flow.yaml")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("forgotten", r"<stream> holds the text 'forgotten'; it takes elements only"),
        ("<key_by>sensor</key_by><agg>count</agg>", r"<agg> holds the text 'count'"),
        ("<to/>", r"<to> is empty; name a sink in it"),
        ("<to sink='console'/>", r"<to> has an attribute 'sink'"),
    ],
)
def test_mistakes_in_xml_are_not_passed_over(tmp_path: Path, steps: str, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        read(tmp_path, write_xml(steps), "flow.xml")
