"""The formats of values by their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.connectors.formats.messages import avro_values, protobuf_values
from anabranch.connectors.formats.messages.avro_types import columns_of_record
from anabranch.connectors.formats.messages.avro_values import AvroValues
from anabranch.connectors.formats.messages.decoders import RawValues, ValueFormat
from anabranch.connectors.formats.messages.json_values import JsonValues
from anabranch.connectors.formats.messages.protobuf_values import ProtobufValues
from anabranch.connectors.formats.messages.schema_registries import Registry
from anabranch.connectors.formats.schemas import normalise_schema
from anabranch.errors import FlowError
from anabranch.model.schema_forms import SchemaLike


def make_format(
    name: str,
    schema: SchemaLike | None,
    value_schema: str | Path | Mapping[str, Any] | None,
    registry: Registry | None,
    topic: str,
) -> ValueFormat:
    """Return the format; columns that are not declared come from the value schema, or from the registry's newest."""
    columns = None if schema is None else normalise_schema(schema)
    if value_schema is not None and name in ("json", "raw"):
        msg = f"value_schema is for Avro and Protobuf; {name} values are described by schema alone"
        raise FlowError(msg)
    match name:
        case "json":
            return JsonValues(_need_columns(columns), registry is not None)
        case "avro":
            return _make_avro(columns, value_schema, registry, topic)
        case "protobuf":
            if not isinstance(value_schema, str):
                msg = "Protobuf values cannot be read without their type: give value_schema='module:Message'"
                raise FlowError(msg)
            return ProtobufValues(
                columns or protobuf_values.columns_of(value_schema), value_schema, registry is not None
            )
        case _:
            return RawValues(_check_raw(columns or {"value": pl.Binary()}))


def _make_avro(
    columns: Mapping[str, pl.DataType] | None,
    value_schema: str | Path | Mapping[str, Any] | None,
    registry: Registry | None,
    topic: str,
) -> AvroValues:
    text = None if value_schema is None else avro_values.read_value_schema(value_schema)
    if columns is None:
        if text is not None:
            columns = avro_values.columns_of(text)
        elif registry is not None:
            columns = columns_of_record(registry.latest(f"{topic}-value"))
        else:
            msg = "Avro values cannot be read without their schema: give value_schema=…, or registry=…"
            raise FlowError(msg)
    return AvroValues(columns, text, registry)


def _need_columns(columns: Mapping[str, pl.DataType] | None) -> Mapping[str, pl.DataType]:
    if columns is None:
        msg = 'JSON messages need a schema, such as schema={"sensor": pl.Int64, "volts": pl.Float64}'
        raise FlowError(msg)
    return columns


def _check_raw(columns: Mapping[str, pl.DataType]) -> Mapping[str, pl.DataType]:
    if len(columns) != 1 or not all(isinstance(kind, pl.Binary | pl.String) for kind in columns.values()):
        msg = f"raw values are one column of type pl.Binary or pl.String; the schema is {dict(columns)}"
        raise FlowError(msg)
    return columns
