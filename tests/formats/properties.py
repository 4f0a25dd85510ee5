"""What must hold of every reader and writer of messages: quick tests try some cases, soak runs many."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from anabranch.connectors.formats.messages import avro_blocks
from anabranch.connectors.formats.messages.avro_values import AvroValues, columns_of
from anabranch.connectors.formats.messages.decoders import Decoded
from anabranch.connectors.formats.messages.json_values import JsonValues
from anabranch.connectors.formats.messages.messages import Messages, join_values
from anabranch.connectors.formats.messages.protobuf_values import ProtobufValues, load_message
from anabranch.connectors.formats.messages.protobuf_values import columns_of as protobuf_columns
from anabranch.connectors.formats.value_encoders import AvroEncoder
from anabranch.connectors.kafka_topics import fetching
from anabranch.connectors.kafka_topics.cluster import TopicPart
from anabranch.connectors.kafka_topics.connection import make_connection
from anabranch.connectors.kafka_topics.consuming import OffsetRange
from anabranch.connectors.kafka_topics.fetching import FetchReader
from anabranch.connectors.kafka_topics.securing import IN_THE_CLEAR
from anabranch.errors import SinkError
from formats import avro, kafka_batches, protobuf
from formats.differences import same


def messages_of(values: list[bytes]) -> Messages:
    return Messages("t", 0, join_values(values), np.arange(len(values)))


def check_avro(case: avro.Case, *, compiled: bool) -> None:
    """Compare with a decoder that knows nothing but the specification."""
    text = json.dumps(case.schema)
    with patch.object(avro_blocks, "FEWEST_MESSAGES", 0 if compiled else 10**9):
        decoded = AvroValues(columns_of(text), text).decode(messages_of(case.messages))
    expected: list[dict[str, Any]] = []
    faulty: list[int] = []
    for index, message in enumerate(case.messages):
        try:
            expected.append(avro.Decoder(message).record(case.schema))
        except avro.Malformed:
            faulty.append(index)
    assert [index for index, _ in decoded.faults] == faulty, decoded.faults
    assert same(decoded.frame.rows(named=True), expected)


class _NoClient:
    """Stands for the client, to which everything uncommon is left."""

    def read(self, *_: Any) -> Any:
        raise AssertionError("nobody asks it here")


def read_batches(records: bytes, first: int, last: int) -> list[tuple[int, bytes]] | None:
    """Return (offset, value) of an answer's messages, None if they are left to the client."""
    reader = FetchReader(make_connection("127.0.0.1:9", None), IN_THE_CLEAR, _NoClient())
    part = TopicPart("t", 0)
    try:
        with patch.object(fetching, "FEWEST_RECORDS_A_BATCH", 0):
            found = reader._check(fetching.split_batches(memoryview(bytearray(records)), first))
        messages = reader._decode(found, OffsetRange(part, first, last, 40.0), first)
    except (fetching.Uncommon, OSError, ValueError, struct.error, pa.ArrowException):
        return None
    return [] if messages is None else list(zip(messages.offsets.tolist(), messages.values(), strict=True))


def check_batches(made: list[kafka_batches.Batch], first: int, last: int) -> None:
    """Compare with what was written."""
    wanted = kafka_batches.expected(made, first, last)
    got = read_batches(b"".join(map(kafka_batches.write_batch, made)), first, last)
    if any(value is None for _, value in wanted):
        assert got is None, "tombstones are left to the client"
    else:
        assert got == wanted


def check_damaged_batches(made: list[kafka_batches.Batch], records: bytes) -> None:
    """See that nothing comes of damaged batches that was not written; their offsets have no checksum."""
    got = read_batches(records, made[0].base_offset, made[-1].next_offset)
    written = {record.value for batch in made for record in batch.records}
    assert got is None or {value for _, value in got} <= written


def check_wild_records(body: bytes, count: int, base_offset: int) -> None:
    """Compare with a reader in plain Python what is found among bytes that bear a right checksum."""
    last = base_offset + 100
    batch = kafka_batches.wrap_body(body, count, base_offset, last_delta=99)
    got = read_batches(batch, base_offset, last)
    try:
        wanted = kafka_batches.read_records(body, count, base_offset, last)
    except kafka_batches.Malformed:
        wanted = None
    assert got == wanted


def check_protobuf(case: protobuf.Case) -> None:
    """Compare with what google.protobuf itself says of each message, as JSON; its times are checked by hand."""
    decoded = ProtobufValues(protobuf_columns(case.value_schema), case.value_schema).decode(messages_of(case.messages))
    faults = dict(decoded.faults)
    rows = iter(decoded.frame.rows(named=True))
    for index, value in enumerate(case.messages):
        try:
            message = load_message(case.value_schema).FromString(value)
            whole = json_format.MessageToDict(message, preserving_proto_field_name=True)
        except (DecodeError, json_format.SerializeToJsonError, ValueError, UnicodeDecodeError):
            # What cannot be read, and times that even its own JSON does not know.
            assert index in faults
            continue
        if protobuf.has_bad_text(message):
            assert index in faults
            continue
        assert index not in faults, faults[index]
        row = next(rows)
        for field in message.DESCRIPTOR.fields:
            got = row[field.name]
            if field.is_repeated:
                assert len(got) == len(whole.get(field.name, ())), field.name
            if field.type in (field.TYPE_MESSAGE, field.TYPE_ENUM):
                assert (got is None) == (not message.HasField(field.name)) if field.has_presence else True
                continue
            given = getattr(message, field.name)
            if field.is_repeated:
                assert same(got, list(given)), field.name
            elif field.has_presence and not message.HasField(field.name):
                assert got is None
            else:
                assert same(got, given), field.name
        if message.HasField("at"):
            expected = datetime(1970, 1, 1) + timedelta(
                seconds=message.at.seconds, microseconds=message.at.nanos // 1000
            )
            assert row["at"] == expected
        assert row["counts"] == [{"key": key, "value": message.counts[key]} for key in sorted(message.counts)]
    assert next(rows, None) is None


def check_round_trip(encoder: Any, decode: Callable[[list[bytes]], Decoded], frame: pl.DataFrame) -> None:
    """See that rows come back as they went, or are refused before the first batch."""
    try:
        encoder.check(frame.schema)
    except SinkError:
        return
    decoded = decode(encoder.encode(frame))
    assert decoded.faults == []
    assert same(decoded.frame.rows(), frame.rows())


def json_decoder(schema: pl.Schema) -> Callable[[list[bytes]], Decoded]:
    return lambda values: JsonValues(dict(schema)).decode(messages_of(values))


def avro_decoder(schema: pl.Schema) -> Callable[[list[bytes]], Decoded]:
    text = json.dumps(AvroEncoder(None, "t").schema_of(schema))
    return lambda values: AvroValues(dict(schema), text).decode(messages_of(values))
