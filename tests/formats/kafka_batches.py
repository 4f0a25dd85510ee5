"""Record batches by the letter of Kafka's protocol, in plain Python: written, and read again."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.compiled.plain.crc32c import checksum_of

NO_COMPRESSION, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CONTROL, TRANSACTIONAL = 0x20, 0x10


@dataclass(frozen=True)
class Record:
    delta: int
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    time_delta: int = 0


@dataclass(frozen=True)
class Batch:
    base_offset: int
    records: list[Record]
    compression: int = NO_COMPRESSION
    flags: int = 0
    gap: int = 0
    """Offsets behind the last record that compaction took."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + (self.records[-1].delta if self.records else 0) + self.gap + 1


def write_batch(batch: Batch) -> bytes:
    body = compress(write_records(batch.records), batch.compression)
    last_delta = batch.next_offset - batch.base_offset - 1
    return wrap_body(body, len(batch.records), batch.base_offset, last_delta, batch.compression | batch.flags)


def write_records(records: list[Record]) -> bytes:
    return b"".join(map(_write_record, records))


def wrap_body(body: bytes, count: int, base_offset: int, last_delta: int, attributes: int = 0) -> bytes:
    """Put a head with the right length and checksum before some bytes."""
    checked = struct.pack(">hiqqqhii", attributes, last_delta, 0, 0, -1, -1, -1, count) + body
    return (
        struct.pack(">qiibI", base_offset, len(checked) + 9, 0, 2, checksum_of(np.frombuffer(checked, np.uint8)))
        + checked
    )


class Malformed(Exception):
    """The bytes hold no such records."""


def read_records(body: bytes, count: int, base_offset: int, last: int) -> list[tuple[int, bytes]]:
    """Return (offset, value) of all records before an offset; headers are not looked at, as nobody wants them."""
    found = []
    at = 0
    for _ in range(count):
        length, at = _read_number(body, at)
        end = at + length
        _, at = _read_number(body, at + 1)
        delta, at = _read_number(body, at)
        key_size, at = _read_number(body, at)
        size, at = _read_number(body, at + max(0, key_size))
        if end > len(body) or at + max(0, size) >= end or not 0 <= delta < 2**31:
            raise Malformed
        if base_offset + delta < last:
            if size < 0:
                raise Malformed
            found.append((base_offset + delta, body[at : at + size]))
        at = end
    return found


def _read_number(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        if at >= len(body):
            raise Malformed
        number += (body[at] % 128) * 128**place
        at += 1
        if body[at - 1] < 128:
            if number >= 2**64:
                break
            return (number // 2 if number % 2 == 0 else -(number // 2) - 1), at
    raise Malformed


def compress(body: bytes, compression: int) -> bytes:
    match compression:
        case 0:
            return body
        case 1:
            return gzip.compress(body)
        case 3 | 4:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, {3: "lz4", 4: "zstd"}[compression]) as out:
                out.write(body)
            return bytes(sink.getvalue())
    raise AssertionError(compression)


def _write_record(record: Record) -> bytes:
    rest = b"\x00" + _varint(record.time_delta) + _varint(record.delta) + _sized(record.key) + _sized(record.value)
    rest += _varint(len(record.headers))
    rest += b"".join(_sized(name) + _sized(value) for name, value in record.headers)
    return _varint(len(rest)) + rest


def _sized(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(number: int) -> bytes:
    left = number * 2 if number >= 0 else -number * 2 - 1
    written = b""
    while left >= 128:
        written += bytes([left % 128 + 128])
        left //= 128
    return written + bytes([left])


RECORDS = st.builds(
    Record,
    delta=st.integers(0, 40),
    value=st.none() | st.binary(max_size=60),
    key=st.none() | st.binary(max_size=4),
    headers=st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    time_delta=st.integers(-(2**40), 2**40),
)


@st.composite
def batches(draw: st.DrawFn, **settings: Any) -> list[Batch]:
    """Return batches that follow each other, with gaps, control batches and empty ones."""
    made: list[Batch] = []
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        records = draw(st.lists(RECORDS, max_size=12, unique_by=lambda record: record.delta))
        batch = Batch(
            offset,
            sorted(records, key=lambda record: record.delta),
            draw(st.sampled_from([NO_COMPRESSION, GZIP, LZ4, ZSTD])),
            draw(st.sampled_from([0, 0, TRANSACTIONAL, CONTROL | TRANSACTIONAL])),
            draw(st.sampled_from([0, 0, 5])),
        )
        made.append(batch)
        offset = batch.next_offset + draw(st.sampled_from([0, 0, 3]))
    return made


def expected(made: list[Batch], first: int, last: int) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of the messages that a reader gets."""
    return [
        (batch.base_offset + record.delta, record.value)
        for batch in made
        if not batch.flags & CONTROL
        for record in batch.records
        if first <= batch.base_offset + record.delta < last
    ]
