"""Result rows as messages: keys, values and headers, encoded in tasks."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, Protocol

import polars as pl

from anabranch.connectors.databases.key_patterns import as_text
from anabranch.connectors.databases.staged_rows import check_columns
from anabranch.connectors.encodings import encode_arrow, encode_json_lines
from anabranch.connectors.extras import import_extra
from anabranch.errors import SinkError
from anabranch.model.column_kinds import holds

Format = Literal["json", "avro", "protobuf", "raw"]
KEY, VALUE, HEADERS, TIME = "key", "value", "headers", "timestamp_ms"

_AVRO_KINDS: dict[type[pl.DataType], Any] = {
    pl.Boolean: "boolean",
    pl.Int8: "int",
    pl.Int16: "int",
    pl.Int32: "int",
    pl.UInt8: "int",
    pl.UInt16: "int",
    pl.UInt32: "long",
    pl.Int64: "long",
    pl.Float32: "float",
    pl.Float64: "double",
    pl.String: "string",
    pl.Categorical: "string",
    pl.Enum: "string",
    pl.Binary: "bytes",
    pl.Date: {"type": "int", "logicalType": "date"},
    pl.Datetime: {"type": "long", "logicalType": "timestamp-micros"},
}
_TICKS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "timestamp-millis": lambda value: value.dt.timestamp("ms"),
    "timestamp-micros": lambda value: value.dt.timestamp("us"),
    "timestamp-nanos": lambda value: value.dt.timestamp("ns"),
    "local-timestamp-millis": lambda value: value.dt.timestamp("ms"),
    "local-timestamp-micros": lambda value: value.dt.timestamp("us"),
    "local-timestamp-nanos": lambda value: value.dt.timestamp("ns"),
    "date": lambda value: value.cast(pl.Date).to_physical(),
}


class ValueEncoder(Protocol):
    """Turns rows into the bytes of values."""

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if the columns cannot be written so."""
        ...

    def encode(self, rows: pl.DataFrame) -> list[bytes]: ...


@dataclass(frozen=True, slots=True)
class JsonEncoder:
    """One JSON object a row, its times as text, as ``json_lines`` writes them."""

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` for a column that JSON cannot hold."""
        for column, kind in schema.items():
            if holds(kind, pl.Binary, pl.Object):
                msg = f"column {column!r} is {kind}, which JSON cannot hold; cast it, leave it out, or use format='raw'"
                raise SinkError(msg)

    def encode(self, rows: pl.DataFrame) -> list[bytes]:
        """Return a value a row."""
        return encode_json_lines(rows).split(b"\n")[: rows.height]


@dataclass(frozen=True, slots=True)
class RawEncoder:
    """The bytes, or the text, of one column."""

    column: str

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` unless the column is there and holds bytes or text."""
        check_columns(schema, [self.column], "value of a raw Kafka sink")
        if not isinstance(schema[self.column], pl.Binary | pl.String):
            msg = f"column {self.column!r} is {schema[self.column]}; a raw value is Binary or String"
            raise SinkError(msg)

    def encode(self, rows: pl.DataFrame) -> list[bytes]:
        """Return a value a row."""
        return rows.get_column(self.column).cast(pl.Binary).fill_null(b"").to_list()


@dataclass(frozen=True, slots=True)
class AvroEncoder:
    """One Avro record a row, without a header: who publishes puts the schema's number before it."""

    value_schema: str | None
    name: str

    def schema_of(self, columns: Mapping[str, pl.DataType]) -> dict[str, Any]:
        """Return the schema that was given, or one made of the columns, in which every field may be null."""
        if self.value_schema is not None:
            given: dict[str, Any] = json.loads(self.value_schema)
            return given
        fields = []
        for column, kind in columns.items():
            form: Any = _AVRO_KINDS.get(kind.base_type())
            if isinstance(kind, pl.Decimal):
                form = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
            if form is None:
                msg = (
                    f"column {column!r} is {kind}, for which no Avro type is known here; cast it, or give value_schema"
                )
                raise SinkError(msg)
            fields.append({"name": column, "type": ["null", form], "default": None})
        return {"type": "record", "name": re.sub(r"\W", "_", self.name), "fields": fields}

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if fields of the schema are no columns."""
        _import_fastavro()
        check_columns(schema, [field["name"] for field in self.schema_of(schema)["fields"]], "the Avro schema")

    def encode(self, rows: pl.DataFrame) -> list[bytes]:
        """Return a record a row."""
        from anabranch.connectors.kafka.avro_types import field_types, without_times

        fastavro = _import_fastavro()
        described = self.schema_of(rows.schema)
        fields = field_types(described)
        parsed = fastavro.parse_schema(without_times(described))
        # Times go as the numbers they are on the wire: fastavro would take naive ones for local ones.
        ticks = rows.select(_as_wire(column, rows.schema[column], kind) for column, kind in fields.items())
        values = []
        for row in ticks.iter_rows(named=True):
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, parsed, row)
            values.append(buffer.getvalue())
        return values


@dataclass(frozen=True, slots=True)
class ProtobufEncoder:
    """One Protobuf message a row."""

    value_schema: str
    """``module:Message``, or ``file.desc:package.Message``."""

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if a column is no field of the message."""
        from anabranch.connectors.kafka.protobuf_values import load_message

        fields = load_message(self.value_schema).DESCRIPTOR.fields_by_name
        strangers = [column for column in schema if column not in fields]
        if strangers:
            known = ", ".join(sorted(fields))
            msg = f"columns {', '.join(strangers)} are no fields of {self.value_schema}; it has {known}"
            raise SinkError(msg)

    def encode(self, rows: pl.DataFrame) -> list[bytes]:
        """Return a message a row; what is null is left out."""
        from anabranch.connectors.kafka.protobuf_values import load_message

        message_class = load_message(self.value_schema)
        values = []
        for row in rows.select(_as_protobuf(column, kind) for column, kind in rows.schema.items()).iter_rows(
            named=True
        ):
            message = message_class()
            _fill(message, row)
            values.append(message.SerializeToString(deterministic=True))
        return values


