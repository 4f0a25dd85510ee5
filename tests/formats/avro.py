"""Avro by the letter of its specification, in plain Python; and records of random schemas."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

from formats.damage import damaged


class Malformed(Exception):
    """The bytes are no value of the schema."""


class Decoder:
    """Reads values of a schema from bytes, and accepts nothing that the specification does not describe."""

    def __init__(self, value: bytes) -> None:
        self._left = value

    def record(self, schema: dict[str, Any]) -> dict[str, Any]:
        row = {field["name"]: self._value(field["type"]) for field in schema["fields"]}
        if self._left:
            raise Malformed("bytes are left")
        return row

    def _take(self, count: int) -> bytes:
        if count < 0 or count > len(self._left):
            raise Malformed("too short")
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def _long(self) -> int:
        digits = []
        while True:
            byte = self._take(1)[0]
            digits.append(byte & 127)
            if byte < 128:
                break
        number = sum(digit * 128**place for place, digit in enumerate(digits))
        if len(digits) > 10 or number >= 2**64:
            raise Malformed("too long")
        return number // 2 if number % 2 == 0 else -(number // 2) - 1

    def _value(self, schema: Any) -> Any:  # noqa: PLR0911, PLR0912 - one case a type
        if isinstance(schema, list):
            branch = self._long()
            if branch not in range(len(schema)):
                raise Malformed("no branch")
            return self._value(schema[branch])
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "null":
                return None
            case "boolean":
                byte = self._take(1)[0]
                if byte > 1:
                    raise Malformed("no boolean")
                return byte == 1
            case "int" | "long":
                number, bits = self._long(), 32 if kind == "int" else 64
                if number not in range(-(2 ** (bits - 1)), 2 ** (bits - 1)):
                    raise Malformed("too large")
                return number
            case "float":
                return struct.unpack("<f", self._take(4))[0]
            case "double":
                return struct.unpack("<d", self._take(8))[0]
            case "bytes" | "fixed":
                taken = self._take(self._long() if kind == "bytes" else schema["size"])
                return self._decimal(schema, taken) if isinstance(schema, dict) and "precision" in schema else taken
            case "string":
                try:
                    return self._take(self._long()).decode("utf-8", "strict")
                except UnicodeDecodeError:
                    raise Malformed("no text") from None
            case "enum":
                place = self._long()
                if place not in range(len(schema["symbols"])):
                    raise Malformed("no symbol")
                return schema["symbols"][place]
            case "array":
                return self._items(lambda: self._value(schema["items"]))
            case "map":
                entries = self._items(lambda: (self._value("string"), self._value(schema["values"])))
                return [{"key": key, "value": value} for key, value in sorted(dict(entries).items())]
            case "record":
                return {field["name"]: self._value(field["type"]) for field in schema["fields"]}
        raise AssertionError(kind)

    def _items(self, read: Any) -> list[Any]:
        items: list[Any] = []
        while count := self._long():
            end = None
            if count < 0:
                count, size = -count, self._long()
                if size not in range(len(self._left) + 1):
                    raise Malformed("no block")
                end = len(self._left) - size
            if count > len(self._left):
                raise Malformed("too many items")
            items += [read() for _ in range(count)]
            if end is not None and len(self._left) != end:
                raise Malformed("another block")
        return items

    @staticmethod
    def _decimal(schema: dict[str, Any], taken: bytes) -> Decimal:
        unscaled = int.from_bytes(taken, "big", signed=True)
        if abs(unscaled) >= 10 ** schema["precision"]:
            raise Malformed("too many digits")
        return Decimal(unscaled).scaleb(-schema["scale"])


PRIMITIVES = st.sampled_from(["boolean", "int", "long", "float", "double", "bytes", "string"])
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 2}
_ENUM = {"type": "enum", "name": "Colour", "symbols": ["red", "green"]}
_FIXED = {"type": "fixed", "name": "Three", "size": 3}


def _nullable(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return kinds | kinds.map(lambda kind: ["null", kind]) | kinds.map(lambda kind: [kind, "null"])


FLAT_FIELDS = _nullable(PRIMITIVES)
_LEAVES = PRIMITIVES | st.just(DECIMAL)
ALL_FIELDS = _nullable(
    _LEAVES
    | st.sampled_from([_ENUM, _FIXED])
    | _nullable(_LEAVES).map(lambda kind: {"type": "array", "items": kind})
    | _LEAVES.map(lambda kind: {"type": "map", "values": kind})
    | _nullable(_LEAVES).map(lambda kind: {"type": "record", "name": "Inner", "fields": [{"name": "i", "type": kind}]})
)

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=12),
    "string": st.text(max_size=8),
    "enum": st.sampled_from(_ENUM["symbols"]),
    "fixed": st.binary(min_size=3, max_size=3),
}


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of([values_of(part) for part in schema])
    if isinstance(schema, str):
        return _VALUES[schema]
    match schema["type"]:
        case "array":
            return st.lists(values_of(schema["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=3), values_of(schema["values"]), max_size=3)
        case "record":
            return st.fixed_dictionaries({field["name"]: values_of(field["type"]) for field in schema["fields"]})
        case "bytes":
            return st.decimals(-99999, 99999, places=2)
        case kind:
            return _VALUES[kind]


@dataclass(frozen=True)
class Case:
    """A schema, and messages of it of which some are damaged."""

    schema: dict[str, Any]
    messages: list[bytes]


@st.composite
def cases(draw: st.DrawFn, fields: st.SearchStrategy[Any]) -> Case:
    kinds = draw(st.lists(fields, min_size=1, max_size=4))
    # Names count within a schema: a second enum, fixed or record would be another one of the same name.
    named = [index for index, kind in enumerate(kinds) if '"name"' in repr(kind).replace("'", '"')]
    kinds = [kind for index, kind in enumerate(kinds) if index not in named[1:]]
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": f"f{index}", "type": kind} for index, kind in enumerate(kinds)],
    }
    parsed = fastavro.parse_schema(schema)
    messages = []
    for row in draw(st.lists(values_of(schema), min_size=1, max_size=4)):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        messages.append(draw(damaged(out.getvalue())))
    return Case(schema, messages)
