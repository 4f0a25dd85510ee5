"""Many Avro messages of one schema at once: as the block of a container file, which Polars reads with compiled code.

A container file is a schema and blocks of records that follow each other without anything between them, which is just
what messages are when they are put end to end.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from anabranch.connectors.formats.messages.avro_types import without_times

FEWEST_MESSAGES = 1_000
"""Fewer are decoded one by one before the compiled code is loaded."""
_MAGIC, _MARKER = b"Obj\x01", b"anabranch-blocks"
_NO_NULLS = -1
_KINDS = {"boolean": 1, "float": 4, "double": 8, "int": 101, "long": 102, "string": 103, "bytes": 103}
"""Type → the bytes that it takes, or how ``avro_loops`` reads it."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a primitive type."""

    name: str
    kind: str
    null_place: int = _NO_NULLS
    """The place of ``null`` in the union with the type, if it may be null."""

    @property
    def schema(self) -> dict[str, Any]:
        unions = {_NO_NULLS: self.kind, 0: ["null", self.kind], 1: [self.kind, "null"]}
        return {"name": self.name, "type": unions[self.null_place]}


def decode_block(fields: Mapping[str, Any], values: Sequence[bytes]) -> pl.DataFrame | None:
    """Return the fields of all records, times as the numbers they are on the wire; None if that cannot be done.

    It cannot, if a field has another than a primitive type, if there are few messages, or if one of them is anything
    but exactly one record.
    """
    if len(values) < FEWEST_MESSAGES:
        return None
    plain = [_read_field(name, without_times(kind)) for name, kind in fields.items()]
    known = [field for field in plain if field is not None]
    if not known or len(known) != len(plain):
        return None
    records = b"".join(values)
    # Polars takes every length at its word, however large: all of them are looked at first.
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    kinds = np.array([_KINDS[field.kind] for field in known], np.int64)
    null_places = np.array([field.null_place for field in known], np.int64)
    from anabranch.compiled.avro_loops import are_records

    if not are_records(np.frombuffer(records, np.uint8), ends, kinds, null_places):
        return None
    try:
        return pl.read_avro(io.BytesIO(_write_container(known, len(values), records)))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        # Texts that are none. Whoever reads the messages one by one says which of them.
        return None


def _read_field(name: str, kind: Any) -> _Field | None:
    if isinstance(kind, dict) and set(kind) == {"type"}:
        kind = kind["type"]
    if isinstance(kind, list):
        others = [_read_field(name, part) for part in kind if part != "null"]
        if len(kind) != 2 or len(others) != 1 or others[0] is None or others[0].null_place != _NO_NULLS:
            return None
        return _Field(name, others[0].kind, kind.index("null"))
    return _Field(name, kind) if isinstance(kind, str) and kind in _KINDS else None


def _write_container(fields: Sequence[_Field], count: int, records: bytes) -> bytes:
    schema = json.dumps({"type": "record", "name": "row", "fields": [field.schema for field in fields]}).encode()
    entries = ((b"avro.schema", schema), (b"avro.codec", b"null"))
    header = [_write_number(len(part)) + part for entry in entries for part in entry]
    block = [_write_number(count), _write_number(len(records)), records, _MARKER]
    return b"".join([_MAGIC, _write_number(len(entries)), *header, _write_number(0), _MARKER, *block])


def _write_number(number: int) -> bytes:
    """Return a number that is not negative in zigzag form, seven bits a byte."""
    rest, written = number << 1, bytearray()
    while rest >= 0x80:
        written.append((rest & 0x7F) | 0x80)
        rest >>= 7
    return bytes([*written, rest])
