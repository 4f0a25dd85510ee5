"""Flows that read Kafka topics, against a real broker."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.cli.loading import load
from flows.kafka_readings import SCHEMA, WINDOW_SECONDS, reading, send
from flows.running import FlowBench
from servers.kafka import KafkaBroker


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """A topic of the test's own, with three partitions."""
    name = f"readings-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(name, 3)
    return name


def make_flow(source: Any) -> tuple[ab.Flow, Any]:
    flow, sink = ab.Flow("kafka"), ab.to_memory()
    windows = flow.read(source).watermark("ts", delay="2s").key_by("sensor").window("10s")
    windows.agg(rows=ab.count()).write(sink)
    return flow, sink


def count_windows(sink: Any) -> Counter[tuple[int, int]]:
    """Return the counts by (sensor, window); a window that came twice would count twice."""
    counted: Counter[tuple[int, int]] = Counter()
    for row in sink.frame().to_dicts():
        start = row["window_start"]
        seconds = (start - start.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()
        counted[row["sensor"], int(seconds) // WINDOW_SECONDS] += row["rows"]
    return counted


def test_a_topic_is_read_to_its_end_and_on_after_a_restart(bench: FlowBench, kafka: KafkaBroker, topic: str) -> None:
    expected = send(kafka, topic, range(0, 40))
    source = ab.kafka(kafka.servers, topic, schema=SCHEMA, max_rows=50)
    flow, sink = make_flow(source)
    checkpoint = bench.new_checkpoint()
    first = bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    assert sum(entry.rows_in for entry in first.progress) == 120
    assert max(entry.rows_in for entry in first.progress) <= 50
    kafka.add_partitions(topic, 4)
    expected += send(kafka, topic, range(40, 60), partitions=4)
    second = bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert sum(entry.rows_in for entry in second.progress) == 80
    assert count_windows(sink) == expected


def test_messages_that_do_not_parse_go_to_the_dead_letters(bench: FlowBench, kafka: KafkaBroker, topic: str) -> None:
    kafka.produce(topic, [reading(1, 0), b"{broken", reading(1, 1)], partition=2)
    flow, sink = make_flow(ab.kafka(kafka.servers, topic, schema=SCHEMA))
    dead = ab.to_memory()
    flow.dead_letter(dead)
    bench.run_flow(flow, [sink])
    assert count_windows(sink) == Counter({(1, 0): 2})
    (row,) = dead.frame().to_dicts()
    assert row["source"] == f"kafka {topic} (json)"
    assert row["reason"].startswith(f"topic {topic}, partition 2, offset 1: not JSON")
    assert row["payload"] == "{broken"


def test_each_partition_can_have_its_own_time(bench: FlowBench, kafka: KafkaBroker, topic: str) -> None:
    """One partition is an hour ahead of the other: by one clock for all, what the other sends would be late."""
    kafka.produce(topic, [reading(0, 3600 + second) for second in range(60)], partition=0)
    kafka.produce(topic, [reading(1, second) for second in range(60)], partition=1)
    late = {}
    for per in ("flow", "partition"):
        flow, sink = ab.Flow("kafka"), ab.to_memory()
        rows = flow.read(ab.kafka(kafka.servers, topic, schema=SCHEMA, max_rows=20))
        rows.watermark("ts", per=per).key_by("sensor").window("10s").agg(rows=ab.count()).write(sink)
        late[per] = bench.run_flow(flow, [sink]).late_rows
    assert late["partition"] == 0
    assert late["flow"] > 0


def test_a_flow_from_the_latest_sees_what_comes_while_it_stands_still(
    bench: FlowBench, kafka: KafkaBroker, topic: str
) -> None:
    send(kafka, topic, range(0, 20))
    flow, sink = make_flow(ab.kafka(kafka.servers, topic, schema=SCHEMA, start="latest"))
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    expected = send(kafka, topic, range(20, 40))
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert count_windows(sink) == expected


def test_a_flow_sees_what_comes_to_an_added_topic_while_it_stands_still(
    bench: FlowBench, kafka: KafkaBroker, topic: str
) -> None:
    added = f"{topic}-added"
    kafka.create_topic(added, 3)
    expected = send(kafka, topic, range(0, 20))
    send(kafka, added, range(0, 20))
    flow, sink = make_flow(ab.kafka(kafka.servers, topic, schema=SCHEMA))
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    flow = ab.Flow("kafka")
    both = ab.kafka(kafka.servers, [topic, added], schema=SCHEMA, start="latest")
    windows = flow.read(both).watermark("ts", delay="2s").key_by("sensor").window("10s")
    windows.agg(rows=ab.count()).write(sink)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    expected += send(kafka, added, range(20, 40))
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert count_windows(sink) == expected


def test_a_flow_file_can_name_a_topic(bench: FlowBench, kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    expected = send(kafka, topic, range(0, 20))
    (tmp_path / "flow.yaml").write_text(
        f"""
flow: from-kafka
sources:
  readings:
    kafka:
      servers: {kafka.servers}
      topic: {topic}
      schema: {{sensor: int64, ts: "datetime[ms]", volts: float64}}
      include: [offset]
      options: {{client.id: flow-file}}
streams:
  counts:
    from: readings
    steps:
      - key_by: sensor
      - agg: {{rows: count, last: {{max: offset}}}}
    to: {{parquet: out}}
"""
    )
    bench.run_flow(load(str(tmp_path / "flow.yaml")).graph, [], drain=False)
    got = pl.read_parquet(tmp_path / "out" / "*.parquet")
    assert got["rows"].sum() == sum(expected.values())
    assert got["last"].unique().to_list() == [19]


def test_a_group_follows_a_flow_file_and_nobody_goes_by_it(
    bench: FlowBench, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    expected = send(kafka, topic, range(0, 20))
    group, checkpoint = f"lag-of-{topic}", bench.new_checkpoint()
    file = tmp_path / "flow.yaml"
    file.write_text(
        f"flow: lag\nsources: {{r: {{kafka: {{servers: '{kafka.servers}', topic: {topic}, commit_group: {group}, "
        "schema: {sensor: int64, ts: 'datetime[ms]', volts: float64}}}}\n"
        f"streams: {{s: {{from: r, to: {{json_lines: {{path: '{tmp_path}/out'}}}}}}}}\n"
    )
    bench.run_flow(load(str(file)).graph, [], checkpoint=checkpoint)
    assert kafka.group_offsets(group) == {0: 20, 1: 20, 2: 20}
    # Somebody sets the group back while the flow is down: it goes on by its checkpoint, and sets the group right.
    admin = kafka.admin()
    back = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number, 0) for number in range(3)])
    admin.alter_consumer_group_offsets([back])[group].result(60)
    assert kafka.group_offsets(group) == {0: 0, 1: 0, 2: 0}
    again = bench.run_flow(load(str(file)).graph, [], checkpoint=checkpoint)
    assert sum(entry.rows_in for entry in again.progress) == 0
    assert kafka.group_offsets(group) == {0: 20, 1: 20, 2: 20}
    expected += send(kafka, topic, range(20, 30))
    more = bench.run_flow(load(str(file)).graph, [], checkpoint=checkpoint)
    assert sum(entry.rows_in for entry in more.progress) == 30
    assert kafka.group_offsets(group) == {0: 30, 1: 30, 2: 30}
    assert pl.read_ndjson(tmp_path / "out" / "part-*").height == sum(expected.values())
