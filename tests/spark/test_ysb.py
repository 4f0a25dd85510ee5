"""The Yahoo Streaming Benchmark in small: the bench with servers of its own, and the example."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import anabranch as ab
from anabranch.bench import BenchOptions, ysb
from anabranch.bench.servers.jars import ServerMissing
from anabranch.bench.ysb_answers import check_windows
from anabranch.bench.ysb_events import CHUNK_ROWS, DELAY_MS, PARTITIONS, Ads, EventMaker, chunk_times_ms, to_messages
from anabranch.bench.ysb_figures import CATCH_UP, SUSTAINED
from anabranch.bench.ysb_redis import fill_redis, read_windows
from anabranch.bench.ysb_topic import EventProducer
from anabranch.query import load_flow
from servers.kafka import KafkaBroker
from servers.programs import skip_or_fail
from servers.redis import RedisServer
from spark.running import FlowBench

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ysb" / "flow.py"
QUICK = ysb.Sustained(rate=2_000, warm_up_seconds=14.0, measured_seconds=12.0, tail_seconds=6.0)


@pytest.mark.parametrize("mode", [CATCH_UP, SUSTAINED])
def test_a_short_bench_gives_right_answers(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ysb, "SHORT_SUSTAINED", QUICK)
    options = BenchOptions(rows=CHUNK_ROWS, peers=(), cache_dir=tmp_path, json_path=tmp_path / "figures.json")
    try:
        report = ysb.run(options, Console(file=StringIO()), modes=(mode,))
    except ServerMissing as missing:
        skip_or_fail(missing)
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert figures["answers_equal"] == 1, [run.answer.difference for run in report.runs]
    assert figures["rows"] == CHUNK_ROWS
    assert ("p99_ms" in figures) == (mode == SUSTAINED)


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
