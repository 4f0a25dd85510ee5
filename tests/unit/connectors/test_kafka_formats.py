"""Values of Kafka messages to rows, without a broker."""

from __future__ import annotations

import decimal
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import polars as pl
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from anabranch.connectors.formats.messages import avro_blocks
from anabranch.connectors.formats.messages.avro_values import AvroValues, columns_of
from anabranch.connectors.formats.messages.by_name import make_format
from anabranch.connectors.formats.messages.decoders import RawValues
from anabranch.connectors.formats.messages.json_values import JsonValues
from anabranch.connectors.formats.messages.messages import Messages, join_values
from anabranch.connectors.formats.messages.protobuf_values import ProtobufValues, load_message
from anabranch.connectors.formats.messages.schema_registries import make_registry
from anabranch.connectors.kafka_topics.connection import make_connection
from anabranch.connectors.kafka_topics.reading import ReadSettings, make_rows
from anabranch.errors import FlowError, SourceError
from servers.schema_registry import SchemaRegistry, schema_registry

SCHEMA = {"sensor": pl.Int64(), "volts": pl.Float64()}
READING: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "sensor", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "volts", "type": ["null", "double"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["low", "high"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "other", "type": ["null", "Kind"], "default": None},
    ],
}
ROW = {
    "sensor": 7,
    "at": datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC),
    "volts": 1.5,
    "kind": "high",
    "day": date(2026, 1, 31),
    "price": decimal.Decimal("3.25"),
    "tags": ["a", "b"],
    "counts": {"y": 2, "x": 1},
    "other": "low",
}


def messages_of(*values: bytes | None, first: int = 40) -> Messages:
    is_null = np.array([value is None for value in values])
    return Messages(
        "plant",
        3,
        join_values([value or b"" for value in values]),
        np.arange(first, first + len(values)),
        is_null if is_null.any() else None,
        np.arange(len(values)) * 1000,
        pl.Series([b"k"] * len(values), dtype=pl.Binary),
    )


def rows_of(format: Any, messages: Messages, include: dict[str, str] | None = None, tombstones: str = "drop") -> Any:
    return make_rows(
        messages, ReadSettings(make_connection("h:1", None), format, include or {}, tombstones, False, 1.0)
    )


def write_avro(row: dict[str, Any], schema: Any = READING) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return stream.getvalue()


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as running:
        yield running


def test_json_messages_become_rows() -> None:
    got = rows_of(JsonValues(SCHEMA), messages_of(b'{"sensor": 1, "volts": 2.5}', b'{"sensor": 2}'))
    assert got.frame.rows() == [(1, 2.5), (2, None)]
    assert got.rejected == ()


@pytest.mark.parametrize("bad", [b"{", b"", b"  ", b"[1]", b'{"sensor": "x"}', b'{"sensor": 1} {"sensor": 2}', b"\xff"])
def test_a_message_that_is_no_json_is_rejected_with_topic_partition_and_offset(bad: bytes) -> None:
    got = rows_of(
        JsonValues(SCHEMA), messages_of(b'{"sensor": 1}', bad, b'{"sensor": 3}'), {"offset": "offset", "key": "key"}
    )
    assert got.frame.rows() == [(1, None, 40, b"k"), (3, None, 42, b"k")]
    ((reason, payload),) = got.rejected
    assert reason.startswith("topic plant, partition 3, offset 41: ")
    assert payload == bad.decode("utf-8", "backslashreplace")


def test_many_broken_messages_leave_all_others_in_order() -> None:
    values = [b"broken" if number % 7 == 3 else b'{"sensor": %d}' % number for number in range(3000)]
    got = rows_of(JsonValues(SCHEMA), messages_of(*values, first=0), {"offset": "offset"})
    assert got.frame["sensor"].to_list() == [number for number in range(3000) if number % 7 != 3]
    assert (got.frame["sensor"] == got.frame["offset"]).all()
    assert len(got.rejected) == len([number for number in range(3000) if number % 7 == 3])


