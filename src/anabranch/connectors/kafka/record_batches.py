"""Kafka's record batches, format 2, to messages, by compiled code. Importing this takes as long as importing Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from anabranch.connectors.kafka.messages import NO_TIMESTAMP, Headers, Ints

_HEADER_BYTES = 61
_OLDEST_FORMAT = 2
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_BASE, _LAST, _ATTRIBUTES, _PRODUCER, _BASE_TIME, _MOST_TIME, _COUNT, _START, _END = range(9)
_FIELDS = 9
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_FRAMED_SNAPPY = b"\x82SNAPPY\x00"

_Bytes = NDArray[np.uint8]


class UnknownFormat(Exception):
    """Records that this module does not read: those of a message format before Kafka 0.11, or an unknown codec."""


@dataclass(frozen=True, slots=True)
class Records:
    """Messages of a range, in order, and the offset behind all that was looked at."""

    text: _Bytes
    ends: Ints
    offsets: Ints
    is_null: NDArray[np.bool_]
    timestamps_ms: Ints
    keys: NDArray[np.int64]
    """Where each key begins in ``data``, and how long it is; -1 for null."""
    header_starts: Ints
    data: _Bytes

    def read_keys(self) -> pl.Series:
        """Return the keys."""
        starts, sizes = self.keys[0], self.keys[1]
        kept = np.maximum(sizes, 0)
        ends = np.concatenate([[0], np.cumsum(kept)])
        text = np.empty(int(ends[-1]), np.uint8)
        _copy_slices(self.data, starts, kept, ends, text)
        valid = np.packbits(sizes >= 0, bitorder="little")
        buffers = [pa.py_buffer(valid), pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(text)]
        return pl.Series(pa.Array.from_buffers(pa.large_binary(), len(starts), buffers), dtype=pl.Binary)

    def read_headers(self) -> list[Headers | None]:
        """Return the headers of each message, None where it has none."""
        data = self.data.tobytes()
        return [_read_headers(data, start) for start in self.header_starts.tolist()]


def scan_batches(data: memoryview) -> NDArray[np.int64]:
    """Return one row of facts for every complete batch; raise ``UnknownFormat`` for other formats."""
    records = np.frombuffer(data, np.uint8)
    facts = np.empty((len(records) // _HEADER_BYTES + 1, _FIELDS), np.int64)
    count = _scan(records, facts)
    if count < 0:
        raise UnknownFormat("records of a format before Kafka 0.11")
    return facts[:count]


def next_offset(facts: NDArray[np.int64]) -> int | None:
    """Return the offset behind the batches; None if there is none."""
    return int(facts[-1, _LAST]) + 1 if len(facts) else None


def read_records(
    data: memoryview, facts: NDArray[np.int64], aborted: Sequence[tuple[int, int]], first: int, last: int
) -> Records:
    """Return the messages of the batches from one offset to before another, without those of aborted transactions."""
    kept = _visible(facts, aborted)
    if (kept[:, _ATTRIBUTES] & _CODEC).any():
        records, kept = _decompress(data, kept)
    else:
        records = np.frombuffer(data, np.uint8)
    most = int(kept[:, _COUNT].sum())
    text = np.empty(int((kept[:, _END] - kept[:, _START]).sum()) + most, np.uint8)
    ends, offsets, times = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    is_null, keys, headers = np.empty(most, np.bool_), np.empty((2, most), np.int64), np.empty(most, np.int64)
    count, size = _read(records, kept, first, last, text, ends, offsets, times, is_null, keys, headers)
    if count < 0:
        raise UnknownFormat("records that are damaged")
    return Records(
        text[:size],
        ends[:count],
        offsets[:count],
        is_null[:count],
        times[:count],
        keys[:, :count],
        headers[:count],
        records,
    )


def _visible(facts: NDArray[np.int64], aborted: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the batches of messages, without the markers of transactions and what was aborted."""
    attributes = facts[:, _ATTRIBUTES]
    if not (attributes & (_CONTROL | _TRANSACTIONAL)).any():
        return facts
    waiting = sorted(aborted, key=lambda pair: pair[1], reverse=True)
    hidden: set[int] = set()
    kept = []
    for index, (base, last, flags, producer) in enumerate(facts[:, : _PRODUCER + 1].tolist()):
        while waiting and waiting[-1][1] <= last:
            hidden.add(waiting.pop()[0])
        if flags & _CONTROL:
            # A transaction of this producer ends here, whichever way: what is aborted later begins later.
            hidden.discard(producer)
        elif not (flags & _TRANSACTIONAL and producer in hidden):
            kept.append(index)
        assert base <= last
    return facts[kept]


def _decompress(data: memoryview, facts: NDArray[np.int64]) -> tuple[_Bytes, NDArray[np.int64]]:
    """Return the batches' records in one piece, and the facts with their new places."""
    pieces: list[Any] = []
    moved = facts.copy()
    place = 0
    for row in moved:
        piece: Any = data[row[_START] : row[_END]]
        codec = int(row[_ATTRIBUTES]) & _CODEC
        if codec:
            piece = _expand(_CODECS.get(codec), piece)
        pieces.append(piece)
        row[_START], row[_END] = place, place + len(piece)
        place += len(piece)
    return np.frombuffer(b"".join(pieces), np.uint8), moved


