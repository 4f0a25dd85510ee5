"""Topics with messages of every kind, read in every way."""

from __future__ import annotations

import random
from typing import Any

from anabranch.connectors.kafka_topics.cluster import LiveCluster, TopicPart
from anabranch.connectors.kafka_topics.connection import make_connection
from anabranch.connectors.kafka_topics.consuming import ConfluentReader, OffsetRange
from anabranch.connectors.kafka_topics.fetching import FetchReader
from anabranch.connectors.kafka_topics.librdkafka import load_librdkafka
from anabranch.connectors.kafka_topics.native import NativeReader
from anabranch.connectors.kafka_topics.securing import IN_THE_CLEAR
from servers.kafka import KafkaBroker


def write_by_chance(kafka: KafkaBroker, part: TopicPart, chance: random.Random) -> None:
    """Write batches of every kind: compressed, empty values, tombstones, headers, transactions that end or do not."""
    from confluent_kafka import Producer

    for turn in range(6):
        settings: dict[str, Any] = {
            "bootstrap.servers": kafka.servers,
            "linger.ms": 50,
            "batch.num.messages": chance.choice([3, 200, 2_000]),
            "compression.type": chance.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        }
        ending = chance.choice([None, None, "commit", "abort"])
        if ending is not None:
            settings["transactional.id"] = f"{part.topic}-{turn}"
        producer = Producer(settings)
        if ending is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        has_tombstones = chance.random() < 0.3
        for row in range(chance.choice([1, 40, 700])):
            value = None if has_tombstones and chance.random() < 0.1 else chance.randbytes(chance.choice([0, 5, 60]))
            headers = [("h", chance.randbytes(2))] if chance.random() < 0.2 else []
            producer.produce(part.topic, value, key=b"%d" % row, partition=part.number, headers=headers)
        producer.flush(30)
        if ending == "commit":
            producer.commit_transaction(30)
        elif ending == "abort":
            producer.abort_transaction(30)


def check_readers(kafka: KafkaBroker, part: TopicPart, chance: random.Random) -> None:
    """Compare what the client, compiled code and the reader of whole batches see of random ranges."""
    write_by_chance(kafka, part, chance)
    connection = make_connection(kafka.servers, None)
    native = NativeReader(connection, load_librdkafka())
    readers = [ConfluentReader(connection), native, FetchReader(connection, IN_THE_CLEAR, native)]
    end = LiveCluster(connection).ends([part])[part]
    for _ in range(4):
        first = chance.randrange(end)
        wanted = OffsetRange(part, first, chance.randrange(first, end) + 1, 40.0)
        seen = [_read_all(reader, wanted) for reader in readers]
        assert seen[0] == seen[1] == seen[2]


def _read_all(reader: Any, wanted: OffsetRange) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for messages in reader.read(wanted, (), 30.0):
        nulls = [False] * len(messages) if messages.is_null is None else messages.is_null.tolist()
        values = [None if is_null else value for value, is_null in zip(messages.values(), nulls, strict=True)]
        found += zip(messages.offsets.tolist(), values, strict=True)
    return found
