"""Large ranges of offsets to messages, without a Python object for each of them."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.connectors.formats.messages.fresh_bytes import make_bytes, open_bytes
from anabranch.connectors.formats.messages.messages import NO_TIMESTAMP, Ints, JoinedValues, Messages
from anabranch.connectors.kafka_topics.cluster import TopicPart
from anabranch.connectors.kafka_topics.connection import REQUEST_SECONDS, KafkaConnection
from anabranch.connectors.kafka_topics.consuming import (
    FETCH_SETTINGS,
    OffsetRange,
    Patience,
    damaged_messages,
    lost_offsets,
)
from anabranch.connectors.kafka_topics.librdkafka import Client, address_of

_POLL_MS = 100
_NO_ERROR = 0
_OFFSET_RESET = -140
_OUT_OF_RANGE = 1
_BAD_MESSAGE = -199
_NO_TIME = 0
METADATA = frozenset({"key", "topic", "partition", "offset", "timestamp"})
"""What this reader can include; headers it leaves to the other one."""

logger = logging.getLogger("anabranch")


class NativeReader:
    """Reads through librdkafka itself, and copies values with compiled code."""

    def __init__(self, connection: KafkaConnection, library: Any) -> None:
        from anabranch.compiled import message_memory

        self._memory = message_memory
        self._library = library
        self._destroy = np.uint64(address_of(library.rd_kafka_message_destroy))
        self._client = Client(library, connection.client(auto_commit_enable=False, **FETCH_SETTINGS))
        self._fetches: TopicPart | None = None
        self._stands_at: int | None = None
        self._pointers = np.zeros(0, np.uint64)

    def read(self, wanted: OffsetRange, include: Sequence[str], patience_seconds: float) -> Iterator[Messages]:
        """Yield the messages of the range in order, in chunks."""
        part, position = wanted.part, wanted.first
        if (self._fetches, self._stands_at) != (part, position):
            self._move_to(part, position)
        self._stands_at = None
        patience = Patience(part, patience_seconds)
        if len(self._pointers) < wanted.chunk_rows:
            self._pointers = np.zeros(wanted.chunk_rows, np.uint64)
        while position < wanted.last:
            rows = min(wanted.chunk_rows, wanted.last - position)
            count = self._client.take(part.topic, part.number, self._pointers[:rows], _POLL_MS)
            try:
                messages, reached, error = self._copy(wanted, count, include)
            finally:
                self._memory.free(self._pointers, count, self._destroy)
            if error == _BAD_MESSAGE:
                raise damaged_messages(part, max(position, reached))
            if error in (_OFFSET_RESET, _OUT_OF_RANGE) or (patience.suspects_loss() and self._ends_before(wanted)):
                reached = self._pass_over_lost(wanted, max(position, reached))
            if reached > position:
                patience.progress()
                position = reached
            elif not count or error != _NO_ERROR:
                patience.wait(position, self._client.describe(error) if error != _NO_ERROR else "")
            if messages is not None:
                yield messages
        self._stands_at = position

    def _move_to(self, part: TopicPart, position: int) -> None:
        if self._fetches is not None:
            self._client.stop(*self._fetches)
        self._fetches = None
        self._client.start(part.topic, part.number, position)
        self._fetches = part

    def _pass_over_lost(self, wanted: OffsetRange, position: int) -> int:
        """Return where to go on behind offsets that are gone, or raise ``SourceError`` if that is not wanted."""
        part = wanted.part
        if not wanted.skips_lost:
            raise lost_offsets(part, position, wanted.last)
        watermarks = self._watermarks(wanted)
        if watermarks is None:
            return position
        oldest, _ = watermarks
        next_offset = wanted.last if oldest <= position else min(oldest, wanted.last)
        logger.warning("%s: offsets %d to %d are gone and passed over", part, position, next_offset - 1)
        self._move_to(part, next_offset)
        return next_offset

    def _ends_before(self, wanted: OffsetRange) -> bool:
        watermarks = self._watermarks(wanted)
        return watermarks is not None and watermarks[1] < wanted.last

    def _watermarks(self, wanted: OffsetRange) -> tuple[int, int] | None:
        return self._client.watermarks(wanted.part.topic, wanted.part.number, int(REQUEST_SECONDS * 1000))

    def _copy(self, wanted: OffsetRange, count: int, include: Sequence[str]) -> tuple[Messages | None, int, int]:
        """Return the messages of the range, the next offset after what came, and the last error."""
        sizes, key_sizes = np.empty(count, np.int64), np.empty(count, np.int64)
        offsets = np.empty(count, np.int64)
        faults = np.array([-1, _NO_ERROR], np.int64)
        kept, value_bytes, key_bytes = self._memory.measure(
            self._pointers, count, wanted.last, offsets, sizes, key_sizes, faults
        )
        reached, error = int(faults[0]), int(faults[1])
        if not kept:
            return None, reached, error
        values = make_bytes(value_bytes + kept)
        text = open_bytes(values)
        ends, is_null = np.empty(kept, np.int64), np.empty(kept, np.bool_)
        nulls = self._memory.copy_values(self._pointers, count, sizes, text, ends, is_null)
        messages = Messages(
            wanted.part.topic,
            wanted.part.number,
            JoinedValues(values, ends),
            offsets[:kept],
            is_null if nulls else None,
            self._times(count, sizes) if "timestamp" in include else None,
            self._keys(count, kept, sizes, key_sizes, key_bytes) if "key" in include else None,
        )
        return messages, reached, error

    def _keys(self, count: int, kept: int, sizes: Ints, key_sizes: Ints, key_bytes: int) -> pl.Series:
        text = np.empty(key_bytes, np.uint8)
        ends, has_key = np.zeros(kept + 1, np.int64), np.empty(kept, np.bool_)
        self._memory.copy_keys(self._pointers, count, sizes, key_sizes, text, ends, has_key)
        buffers = [pa.py_buffer(np.packbits(has_key, bitorder="little")), pa.py_buffer(ends), pa.py_buffer(text)]
        return pl.Series(pa.Array.from_buffers(pa.large_binary(), kept, buffers), dtype=pl.Binary)

    def _times(self, count: int, sizes: Ints) -> Ints:
        kind = ctypes.c_int()
        times = []
        for pointer in self._pointers[:count][sizes != -2].tolist():
            time_ms = self._library.rd_kafka_message_timestamp(pointer, ctypes.byref(kind))
            times.append(NO_TIMESTAMP if kind.value == _NO_TIME else time_ms)
        return np.array(times, np.int64)
