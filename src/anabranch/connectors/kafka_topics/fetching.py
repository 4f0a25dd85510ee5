"""Large ranges of plain values, fetched from the broker as whole batches of records.

A client hands out messages one by one, and making, passing on and freeing each costs more than parsing it. Here the
batches come as the broker keeps them, are decompressed as a whole, and their values are found by compiled code and stay
where they are: a third of the time. It is a short cut for the common case alone. Whatever is not common (Kerberos,
transactions that were aborted, tombstones, small batches, an error, a broker that does not answer) is left to the
client, from that offset on.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.connectors.formats.fixed_layout_json import PlacedLines
from anabranch.connectors.formats.messages.messages import Messages, ScatteredValues
from anabranch.connectors.kafka_topics.cluster import TopicPart
from anabranch.connectors.kafka_topics.connection import REQUEST_SECONDS, KafkaConnection
from anabranch.connectors.kafka_topics.consuming import OffsetRange, RangeReader
from anabranch.connectors.kafka_topics.securing import BrokerConnection, Security, encode_request

FETCH_BYTES = 8 * 1024 * 1024
FEWEST_RECORDS_A_BATCH = 100
"""Smaller batches on average cost more here than the client takes for their messages."""
_WAIT_MS = 200
_MOST_EMPTY_ANSWERS = 3
_MOST_FAILURES = 5
"""After so many, trying again costs more than it brings."""
_FETCH, _FETCH_VERSION = 1, 11
_BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, times, producer …, count."""
_LENGTH_BEFORE = 12
"""What a batch's own length does not count: the base offset and itself."""
_UNCHECKED_BYTES = 21
"""Of the head: base offset, length, leader epoch, magic and the checksum itself."""
_MAGIC = 2
_COMPRESSION, _CONTROL = 0x07, 0x20
_CODECS = {1: "gzip", 3: "lz4", 4: "zstd"}
_USUAL_RATIO, _HIGHEST_RATIO = 4, 64
"""Of unpacked to packed bytes. Where more comes out, twice as much room is made from then on."""

logger = logging.getLogger("anabranch")


class Uncommon(Exception):
    """Something that the client knows how to deal with."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records as the broker keeps them."""

    base_offset: int
    next_offset: int
    count: int
    compression: int
    is_control: bool
    checksum: int
    checked: memoryview
    """What the checksum is of: the records, and what of the head is before them."""

    @property
    def body(self) -> memoryview:
        """The records, perhaps compressed."""
        return self.checked[_BATCH_HEAD.size - _UNCHECKED_BYTES :]


