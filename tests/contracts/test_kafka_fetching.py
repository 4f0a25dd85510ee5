"""Batches fetched as a whole: the same messages as the client's, and whatever is not common is left to the client."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from anabranch.connectors.formats.messages.messages import Messages
from anabranch.connectors.kafka_topics.cluster import TopicPart
from anabranch.connectors.kafka_topics.connection import make_connection
from anabranch.connectors.kafka_topics.consuming import ConfluentReader, OffsetRange
from anabranch.connectors.kafka_topics.fetching import FetchReader
from anabranch.connectors.kafka_topics.securing import IN_THE_CLEAR, find_security
from formats.topics import check_readers
from servers.kafka import KafkaBroker

ROWS = 12_000


class NotedReader:
    """The client, with a note of the offsets that were left to it."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self._reader = ConfluentReader(make_connection(kafka.servers, None))
        self.left_from: list[int] = []

    def read(self, wanted: OffsetRange, include: Sequence[str], patience_seconds: float) -> Iterator[Messages]:
        self.left_from.append(wanted.first)
        return self._reader.read(wanted, include, patience_seconds)


@pytest.fixture
def part(kafka: KafkaBroker) -> TopicPart:
    topic = f"fetched-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(topic)
    return TopicPart(topic, 0)


def write(kafka: KafkaBroker, part: TopicPart, values: Sequence[bytes | None], **settings: Any) -> None:
    from confluent_kafka import Producer

    given = {"bootstrap.servers": kafka.servers, "linger.ms": 200, "batch.num.messages": 2_000, **settings}
    producer = Producer(given)
    for value in values:
        producer.produce(part.topic, value, key=b"k", partition=part.number, headers=[("h", b"x")])
        producer.poll(0)
    assert producer.flush(60) == 0


def make_values(rows: int = ROWS) -> list[bytes]:
    return [b'{"row": %d, "text": "%s"}' % (row, b"x" * (row % 50)) for row in range(rows)]


def fetch(
    kafka: KafkaBroker, part: TopicPart, first: int, last: int, reader: FetchReader | None = None
) -> tuple[list[bytes], list[int], NotedReader]:
    client = NotedReader(kafka)
    reader = reader or FetchReader(make_connection(kafka.servers, None), IN_THE_CLEAR, client)
    found = list(reader.read(OffsetRange(part, first, last, 40.0), (), 30.0))
    values = [value for messages in found for value in messages.values()]
    offsets = np.concatenate([messages.offsets for messages in found]).tolist() if found else []
    return values, offsets, client


@pytest.mark.parametrize("compression", ["none", "lz4", "gzip", "zstd"])
def test_batches_hold_what_was_written(kafka: KafkaBroker, part: TopicPart, compression: str) -> None:
    values = make_values()
    write(kafka, part, values, **{"compression.type": compression})
    assert fetch(kafka, part, 0, ROWS)[:2] == (values, list(range(ROWS)))
    found, offsets, client = fetch(kafka, part, 777, 9_001)
    assert found == values[777:9_001]
    assert offsets == list(range(777, 9_001))
    assert client.left_from == []


def test_ranges_follow_each_other_over_one_connection(kafka: KafkaBroker, part: TopicPart) -> None:
    values = make_values()
    write(kafka, part, values)
    client = NotedReader(kafka)
    reader = FetchReader(make_connection(kafka.servers, None), IN_THE_CLEAR, client)
    found = [
        value
        for first in range(0, ROWS, 1_111)
        for value in fetch(kafka, part, first, min(first + 1_111, ROWS), reader)[0]
    ]
    assert found == values
    # Back to the beginning, as a batch that is run again does.
    assert fetch(kafka, part, 0, 10, reader)[0] == values[:10]
    assert client.left_from == []


def test_a_compression_that_is_not_read_here_is_left_to_the_client(kafka: KafkaBroker, part: TopicPart) -> None:
    values = make_values()
    write(kafka, part, values, **{"compression.type": "snappy"})
    found, _, client = fetch(kafka, part, 5, ROWS)
    assert found == values[5:]
    assert client.left_from == [5]


