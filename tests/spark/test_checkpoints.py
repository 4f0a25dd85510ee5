"""Sessions are left as they are, and one driver at a time has a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import CheckpointError, EngineError, Fenced
from flows.running import frames_of, reading, wait_until
from flows.test_checkpoints import BATCHES, committed_batches, expected_of, make_flow
from oracle import assert_same_batches
from spark.fixtures import SparkBench


def test_a_second_driver_is_refused_while_the_first_runs(bench: SparkBench) -> None:
    source = ab.memory(*frames_of(BATCHES))
    checkpoint = bench.new_checkpoint()
    flow, sink = make_flow(source)
    handle = flow.start(checkpoint, spark=bench.spark, slots=2)
    try:
        with pytest.raises(Fenced, match=str(os.getpid())):
            flow.start(checkpoint, spark=bench.spark, slots=2)
    finally:
        handle.stop()
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert_same_batches(sink.batches(), expected_of(BATCHES).batches)


def test_a_driver_that_was_taken_over_stops_without_a_commit(bench: SparkBench) -> None:
    source = ab.memory(*frames_of(BATCHES))
    checkpoint = bench.new_checkpoint()
    flow, sink = make_flow(source)
    first = flow.start(checkpoint, spark=bench.spark, slots=2)
    try:
        wait_until(lambda: len(first.progress) == len(BATCHES), "all batches")
        second = bench.run_flow(flow, [sink], checkpoint=checkpoint, takeover=True)
        source.add(frames_of([[reading(5, 60, 1)]])[0])
        with pytest.raises(Fenced, match="newer"):
            assert first.wait(120)
        assert isinstance(first.exception(), Fenced)
    finally:
        first.stop()
    assert second.progress == [] or not second.progress[0].rows_in
    assert len(committed_batches(checkpoint)) == len(first.progress) + len(second.progress)


def test_spark_connect_is_refused_with_the_reason(bench: SparkBench) -> None:
    connect_session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    flow, _ = make_flow(ab.memory(*frames_of(BATCHES)))
    checkpoint = bench.new_checkpoint()
    with pytest.raises(EngineError, match="Spark Connect"):
        flow.start(checkpoint, spark=connect_session)
    assert not Path(checkpoint).exists()


def test_a_store_that_hadoop_does_not_know_is_refused_with_what_to_add(bench: SparkBench) -> None:
    flow, _ = make_flow(ab.memory(*frames_of(BATCHES)))
    with pytest.raises(CheckpointError, match=r"Spark cannot keep .*memory:.*/spark.*through Hadoop.*hadoop-aws:3\."):
        flow.start("memory://somewhere/state", spark=bench.spark, slots=2)


def test_the_users_session_keeps_its_settings(bench: SparkBench) -> None:
    def settings() -> dict[str, str]:
        return dict(bench.spark.conf.getAll)

    before = settings()
    environment = dict(bench.spark.sparkContext.environment)
    flow, sink = make_flow(ab.memory(*frames_of(BATCHES[:1])))
    bench.run_flow(flow, [sink])
    assert settings() == before
    assert dict(bench.spark.sparkContext.environment) == environment
