"""Whether bytes are exactly one Avro record of a schema: libraries take much for one that is none.

A length below zero makes them read to the end, an index below zero takes the last branch or symbol, any byte but 0 is
true: wrong values rather than an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_LONGEST_BYTES = 10
"""Seven bits a byte, 64 bits."""
_FIXED_BYTES = {"float": 4, "double": 8}


class NotAvro(Exception):
    """What is wrong with some bytes."""


class _Reader:
    """Bytes, and how far they were read."""

    def __init__(self, value: bytes) -> None:
        self.value = value
        self.at = 0

    def skip(self, size: int, what: str) -> bytes:
        if size < 0:
            raise NotAvro(f"{what} has a length of {size}")
        if size > len(self.value) - self.at:
            raise NotAvro(f"the record ends within {what}")
        start, self.at = self.at, self.at + size
        return self.value[start : self.at]

    def number(self, what: str) -> int:
        number = 0
        for place in range(_LONGEST_BYTES):
            byte = self.skip(1, what)[0]
            if place == _LONGEST_BYTES - 1 and byte > 1:
                break
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise NotAvro(f"{what} has more than 64 bits")


def find_avro_fault(schema: Any, value: bytes) -> str | None:
    """Say why bytes are not exactly one value of a schema, whose names stand for nothing else; None if they are."""
    reader = _Reader(value)
    try:
        _walk(schema, reader, "the record")
    except NotAvro as fault:
        return str(fault)
    if reader.at != len(value):
        return f"{len(value) - reader.at} bytes are left behind the record"
    return None


def takes_no_bytes(schema: Any) -> bool:
    """Say whether a schema has lists of what takes no bytes: any number of them fits into any message."""
    if isinstance(schema, list):
        return any(takes_no_bytes(part) for part in schema)
    if not isinstance(schema, dict):
        return False
    inner = schema.get("items", schema.get("values"))
    if inner is not None and schema.get("type") == "array" and _least_bytes(inner) == 0:
        return True
    parts = [inner, *(field["type"] for field in schema.get("fields", ())), schema.get("type")]
    return any(takes_no_bytes(part) for part in parts if isinstance(part, dict | list))


def _least_bytes(schema: Any) -> int:
    if schema == "null":
        return 0
    if isinstance(schema, dict):
        if schema.get("type") == "record":
            return sum(_least_bytes(field["type"]) for field in schema["fields"])
        if schema.get("type") == "fixed":
            return int(schema["size"])
        if isinstance(schema.get("type"), dict) or schema.get("type") == "null":
            return _least_bytes(schema["type"])
    return 1


def _walk(schema: Any, reader: _Reader, what: str) -> None:
    if isinstance(schema, list):
        branch = reader.number(what)
        if not 0 <= branch < len(schema):
            raise NotAvro(f"{what} is of branch {branch} of a union of {len(schema)}")
        _walk(schema[branch], reader, what)
    elif isinstance(schema, str):
        _walk_primitive(schema, {}, reader, what)
    else:
        kind = schema["type"]
        steps = _COMPLEX.get(kind) if isinstance(kind, str) else None
        if steps is not None:
            steps(schema, reader, what)
        elif isinstance(kind, str):
            _walk_primitive(kind, schema, reader, what)
        else:
            _walk(kind, reader, what)


def _walk_primitive(kind: str, schema: dict[str, Any], reader: _Reader, what: str) -> None:
    if kind == "boolean":
        byte = reader.skip(1, what)[0]
        if byte > 1:
            raise NotAvro(f"{what} is the byte {byte}, and no boolean")
    elif kind in ("int", "long"):
        number = reader.number(what)
        if kind == "int" and not -(2**31) <= number < 2**31:
            raise NotAvro(f"{what} is {number}, which has more than 32 bits")
    elif kind in ("bytes", "string"):
        text = reader.skip(reader.number(what), what)
        if kind == "string":
            try:
                text.decode()
            except UnicodeDecodeError as error:
                raise NotAvro(f"{what} is no UTF-8: {error.reason} at its byte {error.start}") from None
        _check_decimal(schema, text, what)
    elif kind in _FIXED_BYTES:
        reader.skip(_FIXED_BYTES[kind], what)


def _walk_record(schema: dict[str, Any], reader: _Reader, what: str) -> None:
    for field in schema["fields"]:
        _walk(field["type"], reader, f"the field {field['name']!r}")


def _walk_items(schema: dict[str, Any], reader: _Reader, what: str) -> None:
    items = schema["items"] if schema["type"] == "array" else schema["values"]
    while True:
        count = reader.number(what)
        if count == 0:
            return
        block_end = None
        if count < 0:
            count = -count
            size = reader.number(what)
            if not 0 <= size <= len(reader.value) - reader.at:
                raise NotAvro(f"a block of {what} has a length of {size}")
            block_end = reader.at + size
        if count > len(reader.value) - reader.at:
            raise NotAvro(f"{what} has {count} items, more than there are bytes")
        for _ in range(count):
            if schema["type"] == "map":
                _walk_primitive("string", {}, reader, f"a key of {what}")
            _walk(items, reader, f"an item of {what}")
        if block_end is not None and reader.at != block_end:
            raise NotAvro(f"a block of {what} has another length than it says")


def _walk_enum(schema: dict[str, Any], reader: _Reader, what: str) -> None:
    place = reader.number(what)
    if not 0 <= place < len(schema["symbols"]):
        raise NotAvro(f"{what} is symbol {place} of {len(schema['symbols'])}")


def _walk_fixed(schema: dict[str, Any], reader: _Reader, what: str) -> None:
    _check_decimal(schema, reader.skip(schema["size"], what), what)


def _check_decimal(schema: dict[str, Any], text: bytes, what: str) -> None:
    if schema.get("logicalType") != "decimal":
        return
    if abs(int.from_bytes(text, "big", signed=True)) >= 10 ** schema["precision"]:
        raise NotAvro(f"{what} has more digits than the {schema['precision']} of its type")


_COMPLEX: dict[str, Callable[[dict[str, Any], _Reader, str], None]] = {
    "record": _walk_record,
    "array": _walk_items,
    "map": _walk_items,
    "enum": _walk_enum,
    "fixed": _walk_fixed,
}