class FetchReader:
    """Reads batches from the partition's leader over a connection of its own, one request ahead of what is read."""

    def __init__(self, connection: KafkaConnection, security: Security, client: RangeReader) -> None:
        from anabranch.compiled import crc32c as checksums
        from anabranch.compiled import record_memory

        self._memory = record_memory
        self._checksum_of = checksums.checksum_of
        self._connection = connection
        self._security = security
        self._client = client
        self._leader: BrokerConnection | None = None
        self._fetches: tuple[TopicPart, int] | None = None
        """What the request that is under way asks for."""
        self._leader_of: TopicPart | None = None
        self._leaders: dict[TopicPart, tuple[str, int]] = {}
        """Where the leaders were when they were last asked for: asking takes longer than a large fetch."""
        self._left: set[TopicPart] = set()
        """Partitions whose batches are not for this reader."""
        self._failures = 0
        self._ratio = _USUAL_RATIO
        self._rest: tuple[TopicPart, int, list[Batch]] | None = None
        """Batches that reach beyond the last range, from its end on."""

    def read(self, wanted: OffsetRange, include: Sequence[str], patience_seconds: float) -> Iterator[Messages]:
        """Yield the messages of the range in order, in chunks."""
        position = wanted.first
        if not include and wanted.part not in self._left:
            try:
                for messages, reached in self._fetch(wanted):
                    position = reached
                    if messages is not None:
                        yield messages
            except (Uncommon, struct.error, ValueError, pa.ArrowException) as reason:
                # Whatever bytes lead to that are none that this reader knows, the client may.
                logger.debug("%s is read by the client from offset %d on: %s", wanted.part, position, reason)
                self._left.add(wanted.part)
                self._close()
            except OSError as error:
                logger.debug("%s is read by the client from offset %d on: %s", wanted.part, position, error)
                self._close()
                # Another broker may lead by now.
                self._leaders.clear()
                self._failures += 1
                if self._failures >= _MOST_FAILURES:
                    self._left.add(wanted.part)
        if position < wanted.last:
            yield from self._client.read(replace(wanted, first=position), include, patience_seconds)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _fetch(self, wanted: OffsetRange) -> Iterator[tuple[Messages | None, int]]:
        part, position = wanted.part, wanted.first
        batches = self._take_rest(part, position)
        if not batches:
            self._request(part, position)
        empty_answers = 0
        while position < wanted.last:
            batches = batches or self._check(split_batches(self._receive(), position))
            if not batches:
                # What was asked for ahead may have been asked for too early.
                empty_answers += 1
                if empty_answers > _MOST_EMPTY_ANSWERS:
                    msg = "the broker has nothing at this offset"
                    raise OSError(msg)
                self._request(part, position)
                continue
            reached = batches[-1].next_offset
            # What comes next is on its way while this is read.
            self._request(part, reached)
            if reached > wanted.last:
                self._rest = (part, wanted.last, [batch for batch in batches if batch.next_offset > wanted.last])
            yield self._decode(batches, wanted, position), min(reached, wanted.last)
            position, batches = reached, []

    def _check(self, batches: list[Batch]) -> list[Batch]:
        """Return batches that are as the producer made them; later they are not, as values are marked in them."""
        for batch in batches:
            if self._checksum_of(np.frombuffer(batch.checked, np.uint8)) != batch.checksum:
                msg = "a batch whose checksum is wrong"
                raise Uncommon(msg)
        return batches

    def _take_rest(self, part: TopicPart, position: int) -> list[Batch]:
        """Return what is here already from a position on."""
        rest, self._rest = self._rest, None
        return rest[2] if rest is not None and rest[:2] == (part, position) else []

    def _decode(self, batches: list[Batch], wanted: OffsetRange, position: int) -> Messages | None:
        pieces: list[PlacedLines] = []
        offsets: list[NDArray[np.int64]] = []
        for batch in batches:
            if batch.is_control or batch.next_offset <= position or batch.base_offset >= wanted.last:
                continue
            body = self._decompress(batch)
            if not 0 <= batch.count <= len(body):
                msg = f"a batch of {batch.count} records"
                raise Uncommon(msg)
            starts, ends, found = (np.empty(batch.count, np.int64) for _ in range(3))
            kept = self._memory.find_values(
                body, batch.count, batch.base_offset, position, wanted.last, starts, ends, found
            )
            if kept < 0:
                msg = "a tombstone" if kept == self._memory.HAS_NULL else "a batch that is not as expected"
                raise Uncommon(msg)
            if kept:
                pieces.append(PlacedLines(body, starts[:kept], ends[:kept]))
                offsets.append(found[:kept])
        if not pieces:
            return None
        part = wanted.part
        return Messages(part.topic, part.number, ScatteredValues(tuple(pieces)), np.concatenate(offsets))

    def _decompress(self, batch: Batch) -> NDArray[np.uint8]:
        """Return the records of a batch, to be written to; there may be anything behind the last of them."""
        while _CODECS.get(batch.compression) == "lz4" and self._ratio <= _HIGHEST_RATIO:
            room = self._ratio * len(batch.body) + 4096
            try:
                # There are no sizes in it; room for too much is no harm, the stream's own steps take twice the time.
                return np.frombuffer(pa.decompress(batch.body, room, "lz4"), np.uint8)
            except (OSError, pa.ArrowException):
                self._ratio *= 2
        memory = np.frombuffer(decompress(batch), np.uint8)
        return memory if memory.flags.writeable else memory.copy()

    def _request(self, part: TopicPart, offset: int) -> None:
        """Ask for batches from an offset on, unless that is what was asked for."""
        if self._fetches == (part, offset):
            return
        if self._fetches is not None or self._leader is None or self._leader_of != part or self._leader.has_expired:
            # What was asked for is not wanted any more, another broker has it, or the login is over.
            self._close()
            self._leader = self._security.connect(self._find_leader(part))
            self._leader_of = part
        self._leader.send(encode_fetch(part, offset, self._connection.reads_committed))
        self._fetches = (part, offset)

    def _receive(self) -> memoryview:
        assert self._leader is not None
        self._fetches = None
        return read_answer(self._leader.receive())

    def _find_leader(self, part: TopicPart) -> tuple[str, int]:
        if part not in self._leaders:
            self._leaders[part] = self._ask_for_leader(part)
        return self._leaders[part]

    def _ask_for_leader(self, part: TopicPart) -> tuple[str, int]:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            known = AdminClient(self._connection.client()).list_topics(part.topic, timeout=REQUEST_SECONDS)
        except KafkaException as error:
            raise OSError(str(error)) from error
        found = known.topics[part.topic].partitions.get(part.number)
        if found is None or found.leader not in known.brokers:
            msg = "the partition has no leader at the moment"
            raise OSError(msg)
        broker = known.brokers[found.leader]
        return str(broker.host), int(broker.port)

    def _close(self) -> None:
        if self._leader is not None:
            self._leader.close()
        self._leader = self._fetches = self._leader_of = self._rest = None


