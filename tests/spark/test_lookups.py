"""Lookups inside flows: matches, misses, rejects, behind an exchange, and from a server that was away."""

from __future__ import annotations

import polars as pl
import pytest

import anabranch as ab
from servers.redis import RedisServer
from spark.running import FlowBench, reading, wait_until

NAMES = pl.DataFrame({"key": [1, 2], "name": ["one", "two"]})
ROWS = [[reading(1, 1), reading(3, 2)], [reading(2, 12), reading(None, 13), reading(1, 14)]]


def test_rows_that_the_table_lacks_get_nulls_by_default(bench: FlowBench) -> None:
    outcome = bench.run(ROWS, lambda rows: rows.lookup(ab.frame_table(NAMES), "key").select("key", "name"))
    assert sorted(map(str, outcome.rows)) == sorted(
        str({"key": key, "name": name}) for key, name in [(1, "one"), (3, None), (2, "two"), (None, None), (1, "one")]
    )


@pytest.mark.parametrize(("missing", "dead_rows"), [("drop", 0), ("reject", 2)])
def test_rows_that_the_table_lacks_are_dropped_or_set_apart(bench: FlowBench, missing: str, dead_rows: int) -> None:
    outcome = bench.run(
        ROWS,
        lambda rows: rows.lookup(ab.frame_table(NAMES), "key", missing=missing).select("key", "name"),  # type: ignore[arg-type]
    )
    assert sorted(row["name"] for row in outcome.rows) == ["one", "one", "two"]
    assert outcome.dead_rows == dead_rows


def test_results_of_windows_are_looked_up_too(bench: FlowBench) -> None:
    outcome = bench.run(
        ROWS,
        lambda rows: (
            rows.filter("key IS NOT NULL")
            .key_by("key")
            .watermark("ts")
            .window("10s")
            .agg(readings=ab.count())
            .lookup(ab.frame_table(NAMES), "key", missing="drop")
        ),
    )
    assert sorted((row["name"], row["readings"]) for row in outcome.rows) == [("one", 1), ("one", 1), ("two", 1)]


def test_a_lookup_under_operator_parallelism_gives_the_same(bench: FlowBench) -> None:
    outcome = bench.run(
        ROWS,
        lambda rows: rows.lookup(ab.frame_table(NAMES), "key", missing="drop").key_by("name").agg(rows=ab.count()),
        strategy="operator",
    )
    last = {row["name"]: row["rows"] for row in outcome.rows}
    assert last == {"one": 2, "two": 1}


def test_a_flow_waits_for_a_table_that_is_away_and_loses_nothing(bench: FlowBench, own_redis: RedisServer) -> None:
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
