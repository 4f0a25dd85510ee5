"""YAML and XML texts as the plain data of a flow file; both forms give the same data.

The XML form has the words of the YAML form as elements::

    <flow name="low-voltage">
      <python>readings.py</python>
      <source name="readings">
        <files path="readings/" format="json">
          <schema><sensor>Int64</sensor><ts>Datetime(ms)</ts><volts>Float64</volts></schema>
        </files>
      </source>
      <stream name="alerts" from="readings">
        <filter>volts &gt; 0</filter>
        <key_by>sensor</key_by>
        <watermark column="ts" delay="2s"/>
        <window>10s</window>
        <agg><readings>count</readings><lowest><min>volts</min></lowest></agg>
        <to><parquet>alerts/</parquet></to>
      </stream>
      <run trigger="available-now" drain="true" slots="8"/>
    </flow>

Several columns are repeated: ``<key_by><column>sensor</column><column>day</column></key_by>``; a computed one has its
name as an attribute: ``<select><column name="kv">volts / 1000</column></select>``. Python code with arguments is
``<python name="module:name">…</python>``. Attributes and child elements are the same thing, and a repeated element is
a list: ``<from>readings</from><from>others</from>`` is the union of two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element, ParseError

import defusedxml.ElementTree
import yaml
from defusedxml.common import DefusedXmlException

from anabranch.errors import FlowError, name_alternatives

_FLOW_PARTS = ("python", "source", "stream", "dead_letter", "run")
_PLACING = ("key_by", "join", "join_where", "join_asof")
"""Steps that may say where their rows go."""
_OPTIONS = {
    "key_by": ("routing", "balance", "exchange"),
    "join": ("routing", "balance", "name"),
    "join_where": ("routing", "balance", "name"),
    "join_asof": ("routing", "balance", "name"),
    "agg": ("ttl", "name", "late_rows"),
    "top_k": ("ttl", "name", "late_rows"),
    "distinct": ("ttl", "name"),
    "ordered": ("name", "late_rows"),
    "process": ("name",),
}
"""Attributes that stand beside a step's verb, not among its arguments."""
_CALLS = {"lookup": "table", "process": "processor"}
"""What in a step is a name with arguments."""
# A text that begins with a zero more is a name of digits, such as 0815.
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key written twice, which plain YAML lets win silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                msg = f"line {line}: {key.value!r} was given before, in line {seen[key.value]}; keep one of them"
                raise FlowError(msg)
            if isinstance(key, yaml.ScalarNode):
                seen[key.value] = line
        return super().construct_mapping(node, deep)


def read_yaml(text: str, where: str) -> object:
    """Return what a YAML text says, as plain data."""
    try:
        # A subclass of the safe loader: no Python objects are made.
        return yaml.load(text, Loader=_StrictLoader)
    except FlowError as error:
        msg = f"{where}: {error}"
        raise FlowError(msg) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        msg = f"{where}: {place}not YAML: {problem}; texts with ': ' or '#' in them need quotes"
        raise FlowError(msg) from error


def read_xml(text: str, where: str) -> object:
    """Return what an XML text says, as the plain data that the YAML form would give."""
    try:
        root: Element = defusedxml.ElementTree.fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        msg = f"{where}: document types and entities are refused ({error}); write the text itself"
        raise FlowError(msg) from error
    except ParseError as error:
        msg = f"{where}: not XML: {error}; in texts, write &lt; for < and &amp; for &"
        raise FlowError(msg) from error
    if root.tag != "flow":
        msg = f"{where}: the outermost element is <{root.tag}>; it must be <flow name=…>"
        raise FlowError(msg)
    try:
        return _read_flow(root)
    except FlowError as error:
        msg = f"{where}: {error}"
        raise FlowError(msg) from None


def _read_flow(root: Element) -> dict[str, Any]:
    _refuse_text(root)
    flow: dict[str, Any] = {}
    for key, value in root.attrib.items():
        flow["flow" if key == "name" else key] = value
    for child in root:
        match child.tag:
            case "python":
                flow.setdefault("python", []).append(_text(child))
            case "source":
                _refuse_attributes(child, "name")
                _add_named(flow.setdefault("sources", {}), child, _read_call(child))
            case "stream":
                _add_named(flow.setdefault("streams", {}), child, _read_stream(child))
            case "dead_letter":
                flow["dead_letter"] = _read_call(child)
            case "run":
                flow["run"] = _read_value(child, scalar=str)
            case unknown:
                msg = f"<flow> holds <{unknown}>; {name_alternatives(unknown, _FLOW_PARTS, 'allowed are')}"
                raise FlowError(msg)
    return flow


def _add_named(target: dict[str, Any], element: Element, value: Any) -> None:
    name = element.get("name")
    if not name:
        msg = f"a <{element.tag}> has no name; write <{element.tag} name=…>"
        raise FlowError(msg)
    if name in target:
        msg = f"two elements are <{element.tag} name={name!r}>; give each a name of its own"
        raise FlowError(msg)
    target[name] = value


