"""Triggers, stopping and going on."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab
from flows.running import WAIT_SECONDS, frames_of, reading, wait_until
from oracle import Running, Windows, answer_flow, assert_same_batches, assert_same_rows, compute
from spark.fixtures import SparkBench

SECOND_US = 1_000_000
BATCHES = [[reading(1, 0), reading(2, 4)], [reading(1, 11), reading(3, 12)], [reading(2, 25)]]


def count_rows(group: Any) -> list[dict[str, Any]]:
    return [compute(group, {"rows": ("count", None)})]


def tens() -> Windows:
    return Windows(["key"], count_rows, 10 * SECOND_US, 10 * SECOND_US)


def make_flow(source: Any) -> tuple[ab.Flow, Any]:
    flow, sink = ab.Flow("test"), ab.to_memory()
    flow.read(source).watermark("ts").key_by("key").window("10s").agg(rows=ab.count()).write(sink)
    return flow, sink


def test_once_reads_one_batch_and_leaves_the_rest(bench: SparkBench) -> None:
    flow, sink = make_flow(ab.memory(*frames_of(BATCHES)))
    checkpoint = bench.new_checkpoint()
    first = bench.run_flow(flow, [sink], checkpoint=checkpoint, trigger="once", drain=False)
    assert sum(entry.rows_in for entry in first.progress) == 2
    rest = bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert sum(entry.rows_in for entry in rest.progress) == 3
    assert_same_batches(sink.batches(), answer_flow(BATCHES, [tens()], time="ts", drain=True).batches)


def test_a_continuous_flow_fires_windows_when_no_more_data_comes(bench: SparkBench) -> None:
    source = ab.memory(*frames_of(BATCHES[:2]))
    flow, sink = make_flow(source)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, trigger="200ms", slots=2)
    try:
        # The window [0, 10) is due once 12 s were seen; no later row makes the batch that fires it.
        # Progress comes when a batch is published: before, some of its files may be there and others not.
        wait_until(lambda: any(entry.rows_out for entry in handle.progress), "the first window")
        assert_same_rows(sink.frame().to_dicts(), answer_flow(BATCHES[:2], [tens()], time="ts").rows)
        source.add(frames_of(BATCHES[2:])[0])
        wait_until(lambda: sum(entry.rows_in for entry in handle.progress) == 5, "rows that were added while it ran")
        handle.stop(drain=True, timeout_seconds=WAIT_SECONDS)
    finally:
        handle.stop()
    assert not handle.active
    assert handle.exception() is None
    assert handle.progress[-1].drained
    assert_same_rows(sink.frame().to_dicts(), answer_flow(BATCHES, [tens()], time="ts", drain=True).rows)


def test_a_drain_asked_for_while_a_batch_runs_is_not_forgotten(bench: SparkBench, tmp_path: Path) -> None:
    """The running batch wants a batch of its own to follow, for a window that is due; the drain must come after it."""
    began, may_end = tmp_path / "began", tmp_path / "may-end"

    def hold(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            began.touch()
            for _ in range(int(WAIT_SECONDS * 20)):
                if may_end.exists():
                    break
                time.sleep(0.05)
        return frame

    flow, sink = ab.Flow("test"), ab.to_memory()
    held = flow.read(ab.memory(*frames_of([[reading(1, 0), reading(2, 12)]]))).map_batches(hold)
    # The time of groups rises between batches: what closes then needs another one.
    held.watermark("ts", per="group").key_by("key").window("10s").agg(rows=ab.count()).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, slots=2)
    try:
        wait_until(began.exists, "the batch to run")
        stopping = threading.Thread(target=handle.stop, kwargs={"drain": True, "timeout_seconds": WAIT_SECONDS / 2})
        stopping.start()
        time.sleep(1.0)
        may_end.touch()
        stopping.join(WAIT_SECONDS)
        assert not handle.active
        assert handle.progress[-1].drained
    finally:
        may_end.touch()
        handle.stop()
    assert sorted(sink.frame().get_column("key").to_list()) == [1, 2]


def test_available_now_again_goes_on_with_what_came_in_between(bench: SparkBench) -> None:
    source = ab.memory(*frames_of(BATCHES[:1]))
    flow, sink = make_flow(source)
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    for frame in frames_of(BATCHES[1:]):
        source.add(frame)
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert_same_batches(sink.batches(), answer_flow(BATCHES, [tens()], time="ts", drain=True).batches)


def test_rows_after_a_drain_are_late_for_windows_that_it_fired(bench: SparkBench) -> None:
    source = ab.memory(*frames_of([[reading(1, 0), reading(2, 4)]]))
    flow, sink = make_flow(source)
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    source.add(frames_of([[reading(1, 9), reading(1, 13)]])[0])
    again = bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert again.late_rows == 1
    assert [row["rows"] for row in sink.frame().sort("window_start", "key").to_dicts()] == [1, 1, 1]


def test_a_flow_that_is_stopped_at_any_moment_loses_nothing(bench: SparkBench) -> None:
    chance = random.Random(20)
    batches = [[reading(chance.randrange(5), number, chance.randrange(9)) for _ in range(20)] for number in range(12)]
    flow, sink = ab.Flow("test"), ab.to_memory()
    keyed = flow.read(ab.memory(*frames_of(batches))).key_by("key")
    keyed.agg(rows=ab.count(), total=ab.sum("whole")).write(sink)
    checkpoint = bench.new_checkpoint()
    for _ in range(3):
        handle = flow.start(checkpoint, spark=bench.spark, slots=2)
        wait_until(lambda handle=handle: len(handle.progress) >= 1, "the first batch")
        time.sleep(chance.random() * 0.6)
        handle.stop(timeout_seconds=WAIT_SECONDS)
        assert handle.exception() is None
        assert not handle.active
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    wanted = {"rows": ("count", None), "total": ("sum", "whole")}
    expected = answer_flow(batches, [Running(["key"], lambda group: [compute(group, wanted)])], drain=True)
    assert_same_batches(sink.batches(), expected.batches)


def test_the_first_batch_of_a_generator_has_rows(bench: SparkBench) -> None:
    flow, sink = ab.Flow("test"), ab.to_memory()
    flow.read(ab.generate(1000, keys=5)).key_by("key").agg(rows=ab.count()).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, slots=2)
    try:
        wait_until(lambda: len(handle.progress) >= 2, "two batches")
    finally:
        handle.stop()
    assert all(entry.rows_in for entry in handle.progress)


def test_a_batch_starts_two_processes_for_each_of_sparks_logs(bench: SparkBench, tmp_path: Path) -> None:
    flow, sink = make_flow(ab.memory(*frames_of(BATCHES)))
    checkpoint = bench.new_checkpoint()
    with recorded_processes(bench.spark, tmp_path / "processes.jfr") as commands:
        outcome = bench.run_flow(flow, [sink], checkpoint=checkpoint)
    about_logs = [command for command in commands if f"{checkpoint}/spark/" in command]
    # One file of offsets and one of commits a batch, each with its checksums: Hadoop sets the rights of both.
    assert about_logs
    assert all(command.startswith("chmod") for command in about_logs)
    batches = [command for command in about_logs if "/offsets/" in command or "/commits/" in command]
    assert len(batches) == 4 * len(outcome.progress)


@contextmanager
def recorded_processes(spark: SparkSession, path: Path) -> Iterator[list[str]]:
    """Give the commands of all processes that the JVM starts meanwhile, afterwards."""
    jvm: Any = spark._jvm
    recording = jvm.jdk.jfr.Recording()
    recording.enable("jdk.ProcessStart").withoutStackTrace()
    recording.start()
    commands: list[str] = []
    try:
        yield commands
    finally:
        recording.stop()
        recording.dump(jvm.java.nio.file.Path.of(str(path), spark.sparkContext._gateway.new_array(jvm.String, 0)))
        recording.close()
    events = jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(
        jvm.java.nio.file.Path.of(str(path), spark.sparkContext._gateway.new_array(jvm.String, 0))
    )
    commands += [str(event.getString("command")) for event in events]


def test_batches_of_a_flow_with_a_target_for_latency_grow_from_small_ones(bench: SparkBench) -> None:
    flow, sink = ab.Flow("test"), ab.to_memory()
    rows = flow.read(ab.generate(None, total_rows=120_000, keys=20, event_rows_per_second=1_000))
    rows.key_by("key").agg(rows=ab.count()).write(sink)
    got = bench.run_flow(flow, [sink], latency="5s", slots=2)
    sizes = [entry.rows_in for entry in got.progress if entry.rows_in]
    assert sum(sizes) == 120_000
    # The process that plans splits was told before the first, and after each.
    assert sizes[:3] == [10_000, 10_000, 20_000]
    assert all(entry.rows_in <= entry.admitted.rows for entry in got.progress if entry.admitted is not None)
    assert got.progress[0].waiting_rows == 110_000