def _expand(codec: str | None, piece: memoryview) -> bytes:
    if codec is None:
        raise UnknownFormat("records of an unknown compression")
    if codec == "snappy":
        return _expand_snappy(bytes(piece))
    with pa.CompressedInputStream(pa.BufferReader(piece), codec) as stream:
        expanded: bytes = stream.read()
    return expanded


def _expand_snappy(piece: bytes) -> bytes:
    """Expand the plain form, or the blocks that Java's producers write."""
    if not piece.startswith(_FRAMED_SNAPPY):
        return _expand_block(piece)
    expanded, place = [], 16
    while place < len(piece):
        size = int.from_bytes(piece[place : place + 4], "big")
        expanded.append(_expand_block(piece[place + 4 : place + 4 + size]))
        place += 4 + size
    return b"".join(expanded)


def _expand_block(block: bytes) -> bytes:
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    expanded: bytes = pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
    return expanded


def _read_headers(data: bytes, place: int) -> Headers | None:
    count, place = _read_number(data, place)
    found: Headers = []
    for _ in range(count):
        size, place = _read_number(data, place)
        name = data[place : place + size].decode("utf-8", "replace")
        size, place = _read_number(data, place + size)
        found.append({"name": name, "value": None if size < 0 else data[place : place + size]})
        place += max(0, size)
    return found or None


def _read_number(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place


def _compile(function: Any) -> Callable[..., Any]:
    try:
        compiled: Callable[..., Any] = njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # Nowhere to keep what is compiled: this process compiles for itself.
        compiled = njit(nogil=True)(function)
    return compiled


def _scan_python(records: Any, facts: Any) -> Any:
    """Fill in the facts of complete batches and return their number; -1 at a batch of another format."""
    place = count = 0
    while place + _HEADER_BYTES <= len(records):
        numbers = np.zeros(7, np.int64)
        # base offset, length, attributes, last offset delta, first time, largest time, producer
        at = (0, 8, 21, 23, 27, 35, 43)
        size = (8, 4, 2, 4, 8, 8, 8)
        for field in range(7):
            number = np.int64(0)
            for step in range(size[field]):
                number = (number << np.int64(8)) | np.int64(records[place + at[field] + step])
            numbers[field] = number
        if records[place + 16] != _OLDEST_FORMAT:
            return -1
        end = place + 12 + numbers[1]
        if end > len(records):
            break
        counted = np.int64(0)
        for step in range(4):
            counted = (counted << np.int64(8)) | np.int64(records[place + 57 + step])
        facts[count, _BASE] = numbers[0]
        facts[count, _LAST] = numbers[0] + numbers[3]
        facts[count, _ATTRIBUTES] = numbers[2]
        facts[count, _PRODUCER] = numbers[6]
        facts[count, _BASE_TIME] = numbers[4]
        facts[count, _MOST_TIME] = numbers[5]
        facts[count, _COUNT] = counted
        facts[count, _START] = place + _HEADER_BYTES
        facts[count, _END] = end
        count += 1
        place = end
    return count


def _read_python(  # noqa: PLR0912 - one loop: functions that it called would have to be compiled, too
    records: Any,
    facts: Any,
    first: int,
    last: int,
    text: Any,
    ends: Any,
    offsets: Any,
    times: Any,
    is_null: Any,
    keys: Any,
    headers: Any,
) -> Any:
    """Copy the values of the messages, each followed by a line end; return their number and the bytes, or -1."""
    kept = written = 0
    numbers = np.zeros(5, np.int64)
    for batch in range(len(facts)):
        at = facts[batch, _START]
        end = facts[batch, _END]
        for _ in range(facts[batch, _COUNT]):
            # Length, attributes (a byte), time, offset, then the sizes of key and value, each as a zigzag number.
            for field in range(5):
                number = np.uint64(0)
                shift = np.uint64(0)
                while True:
                    if at >= end:
                        return -1, 0
                    byte = records[at]
                    at += 1
                    number |= np.uint64(byte & 0x7F) << shift
                    shift += np.uint64(7)
                    if byte < 0x80:
                        break
                numbers[field] = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
                if field == 0:
                    following = at + numbers[0]
                    at += 1
                    if following > end:
                        return -1, 0
                if field == 3:
                    key_start = at
                    at += max(0, numbers[3])
            size = numbers[4]
            if at + max(0, size) > following:
                return -1, 0
            offset = facts[batch, _BASE] + numbers[2]
            if first <= offset < last:
                for step in range(size):
                    text[written + step] = records[at + step]
                written += max(0, size)
                ends[kept] = written
                text[written] = 10
                written += 1
                offsets[kept] = offset
                time = facts[batch, _BASE_TIME] + numbers[1]
                if facts[batch, _ATTRIBUTES] & _APPEND_TIME:
                    time = facts[batch, _MOST_TIME]
                times[kept] = time if time >= 0 else NO_TIMESTAMP
                is_null[kept] = size < 0
                keys[0, kept] = key_start
                keys[1, kept] = numbers[3]
                headers[kept] = at + max(0, size)
                kept += 1
            at = following
    return kept, written


def _copy_python(data: Any, starts: Any, sizes: Any, ends: Any, text: Any) -> None:
    for index in range(len(starts)):
        for step in range(sizes[index]):
            text[ends[index] + step] = data[starts[index] + step]


_scan = _compile(_scan_python)
_read = _compile(_read_python)
_copy_slices = _compile(_copy_python)