def _read_stream(element: Element) -> dict[str, Any]:
    _refuse_text(element)
    stream: dict[str, Any] = {key: value for key, value in element.attrib.items() if key != "name"}
    if "from" in stream:
        stream["from"] = [name.strip() for name in stream["from"].split(",")]
    steps = []
    for child in element:
        if child.tag == "from":
            stream.setdefault("from", []).append(_text(child))
        elif child.tag == "to":
            _refuse_attributes(child)
            sinks: list[Any] = [_read_arguments(sink) for sink in child] or [_text(child)]
            if not sinks[0]:
                msg = "<to> is empty; name a sink in it: <to>console</to>, <to><parquet>alerts/</parquet></to>"
                raise FlowError(msg)
            stream.setdefault("to", []).extend(sinks)
        else:
            steps.append(_read_step(child))
    return stream | ({"steps": steps} if steps else {})


def _read_step(element: Element) -> dict[str, Any]:
    options: dict[str, Any] = {
        key: element.attrib.pop(key) for key in _OPTIONS.get(element.tag, ()) if key in element.attrib
    }
    if element.tag in _PLACING:
        for child in (*element.findall("balance"), *element.findall("merge")):
            options[child.tag] = _read_value(child)
            element.remove(child)
        for child in element.findall("routing"):
            options[child.tag] = _read_call(child)
            element.remove(child)
    if element.tag in ("select", "with_columns", "key_by", "distinct"):
        return {element.tag: _read_columns(element), **options}
    if element.tag == "agg":
        _refuse_attributes(element)
        _refuse_text(element)
        return {"agg": {_name_of(child): _read_call(child) for child in element}, **options}
    return {element.tag: _read_fields(element), **options}


def _read_fields(element: Element) -> Any:
    """Read a step's fields as texts whatever they look like: the format knows which of them are numbers."""
    call = element.find(_CALLS[element.tag]) if element.tag in _CALLS else None
    if call is None:
        return _read_value(element, scalar=str)
    element.remove(call)
    fields = _read_value(element, scalar=str)
    return (fields if isinstance(fields, dict) else {}) | {call.tag: _read_call(call)}


def _refuse_attributes(element: Element, *allowed: str) -> None:
    known = (*allowed, *_OPTIONS.get(element.tag, ()))
    for name in [name for name in element.attrib if name not in allowed]:
        msg = f"<{element.tag}> has an attribute {name!r}; {name_alternatives(name, known, 'its attributes are')}"
        raise FlowError(msg)


def _refuse_text(element: Element) -> None:
    """Raise ``FlowError`` for text where only elements have a meaning."""
    for text in (element.text, *(child.tail for child in element)):
        if text and text.strip():
            msg = f"<{element.tag}> holds the text {text.strip()!r}; it takes elements only"
            raise FlowError(msg)


def _read_columns(element: Element) -> Any:
    _refuse_attributes(element)
    if not len(element):
        return _text(element)
    columns: list[Any] = []
    for child in element:
        if child.tag != "column":
            msg = f"<{element.tag}> holds <{child.tag}>; it takes text, or <column> elements"
            raise FlowError(msg)
        name = child.get("name")
        columns.append({name: _text(child)} if name else _text(child))
    return columns


def _read_call(element: Element) -> Any:
    """Read ``<lowest><min>volts</min></lowest>`` as ``{min: volts}``, and ``<readings>count</readings>`` as a name."""
    if not len(element):
        return _text(element)
    calls = [_read_arguments(child) for child in element]
    if len(calls) > 1:
        msg = f"<{element.tag}> holds {', '.join(f'<{child.tag}>' for child in element)}; give one of them"
        raise FlowError(msg)
    return calls[0]


def _read_arguments(element: Element) -> dict[str, Any]:
    # A colon has a meaning of its own in XML, so an element cannot be called module:name.
    name = element.attrib.pop("name", "") if element.tag == "python" else element.tag
    return {name: _read_value(element)}


def _read_scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if any(mark in text for mark in ".eE") else int(text)
    return text or None


def _read_value(element: Element, scalar: Callable[[str], Any] = _read_scalar) -> Any:
    """Read an argument: text, a number, true or false, or the mapping that attributes and children make."""
    if not element.attrib and not len(element):
        return scalar(_text(element))
    fields: dict[str, Any] = {key: scalar(value) for key, value in element.attrib.items()}
    for child in element:
        name = _name_of(child)
        value = _read_value(child, scalar)
        if name in fields:
            before = fields[name]
            fields[name] = [*before, value] if isinstance(before, list) else [before, value]
        else:
            fields[name] = value
    return fields


def _name_of(element: Element) -> str:
    """Return what an element stands for; ``<column name="kilo volts">`` is for names that no element can have."""
    return element.attrib.pop("name", element.tag) if element.tag == "column" else element.tag


def _text(element: Element) -> str:
    return (element.text or "").strip()
