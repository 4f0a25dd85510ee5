"""Messages that hold one Avro record each, with or without a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from anabranch.connectors.extras import import_extra
from anabranch.connectors.kafka.avro_blocks import decode_block
from anabranch.connectors.kafka.avro_types import column_from_wire, columns_of_record, field_types, without_times
from anabranch.connectors.kafka.messages import Messages
from anabranch.connectors.kafka.registries import HEADER_BYTES, Registry, find_header_fault
from anabranch.connectors.kafka.values import Decoded
from anabranch.errors import FlowError, SourceError

_PLACE = "__place__"


@dataclass(frozen=True, slots=True)
class AvroValues:
    """Avro records; what a message was written with comes from the registry, or is the one schema that was given."""

    schema: Mapping[str, pl.DataType]
    value_schema: str | None = None
    """The reader's schema as JSON text; without a registry, the writers' schema, too."""
    registry: Registry | None = None
    name: str = "avro"
    _known: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    def check(self) -> None:
        """Raise ``FlowError`` if the schema or a package is missing, ``SourceError`` if the registry is."""
        _load_fastavro()
        if self.registry is not None:
            self.registry.check()
        elif self.value_schema is None:
            msg = "Avro values cannot be read without their schema: give value_schema=…, or registry=…"
            raise FlowError(msg)
        if self.value_schema is not None:
            _parse(self.value_schema)

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows of each schema's messages at once."""
        faults: dict[int, str] = {}
        groups: dict[str, list[tuple[int, bytes]]] = {}
        for index, value in enumerate(messages.values()):
            if self.registry is None:
                groups.setdefault(str(self.value_schema), []).append((index, value))
                continue
            fault = find_header_fault(value)
            if fault is not None:
                faults[index] = fault
                continue
            number = int.from_bytes(value[1:HEADER_BYTES], "big")
            groups.setdefault(self._writer(number), []).append((index, value[HEADER_BYTES:]))
        frames = []
        for writer, group in groups.items():
            frame, found = self._decode_group(writer, group)
            faults |= found
            frames.append(frame)
        if not frames:
            return Decoded(pl.DataFrame(schema=dict(self.schema)), sorted(faults.items()))
        frame = frames[0] if len(frames) == 1 else pl.concat(frames).sort(_PLACE)
        return Decoded(frame.drop(_PLACE), sorted(faults.items()))

    def _writer(self, number: int) -> str:
        if number not in self._known:
            assert self.registry is not None
            self._known[number] = json.dumps(self.registry.schema(number))
        return self._known[number]

    def _decode_group(self, writer: str, group: list[tuple[int, bytes]]) -> tuple[pl.DataFrame, dict[int, str]]:
        if self.value_schema in (None, writer):
            fields = field_types(json.loads(writer))
            block = decode_block(fields, [value for _, value in group])
            if block is not None:
                frame = _make_frame(block, fields, self.schema)
                return frame.with_columns(pl.Series(_PLACE, [index for index, _ in group], dtype=pl.Int64)), {}
        return self._decode_each(writer, group)

    def _decode_each(self, writer: str, group: list[tuple[int, bytes]]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Do the same for any schema, and say of messages that are broken what is wrong with them."""
        read = _load_fastavro().schemaless_reader
        written = _parse(writer)
        wanted = _parse(self.value_schema) if self.value_schema is not None and self.value_schema != writer else None
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        faults: dict[int, str] = {}
        for index, value in group:
            stream = io.BytesIO(value)
            try:
                row = read(stream, written, wanted)
            except Exception as error:  # fastavro raises whatever the bytes lead it to
                faults[index] = f"not Avro of its schema: {type(error).__name__} {error}".rstrip()
                continue
            if stream.tell() != len(value):
                faults[index] = f"not Avro of its schema: {len(value) - stream.tell()} bytes are left behind the record"
                continue
            rows.append(row)
            places.append(index)
        described = json.loads(self.value_schema if wanted is not None and self.value_schema else writer)
        frame = _make_frame(rows, field_types(described), self.schema)
        return frame.with_columns(pl.Series(_PLACE, places, dtype=pl.Int64)), faults


def read_value_schema(given: str | Path | Mapping[str, Any]) -> str:
    """Return an Avro schema that was given as JSON text, as a dictionary, or as the path of an ``.avsc`` file."""
    if isinstance(given, Mapping):
        return json.dumps(dict(given))
    text = str(given)
    if not text.lstrip().startswith(("{", "[", '"')):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            msg = f"the Avro schema {text!r} is neither JSON nor a readable file: {error.strerror}"
            raise FlowError(msg) from error
    try:
        return json.dumps(json.loads(text))
    except ValueError as error:
        msg = f"the Avro schema is not JSON: {error}"
        raise FlowError(msg) from error


def columns_of(value_schema: str) -> dict[str, pl.DataType]:
    """Return the columns of a record schema."""
    return columns_of_record(json.loads(value_schema))


def _make_frame(
    rows: list[dict[str, Any]] | pl.DataFrame, fields: Mapping[str, Any], schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    columns = []
    for name, kind in schema.items():
        if name not in fields:
            columns.append(pl.repeat(None, len(rows), dtype=kind, eager=True).alias(name))
            continue
        try:
            values = rows.get_column(name) if isinstance(rows, pl.DataFrame) else [row[name] for row in rows]
            columns.append(column_from_wire(values, fields[name]).cast(kind, strict=True).alias(name))
        except (PolarsError, TypeError, OverflowError) as error:
            msg = (
                f"column {name!r} is declared as {kind}, which the Avro type {fields[name]!r} does not fit ({error}); "
                f"declare the type of the Avro schema and cast it in the flow"
            )
            raise SourceError(msg) from error
    return pl.DataFrame(columns) if columns else pl.DataFrame(schema=dict(schema))


@cache
def _parse(schema: str) -> Any:
    fastavro = _load_fastavro()
    try:
        return fastavro.parse_schema(without_times(json.loads(schema)))
    except Exception as error:  # fastavro has several kinds of its own, beside KeyError and TypeError
        msg = f"the Avro schema cannot be used: {error}"
        raise FlowError(msg) from error


def _load_fastavro() -> Any:
    return import_extra("fastavro", "kafka", "Avro needs the package fastavro; install it with", FlowError)
