"""Messages that hold one Avro record each, with or without a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.connectors.extras import import_extra
from anabranch.connectors.formats.messages.avro_blocks import decode_block
from anabranch.connectors.formats.messages.avro_strict import NotAvro, find_avro_fault, takes_no_bytes
from anabranch.connectors.formats.messages.avro_types import (
    column_from_wire,
    columns_of_record,
    field_types,
    without_times,
)
from anabranch.connectors.formats.messages.decoders import Decoded
from anabranch.connectors.formats.messages.fitting import PLACE, Given, can_fit, fit_columns
from anabranch.connectors.formats.messages.messages import Messages
from anabranch.connectors.formats.messages.schema_registries import (
    HEADER_BYTES,
    Registry,
    UnknownSchema,
    find_header_fault,
)
from anabranch.errors import FlowError, SourceError


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
            parse_schema(self.value_schema)
            self._check_fit(field_types(json.loads(self.value_schema)))

    def decode(self, messages: Messages) -> Decoded:
        """Return the rows of each schema's messages at once."""
        faults: dict[int, str] = {}
        groups: dict[str, list[tuple[int, bytes]]] = {}
        unknown: dict[int, str] = {}
        for index, value in enumerate(messages.values()):
            if self.registry is None:
                groups.setdefault(str(self.value_schema), []).append((index, value))
                continue
            fault = find_header_fault(value)
            number = int.from_bytes(value[1:HEADER_BYTES], "big")
            fault = fault or unknown.get(number)
            if fault is None:
                try:
                    groups.setdefault(self._writer(number), []).append((index, value[HEADER_BYTES:]))
                except UnknownSchema as error:
                    fault = unknown[number] = str(error)
            if fault is not None:
                faults[index] = fault
        frames = []
        for writer, group in groups.items():
            frame, found = self._decode_group(writer, group)
            faults |= found
            frames.append(frame)
        if not frames:
            return Decoded(pl.DataFrame(schema=dict(self.schema)), sorted(faults.items()))
        frame = frames[0] if len(frames) == 1 else pl.concat(frames).sort(PLACE)
        return Decoded(frame.drop(PLACE), sorted(faults.items()))

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
                return self._fit(block, [index for index, _ in group], fields)
        return self._decode_each(writer, group)

    def _decode_each(self, writer: str, group: list[tuple[int, bytes]]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Do the same for any schema, and say of messages that are broken what is wrong with them."""
        read = RecordReader(writer, self.value_schema)
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        faults: dict[int, str] = {}
        for index, value in group:
            try:
                rows.append(read(value))
                places.append(index)
            except NotAvro as fault:
                faults[index] = f"not Avro of its schema: {fault}"
        frame, unfit = self._fit(rows, places, read.fields)
        return frame, faults | unfit

    def _fit(
        self, rows: list[dict[str, Any]] | pl.DataFrame, places: list[int], fields: Mapping[str, Any]
    ) -> tuple[pl.DataFrame, dict[int, str]]:
        self._check_fit(fields)
        columns: dict[str, Given] = {}
        for name in self.schema:
            if name in fields:
                values = rows.get_column(name) if isinstance(rows, pl.DataFrame) else [row[name] for row in rows]
                columns[name] = Given(values, partial(column_from_wire, schema=fields[name]))
        return fit_columns(columns, places, self.schema)

    def _check_fit(self, fields: Mapping[str, Any]) -> None:
        for name, kind in self.schema.items():
            if name in fields and not can_fit(column_from_wire([], fields[name]).dtype, kind):
                msg = (
                    f"column {name!r} is declared as {kind}, which the Avro type {fields[name]!r} does not fit; "
                    f"declare the type of the Avro schema and cast it in the flow"
                )
                raise SourceError(msg)


class RecordReader:
    """Reads one record after the other by the schema that they were written with, and as another one if that is given.

    What fastavro makes of bytes is written again, which costs little: other bytes than before show that it took
    something for a record that is none, or that the record is written in a rarer way. A closer look tells which.
    """

    def __init__(self, writer: str, wanted: str | None) -> None:
        self._fastavro = _load_fastavro()
        self._writer = parse_schema(writer)
        self._wanted = parse_schema(wanted) if wanted is not None and wanted != writer else None
        described = field_types(json.loads(writer))
        self._described = {"type": "record", "fields": [{"name": n, "type": kind} for n, kind in described.items()]}
        self._looks_first = takes_no_bytes(self._described)
        self.fields = described if self._wanted is None else field_types(json.loads(str(wanted)))

    def __call__(self, value: bytes) -> dict[str, Any]:
        """Return the record; raise ``NotAvro`` with what is wrong with it."""
        if self._looks_first:
            self._look(value)
        try:
            row: dict[str, Any] = self._fastavro.schemaless_reader(io.BytesIO(value), self._writer, None)
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            self._look(value)
            raise NotAvro(f"{type(error).__name__} {error}".rstrip()) from None
        if self._write(row) != value:
            self._look(value)
        if self._wanted is None:
            return row
        try:
            wanted: dict[str, Any] = self._fastavro.schemaless_reader(io.BytesIO(value), self._writer, self._wanted)
        except Exception as error:
            raise NotAvro(
                f"it cannot be read by the reader's schema: {type(error).__name__} {error}".rstrip()
            ) from None
        return wanted

    def _write(self, row: dict[str, Any]) -> bytes | None:
        again = io.BytesIO()
        try:
            self._fastavro.schemaless_writer(again, self._writer, row)
        except Exception:  # fastavro reads what it does not write, such as decimals of too many digits
            return None
        return again.getvalue()

    def _look(self, value: bytes) -> None:
        fault = find_avro_fault(self._described, value)
        if fault is not None:
            raise NotAvro(fault)


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


@cache
def parse_schema(schema: str) -> Any:
    fastavro = _load_fastavro()
    try:
        return fastavro.parse_schema(without_times(json.loads(schema)))
    except Exception as error:  # fastavro has several kinds of its own, beside KeyError and TypeError
        msg = f"the Avro schema cannot be used: {error}"
        raise FlowError(msg) from error


def _load_fastavro() -> Any:
    return import_extra("fastavro", "kafka", "Avro needs the package fastavro; install it with", FlowError)