def test_json_over_several_lines_is_one_message() -> None:
    got = rows_of(JsonValues(SCHEMA), messages_of(b'{\n  "sensor": 1,\n  "volts": 2\n}\n', b'{"sensor": 2}\r\n'))
    assert got.frame.rows() == [(1, 2.0), (2, None)]
    broken = rows_of(JsonValues(SCHEMA), messages_of(b'{"sensor": 1}\n{"sensor": 2}', b'{"sensor": 3}'))
    assert broken.frame.rows() == [(3, None)]
    assert "offset 40" in broken.rejected[0][0]


def test_json_behind_the_header_of_a_registry() -> None:
    format = JsonValues(SCHEMA, has_registry=True)
    got = rows_of(format, messages_of(b'\x00\x00\x00\x00\x07{"sensor": 1}', b'{"sensor": 2}'))
    assert got.frame.rows() == [(1, None)]
    assert "no header of a schema registry" in got.rejected[0][0]


def test_tombstones_are_dropped_kept_or_rejected() -> None:
    messages = messages_of(b'{"sensor": 1}', None, None, b'{"sensor": 4}')
    include = {"key": "key", "offset": "at"}
    dropped = rows_of(JsonValues(SCHEMA), messages, include)
    assert dropped.frame["at"].to_list() == [40, 43]
    assert dropped.rejected == ()
    kept = rows_of(JsonValues(SCHEMA), messages, include, "keep")
    assert kept.frame.rows() == [
        (1, None, b"k", 40),
        (None, None, b"k", 41),
        (None, None, b"k", 42),
        (4, None, b"k", 43),
    ]
    rejected = rows_of(JsonValues(SCHEMA), messages, include, "reject")
    assert rejected.frame["at"].to_list() == [40, 43]
    assert [reason for reason, _ in rejected.rejected] == [
        f"topic plant, partition 3, offset {offset}: a tombstone: it has no value" for offset in (41, 42)
    ]


def test_only_tombstones_leave_an_empty_frame_of_the_schema() -> None:
    got = rows_of(JsonValues(SCHEMA), messages_of(None, None), {"timestamp": "when"})
    assert dict(got.frame.schema) == {**SCHEMA, "when": pl.Datetime("ms")}
    assert got.frame.height == 0


def test_raw_values_are_bytes_or_text() -> None:
    values = messages_of(b"a\nb", b"", b"\xff")
    assert rows_of(RawValues({"value": pl.Binary()}), values).frame["value"].to_list() == [b"a\nb", b"", b"\xff"]
    text = rows_of(RawValues({"value": pl.String()}), values)
    assert text.frame["value"].to_list() == ["a\nb", ""]
    assert "offset 42: not UTF-8" in text.rejected[0][0]


def test_avro_records_become_rows_of_their_schema() -> None:
    format = make_format("avro", None, READING, None, "plant")
    format.check()
    got = rows_of(format, messages_of(write_avro(ROW), write_avro(ROW | {"volts": None, "other": None})))
    assert dict(got.frame.schema) == columns_of(json.dumps(READING))
    first, second = got.frame.to_dicts()
    assert first == ROW | {
        "at": datetime(2026, 1, 31, 12, 0, 0, 500_000),
        "counts": [{"key": "x", "value": 1}, {"key": "y", "value": 2}],
    }
    assert (second["volts"], second["other"]) == (None, None)


def test_avro_columns_can_be_chosen_and_missing_ones_are_null() -> None:
    format = make_format("avro", {"volts": pl.Float32, "more": pl.String}, READING, None, "plant")
    assert rows_of(format, messages_of(write_avro(ROW))).frame.rows() == [(1.5, None)]


