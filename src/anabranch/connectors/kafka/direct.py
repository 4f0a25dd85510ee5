"""Large ranges of offsets to messages, fetched from the broker without a client library in between."""

from __future__ import annotations

import itertools
import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anabranch.connectors.kafka.cluster import LiveCluster, OutOfReach, TopicPart
from anabranch.connectors.kafka.connection import REQUEST_SECONDS, KafkaConnection
from anabranch.connectors.kafka.consuming import CHUNK_BYTES, OffsetRange, Patience, RangeReader, lost_offsets
from anabranch.connectors.kafka.fetch_requests import FetchAnswer, read_fetch, write_fetch
from anabranch.connectors.kafka.messages import Messages
from anabranch.errors import SourceError

_WAIT_MS = 200
_PAUSE_SECONDS = 0.1
_LEAST_BYTES = 256 * 1024
_OUT_OF_RANGE, _NOT_ALLOWED = 1, 29

logger = logging.getLogger("anabranch")


def can_read_directly(connection: KafkaConnection) -> bool:
    """Say whether the brokers take plain connections; a login or encryption is left to librdkafka."""
    options = dict(connection.options)
    return options.get("security.protocol", "plaintext").lower() == "plaintext"


class DirectReader:
    """Speaks Kafka's Fetch itself: record batches go from the socket to columns by compiled code."""

    def __init__(self, connection: KafkaConnection, make_other: Callable[[], RangeReader]) -> None:
        from anabranch.connectors.kafka import record_batches

        self._batches = record_batches
        self._connection = connection
        self._client_id = dict(connection.options).get("client.id", "anabranch")
        self._make_other = make_other
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._leaders: dict[TopicPart, tuple[str, int]] = {}
        self._numbers = itertools.count(1)

    def read(self, wanted: OffsetRange, include: Sequence[str], wait_seconds: float) -> Iterator[Messages]:
        """Yield the messages of the range in order, in chunks."""
        part, position = wanted.part, wanted.first
        patience = Patience(part, wait_seconds)
        asked: int | None = None
        while position < wanted.last:
            try:
                asked = self._ask(wanted, position) if asked is None else asked
                answer = self._hear(part, asked)
                asked = None
                facts = self._take(answer, wanted, position)
                reached = self._batches.next_offset(facts) or position
                if position < reached < wanted.last:
                    # The broker works on the next answer while this one is parsed.
                    asked = self._ask(wanted, reached)
            except (OSError, ValueError, OutOfReach, _Refused) as error:
                asked = None
                self._forget(part)
                patience.wait(position, str(error) or type(error).__name__)
                time.sleep(_PAUSE_SECONDS)
                continue
            except _Lost:
                position = self._pass_over_lost(wanted, position)
                continue
            except self._batches.UnknownFormat:
                rest = OffsetRange(part, position, wanted.last, wanted.row_bytes, wanted.skips_lost)
                yield from self._make_other().read(rest, include, wait_seconds)
                return
            if reached > position:
                patience.progress()
            else:
                patience.wait(position)
            messages = self._make_messages(answer, facts, wanted, position, include)
            position = max(position, reached)
            if messages is not None:
                try:
                    yield messages
                except GeneratorExit:
                    # Nobody will hear the next answer: this connection is of no use any more.
                    self._forget(part)
                    raise

    def _ask(self, wanted: OffsetRange, position: int) -> int:
        part = wanted.part
        number = next(self._numbers)
        # The last fetch of a range should not bring much more than the rest of it.
        rest = int((wanted.last - position) * wanted.row_bytes * 1.1)
        most = max(_LEAST_BYTES, min(CHUNK_BYTES, rest))
        committed = self._connection.reads_committed
        request = write_fetch(number, self._client_id, part, position, most, _WAIT_MS, committed=committed)
        self._socket(part).sendall(request)
        return number

    def _hear(self, part: TopicPart, asked: int) -> FetchAnswer:
        connected = self._socket(part)
        size = int.from_bytes(_receive(connected, 4), "big")
        number, answer = read_fetch(_receive(connected, size))
        if number != asked:
            raise ValueError("an answer to another question")
        return answer

    def _take(self, answer: FetchAnswer, wanted: OffsetRange, position: int) -> Any:
        if answer.error == _OUT_OF_RANGE:
            raise _Lost
        if answer.error == _NOT_ALLOWED:
            msg = f"{wanted.part}: this user may not read the topic; grant it Read"
            raise SourceError(msg)
        if answer.error:
            raise _Refused(f"the broker answers with error {answer.error}")
        return self._batches.scan_batches(answer.records)

    def _make_messages(
        self, answer: FetchAnswer, facts: Any, wanted: OffsetRange, position: int, include: Sequence[str]
    ) -> Messages | None:
        records = self._batches.read_records(answer.records, facts, answer.aborted, position, wanted.last)
        if not len(records.offsets):
            return None
        return Messages(
            wanted.part.topic,
            wanted.part.number,
            records.text.tobytes(),
            records.ends,
            records.offsets,
            records.is_null if records.is_null.any() else None,
            records.timestamps_ms,
            records.read_keys() if "key" in include else None,
            records.read_headers() if "headers" in include else None,
        )

    def _pass_over_lost(self, wanted: OffsetRange, position: int) -> int:
        """Return where to go on behind offsets that are gone, or raise ``SourceError`` if that is not wanted."""
        part = wanted.part
        if not wanted.skips_lost:
            raise lost_offsets(part, position, wanted.last)
        oldest = LiveCluster(self._connection).starts([part])[part]
        following = wanted.last if oldest <= position else min(oldest, wanted.last)
        logger.warning("%s: offsets %d to %d are gone and passed over", part, position, following - 1)
        return following

    def _socket(self, part: TopicPart) -> socket.socket:
        if part not in self._leaders:
            self._leaders[part] = LiveCluster(self._connection).leader(part)
        leader = self._leaders[part]
        if leader not in self._sockets:
            self._sockets[leader] = socket.create_connection(leader, REQUEST_SECONDS)
            self._sockets[leader].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._sockets[leader]

    def _forget(self, part: TopicPart) -> None:
        """Close the connection of a partition: its leader may be another one soon."""
        leader = self._leaders.pop(part, None)
        if leader in self._sockets:
            self._sockets.pop(leader).close()


class _Lost(Exception):
    """The offset is out of range."""


class _Refused(Exception):
    """The broker cannot answer at the moment: it is not the leader any more, or not yet."""


def _receive(connected: socket.socket, size: int) -> memoryview:
    buffer = memoryview(bytearray(size))
    place = 0
    while place < size:
        taken = connected.recv_into(buffer[place:])
        if not taken:
            raise ConnectionError("the broker closed the connection")
        place += taken
    return buffer
