"""The Yahoo Streaming Benchmark in small, as an example."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.query import load_flow
from benchmarks.ysb.answers import check_windows
from benchmarks.ysb.events import DELAY_MS, PARTITIONS, Ads, EventMaker, chunk_times_ms, to_messages
from benchmarks.ysb.redis import fill_redis, read_windows
from benchmarks.ysb.topic import EventProducer
from flows.running import FlowBench
from servers.kafka import KafkaBroker
from servers.redis import RedisServer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ysb" / "flow.py"


def test_the_example_counts_views_exactly(
    bench: FlowBench, kafka: KafkaBroker, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, maker = "ysb-example", EventMaker(3)
    kafka.create_topic(topic, PARTITIONS)
    events = maker.make(0, chunk_times_ms(0)[:50_000] * 40 - chunk_times_ms(0)[0] * 39)
    producer = EventProducer(kafka.servers, topic)
    producer.write(to_messages(events))
    producer.finish()
    fill_redis(own_redis.url, Ads(3))
    monkeypatch.setenv("YSB_KAFKA", kafka.servers)
    monkeypatch.setenv("YSB_TOPIC", topic)
    monkeypatch.setenv("YSB_REDIS", own_redis.url)
    flow = load_flow(EXAMPLE, flow_class=ab.Flow).graph
    progress = bench.run_flow(flow, []).progress
    assert sum(batch.rows_in for batch in progress) == events.height
    assert sum(batch.late_rows + batch.dead_rows for batch in progress) == 0
    found = read_windows(own_redis.url)
    latest_ms = int(events["event_time"][-1])
    assert check_windows(found, maker.count_views(events), latest_ms + DELAY_MS + 20_000).equal
    assert found.height > 100
