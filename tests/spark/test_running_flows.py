"""Flows that run in one's own session: how they are found, named, looked at and ended."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engine.states import empty_state
from flows.running import frames_of, reading, wait_until
from spark.fixtures import SparkBench


def endless(name: str, sink: Any) -> ab.Flow:
    flow = ab.Flow(name)
    flow.read(ab.generate(2_000, keys=10)).key_by("key").agg(rows=ab.count(), name="totals").write(sink)
    return flow


def test_a_running_flow_is_found_by_its_name_and_named_in_sparks_ui_and_stops_without_a_trace(
    bench: SparkBench, capfd: pytest.CaptureFixture[str]
) -> None:
    flow = endless("found", ab.to_memory())
    assert repr(flow).startswith("<Flow 'found': reads generator (2000 rows/s")
    tracker = bench.spark.sparkContext.statusTracker()
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, slots=2)
    assert handle.state("totals").schema == {"key": pl.Int64, "rows": pl.Int64}
    assert [found.name for found in ab.active()] == ["found"]
    assert ab.active()[0] is handle
    assert bench.spark.streams.active == []
    wait_until(lambda: len(handle.progress) >= 2, "two batches")
    assert repr(handle).startswith("<Handle: flow 'found' runs; ")
    (query,) = handle.spark.streams.active
    jobs = tracker.getJobIdsForGroup(query.runId)
    store = bench.spark.sparkContext._jsc.sc().statusStore()
    said = {store.job(job).description().get() for job in jobs}
    assert "found, batch 0: level 0 reads, level 1 totals" in said
    assert bench.spark.sparkContext.getLocalProperty("spark.job.description") is None
    capfd.readouterr()
    handle.stop()
    assert handle.exception() is None
    assert ab.active() == ()
    assert repr(handle).startswith("<Handle: flow 'found' has ended; ")
    shown = capfd.readouterr()
    assert "\tat " not in shown.err + shown.out
    assert "Traceback" not in shown.err + shown.out


def test_the_jvm_of_a_local_spark_compiles_quickly_unless_its_user_says_otherwise(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    arguments = list(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    ours = arguments.index("-XX:TieredStopAtLevel=1")
    # Of what is said twice the JVM takes the last: options of tests, as of users, come behind ours.
    theirs = str(spark.conf.get("spark.driver.extraJavaOptions")).split()
    assert arguments[ours + 1 : ours + 1 + len(theirs)] == theirs


def test_what_was_done_before_a_stop_is_not_done_again(bench: SparkBench) -> None:
    sink, checkpoint = ab.to_memory(), bench.new_checkpoint()
    told: list[ab.BatchProgress] = []
    for _ in range(2):
        handle = endless("stopped", sink).start(checkpoint, spark=bench.spark, slots=2, on_progress=told.append)
        wait_until(lambda handle=handle: len(handle.progress) >= 2, "two batches")  # type: ignore[misc]
        handle.stop()
        # Spark wrote down that the last batch was done before it was interrupted.
        done = {int(path.name) for path in Path(checkpoint, "spark", "commits").iterdir() if path.name.isdigit()}
        assert handle.progress[-1].batch in done
        assert not any(batch.replayed for batch in handle.progress)
        assert handle.totals.rows_in == sum(batch.rows_in for batch in handle.progress)
    # Whatever was told of any batch is in the checkpoint, from one run to the next.
    batches = handle.history("batch")
    assert batches.select("batch", "rows_in", "batch_seconds").rows() == [
        (one.batch, one.rows_in, one.batch_seconds) for one in told
    ]
    assert batches["epoch"].n_unique() == 2
    assert handle.history()["kind"].to_list().count("stop") == 2


def test_ctrl_c_lets_the_running_batch_finish_and_its_jobs_are_not_cancelled(bench: SparkBench) -> None:
    done: list[int] = []

    def interrupt(progress: ab.BatchProgress) -> None:
        done.append(progress.batch)
        if len(done) == 2:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    before = signal.getsignal(signal.SIGINT)
    progress = endless("interrupted", ab.to_memory()).run(
        bench.new_checkpoint(), spark=bench.spark, slots=2, on_progress=interrupt
    )
    assert [batch.batch for batch in progress] == list(range(len(progress)))
    assert signal.getsignal(signal.SIGINT) is before


def test_state_has_its_columns_before_there_is_any(bench: SparkBench) -> None:
    class Last(ab.Processor):
        whole = ab.value(pl.Int64())
        seen = ab.listed(pl.String())

        def on_time(self, row: Any, state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
            state.whole = row["whole"]
            state.seen.append(str(row["whole"]))
            yield {"whole": row["whole"]}

    flow = ab.Flow("columns")
    rows = flow.read(ab.memory(*frames_of([[reading(1, 0), reading(2, 9), reading(2, 10)]])))
    keyed = rows.watermark("ts", delay="1h").key_by("key")
    aggregates = {"rows": ab.count(), "mean": ab.mean("real"), "middle": ab.median("real")}
    streams = {
        "running": rows.key_by("key").agg(**aggregates, name="running"),
        "windows": keyed.window("10s").agg(**aggregates, name="windows"),
        "sliding": keyed.window("10s", every="5s").agg(**aggregates, name="sliding"),
        "early": keyed.window("10s", early="2s").agg(**aggregates, name="early"),
        "sessions": keyed.session("5s").agg(**aggregates, name="sessions"),
        "counted": rows.key_by("key").count_window(9).agg(**aggregates, name="counted"),
        "top": keyed.window("10s").top_k(2, "real", name="top"),
        "distinct": rows.distinct("key", name="distinct"),
        "processed": rows.key_by("key").process(Last(), schema={"whole": pl.Int64}, name="processed"),
        "in-order": keyed.ordered("ts", name="waiting").process(Last(), schema={"whole": pl.Int64}, name="in-order"),
    }
    for stream in streams.values():
        stream.write(ab.to_memory())
    checkpoint = bench.new_checkpoint()
    handle = flow.start(checkpoint, spark=bench.spark, trigger="available-now", drain=False, slots=2)
    handle.wait()
    for name in streams:
        there = handle.state(name)
        assert there.height, name
        assert empty_state(handle._driver.run.program, name).schema == there.schema, name


def test_a_second_driver_and_a_lost_sink_are_refused_before_spark_is_asked_for(
    bench: SparkBench, tmp_path: Path
) -> None:
    def never() -> SparkSession:
        raise AssertionError("Spark was asked for")

    checkpoint = bench.new_checkpoint()
    sink = ab.to_memory(tmp_path / "out")
    handle = endless("first", sink).start(checkpoint, spark=bench.spark, slots=2)
    try:
        with pytest.raises(ab.Fenced, match="is in use by a driver"):
            endless("first", sink).start_on(never, checkpoint)
        with pytest.raises(ab.Fenced, match="is in use by a driver"):
            endless("first", sink).check(checkpoint=checkpoint)
        wait_until(lambda: len(handle.progress) >= 1, "a batch")
    finally:
        handle.stop()
    with pytest.raises(ab.SinkError, match="the checkpoint is new"):
        endless("first", sink).start_on(never, bench.new_checkpoint())
    changed = ab.Flow("first")
    changed.read(ab.generate(2_000, keys=10)).key_by("key").agg(most=ab.max("value"), name="totals").write(sink)
    with pytest.raises(ab.CheckpointError):
        changed.start_on(never, checkpoint)
    # Nothing that was refused holds the checkpoint.
    endless("first", sink).check(checkpoint=checkpoint)
