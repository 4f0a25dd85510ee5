"""A Kafka broker of the tests' own, in a temporary folder; how it is started, benches share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.servers.jars import SPARK_CONNECTOR, ServerMissing
from benchmarks.servers.kafka import SASL_PASSWORD, SASL_USER, SMALL_HEAP_MB, KafkaServer, wait_for
from quick_jvm import KAFKA_ARCHIVE, maps_classes
from servers.programs import SkippedWhereMissing

__all__ = [
    "SASL_PASSWORD",
    "SASL_USER",
    "KafkaBroker",
    "ServerMissing",
    "connector_jars",
    "kafka_broker",
]


def connector_jars() -> Path:
    """Return the folder of Spark's Kafka connector; raise ``ServerMissing`` if it is not there."""
    return SPARK_CONNECTOR.find()


class KafkaBroker(SkippedWhereMissing, KafkaServer):
    """A broker with what tests do to topics; its JVM finds its classes in an archive, if ``make test`` made one."""

    _producer: Any = None
    """Writes for tests; made when the first of them writes, since each takes half a second to get ready."""

    def start(self) -> None:
        """Start it; what was known of it before may no longer be so."""
        self._producer = None
        super().start()

    def jvm_options(self) -> list[str]:
        """Return what its JVM is started with."""
        return [*super().jvm_options(), *maps_classes(KAFKA_ARCHIVE)]

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(90)
        wait_for(lambda: len(admin.list_topics(timeout=10).topics[topic].partitions) == total)
        # One that has written to the topic before learns of its partitions minutes later.
        self._producer = None

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Drop the messages before an offset, as retention would."""
        from confluent_kafka import TopicPartition

        wanted = TopicPartition(topic, partition, before)
        # Kept while it answers: a client that is gone never does.
        admin = self.admin()
        admin.delete_records([wanted])[wanted].result(90)

    def group_offsets(self, group: str) -> dict[int, int]:
        """Return partition → offset of a consumer group, as tools that show its lag ask for it."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

        # Kept while it answers: a client that is gone never does.
        admin = self.admin()
        found: dict[int, int] = {}

        def answers() -> bool:
            try:
                told = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
            except KafkaException as error:
                # A broker that has just started does not know its groups yet.
                if error.args[0].retriable() or "COORDINATOR" in error.args[0].name():
                    return False
                raise
            found.update({part.partition: part.offset for part in told.topic_partitions})
            return True

        wait_for(answers)
        return found

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | str | None],
        *,
        partition: int = 0,
        key: bytes | str | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """Write messages to one partition and wait until the broker has them."""
        from confluent_kafka import Producer

        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "enable.idempotence": True})
        producer = self._producer
        failures: list[Any] = []

        def note(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        for value in values:
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        key=key,
                        partition=partition,
                        headers=list(headers or ()),
                        timestamp=timestamp_ms,
                        on_delivery=note,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0, "not all messages were delivered"
        assert not failures, failures


@contextmanager
def kafka_broker(heap_mb: int = SMALL_HEAP_MB, folder: Path | None = None) -> Iterator[KafkaBroker]:
    """Run a broker while the block runs; its data are gone afterwards unless a folder is given."""
    with KafkaBroker(folder, heap_mb) as broker:
        yield broker
