"""Ranges of offsets to messages, through a consumer that a process keeps from task to task."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl

from anabranch.connectors.formats.messages.messages import NO_TIMESTAMP, Messages, join_values
from anabranch.connectors.kafka_topics.cluster import TopicPart
from anabranch.connectors.kafka_topics.connection import REQUEST_SECONDS, KafkaConnection, load_confluent_kafka
from anabranch.connectors.waits import begin_wait, end_wait
from anabranch.errors import SourceError

CHUNK_BYTES = 16 * 1024 * 1024
"""About as much is parsed at once."""
MOST_MESSAGES = 100_000
SILENT_SECONDS = 5.0
"""After so long without a message, waiting is worth a word."""
LOSS_SECONDS = 15.0
"""After so long without a message, the partition may have become shorter than it was when the range was planned."""
_POLL_SECONDS = 0.02
_LOST = "offsets are gone"

FETCH_SETTINGS: dict[str, str | int | bool] = {
    "enable_auto_commit": False,
    "enable_auto_offset_store": False,
    "enable_partition_eof": True,
    "auto_offset_reset": "error",
    "isolation_level": "read_committed",
    # Large answers, and no more waiting in memory than the next chunks: a range may end soon.
    "fetch_message_max_bytes": 8 * 1024 * 1024,
    "queued_max_messages_kbytes": 32 * 1024,
    "fetch_wait_max_ms": 50,
    # With the default of a second, a full queue would leave the reader without messages for most of it.
    "fetch_queue_backoff_ms": 5,
    "fetch_error_backoff_ms": 100,
    "reconnect_backoff_ms": 100,
    "reconnect_backoff_max_ms": 2000,
    "check_crcs": True,
}
_SMALL_RANGES: dict[str, str | int | bool] = {"fetch_message_max_bytes": 1024 * 1024, "fetch_wait_max_ms": 10}
"""Small ranges are read soon after their messages came: a fetch that waits for more holds up the next range."""

logger = logging.getLogger("anabranch")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The messages of one partition from one offset to before another."""

    part: TopicPart
    first: int
    last: int
    row_bytes: float
    skips_lost: bool = False

    @property
    def chunk_rows(self) -> int:
        """How many messages to take at once."""
        return max(1, min(MOST_MESSAGES, int(CHUNK_BYTES / max(1.0, self.row_bytes))))


@dataclass(slots=True)
class Patience:
    """Waits for a cluster that went away: says so once, and gives up in the end."""

    part: TopicPart
    patience_seconds: float
    since: float = field(default_factory=time.monotonic)
    has_told: bool = False
    looked_at: float = field(default_factory=time.monotonic)

    def progress(self) -> None:
        """Note that messages come."""
        if self.has_told:
            logger.warning("%s: messages come again", self.part)
            end_wait(f"Kafka, {self.part}")
        self.since = self.looked_at = time.monotonic()
        self.has_told = False

    def suspects_loss(self) -> bool:
        """Say, now and then, that it is time to look whether what is waited for can come at all."""
        now = time.monotonic()
        if now - self.looked_at <= LOSS_SECONDS:
            return False
        self.looked_at = now
        return True

    def wait(self, position: int, reason: str = "") -> None:
        """Note that nothing came; raise ``SourceError`` when that has lasted too long."""
        silent = time.monotonic() - self.since
        why = f" ({reason})" if reason else ""
        if silent > self.patience_seconds:
            msg = (
                f"{self.part}: nothing came from Kafka at offset {position} for {silent:.0f} s{why}; bring its servers "
                f"back and start the flow again, or let it wait longer with patience_seconds=…: nothing is lost"
            )
            raise SourceError(msg)
        if silent > SILENT_SECONDS and not self.has_told:
            self.has_told = True
            begin_wait(f"Kafka, {self.part}", reason or f"nothing came at offset {position}", silent)
            logger.warning(
                "%s: nothing came from Kafka at offset %d%s; waiting for up to %.0f s",
                self.part,
                position,
                why,
                self.patience_seconds,
            )


def lost_offsets(part: TopicPart, position: int, last: int) -> SourceError:
    """Return the error for offsets that were planned and are gone."""
    return SourceError(
        f"{part}: offsets from {position} are gone, by retention, or because the topic was made again; the batch "
        f"wanted them up to {last - 1}; restore the topic, or start with on_loss='skip' or with a new checkpoint"
    )


def damaged_messages(part: TopicPart, position: int) -> SourceError:
    """Return the error for messages at or behind a position that are not as they were written."""
    return SourceError(
        f"{part}: messages at or behind offset {position} are damaged: their checksum is wrong; restore the topic "
        f"from a replica or a copy, or delete its records up to behind them (kafka-delete-records) and start with "
        f"on_loss='skip'"
    )


class RangeReader(Protocol):
    """Reads ranges of offsets, one after the other."""

    def read(self, wanted: OffsetRange, include: Sequence[str], patience_seconds: float) -> Iterator[Messages]:
        """Yield the messages of a range in order, in chunks of any size."""
        ...


class ConfluentReader:
    """Reads through ``confluent_kafka.Consumer``: every message becomes a Python object."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._kafka = load_confluent_kafka()
        # Partitions are assigned, so no group is ever joined; the library asks for a name all the same.
        settings = connection.client(group_id="anabranch", **FETCH_SETTINGS | _SMALL_RANGES)
        self._consumer: Any = self._kafka.Consumer(settings)

    def read(self, wanted: OffsetRange, include: Sequence[str], patience_seconds: float) -> Iterator[Messages]:
        """Yield the messages of the range in order, in chunks."""
        part, position = wanted.part, wanted.first
        self._consumer.assign([self._kafka.TopicPartition(part.topic, part.number, position)])
        patience = Patience(part, patience_seconds)
        try:
            yield from self._consume(wanted, include, patience)
        finally:
            # No fetch may wait at the end of this partition: the next range would have to wait for it.
            self._consumer.unassign()

    def _consume(self, wanted: OffsetRange, include: Sequence[str], patience: Patience) -> Iterator[Messages]:
        part, position = wanted.part, wanted.first
        while position < wanted.last:
            rows = min(wanted.chunk_rows, wanted.last - position)
            arrived = self._consumer.consume(rows, _POLL_SECONDS)
            kept, reached, fault = self._sort_out(arrived, wanted)
            if fault == _LOST or (patience.suspects_loss() and self._ends_before(wanted)):
                reached = self._pass_over_lost(wanted, max(position, reached))
            if reached > position:
                patience.progress()
                position = reached
            elif not arrived or fault:
                patience.wait(position, fault)
            if kept:
                yield _gather(part, kept, include)

    def _pass_over_lost(self, wanted: OffsetRange, position: int) -> int:
        """Return where to go on behind offsets that are gone, or raise ``SourceError`` if that is not wanted."""
        part = wanted.part
        if not wanted.skips_lost:
            raise lost_offsets(part, position, wanted.last)
        oldest, _ = self._watermarks(wanted)
        next_offset = wanted.last if oldest <= position else min(oldest, wanted.last)
        logger.warning("%s: offsets %d to %d are gone and passed over", part, position, next_offset - 1)
        self._consumer.assign([self._kafka.TopicPartition(part.topic, part.number, next_offset)])
        return next_offset

    def _ends_before(self, wanted: OffsetRange) -> bool:
        try:
            return int(self._watermarks(wanted)[1]) < wanted.last
        except self._kafka.KafkaException:  # out of reach: it shows in what is waited for
            return False

    def _watermarks(self, wanted: OffsetRange) -> Any:
        named = self._kafka.TopicPartition(wanted.part.topic, wanted.part.number)
        return self._consumer.get_watermark_offsets(named, REQUEST_SECONDS)

    def _sort_out(self, arrived: list[Any], wanted: OffsetRange) -> tuple[list[Any], int, str]:
        """Return the range's messages, the next offset after what came, and the last passing fault."""
        kept, reached, fault = [], -1, ""
        errors = self._kafka.KafkaError
        for message in arrived:
            error = message.error()
            if error is None:
                if message.offset() < wanted.last:
                    kept.append(message)
                reached = message.offset() + 1
            elif error.code() == errors._PARTITION_EOF:
                reached = max(reached, message.offset())
            elif error.code() in (errors._AUTO_OFFSET_RESET, errors.OFFSET_OUT_OF_RANGE):
                fault = _LOST
            elif error.code() == errors._BAD_MSG:
                raise damaged_messages(wanted.part, max(wanted.first, reached))
            else:
                fault = error.str()
        return kept, reached, fault


def _gather(part: TopicPart, kept: list[Any], include: Sequence[str]) -> Messages:
    values = [message.value() for message in kept]
    is_null = None
    if None in values:
        is_null = np.array([value is None for value in values])
        values = [value or b"" for value in values]
    headers: list[Any] | None = None
    if "headers" in include:
        headers = [
            [{"name": name, "value": value} for name, value in message.headers() or ()] or None for message in kept
        ]
    times = None
    if "timestamp" in include:
        kinds = [message.timestamp() for message in kept]
        times = np.array([NO_TIMESTAMP if kind == 0 else time_ms for kind, time_ms in kinds], np.int64)
    return Messages(
        part.topic,
        part.number,
        join_values(values),
        np.fromiter((message.offset() for message in kept), np.int64, len(kept)),
        is_null,
        times,
        pl.Series([message.key() for message in kept], dtype=pl.Binary) if "key" in include else None,
        headers,
    )
