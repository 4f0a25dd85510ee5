"""Avro messages that are decoded all at once: the same rows as one by one, or none at all."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import pytest

from anabranch.connectors.formats.messages.avro_blocks import FEWEST_MESSAGES, decode_block
from anabranch.connectors.formats.messages.avro_types import field_types, without_times

SCHEMA = {
    "type": "record",
    "name": "reading",
    "namespace": "plant",
    "fields": [
        {"name": "sensor", "type": "long"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "volts", "type": "double"},
        {"name": "amperes", "type": ["float", "null"]},
        {"name": "name", "type": ["null", "string"]},
        {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
    ],
}
WHOLE = (0, -1, 1, 63, 64, -64, -65, 8191, 8192, 2**31, 2**56, -(2**63), 2**63 - 1)


def write(schema: Any, rows: list[dict[str, Any]]) -> list[bytes]:
    parsed = fastavro.parse_schema(without_times(schema))
    written = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        written.append(stream.getvalue())
    return written


def make_rows(count: int) -> list[dict[str, Any]]:
    chance = random.Random(5)
    return [
        {
            "sensor": chance.choice(WHOLE),
            "ts": 1_767_225_600_000 + number,
            "day": chance.choice([None, 20_454, -1]),
            "volts": chance.choice([0.0, -0.5, float("inf"), 230.25]),
            "amperes": chance.choice([None, 0.5]),
            "name": chance.choice([None, "", "näme", "x" * 200]),
            "ok": chance.random() < 0.5,
            "raw": chance.choice([b"", b"\0\xff\n", b"y" * 70]),
        }
        for number in range(count)
    ]


def test_records_decoded_at_once_are_those_that_were_written() -> None:
    rows = make_rows(3_000)
    frame = decode_block(field_types(SCHEMA), write(SCHEMA, rows))
    assert frame is not None
    assert frame.to_dicts() == rows


@pytest.mark.parametrize("damage", ["longer", "shorter", "shifted", "empty"])
def test_one_message_that_is_not_exactly_a_record_leaves_all_to_be_read_one_by_one(damage: str) -> None:
    values = write(SCHEMA, make_rows(FEWEST_MESSAGES))
    if damage == "longer":
        values[20] += b"\0"
    elif damage == "shorter":
        values[20] = values[20][:-1]
    elif damage == "shifted":
        # The bytes together are those of as many records.
        values[20], values[21] = values[20] + values[21][:1], values[21][1:]
    else:
        values[20] = b""
    assert decode_block(field_types(SCHEMA), values) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", b"\x02\xff"),
        ("string", b"\x01"),
        # Texts that are said to be as long as no memory is.
        ("string", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01a"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a"),
        ("int", b"\x80\x80\x80\x80\x10"),
        ("long", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        (["null", "long"], b"\x04\x02"),
        (["null", "long"], b"\x01\x02"),
        ("double", b"\0\0\0\0\0\0\0"),
    ],
)
def test_a_value_that_its_type_cannot_have_leaves_all_to_be_read_one_by_one(kind: Any, value: bytes) -> None:
    good = write({"type": "record", "name": "one", "fields": [{"name": "n", "type": kind}]}, [{"n": _SOME[str(kind)]}])
    assert decode_block({"n": kind}, good * FEWEST_MESSAGES) is not None
    assert decode_block({"n": kind}, [*good * FEWEST_MESSAGES, value]) is None


_SOME: dict[str, Any] = {
    "string": "a",
    "bytes": b"a",
    "int": -(2**31),
    "long": -1,
    "['null', 'long']": None,
    "double": 0.5,
}


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": "long"},
        {"type": "map", "values": "long"},
        {"type": "enum", "name": "state", "symbols": ["on", "off"]},
        {"type": "fixed", "name": "id", "size": 4},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        ["null", "long", "string"],
        ["long"],
        "null",
    ],
    ids=str,
)
def test_other_types_are_read_one_by_one(kind: Any) -> None:
    assert decode_block({"n": "long", "other": kind}, [b"\x02\x00"] * FEWEST_MESSAGES) is None


def test_few_messages_and_records_without_fields_are_read_one_by_one() -> None:
    assert decode_block({"n": "long"}, [b"\x02"] * (FEWEST_MESSAGES - 1)) is None
    assert decode_block({}, [b""] * FEWEST_MESSAGES) is None
