"""A table that is away is waited for."""

from __future__ import annotations

import polars as pl

import anabranch as ab
from flows.running import wait_until
from servers.redis import RedisServer
from spark.fixtures import SparkBench


def test_a_flow_waits_for_a_table_that_is_away_and_loses_nothing(bench: SparkBench, own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        client.mset({f"name:{key}": f"name {key}" for key in range(1_000)})
    flow, sink = ab.Flow("waiting"), ab.to_memory(bench.folder / "results")
    source = ab.memory(pl.DataFrame({"key": range(500)}))
    table = ab.redis_table(own_redis.url, "name:{key}")
    flow.read(source).lookup(table, "key", columns={"name": pl.String}).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, trigger="100ms", slots=2)
    try:
        wait_until(lambda: bool(handle.progress), "the first batch")
        assert handle.waits == ()
        own_redis.stop()
        source.add(pl.DataFrame({"key": range(500, 1_000)}))
        # It is a task that waits, in a process of its own.
        wait_until(lambda: any("redis://" in wait.place for wait in handle.waits), "the wait for Redis")
        own_redis.start()
        wait_until(lambda: len(handle.progress) > 1, "the second batch")
        assert handle.waits == ()
    finally:
        handle.stop()
    assert any("redis://" in problem for problem in handle.progress[1].problems)
    found = sink.frame()
    assert found.height == 1_000
    assert found.filter(pl.col("name") != pl.format("name {}", "key")).height == 0
    assert found.get_column("name").null_count() == 0
