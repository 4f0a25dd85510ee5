"""What is wrong with a flow file is said with its place and what is allowed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.errors import FlowError
from unit.query.flow_forms import load, minimal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (minimal(more="sink: x"), r"unknown field 'sink'; allowed are flow, python, sources, streams"),
        (minimal("[{fliter: volts > 0}]"), r"streams\.all\.steps\[0\]: unknown step 'fliter'; did you mean 'filter'\?"),
        (minimal("[filter]"), r"streams\.all\.steps\[0\]: is 'filter'; a step is a mapping of its name"),
        (
            minimal("[{watermark: {colum: ts}}]"),
            r"steps\[0\]\.watermark: unknown field 'colum'; did you mean 'column'\? allowed are column, delay",
        ),
        (minimal("[{watermark: {delay: 2s}}]"), r"steps\[0\]\.watermark: the field 'column' is missing"),
        (minimal("[{watermark: {column: ts, delay: 2}}]"), r"steps\[0\]\.watermark\.delay: .*'10s'"),
        (minimal("[{filter: volts > 0, ttl: 1h}]"), r"steps\[0\]\.filter: unknown field 'ttl'; allowed are filter"),
        (minimal("[{filter: 3}]"), r"steps\[0\]\.filter: is 3; give a text"),
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
        (
            minimal(more="run: {parallelism: fast}"),
            r"run\.parallelism: is 'fast'; allowed are 'operator-set', 'operator'",
        ),
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