def test_bytes_that_are_no_avro_of_the_schema_are_rejected() -> None:
    format = make_format("avro", {"sensor": pl.Int64}, READING, None, "plant")
    good = write_avro(ROW)
    got = rows_of(format, messages_of(good[:-3], good, good + b"x", b""), {"offset": "at"})
    assert got.frame.rows() == [(7, 41)]
    assert [reason.split(": ")[0][-2:] for reason, _ in got.rejected] == ["40", "42", "43"]


def test_avro_writers_schemas_come_from_the_registry(registry: SchemaRegistry) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "sensor", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "volts", "type": "double"}, {"name": "sensor", "type": "long"}],
    }
    first, second = registry.register("plant-value", old), registry.register("plant-value", new)

    def framed(number: int, row: dict[str, Any], schema: Any) -> bytes:
        return b"\x00" + number.to_bytes(4, "big") + write_avro(row, schema)

    made = make_registry(registry.url, 5.0)
    format = make_format("avro", None, None, made, "plant")
    format.check()
    assert dict(format.schema) == {"volts": pl.Float64(), "sensor": pl.Int64()}
    registry.failures_left = 1
    got = rows_of(
        format,
        messages_of(
            framed(second, {"volts": 1.0, "sensor": 1}, new),
            framed(first, {"sensor": 2}, old),
            b"no header",
            framed(second, {"volts": 3.0, "sensor": 3}, new),
        ),
    )
    assert got.frame.rows() == [(1.0, 1), (None, 2), (3.0, 3)]
    assert "offset 42: no header" in got.rejected[0][0]


def test_a_registry_that_lacks_a_schema_or_refuses_the_login_says_so_without_the_password(
    registry: SchemaRegistry,
) -> None:
    made = make_registry(registry.url, 5.0)
    assert made is not None
    with pytest.raises(SourceError, match="does not give subject 'plant-value'"):
        made.latest("plant-value")
    registry.login = "me:secret"
    wrong = make_registry(registry.url.replace("http://", "http://me:hunter2@"), 5.0)
    assert wrong is not None
    with pytest.raises(SourceError) as refused:
        wrong.check()
    assert "hunter2" not in str(refused.value) + repr(wrong)
    right = make_registry({"url": registry.url, "basic.auth.user.info": "me:secret"}, 5.0)
    assert right is not None
    right.check()
    assert "secret" not in repr(right)


def test_schemas_that_refer_to_others_are_completed(registry: SchemaRegistry) -> None:
    registry.register("place", {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]})
    registry.register(
        "plant-value",
        {"type": "record", "name": "R", "fields": [{"name": "from", "type": "Place"}, {"name": "to", "type": "Place"}]},
        references=[{"name": "Place", "subject": "place", "version": 1}],
    )
    format = make_format("avro", None, None, make_registry(registry.url, 5.0), "plant")
    place = pl.Struct({"x": pl.Int32()})
    assert dict(format.schema) == {"from": place, "to": place}