def encode_fetch(part: TopicPart, offset: int, reads_committed: bool) -> bytes:
    """Return a request for batches of one partition, with its length before it."""
    topic = part.topic.encode()
    body = struct.pack(">iiiibii", -1, _WAIT_MS, 1, FETCH_BYTES, int(reads_committed), 0, -1)
    body += struct.pack(">ih", 1, len(topic)) + topic
    body += struct.pack(">iiiqqi", 1, part.number, -1, offset, -1, FETCH_BYTES)
    body += struct.pack(">ih", 0, 0)
    return encode_request(_FETCH, _FETCH_VERSION, body)


def read_answer(answer: memoryview) -> memoryview:
    """Return the batches in an answer; raise ``Uncommon`` for aborted transactions, ``OSError`` for errors."""
    _, _, error, _, topics = struct.unpack_from(">iihii", answer, 0)
    if error or topics != 1:
        msg = f"error {error}"
        raise OSError(msg)
    at = 18
    at += 2 + struct.unpack_from(">h", answer, at)[0]
    partitions, _, error, _, _, _, aborted = struct.unpack_from(">iihqqqi", answer, at)
    if error or partitions != 1:
        msg = f"error {error}"
        raise OSError(msg)
    if aborted > 0:
        msg = "transactions that were aborted"
        raise Uncommon(msg)
    at += 38 + 4
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + max(0, size)]


def split_batches(records: memoryview, position: int) -> list[Batch]:
    """Return the complete batches that reach beyond a position; the last one may be cut, and comes again."""
    found: list[Batch] = []
    at = reached = 0
    while at + _BATCH_HEAD.size <= len(records):
        head: Any = _BATCH_HEAD.unpack_from(records, at)
        base_offset, length, _, magic, checksum, attributes, last_delta, *_, count = head
        end = at + _LENGTH_BEFORE + length
        if magic != _MAGIC:
            msg = f"batches of the old format {magic}"
            raise Uncommon(msg)
        if length < _BATCH_HEAD.size - _LENGTH_BEFORE or last_delta < 0 or base_offset < reached:
            msg = "batches that do not follow each other"
            raise Uncommon(msg)
        if end > len(records):
            break
        reached = next_offset = base_offset + last_delta + 1
        if next_offset > position:
            checked = records[at + _UNCHECKED_BYTES : end]
            is_control = bool(attributes & _CONTROL)
            compression = attributes & _COMPRESSION
            found.append(Batch(base_offset, next_offset, count, compression, is_control, checksum, checked))
        at = end
    if found and sum(batch.count for batch in found) < FEWEST_RECORDS_A_BATCH * len(found):
        msg = "small batches"
        raise Uncommon(msg)
    return found


def decompress(batch: Batch) -> Any:
    """Return the records of a batch, of whatever size."""
    if batch.compression == 0:
        return batch.body
    codec = _CODECS.get(batch.compression)
    if codec is None:
        msg = "batches in a compression that is not read here"
        raise Uncommon(msg)
    return pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(batch.body)), codec).read()
