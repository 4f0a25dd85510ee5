"""Result rows as messages: what tasks make of them."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from anabranch.connectors.formats.messages.protobuf_values import load_message
from anabranch.connectors.formats.value_encoders import (
    AvroEncoder,
    JsonEncoder,
    ProtobufEncoder,
    RawEncoder,
    ValueEncoder,
)
from anabranch.connectors.kafka_topics.row_messages import MessageStaging
from anabranch.errors import SinkError

ROWS = pl.DataFrame(
    {
        "sensor": [7, None],
        "place": ["Rīga\n", None],
        "at": pl.Series([datetime(2026, 7, 1, 12, 0, 0, 1000), None], dtype=pl.Datetime("ms")),
        "volts": [229.5, None],
        "day": [date(2026, 7, 1), None],
    }
)


def staging(encoder: ValueEncoder, **more: Any) -> MessageStaging:
    given = {"key": (), "headers": (), "timestamp": None, "tombstones": False, **more}
    return MessageStaging("kafka test", encoder, **given)


def messages(made: MessageStaging, rows: pl.DataFrame) -> pl.DataFrame:
    made.check(dict(rows.schema))
    return pl.read_ipc(io.BytesIO(made.encode(rows)))


def test_json_values_keep_nulls_and_text_with_line_ends() -> None:
    values = [json.loads(value) for value in messages(staging(JsonEncoder()), ROWS).get_column("value")]
    assert values[0]["place"] == "Rīga\n"
    assert values[1] == dict.fromkeys(ROWS.columns)


def test_avro_records_are_read_back_as_they_were() -> None:
    encoder = AvroEncoder(None, "plant.readings")
    schema = fastavro.parse_schema(encoder.schema_of(ROWS.schema))
    assert schema["name"] == "plant_readings"
    rows = [
        fastavro.schemaless_reader(io.BytesIO(value), schema, None)
        for value in messages(staging(encoder), ROWS).get_column("value")
    ]
    moment = datetime(2026, 7, 1, 12, 0, 0, 1000, tzinfo=UTC)
    assert rows[0] == {"sensor": 7, "place": "Rīga\n", "at": moment, "volts": 229.5, "day": date(2026, 7, 1)}
    assert rows[1] == dict.fromkeys(ROWS.columns)


def test_an_avro_schema_that_is_given_says_which_columns_and_units() -> None:
    given = {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"name": "sensor", "type": ["null", "long"]},
        ],
    }
    encoder = AvroEncoder(json.dumps(given), "plant")
    (value,) = messages(staging(encoder), ROWS.head(1)).get_column("value")
    row = fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(given), None)
    assert row == {"at": datetime(2026, 7, 1, 12, 0, 0, 1000, tzinfo=UTC), "sensor": 7}
    with pytest.raises(SinkError, match=r"the Avro schema names 'at'"):
        encoder.check({"sensor": pl.Int64()})
    with pytest.raises(SinkError, match="no Avro type"):
        AvroEncoder(None, "plant").check({"span": pl.Duration("us")})


@pytest.fixture
def descriptors(tmp_path: Path) -> str:
    """A descriptor set as protoc writes it."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="plant.proto", package="plant", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Reading")
    message.field.add(name="sensor", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="place", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    message.field.add(
        name="at",
        number=3,
        type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=kinds.LABEL_OPTIONAL,
    )
    message.field.add(name="tags", number=4, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    path = tmp_path / "plant.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString())
    return f"{path}:plant.Reading"


def test_protobuf_messages_bear_what_is_not_null(descriptors: str) -> None:
    rows = ROWS.select("sensor", "place", "at", tags=pl.Series([["a", "b"], None]))
    values = messages(staging(ProtobufEncoder(descriptors)), rows).get_column("value")
    first, second = (load_message(descriptors).FromString(value) for value in values)
    assert (first.sensor, first.place, list(first.tags)) == (7, "Rīga\n", ["a", "b"])
    assert first.at.ToDatetime() == datetime(2026, 7, 1, 12, 0, 0, 1000)
    assert not second.HasField("at")
    with pytest.raises(SinkError, match="columns volts are no fields"):
        ProtobufEncoder(descriptors).check({"volts": pl.Float64()})


def test_keys_are_as_they_are_or_json() -> None:
    rows = ROWS.head(1)
    assert messages(staging(JsonEncoder()), rows).get_column("key").to_list() == [None]
    assert messages(staging(JsonEncoder(), key=("place",)), rows).get_column("key").to_list() == ["Rīga\n".encode()]
    assert messages(staging(JsonEncoder(), key=("day",)), rows).get_column("key").to_list() == [b"2026-07-01"]
    both = messages(staging(JsonEncoder(), key=("sensor", "place")), rows).get_column("key")[0]
    assert json.loads(both) == {"sensor": 7, "place": "Rīga\n"}
    raw = pl.DataFrame({"k": [b"\xff"], "value": [b"x"]})
    assert messages(staging(RawEncoder("value"), key=("k",)), raw).get_column("key").to_list() == [b"\xff"]


def test_tombstones_are_rows_with_nothing_but_their_key() -> None:
    rows = ROWS.with_columns(sensor=pl.Series([7, 8]))
    made = messages(staging(JsonEncoder(), key=("sensor",), tombstones=True), rows)
    assert [value is None for value in made.get_column("value")] == [False, True]
    kept = messages(staging(JsonEncoder(), key=("sensor",)), rows)
    assert kept.get_column("value").null_count() == 0


def test_columns_without_a_form_are_said_before_the_first_batch() -> None:
    with pytest.raises(SinkError, match="JSON cannot hold"):
        staging(JsonEncoder()).check({"raw": pl.Binary()})
    with pytest.raises(SinkError, match="Binary or String"):
        staging(RawEncoder("n")).check({"n": pl.Int64()})
    with pytest.raises(SinkError, match="names 'value'"):
        staging(RawEncoder("value")).check({"n": pl.Int64()})


def test_equal_rows_make_equal_bytes() -> None:
    made = staging(AvroEncoder(None, "t"), key=("sensor",), timestamp="at")
    assert made.encode(ROWS) == made.encode(ROWS.clone())
    assert messages(made, ROWS).get_column("timestamp_ms").to_list() == [
        (datetime(2026, 7, 1, 12, 0, 0, 1000) - datetime(1970, 1, 1)) // timedelta(milliseconds=1),
        None,
    ]


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("long", pl.Float64()),
        ("string", pl.Int64()),
        ("long", pl.Datetime("us")),
        ("bytes", pl.Duration("us")),
        (["null", "boolean"], pl.String()),
        ({"type": "array", "items": "int"}, pl.List(pl.String())),
    ],
)
def test_columns_that_an_avro_schema_cannot_hold_are_said_before_the_first_batch(form: Any, kind: pl.DataType) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": form}]})
    with pytest.raises(SinkError, match=r"column 'x' is .*, which the Avro type .* cannot hold"):
        AvroEncoder(schema, "t").check({"x": kind})


def test_a_null_where_avro_wants_a_value_names_the_row() -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]})
    with pytest.raises(SinkError, match=r"a row cannot be written as Avro .* it is \{'x': None\}"):
        AvroEncoder(schema, "t").encode(pl.DataFrame({"x": [1, None]}))


def test_numbers_with_more_bits_than_avro_holds_are_not_written() -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "int"]}]})
    encoder = AvroEncoder(schema, "t")
    encoder.check({"x": pl.Int64()})
    assert encoder.encode(pl.DataFrame({"x": [2**31 - 1, None]})) == [b"\x02\xfe\xff\xff\xff\x0f", b"\x00"]
    with pytest.raises(SinkError, match="column 'x' has the value 2147483648, which Avro's int does not hold"):
        encoder.encode(pl.DataFrame({"x": [2**31, None]}))


def test_columns_of_other_types_than_protobuf_fields_are_said_before_the_first_batch(descriptors: str) -> None:
    encoder = ProtobufEncoder(descriptors)
    field = next(iter(load_message(descriptors).DESCRIPTOR.fields_by_name))
    with pytest.raises(SinkError, match=f"column '{field}' is List\\(Struct"):
        encoder.check({field: pl.List(pl.Struct({"a": pl.Int64()}))})