def test_values_that_are_packed_very_well_are_unpacked_all_the_same(kafka: KafkaBroker, part: TopicPart) -> None:
    values = [b"y" * 500] * 4_000
    write(kafka, part, values, **{"compression.type": "lz4"})
    found, _, client = fetch(kafka, part, 0, len(values))
    assert found == values
    assert client.left_from == []


def test_tombstones_and_small_batches_are_left_to_the_client(kafka: KafkaBroker, part: TopicPart) -> None:
    values: list[bytes | None] = [*make_values(3_000), None, *make_values(3_000)]
    write(kafka, part, values)
    found, _, client = fetch(kafka, part, 0, len(values))
    assert found == [value or b"" for value in values]
    assert len(client.left_from) == 1
    small = TopicPart(f"{part.topic}-small", 0)
    kafka.create_topic(small.topic)
    write(kafka, small, make_values(300), **{"batch.num.messages": 3})
    found, _, client = fetch(kafka, small, 0, 300)
    assert found == make_values(300)
    assert client.left_from == [0]


def test_aborted_transactions_are_not_read(kafka: KafkaBroker, part: TopicPart) -> None:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": kafka.servers, "transactional.id": part.topic, "linger.ms": 100}
    producer = Producer(settings)
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for value in make_values(1_000):
            producer.produce(part.topic, end.__name__.encode() + value, partition=0)
        producer.flush(30)
        end(30)
    # Each transaction has a marker behind its messages.
    found, offsets, _ = fetch(kafka, part, 0, 3_003)
    assert len(found) == 2_000
    assert not any(value.startswith(b"abort") for value in found)
    assert offsets == [*range(1_000), *range(2_002, 3_002)]


def test_offsets_that_are_gone_and_brokers_that_are_away_are_left_to_the_client(
    own_kafka: KafkaBroker,
) -> None:
    part = TopicPart("gone", 0)
    own_kafka.create_topic(part.topic)
    values = make_values(4_000)
    write(own_kafka, part, values)
    client = NotedReader(own_kafka)
    reader = FetchReader(make_connection(own_kafka.servers, None), IN_THE_CLEAR, client)
    assert fetch(own_kafka, part, 0, 2_000, reader)[0] == values[:2_000]
    own_kafka.stop()
    own_kafka.start()
    assert fetch(own_kafka, part, 2_000, 4_000, reader)[0] == values[2_000:]
    assert client.left_from in ([], [2_000])
    own_kafka.delete_records(part.topic, 0, 1_000)
    with pytest.raises(Exception, match="offsets from 500 are gone"):
        fetch(own_kafka, part, 500, 4_000, reader)


@pytest.mark.parametrize(
    ("options", "over_tls", "mechanism"),
    [
        ({"fetch.wait.max.ms": 5}, False, None),
        ({"security.protocol": "SSL", "ssl.ca.location": "authority.pem"}, True, None),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, True, "PLAIN"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "SCRAM-SHA-512"}, False, "SCRAM-SHA-512"),
    ],
)
def test_usual_ways_to_log_in_are_spoken(options: dict[str, Any], over_tls: bool, mechanism: str | None) -> None:
    security = find_security(make_connection("host:9092", options))
    assert security is not None
    assert (security.over_tls, security.mechanism) == (over_tls, mechanism)
    assert "sasl" not in repr(security) and "ssl." not in repr(security)


@pytest.mark.parametrize(
    "options",
    [
        {"security.protocol": "SASL_SSL"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "SSL", "ssl.crl.location": "revoked.pem"},
        {"security.protocol": "SSL", "ssl.cipher.suites": "DEFAULT"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "enable.sasl.oauthbearer.unsecure.jwt": "true"},
        {"client.rack": "here"},
    ],
)
def test_unusual_ways_to_log_in_are_left_to_the_client(options: dict[str, Any]) -> None:
    assert find_security(make_connection("host:9092", options)) is None


@pytest.mark.parametrize("seed", range(2))
def test_every_reader_sees_the_same_messages(kafka: KafkaBroker, part: TopicPart, seed: int) -> None:
    check_readers(kafka, part, random.Random(seed))
