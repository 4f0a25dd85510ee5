"""Silence closes what waits for it, by the wall clock."""

from __future__ import annotations

import anabranch as ab
from flows.running import SCHEMA, frames_of, reading, wait_until
from flows.test_event_time import count_windows, counted, in_partitions
from spark.fixtures import SparkBench


def test_open_windows_close_when_every_partition_is_silent(bench: SparkBench) -> None:
    source = in_partitions(("north", [reading(1, 3)]), ("south", [reading(2, 2)]), ("north", [reading(1, 25)]))
    flow, sink, _ = count_windows(source, per="partition", idle="2s")
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, trigger="200ms", slots=2)
    try:
        wait_until(lambda: sum(entry.rows_out for entry in handle.progress) == 3, "the windows of silent partitions")
        assert counted(sink.frame().to_dicts()) == [(1, 0, 1), (1, 20, 1), (2, 0, 1)]
        source.add(frames_of([[reading(1, 29), reading(1, 31)]])[0], "north")
        wait_until(lambda: sum(entry.rows_out for entry in handle.progress) == 4, "the partition that spoke again")
    finally:
        handle.stop()
    assert counted(sink.frame().to_dicts()) == [(1, 0, 1), (1, 20, 1), (1, 30, 1), (2, 0, 1)]
    assert sum(entry.late_rows for entry in handle.progress) == 1


def test_silent_flow_closes_its_windows_and_windows_of_windows(bench: SparkBench) -> None:
    flow, sink = ab.Flow("test"), ab.to_memory()
    stream = flow.read(ab.memory(*frames_of([[reading(1, 3), reading(1, 14), reading(2, 4)]])))
    windows = stream.key_by("key").watermark("ts", idle="1s").window("10s").agg(rows=ab.count())
    windows.key_by("key").window("1m").agg(windows=ab.count(), rows=ab.sum("rows")).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, trigger="200ms", slots=2)
    try:
        wait_until(lambda: sum(entry.rows_out for entry in handle.progress) == 2, "the minute of a silent flow")
    finally:
        handle.stop()
    found = sorted((row["key"], row["windows"], row["rows"]) for row in sink.frame().to_dicts())
    assert found == [(1, 2, 2), (2, 1, 1)]


def test_silent_keys_leave_no_state_and_after_a_restart_on_other_slots_nothing_fires_twice(bench: SparkBench) -> None:
    keys = 5_000
    source = ab.memory(*frames_of([[reading(key, 3) for key in range(keys)]]))
    checkpoint = bench.new_checkpoint()
    flow, sink, _ = count_windows(source, per="key", idle="1s")
    handle = flow.start(checkpoint, spark=bench.spark, trigger="200ms", slots=2)
    try:
        wait_until(lambda: handle.totals.rows_out == keys, "the windows of silent keys")
        wait_until(lambda: handle.progress[-1].state_rows == 0, "a state without the clocks of dead keys")
    finally:
        handle.stop()
    source.add(frames_of([[reading(7, 5), reading(7, 15)]])[0])
    handle = flow.start(checkpoint, spark=bench.spark, trigger="200ms", slots=3)
    try:
        wait_until(lambda: handle.totals.rows_out == 1, "the window of a key that spoke again")
    finally:
        handle.stop()
    assert handle.totals.late_rows == 1
    assert counted(sink.frame().to_dicts()) == sorted([*((key, 0, 1) for key in range(keys)), (7, 10, 1)])


def test_silence_of_one_source_does_not_hold_up_the_other(bench: SparkBench) -> None:
    fast, silent = ab.memory(*frames_of([[reading(1, 3)], [reading(1, 25)]])), ab.memory(schema=SCHEMA)
    flow, sink = ab.Flow("test"), ab.to_memory()
    streams = [flow.read(source).watermark("ts", idle="1s") for source in (fast, silent)]
    streams[0].union(streams[1]).key_by("key").window("10s").agg(rows=ab.count()).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, trigger="200ms", slots=2)
    try:
        wait_until(lambda: sum(entry.rows_out for entry in handle.progress) == 2, "windows beside a silent source")
    finally:
        handle.stop()
    assert counted(sink.frame().to_dicts()) == [(1, 0, 1), (1, 20, 1)]
