"""Avro schemas as column types."""

from __future__ import annotations

from typing import Any

import polars as pl

from anabranch.errors import FlowError

_PRIMITIVES: dict[str, pl.DataType] = {
    "null": pl.Null(),
    "boolean": pl.Boolean(),
    "int": pl.Int32(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "bytes": pl.Binary(),
    "string": pl.String(),
}
_TIMES: dict[str, pl.DataType] = {
    "date": pl.Date(),
    "timestamp-millis": pl.Datetime("ms"),
    "timestamp-micros": pl.Datetime("us"),
    "timestamp-nanos": pl.Datetime("ns"),
    "local-timestamp-millis": pl.Datetime("ms"),
    "local-timestamp-micros": pl.Datetime("us"),
    "local-timestamp-nanos": pl.Datetime("ns"),
}
_TIMES_OF_DAY_NS = {"time-millis": 1_000_000, "time-micros": 1000}
_DAY_NS = 86_400 * 10**9
_PARTS = ("type", "items", "values", "fields")


def columns_of_record(schema: Any) -> dict[str, pl.DataType]:
    """Return the columns that a record's fields become; raise ``FlowError`` for what has no column type."""
    return {name: _column_type(kind) for name, kind in field_types(schema).items()}


def field_types(schema: Any) -> dict[str, Any]:
    """Return the schema of each field of a record, with other schemas in the places of their names."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        msg = "the Avro schema is no record, so its values have no columns; read them with format='raw'"
        raise FlowError(msg)
    expanded = _expand(schema, {}, ())
    return {field["name"]: field["type"] for field in expanded["fields"]}


def without_times(schema: Any) -> Any:
    """Return the schema with times as the numbers they are on the wire: those convert a column at a time."""
    if isinstance(schema, list):
        return [without_times(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    stripped = {key: without_times(part) if key in _PARTS else part for key, part in schema.items()}
    if stripped.get("logicalType") not in (None, "decimal"):
        del stripped["logicalType"]
    return stripped


def column_from_wire(values: list[Any] | pl.Series, schema: Any) -> pl.Series:
    """Return a field's values, as ``without_times`` leaves them, as a column of the field's own type."""
    kind = _column_type(schema)
    inner = _without_null(schema)
    logical = inner.get("logicalType") if isinstance(inner, dict) else None
    if logical in _TIMES:
        wire = pl.Int32() if logical == "date" else pl.Int64()
        return pl.Series(values, dtype=wire, strict=True).cast(kind)
    if logical in _TIMES_OF_DAY_NS:
        ticks = pl.Series(values, dtype=pl.Int64, strict=True)
        # What is no time of a day must not become one by overflowing.
        longest = _DAY_NS // _TIMES_OF_DAY_NS[logical] - 1
        ticks = ticks.set((~ticks.is_between(0, longest)).fill_null(value=False), None)
        return (ticks * _TIMES_OF_DAY_NS[logical]).cast(pl.Time, strict=True)
    if _has_map(inner):
        values = [_list_entries(value, schema) for value in values]
    return pl.Series(values, dtype=kind, strict=True)


def _column_type(schema: Any) -> pl.DataType:
    inner = _without_null(schema)
    if isinstance(inner, str) and inner in _PRIMITIVES:
        return _PRIMITIVES[inner]
    if isinstance(inner, dict):
        return _complex_type(inner)
    msg = f"the Avro type {schema!r} has no column type; use format='raw' and decode it in the flow"
    raise FlowError(msg)


def _complex_type(schema: dict[str, Any]) -> pl.DataType:
    logical = schema.get("logicalType")
    if logical in _TIMES:
        return _TIMES[logical]
    if logical in _TIMES_OF_DAY_NS:
        return pl.Time()
    if logical == "decimal":
        return pl.Decimal(schema["precision"], schema.get("scale", 0))
    match schema["type"]:
        case "record":
            return pl.Struct({field["name"]: _nested_type(field["type"]) for field in schema["fields"]})
        case "array":
            return pl.List(_nested_type(schema["items"]))
        case "map":
            return pl.List(pl.Struct({"key": pl.String(), "value": _nested_type(schema["values"])}))
        case "enum" | "fixed" as kind:
            return pl.String() if kind == "enum" else pl.Binary()
        case other:
            return _column_type(other)


def _nested_type(schema: Any) -> pl.DataType:
    """Return the type inside of a list or a struct, where times stay the numbers they are on the wire."""
    return _column_type(without_times(schema))


def _without_null(schema: Any) -> Any:
    if isinstance(schema, list):
        others = [part for part in schema if part != "null"]
        return others[0] if len(others) == 1 else schema
    return schema


def _has_map(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_has_map(part) for part in schema)
    if not isinstance(schema, dict):
        return False
    return schema.get("type") == "map" or any(_has_map(schema[key]) for key in _PARTS if key in schema)


def _list_entries(value: Any, schema: Any) -> Any:
    """Return a value with its maps as lists of entries, in the order of their keys."""
    inner = _without_null(schema)
    if value is None or not isinstance(inner, dict):
        return value
    match inner["type"]:
        case "map":
            return [{"key": key, "value": _list_entries(value[key], inner["values"])} for key in sorted(value)]
        case "array":
            return [_list_entries(item, inner["items"]) for item in value]
        case "record":
            return {field["name"]: _list_entries(value[field["name"]], field["type"]) for field in inner["fields"]}
        case _:
            return value


def _expand(schema: Any, names: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """Return a schema with other schemas in the places of their names."""
    if isinstance(schema, str):
        if schema in inside:
            msg = f"the Avro record {schema!r} holds itself, which no column can; use format='raw'"
            raise FlowError(msg)
        return names.get(schema, schema)
    if isinstance(schema, list):
        return [_expand(part, names, inside) for part in schema]
    if not isinstance(schema, dict):
        return schema
    own: tuple[str, ...] = ()
    if schema.get("type") in ("record", "enum", "fixed"):
        name = schema["name"]
        full = name if "." in name else ".".join(filter(None, (schema.get("namespace"), name)))
        own = (name.rsplit(".", 1)[-1], full)
    expanded = dict(schema)
    for key in _PARTS:
        if key == "fields" and key in schema:
            fields = schema["fields"]
            expanded["fields"] = [{**part, "type": _expand(part["type"], names, (*inside, *own))} for part in fields]
        elif key in schema:
            expanded[key] = _expand(schema[key], names, (*inside, *own))
    names.update(dict.fromkeys(own, expanded))
    return expanded