@dataclass(frozen=True, slots=True)
class MessageStaging:
    """What tasks get of a Kafka sink: how rows become messages, and no address or password."""

    label: str
    encoder: ValueEncoder
    key: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    """(header's name, column)."""
    timestamp: str | None
    tombstones: bool
    suffix: str = ".arrow"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if columns are missing or cannot be written."""
        named = [*self.key, *(column for _, column in self.headers), *([self.timestamp] if self.timestamp else [])]
        check_columns(schema, named, self.label)
        if self.timestamp and not isinstance(schema[self.timestamp], pl.Datetime):
            msg = f"timestamp of {self.label}: the column {self.timestamp!r} is {schema[self.timestamp]}, no time"
            raise SinkError(msg)
        if len(self.key) > 1:
            JsonEncoder().check({column: schema[column] for column in self.key})
        for column in (*self.key, *(column for _, column in self.headers)):
            as_text(column, schema[column], "iso")
        self.encoder.check(schema)

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return an Arrow file of messages."""
        values: list[bytes | None] = list(self.encoder.encode(frame))
        if self.tombstones:
            others = [column for column in frame.columns if column not in self.key]
            gone = frame.select(pl.all_horizontal(pl.lit(value=True), *(pl.col(name).is_null() for name in others)))
            values = [None if empty else value for value, empty in zip(values, gone.to_series(), strict=True)]
        columns: list[pl.Series] = [self._keys(frame), pl.Series(VALUE, values, dtype=pl.Binary)]
        for name, column in self.headers:
            columns.append(
                frame.select(as_text(column, frame.schema[column], "iso").alias(f"{HEADERS}.{name}")).to_series()
            )
        if self.timestamp:
            columns.append(frame.get_column(self.timestamp).dt.timestamp("ms").alias(TIME))
        return encode_arrow(pl.DataFrame(columns))

    def _keys(self, frame: pl.DataFrame) -> pl.Series:
        if not self.key:
            return pl.repeat(None, frame.height, dtype=pl.Binary, eager=True).alias(KEY)
        if len(self.key) > 1:
            return pl.Series(KEY, JsonEncoder().encode(frame.select(self.key)), dtype=pl.Binary)
        column = self.key[0]
        if isinstance(frame.schema[column], pl.Binary):
            return frame.get_column(column).alias(KEY)
        return frame.select(as_text(column, frame.schema[column], "iso").cast(pl.Binary).alias(KEY)).to_series()

    def publish(self, batch: int, staged: Sequence[Any], context: Mapping[str, Any]) -> None:
        """Raise ``SinkError``: only the driver publishes."""
        msg = f"{self.label} is published by the driver; batch {batch} was asked of a task's copy"
        raise SinkError(msg)

    def retract(self, after_batch: int) -> None:
        """Raise ``SinkError``: messages stay."""
        msg = f"{self.label} is changed by the driver; retracting after {after_batch} was asked of a task's copy"
        raise SinkError(msg)


def _as_wire(column: str, kind: pl.DataType, form: Any) -> pl.Expr:
    inner = next((part for part in form if part != "null"), form) if isinstance(form, list) else form
    logical = inner.get("logicalType") if isinstance(inner, dict) else None
    if logical in _TICKS and isinstance(kind, pl.Datetime | pl.Date):
        return _TICKS[logical](pl.col(column))
    return pl.col(column)


def _as_protobuf(column: str, kind: pl.DataType) -> pl.Expr:
    return pl.col(column).dt.timestamp("us") if isinstance(kind, pl.Datetime) else pl.col(column)


def _fill(message: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            continue
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.type == field.TYPE_MESSAGE:
            items = value if isinstance(value, list) else [value]
            target = getattr(message, name)
            for item in items:
                part = target.add() if isinstance(value, list) else target
                if hasattr(part, "FromMicroseconds"):
                    part.FromMicroseconds(item)
                else:
                    part.SetInParent()
                    _fill(part, item)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        elif field.type == field.TYPE_ENUM and isinstance(value, str):
            setattr(message, name, field.enum_type.values_by_name[value].number)
        else:
            setattr(message, name, value.isoformat() if isinstance(value, date) else value)


def _import_fastavro() -> Any:
    return import_extra("fastavro", "kafka", "Avro needs the package fastavro", SinkError)


def make_encoder(format: str, value: str, value_schema: Any, topic: str) -> ValueEncoder:
    """Return what writes values of a format; raise ``SinkError`` for an unknown one or one that lacks its schema."""
    if format == "json":
        return JsonEncoder()
    if format == "raw":
        return RawEncoder(value)
    if format == "avro":
        from anabranch.connectors.kafka.avro_values import read_value_schema

        return AvroEncoder(None if value_schema is None else read_value_schema(value_schema), topic)
    if format == "protobuf" and isinstance(value_schema, str):
        return ProtobufEncoder(value_schema)
    if format == "protobuf":
        msg = "format='protobuf' needs value_schema='module:Message' or 'file.desc:package.Message'"
        raise SinkError(msg)
    msg = f"format of kafka_topic is json, avro, protobuf or raw, found {format!r}"
    raise SinkError(msg)