@pytest.fixture
def descriptors(tmp_path: Path) -> str:
    """A descriptor set as protoc writes it, of a message with every kind of field."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="plant.proto", package="plant", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    mode = file.enum_type.add(name="Mode")
    mode.value.add(name="OFF", number=0)
    mode.value.add(name="ON", number=1)
    place = file.message_type.add(name="Place")
    place.field.add(name="x", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    reading = file.message_type.add(name="Reading")
    single = {"label": kinds.LABEL_OPTIONAL}
    reading.field.add(name="sensor", number=1, type=kinds.TYPE_INT64, **single)
    reading.field.add(name="at", number=2, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", **single)
    reading.field.add(name="mode", number=3, type=kinds.TYPE_ENUM, type_name=".plant.Mode", **single)
    reading.field.add(name="place", number=4, type=kinds.TYPE_MESSAGE, type_name=".plant.Place", **single)
    reading.field.add(name="tags", number=5, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    reading.field.add(name="raw", number=6, type=kinds.TYPE_BYTES, **single)
    reading.field.add(name="size", number=7, type=kinds.TYPE_UINT32, **single)
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    path = tmp_path / "plant.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString())
    return f"{path}:plant.Reading"


def write_protobuf(descriptors: str) -> bytes:
    message = load_message(descriptors)(sensor=7, mode=1, tags=["a"], raw=b"\x01", size=5)
    message.at.FromDatetime(datetime(2026, 1, 31, 12))
    message.place.x = 9
    written: bytes = message.SerializeToString()
    return written


def test_protobuf_messages_become_rows_of_their_type(descriptors: str) -> None:
    format = make_format("protobuf", None, descriptors, None, "plant")
    format.check()
    got = rows_of(format, messages_of(write_protobuf(descriptors), b"", b"\xff\xff"))
    assert got.frame.to_dicts() == [
        {
            "sensor": 7,
            "at": datetime(2026, 1, 31, 12),
            "mode": "ON",
            "place": {"x": 9},
            "tags": ["a"],
            "raw": b"\x01",
            "size": 5,
        },
        {"sensor": 0, "at": None, "mode": "OFF", "place": None, "tags": [], "raw": b"", "size": 0},
    ]
    assert "offset 42: not Protobuf of type plant.Reading" in got.rejected[0][0]


def test_protobuf_behind_the_header_of_a_registry(descriptors: str) -> None:
    format = ProtobufValues({"sensor": pl.Int64()}, descriptors, has_registry=True)
    header = b"\x00\x00\x00\x00\x07"
    body = write_protobuf(descriptors)
    got = rows_of(format, messages_of(header + b"\x00" + body, header + b"\x04\x02\x00" + body, body))
    assert got.frame.rows() == [(7,), (7,)]
    assert len(got.rejected) == 1


def test_unknown_protobuf_types_and_fields_are_found_before_the_first_batch(descriptors: str) -> None:
    for wrong in ("Reading", "no.such.module:Reading", descriptors.replace("Reading", "Riding")):
        with pytest.raises(FlowError, match="cannot be found"):
            make_format("protobuf", None, wrong, None, "plant")
    with pytest.raises(FlowError, match=r"'volts' is no field.*'sensor'"):
        make_format("protobuf", {"volts": pl.Float64}, descriptors, None, "plant").check()


@pytest.mark.parametrize(
    ("name", "schema", "value_schema", "words"),
    [
        ("json", None, None, "JSON messages need a schema"),
        ("json", {"a": "int"}, "{}", "value_schema is for Avro and Protobuf"),
        ("avro", None, None, "give value_schema=…, or registry=…"),
        ("avro", None, '"string"', "no record"),
        ("avro", None, "{no json", "not JSON"),
        ("avro", None, "missing.avsc", "neither JSON nor a readable file"),
        ("protobuf", None, None, "without their type"),
        ("raw", {"a": "int"}, None, "one column of type"),
    ],
)
def test_formats_that_cannot_work_are_refused(name: str, schema: Any, value_schema: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make_format(name, schema, value_schema, None, "plant")


def test_an_avro_type_that_does_not_fit_the_declared_column_stops_the_flow() -> None:
    format = AvroValues({"kind": pl.Int64()}, json.dumps(READING))
    with pytest.raises(SourceError, match="column 'kind' is declared as Int64"):
        rows_of(format, messages_of(write_avro(ROW)))


FLAGS = {
    "type": "record",
    "name": "Flags",
    "fields": [{"name": "on", "type": "boolean"}, {"name": "n", "type": ["null", "int"]}],
}


@pytest.mark.parametrize("fewest", [0, 10**9], ids=["compiled", "plain"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x02\x00", "the field 'on' is the byte 2, and no boolean"),
        (b"\x01\x02\x80\x80\x80\x80\x20", "the field 'n' is 4294967296, which has more than 32 bits"),
        (b"\x01\x02" + b"\xff" * 10, "the field 'n' has more than 64 bits"),
        (b"\x01\x01", "the field 'n' is of branch -1 of a union of 2"),
        (b"\x01\x02", "the record ends within the field 'n'"),
        (b"\x01\x00\x00", "1 bytes are left behind the record"),
    ],
)
def test_what_avro_libraries_take_for_a_record_though_it_is_none_is_rejected(
    value: bytes, reason: str, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_blocks, "FEWEST_MESSAGES", fewest)
    text = json.dumps(FLAGS)
    decoded = AvroValues(columns_of(text), text).decode(messages_of(b"\x01\x00", value, b"\x00\x02\x02"))
    assert decoded.faults == [(1, f"not Avro of its schema: {reason}")]
    assert decoded.frame.rows() == [(True, None), (False, 1)]


TIMES = {
    "type": "record",
    "name": "Times",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "of_day", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "whole", "type": "double"},
    ],
}


@pytest.mark.parametrize("fewest", [0, 10**9], ids=["compiled", "plain"])
def test_a_value_that_its_column_cannot_hold_is_rejected_with_the_value(
    fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_blocks, "FEWEST_MESSAGES", fewest)
    rows = [
        {"at": 0, "of_day": 0, "whole": 1.0},
        {"at": 10**15, "of_day": 0, "whole": 1.0},
        {"at": 0, "of_day": 86_400_000_000, "whole": 1.0},
        {"at": 0, "of_day": 2**62, "whole": 1.0},
        {"at": 0, "of_day": 0, "whole": 1.5},
        {"at": 0, "of_day": 0, "whole": float("nan")},
        {"at": 1, "of_day": 1, "whole": 2.0},
    ]
    kinds = {"at": pl.Datetime("ms"), "of_day": pl.Time(), "whole": pl.Int64()}
    decoded = AvroValues(kinds, json.dumps(TIMES)).decode(messages_of(*(write_avro(row, TIMES) for row in rows)))
    assert [index for index, _ in decoded.faults] == [1, 2, 3, 4, 5]
    reasons = dict(decoded.faults)
    assert "'at' holds a value outside the times" in reasons[1]
    assert reasons[2] == "column 'of_day' is declared as Time, found 86400000000"
    assert reasons[4] == "column 'whole' is declared as Int64, found 1.5"
    assert decoded.frame.get_column("whole").to_list() == [1, 2]


def test_messages_of_a_schema_that_the_registry_does_not_have_are_rejected(registry: SchemaRegistry) -> None:
    number = registry.register("flags-value", FLAGS)
    made = make_registry(registry.url, 5.0)
    format = AvroValues({"on": pl.Boolean(), "n": pl.Int32()}, None, made)
    good = b"\x00" + number.to_bytes(4, "big") + b"\x01\x00"
    decoded = format.decode(messages_of(good, b"\x00\x7f\x00\x00\x01\x01\x00", good))
    assert [index for index, _ in decoded.faults] == [1]
    assert "does not give" in decoded.faults[0][1]
    assert decoded.frame.height == 2


def test_protobuf_times_and_headers_that_cannot_be_are_rejected(descriptors: str) -> None:
    message = load_message(descriptors)
    made = []
    for seconds, nanos in ((1, 0), (2**62, 0), (1, -1), (1, 10**9), (253_402_300_800, 0), (2, 5)):
        row = message()
        row.at.seconds, row.at.nanos = seconds, nanos
        made.append(row.SerializeToString())
    decoded = ProtobufValues({"at": pl.Datetime("us")}, descriptors).decode(messages_of(*made))
    assert [index for index, _ in decoded.faults] == [1, 2, 3, 4]
    assert decoded.frame.height == 2
    headed = ProtobufValues({"at": pl.Datetime("us")}, descriptors, has_registry=True)
    head = b"\x00\x00\x00\x00\x01"
    decoded = headed.decode(messages_of(head + b"\x00" + made[0], head + b"\x01" + made[0], head + b"\x80"))
    assert [index for index, _ in decoded.faults] == [1, 2]
