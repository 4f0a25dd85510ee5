"""The values of messages: rows as JSON, Avro, Protobuf, or as they are."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, Protocol

import polars as pl

from anabranch.connectors.databases.staged_rows import check_columns
from anabranch.connectors.extras import import_extra
from anabranch.connectors.formats.encodings import encode_json_lines
from anabranch.errors import SinkError
from anabranch.model.column_kinds import holds

Format = Literal["json", "avro", "protobuf", "raw"]
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_MOST_LETTERS = 200

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
        """Raise ``SinkError`` if fields of the schema are no columns, or cannot hold them."""
        from anabranch.connectors.formats.messages.avro_types import field_types

        _import_fastavro()
        described = self.schema_of(schema)
        fields = field_types(described)
        check_columns(schema, list(fields), "the Avro schema")
        for column, form in fields.items():
            if "enum" in json.dumps(form) and isinstance(schema[column], _TEXTS):
                continue  # which texts there will be is not known
            one = {**described, "fields": [{"name": column, "type": form}]}
            fault = _find_avro_misfit(one, _make_probe({column: schema[column]}))
            if fault is not None:
                msg = (
                    f"column {column!r} is {schema[column]}, which the Avro type {form!r} cannot hold ({fault}); "
                    f"cast it, or change value_schema"
                )
                raise SinkError(msg)

    def encode(self, rows: pl.DataFrame) -> list[bytes]:
        """Return a record a row."""
        from anabranch.connectors.formats.messages.avro_types import field_types, without_times

        fastavro = _import_fastavro()
        described = self.schema_of(rows.schema)
        fields = field_types(described)
        parsed = fastavro.parse_schema(without_times(described))
        # Times go as the numbers they are on the wire: fastavro would take naive ones for local ones.
        ticks = rows.select(_as_wire(column, rows.schema[column], kind) for column, kind in fields.items())
        for column, kind in fields.items():
            _check_bits(ticks.get_column(column), kind)
        values = []
        for row in ticks.iter_rows(named=True):
            buffer = io.BytesIO()
            try:
                fastavro.schemaless_writer(buffer, parsed, row)
            except Exception as error:  # fastavro raises whatever the values lead it to
                raise _unwritable("Avro", row, error) from error
            values.append(buffer.getvalue())
        return values


@dataclass(frozen=True, slots=True)
class ProtobufEncoder:
    """One Protobuf message a row."""

    value_schema: str
    """``module:Message``, or ``file.desc:package.Message``."""

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if a column is no field of the message, or one of another type."""
        from anabranch.connectors.formats.messages.protobuf_values import load_message

        fields = load_message(self.value_schema).DESCRIPTOR.fields_by_name
        strangers = [column for column in schema if column not in fields]
        if strangers:
            known = ", ".join(sorted(fields))
            msg = f"columns {', '.join(strangers)} are no fields of {self.value_schema}; it has {known}"
            raise SinkError(msg)
        for column, kind in schema.items():
            if fields[column].type == fields[column].TYPE_ENUM and isinstance(kind, _TEXTS):
                continue  # which texts there will be is not known
            try:
                self.encode(_make_probe({column: kind}))
            except SinkError as error:
                msg = f"column {column!r} is {kind}, which its field of {self.value_schema} cannot hold ({error})"
                raise SinkError(msg) from error

    def encode(self, rows: pl.DataFrame) -> list[bytes]:
        """Return a message a row; what is null is left out."""
        from anabranch.connectors.formats.messages.protobuf_values import load_message

        message_class = load_message(self.value_schema)
        values = []
        for row in rows.select(_as_protobuf(column, kind) for column, kind in rows.schema.items()).iter_rows(
            named=True
        ):
            message = message_class()
            try:
                _fill(message, row)
            except Exception as error:  # protobuf raises whatever the values lead it to
                raise _unwritable("Protobuf", row, error) from error
            values.append(message.SerializeToString(deterministic=True))
        return values


def _as_wire(column: str, kind: pl.DataType, form: Any) -> pl.Expr:
    inner = next((part for part in form if part != "null"), form) if isinstance(form, list) else form
    logical = inner.get("logicalType") if isinstance(inner, dict) else None
    if logical in _TICKS and isinstance(kind, pl.Datetime | pl.Date):
        return _TICKS[logical](pl.col(column))
    return pl.col(column)


def _find_avro_misfit(described: dict[str, Any], probe: pl.DataFrame) -> str | None:
    """Say why a row does not come back from Avro as it was; None if it does."""
    from anabranch.connectors.formats.messages.avro_types import field_types, without_times

    fastavro = _import_fastavro()
    try:
        (value,) = AvroEncoder(json.dumps(described), "probe").encode(probe)
        got = fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(without_times(described)), None)
    except SinkError as error:
        return str(error)
    ((column, form),) = field_types(described).items()
    given = probe.select(_as_wire(column, probe.schema[column], form)).item()
    given = given.to_list() if isinstance(given, pl.Series) else given
    return None if got[column] == given else f"{given!r} becomes {got[column]!r}"


