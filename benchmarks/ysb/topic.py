"""Fill a Kafka topic with advertising events: all at once, or at a rate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.servers.kafka import KafkaServer
from benchmarks.shared.registry import BenchError
from benchmarks.shared.workload import write_atomically
from benchmarks.ysb.events import (
    CHUNK_ROWS,
    GENERATOR_VERSION,
    PARTITIONS,
    EventMaker,
    chunk_times_ms,
    merge_answers,
    plan_rows,
    to_messages,
)

_PRODUCER_SETTINGS: dict[str, Any] = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "acks": "all",
}
TICK_SECONDS = 0.05


class EventProducer:
    """Writes chunks of events to a topic, every second one to the other partition."""

    def __init__(self, servers: str, topic: str, linger_ms: int = 20) -> None:
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            msg = "the bench needs a Kafka client: pip install 'anabranch[kafka]'"
            raise BenchError(msg) from error
        self._topic = topic
        self._failure: object = None
        settings = {**_PRODUCER_SETTINGS, "linger.ms": linger_ms, "bootstrap.servers": servers}
        self._producer = Producer({**settings, "on_delivery": self._note, "delivery.report.only.error": True})

    def write(self, messages: pl.Series) -> None:
        """Write messages, in their order within a partition."""
        produce, topic = self._producer.produce, self._topic
        for partition in range(PARTITIONS):
            for message in messages.gather_every(PARTITIONS, partition).to_list():
                try:
                    produce(topic, message, partition=partition)
                except BufferError:
                    self._wait_for_room(message, partition)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until the broker has all of them."""
        left = self._producer.flush(120)
        if left or self._failure is not None:
            msg = f"{left} events did not reach the broker: {self._failure or 'no answer within 120 s'}"
            raise BenchError(msg)

    def _wait_for_room(self, message: str, partition: int) -> None:
        while True:
            self._producer.poll(0.05)
            try:
                self._producer.produce(self._topic, message, partition=partition)
            except BufferError:
                continue
            return

    def _note(self, error: object, _: object) -> None:
        self._failure = self._failure or error


def ensure_topic(
    broker: KafkaServer, rows: int, seed: int, on_chunk: Callable[[], None] | None = None
) -> tuple[str, pl.DataFrame]:
    """Return a topic with so many events and the right answer; a broker that keeps its folder has it from last time."""
    rows = plan_rows(rows)
    topic = f"ad-events-v{GENERATOR_VERSION}-{rows}-s{seed}"
    answer_path = broker.folder / f"{topic}.parquet"
    if answer_path.exists() and topic in broker.admin().list_topics(timeout=10).topics:
        return topic, pl.read_parquet(answer_path)
    if topic in broker.admin().list_topics(timeout=10).topics:
        # Half a topic is of no use.
        broker.delete_topic(topic)
    broker.create_topic(topic, PARTITIONS, retention_ms="-1", retention_bytes="-1")
    maker, producer = EventMaker(seed), EventProducer(broker.servers, topic)
    answers = []
    for chunk in range(rows // CHUNK_ROWS):
        events = maker.make(chunk, chunk_times_ms(chunk))
        producer.write(to_messages(events))
        answers.append(maker.count_views(events))
        if on_chunk is not None:
            on_chunk()
    producer.finish()
    answer = merge_answers(answers)
    write_atomically(answer_path, answer.write_parquet)
    return topic, answer


def create_topic_if_absent(servers: str, topic: str, partitions: int) -> None:
    """Make a topic on a broker that is not ours, unless it is there."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    if topic not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce_at_rate(servers: str, topic: str, rate: int, seconds: float, seed: int, answer_path: Path) -> None:
    """Write events with the time of day as their time, so many a second, and the right answer at the end."""
    maker, producer = EventMaker(seed), EventProducer(servers, topic, linger_ms=5)
    started = time.time()
    answers: list[pl.DataFrame] = []
    written, tick = 0, 0
    while (now := time.time()) < started + seconds:
        due = int((now - started) * rate)
        if due > written:
            # Each event has the moment at which it was due; those of a tick lie in the tick before.
            times_ms = ((started + np.arange(written, due) / rate) * 1_000).astype(np.int64)
            events = maker.make(tick, times_ms)
            producer.write(to_messages(events))
            answers.append(events.select("ad_id", "event_type", "event_time"))
            written, tick = due, tick + 1
        time.sleep(max(0.0, started + (tick + 1) * TICK_SECONDS - time.time()))
    producer.finish()
    counted = merge_answers([maker.count_views(pl.concat(answers))])
    write_atomically(answer_path, counted.write_parquet)
    answer_path.with_suffix(".json").write_text(json.dumps({"rows": written, "started": started}))
