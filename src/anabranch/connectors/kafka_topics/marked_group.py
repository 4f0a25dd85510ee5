"""The number of a flow's last batch, kept as an offset of a consumer group: written and hidden with its messages."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.connectors.commit_markers import NOTHING
from anabranch.connectors.kafka_topics.connection import KafkaConnection
from anabranch.connectors.retry import ServerAway

MARKED_PARTITION = 0
CONFIRM_PAUSE_SECONDS = 0.005
PEEK_SECONDS = 5.0
"""A look that waits for nobody's transaction is answered at once: after so long, the brokers are out of reach."""


@dataclass(frozen=True, slots=True)
class TopicMark:
    """The last batch that a topic has of a flow, and the epoch of the driver that produced it."""

    batch: int = NOTHING
    epoch: int = 0


class MarkedGroup:
    """The consumer group of a flow and a topic; its one consumer reads nothing but the mark."""

    def __init__(
        self,
        kafka: Any,
        connection: KafkaConnection,
        name: str,
        topic: str,
        answer_seconds: float,
    ) -> None:
        self.stays_open = False
        """Whether the mark could not be read when it was last asked for, because its transaction did not end."""
        self._kafka = kafka
        self._connection = connection
        self._name = name
        self._topic = topic
        self._answer_seconds = answer_seconds
        self._consumer = self._make_consumer("read_committed")

    @property
    def metadata(self) -> Any:
        """What a transaction names the group by."""
        return self._consumer.consumer_group_metadata()

    def position_of(self, mark: TopicMark, flow: str) -> Any:
        """Return the mark as a transaction takes it."""
        about = json.dumps({"flow": flow, "epoch": mark.epoch})
        return self._kafka.TopicPartition(self._topic, MARKED_PARTITION, mark.batch + 1, about)

    def read(self, confirmed: TopicMark, sent_batch: int = NOTHING) -> TopicMark:
        """Return the mark; ``confirmed`` is the last one whose commit this driver saw confirmed.

        A broker that is killed right after a commit and starts again may have lost the end of that transaction: the
        group then says nothing until another transaction ends there. Whoever saw the commit need not wait for it, nor
        does who sent the messages, up to those of ``sent_batch``: they tell what became of them.
        """
        self.stays_open = False
        try:
            return self._ask(self._consumer)
        except self._kafka.KafkaException as error:
            if error.args[0].name() != "_TIMED_OUT":
                raise
        ended = self.peek()
        self.stays_open = True
        if confirmed.batch > ended.batch:
            return confirmed
        if sent_batch > ended.batch:
            return ended
        msg = (
            f"the consumer group {self._name} has a transaction that does not end (if this lasts, see whether its "
            "messages are in the topic, and end it with kafka-transactions.sh)"
        )
        raise ServerAway(msg)

    def peek(self) -> TopicMark:
        """Return the mark of the last transaction that has ended; one that is open is not waited for."""
        impatient = self._make_consumer("read_uncommitted")
        try:
            return self._ask(impatient, min(self._answer_seconds, PEEK_SECONDS))
        finally:
            impatient.close()

    def confirm(self, mark: TopicMark) -> None:
        """Wait until the transaction with this mark has ended where marks are kept.

        A commit is confirmed as soon as it is decided; until its end is written, too, a broker that is killed may
        forget about it.
        """
        deadline = time.monotonic() + self._answer_seconds
        while self._ask(self._consumer).batch < mark.batch:
            if time.monotonic() > deadline:
                msg = f"the transaction of batch {mark.batch} is committed and does not end"
                raise ServerAway(msg)
            time.sleep(CONFIRM_PAUSE_SECONDS)

    def look(self, places: Mapping[int, int]) -> dict[int, bool]:
        """Say by partition whether readers of committed messages find one at an offset; nothing where it stays open."""
        looking = self._make_consumer("read_committed", **{"enable.partition.eof": True})
        deadline = time.monotonic() + self._answer_seconds
        seen: dict[int, bool] = {}
        try:
            looking.assign([self._kafka.TopicPartition(self._topic, *place) for place in places.items()])
            while len(seen) < len(places) and (left_seconds := deadline - time.monotonic()) > 0:
                found = looking.poll(left_seconds)
                if found is None:
                    break
                if found.error() is not None and found.error().code() != self._kafka.KafkaError._PARTITION_EOF:
                    raise self._kafka.KafkaException(found.error())
                partition = found.partition()
                offset = places[partition]
                if partition in seen:
                    continue
                if found.error() is None:
                    seen[partition] = found.offset() == offset
                # The end is where the first open transaction begins: what lies before it is decided.
                elif found.offset() > offset:
                    seen[partition] = False
                else:
                    time.sleep(CONFIRM_PAUSE_SECONDS)
                    looking.seek(self._kafka.TopicPartition(self._topic, partition, offset))
        finally:
            looking.close()
        return seen

    def close(self) -> None:
        """Give the consumer up."""
        self._consumer.close()

    def _make_consumer(self, isolation: str, **more: Any) -> Any:
        # A transaction that was committed just now ends within milliseconds: the client's own pause would be 100.
        settings = self._connection.client(group_id=self._name, enable_auto_commit=False, retry_backoff_ms=3)
        return self._kafka.Consumer(settings | {"isolation.level": isolation} | more)

    def _ask(self, consumer: Any, answer_seconds: float | None = None) -> TopicMark:
        wanted = self._kafka.TopicPartition(self._topic, MARKED_PARTITION)
        (held,) = consumer.committed([wanted], answer_seconds or self._answer_seconds)
        if held.error is not None:
            raise self._kafka.KafkaException(held.error)
        if held.offset < 0:
            return TopicMark()
        return TopicMark(held.offset - 1, int(json.loads(held.metadata)["epoch"]) if held.metadata else 0)