def _check_bits(column: pl.Series, form: Any) -> None:
    """Raise ``SinkError`` for whole numbers that Avro's do not hold: fastavro would write them all the same."""
    bits = {"int": 32, "long": 64}.get(str(_inner_type(form)))
    if bits is None or not column.dtype.is_integer():
        return
    for value in (column.min(), column.max()):
        if isinstance(value, int) and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            msg = (
                f"column {column.name!r} has the value {value}, which Avro's {_inner_type(form)} does not hold; cast it"
            )
            raise SinkError(msg)


def _inner_type(form: Any) -> Any:
    inner = next((part for part in form if part != "null"), form) if isinstance(form, list) else form
    return inner.get("type") if isinstance(inner, dict) else inner


def _as_protobuf(column: str, kind: pl.DataType) -> pl.Expr:
    return pl.col(column).dt.timestamp("us") if isinstance(kind, pl.Datetime) else pl.col(column)


def _fill(message: Any, values: Mapping[str, Any]) -> None:
    from anabranch.connectors.formats.messages.protobuf_values import is_map

    for name, value in values.items():
        if value is None:
            continue
        field = message.DESCRIPTOR.fields_by_name[name]
        if is_map(field):
            _fill_map(getattr(message, name), field, value)
        elif field.type == field.TYPE_MESSAGE:
            items = value if isinstance(value, list) else [value]
            target = getattr(message, name)
            for item in items:
                part = target.add() if isinstance(value, list) else target
                if hasattr(part, "FromMicroseconds"):
                    part.FromMicroseconds(item if isinstance(item, int) else _microseconds_of(item))
                else:
                    part.SetInParent()
                    _fill(part, item)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        elif field.type == field.TYPE_ENUM and isinstance(value, str):
            setattr(message, name, field.enum_type.values_by_name[value].number)
        else:
            setattr(message, name, value.isoformat() if isinstance(value, date) else value)


def _fill_map(target: Any, field: Any, entries: list[dict[str, Any]]) -> None:
    is_message = field.message_type.fields_by_name["value"].message_type is not None
    for entry in entries:
        if is_message:
            _fill(target[entry["key"]], entry["value"])
        else:
            target[entry["key"]] = entry["value"]


def _microseconds_of(moment: datetime) -> int:
    """Return a time inside of a list or a struct as a number; without a zone it is in UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _unwritable(format: str, row: Mapping[str, Any], error: Exception) -> SinkError:
    text = repr(row)
    shown = text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"
    return SinkError(
        f"a row cannot be written as {format} of its schema: {type(error).__name__} {error}; it is {shown}"
    )


def _import_fastavro() -> Any:
    return import_extra("fastavro", "kafka", "Avro needs the package fastavro", SinkError)


def make_encoder(format: str, value: str, value_schema: Any, topic: str) -> ValueEncoder:
    """Return what writes values of a format; raise ``SinkError`` for an unknown one or one that lacks its schema."""
    if format == "json":
        return JsonEncoder()
    if format == "raw":
        return RawEncoder(value)
    if format == "avro":
        from anabranch.connectors.formats.messages.avro_values import read_value_schema

        return AvroEncoder(None if value_schema is None else read_value_schema(value_schema), topic)
    if format == "protobuf" and isinstance(value_schema, str):
        return ProtobufEncoder(value_schema)
    if format == "protobuf":
        msg = "format='protobuf' needs value_schema='module:Message' or 'file.desc:package.Message'"
        raise SinkError(msg)
    msg = f"format of kafka_topic is json, avro, protobuf or raw, found {format!r}"
    raise SinkError(msg)


def _make_probe(schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return one row of ordinary values, also in lists and structs, to see early whether such rows can be written."""
    return pl.DataFrame([_probe(kind).alias(column) for column, kind in schema.items()])


def _probe(kind: pl.DataType) -> pl.Series:
    if isinstance(kind, pl.List | pl.Array):
        items = pl.concat([_probe(kind.inner)] * (kind.size if isinstance(kind, pl.Array) else 1))  # type: ignore[arg-type]
        return items.implode().cast(kind)
    if isinstance(kind, pl.Struct):
        return pl.DataFrame([_probe(field.dtype).alias(field.name) for field in kind.fields]).to_struct()  # type: ignore[arg-type]
    return pl.Series([_plain_value(kind)]).cast(kind)


def _plain_value(kind: pl.DataType) -> Any:
    if isinstance(kind, pl.Enum):
        return kind.categories[0] if len(kind.categories) else None
    if isinstance(kind, pl.String | pl.Categorical):
        return "a"
    if isinstance(kind, pl.Binary):
        return b"a"
    if isinstance(kind, pl.Boolean):
        return True
    if kind.is_float():
        return 0.5
    return None if isinstance(kind, pl.Null) else 0
