"""What must hold of every reader and writer of messages: quick tests try some cases, soak runs many."""

from __future__ import annotations

import json
import struct
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from anabranch.connectors.kafka import avro_blocks, fetching
from anabranch.connectors.kafka.avro_values import AvroValues, columns_of
from anabranch.connectors.kafka.cluster import TopicPart
from anabranch.connectors.kafka.connection import make_connection
from anabranch.connectors.kafka.consuming import OffsetRange
from anabranch.connectors.kafka.fetching import FetchReader
from anabranch.connectors.kafka.messages import Messages, join_values
from formats import avro, kafka_batches
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
    reader = FetchReader(make_connection("127.0.0.1:9", None), _NoClient())
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
