"""Kafka's Fetch request, version 10, as bytes: the one that every broker since 2.1 understands."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_FETCH, _VERSION = 1, 10
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_NO_REPLICA = _NO_EPOCH = _NO_START = -1
_NO_SESSION, _FULL_FETCH = 0, -1


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What a broker says of one partition."""

    error: int
    aborted: tuple[tuple[int, int], ...]
    """(producer, first offset) of the aborted transactions among the records."""
    records: memoryview
    """Record batches; the last one may be cut off."""


def write_fetch(
    correlation: int, client: str, part: tuple[str, int], offset: int, most_bytes: int, wait_ms: int, *, committed: bool
) -> bytes:
    """Return a request for one partition's records from an offset on, with its length before it."""
    topic, number = part
    isolation = _READ_COMMITTED if committed else _READ_UNCOMMITTED
    body = b"".join(
        (
            struct.pack(">hhi", _FETCH, _VERSION, correlation),
            _text(client),
            struct.pack(">iiiibii", _NO_REPLICA, wait_ms, 1, most_bytes, isolation, _NO_SESSION, _FULL_FETCH),
            struct.pack(">i", 1),
            _text(topic),
            struct.pack(">iiiqqi", 1, number, _NO_EPOCH, offset, _NO_START, most_bytes),
            struct.pack(">i", 0),
        )
    )
    return struct.pack(">i", len(body)) + body


def read_fetch(answer: memoryview) -> tuple[int, FetchAnswer]:
    """Return the number of the request that is answered, and the answer; raise ``ValueError`` if it is none."""
    try:
        correlation, _, error, _, topics = struct.unpack_from(">iihii", answer, 0)
        if error or topics != 1:
            return correlation, FetchAnswer(error or -1, (), answer[:0])
        place = 18
        (length,) = struct.unpack_from(">h", answer, place)
        place += 2 + length
        partitions, _, error, _, _, _, count = struct.unpack_from(">iihqqqi", answer, place)
        place += 42
        if partitions != 1:
            return correlation, FetchAnswer(-1, (), answer[:0])
        aborted = []
        for _ in range(max(0, count)):
            aborted.append(struct.unpack_from(">qq", answer, place))
            place += 16
        (size,) = struct.unpack_from(">i", answer, place)
        place += 4
    except struct.error as error:
        raise ValueError("the answer is cut off") from error
    return correlation, FetchAnswer(error, tuple(aborted), answer[place : place + max(0, size)])


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded
