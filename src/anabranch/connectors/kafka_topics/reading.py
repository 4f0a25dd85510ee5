"""Splits of topics to frames, in tasks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from anabranch.connectors.formats.messages.decoders import ValueFormat
from anabranch.connectors.formats.messages.messages import METADATA_TYPES, Messages
from anabranch.connectors.formats.rejects import shorten_raw
from anabranch.connectors.kafka_topics.cluster import LiveCluster, OutOfReach, TopicPart
from anabranch.connectors.kafka_topics.connection import KafkaConnection
from anabranch.connectors.kafka_topics.consuming import ConfluentReader, OffsetRange, RangeReader, lost_offsets
from anabranch.connectors.kafka_topics.fetching import FetchReader
from anabranch.connectors.kafka_topics.librdkafka import load_librdkafka
from anabranch.connectors.kafka_topics.native import METADATA, NativeReader
from anabranch.connectors.kafka_topics.securing import find_security
from anabranch.model import ReadOutcome, Split

DEFAULT_ROW_BYTES = 256.0
WORTH_COMPILED_CODE_MESSAGES = 20_000
"""Below it, loading the compiled code takes a process longer than it saves."""
_MEASURED_MESSAGES = 200
_MEASURE_SECONDS = 10.0
_TOPIC_LOOK_SECONDS = 5.0
"""As often as planners look, a reader asks whether its topic was deleted and made again since the batch was planned."""

logger = logging.getLogger("anabranch")


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What a task must know to turn a split into rows."""

    connection: KafkaConnection
    format: ValueFormat
    include: Mapping[str, str]
    """Part of the message → its column."""
    tombstones: str
    skips_lost: bool
    patience_seconds: float


def read_split(split: Split, settings: ReadSettings) -> Iterator[ReadOutcome]:
    """Yield the split's rows in the order of their offsets."""
    if split["from"] >= split["to"]:
        return
    row_bytes = split["bytes"] / (split["to"] - split["from"])
    part = TopicPart(split["topic"], split["number"])
    if _was_remade(settings.connection, part.topic, split.get("topic_id")):
        if not settings.skips_lost:
            raise lost_offsets(part, split["from"], split["to"])
        logger.warning("%s: offsets %d to %d went with the old topic", part, split["from"], split["to"] - 1)
        return
    wanted = OffsetRange(part, split["from"], split["to"], row_bytes, settings.skips_lost)
    with _borrow_reader(settings.connection, wanted, settings.include) as reader:
        for messages in reader.read(wanted, tuple(settings.include), settings.patience_seconds):
            yield make_rows(messages, settings)


def make_rows(messages: Messages, settings: ReadSettings) -> ReadOutcome:
    """Return the rows of some messages, with those that cannot be read set apart."""
    outcomes: list[ReadOutcome] = []
    if messages.is_null is None or not messages.is_null.any():
        return _decode(messages, settings)
    # Runs of tombstones and of values take turns: rows keep the order of their offsets.
    edges = [0, *(np.flatnonzero(np.diff(messages.is_null)) + 1).tolist(), len(messages)]
    for first, last in pairwise(edges):
        within = np.zeros(len(messages), np.bool_)
        within[first:last] = True
        run = messages.take(within)
        if not messages.is_null[first]:
            outcomes.append(_decode(run, settings))
        elif settings.tombstones == "keep":
            outcomes.append(ReadOutcome(_add_metadata(_empty_rows(run, settings.format), run, settings.include)))
        elif settings.tombstones == "reject":
            rejected = tuple((_locate(run, index, "a tombstone: it has no value"), "") for index in range(len(run)))
            outcomes.append(ReadOutcome(_nothing(settings), rejected))
    frames = [outcome.frame for outcome in outcomes]
    rejected = tuple(pair for outcome in outcomes for pair in outcome.rejected)
    return ReadOutcome(pl.concat(frames) if frames else _nothing(settings), rejected)


def measure_rows(connection: KafkaConnection, part: TopicPart, first: int, last: int) -> float:
    """Return the mean size of the first messages of a range, with about what a message costs besides its value."""
    wanted = OffsetRange(part, first, min(last, first + _MEASURED_MESSAGES), DEFAULT_ROW_BYTES, True)
    total = count = 0
    try:
        with _borrow_reader(connection, wanted, ()) as reader:
            for messages in reader.read(wanted, (), _MEASURE_SECONDS):
                total += len(messages.text)
                count += len(messages)
    except Exception:  # a guess will do: whoever reads the messages says what is wrong
        return DEFAULT_ROW_BYTES
    return float(total / count) if count else DEFAULT_ROW_BYTES


def _decode(messages: Messages, settings: ReadSettings) -> ReadOutcome:
    decoded = settings.format.decode(messages)
    if not decoded.faults:
        return ReadOutcome(_add_metadata(decoded.frame, messages, settings.include))
    rejected = tuple(
        (_locate(messages, index, reason), shorten_raw(messages.value(index))) for index, reason in decoded.faults
    )
    kept = np.ones(len(messages), np.bool_)
    kept[[index for index, _ in decoded.faults]] = False
    readable = messages.take(kept) if settings.include else messages
    return ReadOutcome(_add_metadata(decoded.frame, readable, settings.include), rejected)


def _locate(messages: Messages, index: int, reason: str) -> str:
    return f"topic {messages.topic}, partition {messages.number}, offset {int(messages.offsets[index])}: {reason}"


def _add_metadata(frame: pl.DataFrame, messages: Messages, include: Mapping[str, str]) -> pl.DataFrame:
    if not include:
        return frame
    return frame.with_columns([messages.metadata(part).alias(column) for part, column in include.items()])


def _empty_rows(messages: Messages, format: ValueFormat) -> pl.DataFrame:
    return pl.DataFrame(
        [pl.repeat(None, len(messages), dtype=kind, eager=True).alias(name) for name, kind in format.schema.items()]
    )


def _nothing(settings: ReadSettings) -> pl.DataFrame:
    added = {column: METADATA_TYPES[part] for part, column in settings.include.items()}
    return pl.DataFrame(schema={**settings.format.schema, **added})


_idle_readers: dict[tuple[int, KafkaConnection, bool], list[RangeReader]] = {}
"""The readers of each process, kept from task to task: connecting takes time."""


@contextmanager
def _borrow_reader(connection: KafkaConnection, wanted: OffsetRange, include: Collection[str]) -> Iterator[RangeReader]:
    """Lend the reader that suits a range: compiled code for a large one, if it can read what is asked for."""
    library = load_librdkafka() if wanted.last - wanted.first >= WORTH_COMPILED_CODE_MESSAGES else None
    is_native = library is not None and METADATA.issuperset(include)
    # A process that was forked must not use the connections of the other.
    idle = _idle_readers.setdefault((os.getpid(), connection, is_native), [])
    reader: RangeReader
    if idle:
        reader = idle.pop()
    elif not is_native:
        reader = ConfluentReader(connection)
    else:
        reader = NativeReader(connection, library)
        security = find_security(connection)
        if security is not None:
            reader = FetchReader(connection, security, reader)
    try:
        yield reader
    finally:
        idle.append(reader)


_topics_seen: dict[tuple[int, KafkaConnection, str], tuple[str, float]] = {}
"""The id that a topic had when this process last asked, and when that was."""


def _was_remade(connection: KafkaConnection, topic: str, id_then: str | None) -> bool:
    """Say whether a topic is another one than it was; splits of old checkpoints do not say what it was."""
    if id_then is None:
        return False
    place = (os.getpid(), connection, topic)
    known = _topics_seen.get(place)
    if known is None or known[0] != id_then or time.monotonic() - known[1] > _TOPIC_LOOK_SECONDS:
        try:
            found = LiveCluster(connection).topics([topic]).get(topic)
        except OutOfReach:
            return False  # whoever reads waits for the cluster, and says so
        if found is None:
            return False  # as brokers say that have just come back
        known = _topics_seen[place] = (found.id, time.monotonic())
    return known[0] != id_then
