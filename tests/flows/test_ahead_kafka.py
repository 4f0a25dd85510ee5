"""A topic that our own partitioner wrote needs no exchange, against a real broker."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import SourceError
from flows.running import START, FlowBench
from oracle import assert_same_rows
from servers.kafka import KafkaBroker

SCHEMA = {"sensor": pl.Int64, "ts": pl.Datetime("ms"), "volts": pl.Float64}
PARTITIONS = 3


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """A topic of the test's own."""
    name = f"ahead-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(name, PARTITIONS)
    return name


def make_readings(first_second: int, seconds: int, sensors: int = 40) -> pl.DataFrame:
    """Return some readings a second, of sensors of which the first are the busiest."""
    rows = [
        {
            "sensor": sensor,
            "ts": START + timedelta(seconds=second, milliseconds=sensor),
            "volts": 230 - (sensor * second) % 64 / 4,
        }
        for second in range(first_second, first_second + seconds)
        for sensor in range(sensors)
        if second % (1 + sensor // 8) == 0
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


def produce(
    kafka: KafkaBroker, topic: str, frame: pl.DataFrame, partitioner: ab.Partitioner, **others: Any
) -> pl.Series:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.servers, "enable.idempotence": True})
    slots = ab.produce_frame(producer, topic, frame, partitioner, **others)
    assert producer.flush(60) == 0
    return slots


def run(bench: FlowBench, source: Any, exchange: Any, **settings: Any) -> Any:
    flow, sink = ab.Flow("ahead"), settings.pop("sink", None) or ab.to_memory()
    windows = flow.read(source).watermark("ts", delay="1m").key_by("sensor", exchange=exchange).window("10s")
    windows.agg(readings=ab.count(), lowest=ab.min("volts")).write(sink)
    return bench.run_flow(flow, [sink], **settings)


@pytest.mark.parametrize("strategy", ["hash", "modulo", "least-key", "least-count"])
def test_a_partitioned_topic_answers_as_with_an_exchange_and_exchanges_nothing(
    bench: FlowBench, kafka: KafkaBroker, topic: str, strategy: str, tmp_path: Path
) -> None:
    edges = "10s" if strategy.startswith("least") else None
    partitioner = ab.Partitioner(strategy, partitions=PARTITIONS, keys="sensor", time="ts", edges=edges)
    for first_second in (0, 20, 40):
        frame = make_readings(first_second, 20)
        slots = produce(kafka, topic, frame, partitioner, save_to=tmp_path / "assignment.json")
        assert slots.n_unique() == PARTITIONS
        partitioner = ab.Partitioner.load(tmp_path / "assignment.json")
    source = ab.kafka(kafka.servers, topic, schema=SCHEMA, max_rows=300, partitioned_by=None if edges else partitioner)
    ahead = run(bench, source, "ahead")
    routed = run(bench, source, "routed")
    assert_same_rows(ahead.rows, routed.rows)
    assert len(ahead.rows) == 40 * 6
    assert sum(progress.exchanged_bytes for progress in ahead.progress) == 0
    assert sum(progress.exchanged_bytes for progress in routed.progress) > 0


def test_partitions_that_a_topic_gets_later_are_slots_more(bench: FlowBench, kafka: KafkaBroker, topic: str) -> None:
    partitioner = ab.Partitioner("least-count", partitions=PARTITIONS, keys="sensor", time="ts", edges="10s")
    source, checkpoint, sink = ab.kafka(kafka.servers, topic, schema=SCHEMA), bench.new_checkpoint(), ab.to_memory()
    produce(kafka, topic, make_readings(0, 20), partitioner)
    run(bench, source, "ahead", checkpoint=checkpoint, sink=sink, drain=False)
    kafka.add_partitions(topic, PARTITIONS + 2)
    partitioner.grow(PARTITIONS + 2)
    slots = produce(kafka, topic, make_readings(20, 20), partitioner)
    assert slots.n_unique() == PARTITIONS + 2
    ahead = run(bench, source, "ahead", checkpoint=checkpoint, sink=sink)
    assert len(ahead.progress[-1].slot_rows) == PARTITIONS + 2
    assert_same_rows(ahead.rows, run(bench, source, "routed").rows)


def test_a_topic_that_others_wrote_breaks_the_promise(bench: FlowBench, kafka: KafkaBroker, topic: str) -> None:
    frame = make_readings(0, 20)
    for number in range(PARTITIONS):
        # In turn, as a producer without keys does.
        part = frame.gather_every(PARTITIONS, number).with_columns(pl.col("ts").dt.to_string("iso:strict"))
        lines = part.write_ndjson().encode().splitlines()
        kafka.produce(topic, lines, partition=number)
    with pytest.raises(SourceError, match=r"break the promise.*sensor.*partitions \d and \d"):
        run(bench, ab.kafka(kafka.servers, topic, schema=SCHEMA), "ahead")
    told = ab.Partitioner("hash", partitions=PARTITIONS, keys="sensor")
    with pytest.raises(SourceError, match=r"partition \d has keys \(sensor\).*belongs into"):
        run(bench, ab.kafka(kafka.servers, topic, schema=SCHEMA, partitioned_by=told), "ahead")
