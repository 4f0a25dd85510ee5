"""Messages that hold one Protobuf message each, with or without a schema registry's header."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.connectors.formats.messages.decoders import Decoded
from anabranch.connectors.formats.messages.fitting import PLACE, Given, can_fit, fit_columns
from anabranch.connectors.formats.messages.messages import Messages
from anabranch.connectors.formats.messages.schema_registries import HEADER_BYTES, find_header_fault
from anabranch.errors import FlowError

_TIMESTAMP = "google.protobuf.Timestamp"
_NANOS_A_SECOND = 10**9
_HOW_TO_NAME_IT = (
    "give value_schema='module:Message' for a generated class, or 'file.desc:package.Message' for a descriptor set "
    "(protoc --include_imports --descriptor_set_out=file.desc …)"
)


@dataclass(frozen=True, slots=True)
class ProtobufValues:
    """Protobuf messages of one type, named by its class or by its place in a descriptor set."""

    schema: Mapping[str, pl.DataType]
    value_schema: str
    has_registry: bool = False
    name: str = "protobuf"

    def check(self) -> None:
        """Raise ``FlowError`` if the message type cannot be found or a column is none of its fields."""
        fields = load_message(self.value_schema).DESCRIPTOR.fields_by_name
        for column in self.schema:
            if column not in fields:
                msg = f"column {column!r} is no field of {self.value_schema}; its fields are {sorted(fields)}"
                raise FlowError(msg)
        for column, kind in self.schema.items():
            own = column_type(fields[column])
            if not can_fit(own, kind):
                msg = f"column {column!r} is declared as {kind}, which the Protobuf field's {own} does not fit"
                raise FlowError(msg)

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows, a message at a time."""
        message_class = load_message(self.value_schema)
        fields = message_class.DESCRIPTOR.fields_by_name
        takers = {column: _make_taker(fields[column]) for column in self.schema}
        taken: dict[str, list[Any]] = {column: [] for column in self.schema}
        places: list[int] = []
        faults: dict[int, str] = {}
        for index, value in enumerate(messages.values()):
            fault = find_header_fault(value) if self.has_registry else None
            if fault is None:
                try:
                    message = message_class.FromString(_skip_header(value) if self.has_registry else value)
                    row = [taker(message) for taker in takers.values()]
                except Exception as error:  # DecodeError, texts that are none, times of no year
                    fault = f"not Protobuf of type {message_class.DESCRIPTOR.full_name}: {error}"
            if fault is not None:
                faults[index] = fault
                continue
            places.append(index)
            for values, item in zip(taken.values(), row, strict=True):
                values.append(item)
        given = {
            column: Given(values, partial(pl.Series, dtype=column_type(fields[column]), strict=True))
            for column, values in taken.items()
        }
        frame, unfit = fit_columns(given, places, self.schema)
        return Decoded(frame.drop(PLACE), sorted((faults | unfit).items()))


def columns_of(value_schema: str) -> dict[str, pl.DataType]:
    """Return the columns of a message type."""
    return {field.name: column_type(field) for field in load_message(value_schema).DESCRIPTOR.fields}


@cache
def load_message(value_schema: str) -> Any:
    """Return the class of a message type that is named as ``module:Message`` or ``file.desc:package.Message``."""
    place, _, name = value_schema.rpartition(":")
    if not place or not name:
        msg = f"the Protobuf type {value_schema!r} cannot be found; {_HOW_TO_NAME_IT}"
        raise FlowError(msg)
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        msg = "Protobuf needs the package protobuf; install it with: pip install 'anabranch[kafka]'"
        raise FlowError(msg) from error
    try:
        if not Path(place).is_file():
            found = importlib.import_module(place)
            for step in name.split("."):
                found = getattr(found, step)
            return found
        described = descriptor_pb2.FileDescriptorSet.FromString(Path(place).read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in described.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except Exception as error:  # a module of the user's may raise anything
        msg = f"the Protobuf type {value_schema!r} cannot be found ({type(error).__name__}: {error}); {_HOW_TO_NAME_IT}"
        raise FlowError(msg) from error


def column_type(field: Any) -> pl.DataType:
    """Return the type of the column that a field becomes."""
    if is_map(field):
        entry = field.message_type.fields_by_name
        pair = {"key": _single_type(entry["key"]), "value": _single_type(entry["value"])}
        return pl.List(pl.Struct(pair))
    return pl.List(_single_type(field)) if field.is_repeated else _single_type(field)


def _single_type(field: Any) -> pl.DataType:
    if field.type == field.TYPE_MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return pl.Datetime("us")
        return pl.Struct({inner.name: column_type(inner) for inner in field.message_type.fields})
    if field.type == field.TYPE_BYTES:
        return pl.Binary()
    kinds: dict[int, pl.DataType] = {
        field.CPPTYPE_BOOL: pl.Boolean(),
        field.CPPTYPE_INT32: pl.Int32(),
        field.CPPTYPE_INT64: pl.Int64(),
        # Spark has no unsigned types: the next larger signed one holds them.
        field.CPPTYPE_UINT32: pl.Int64(),
        field.CPPTYPE_UINT64: pl.UInt64(),
        field.CPPTYPE_FLOAT: pl.Float32(),
        field.CPPTYPE_DOUBLE: pl.Float64(),
        field.CPPTYPE_ENUM: pl.String(),
        field.CPPTYPE_STRING: pl.String(),
    }
    return kinds[field.cpp_type]


def _make_taker(field: Any) -> Callable[[Any], Any]:
    """Return what takes a field's value out of a message; a field that can be absent and is gives None."""
    name = field.name
    if is_map(field):
        entry = field.message_type.fields_by_name["value"]
        return lambda message: [
            {"key": key, "value": _convert(value, entry)} for key, value in sorted(getattr(message, name).items())
        ]
    if field.is_repeated:
        return lambda message: [_convert(item, field) for item in getattr(message, name)]
    if field.type not in (field.TYPE_MESSAGE, field.TYPE_ENUM) and not field.has_presence:
        return lambda message: getattr(message, name)
    if field.has_presence:
        return lambda message: _convert(getattr(message, name), field) if message.HasField(name) else None
    return lambda message: _convert(getattr(message, name), field)


def _convert(value: Any, field: Any) -> Any:
    if field.type == field.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if field.type != field.TYPE_MESSAGE:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        if not 0 <= value.nanos < _NANOS_A_SECOND:
            msg = f"the time {field.name!r} has {value.nanos} nanoseconds"
            raise ValueError(msg)
        return value.ToMicroseconds()
    return {inner.name: _make_taker(inner)(value) for inner in field.message_type.fields}


def is_map(field: Any) -> bool:
    """Say whether a field is a map, and not any other repeated message."""
    return bool(field.is_repeated and field.type == field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry)


def _skip_header(value: bytes) -> bytes:
    """Return what follows the registry's header and the path of the message type in its file."""
    count, place = _read_varint(value, HEADER_BYTES)
    if count < 0:
        msg = f"the registry's header names {count} steps to the message type"
        raise ValueError(msg)
    for _ in range(count):
        _, place = _read_varint(value, place)
    return value[place:]


def _read_varint(value: bytes, place: int) -> tuple[int, int]:
    """Read a number in zigzag form, and return it with the place behind it."""
    number = shift = 0
    while True:
        if place >= len(value):
            msg = "it ends within the registry's header"
            raise ValueError(msg)
        byte = value[place]
        number |= (byte & 0x7F) << shift
        place += 1
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
