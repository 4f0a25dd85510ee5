"""Timers go off by the wall clock, though nothing comes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

import anabranch as ab
from flows.running import frames_of, reading, wait_until
from flows.test_processing import AfterAWhile
from spark.fixtures import SparkBench


def test_processors_without_event_time_wake_by_the_wall_clock(bench: SparkBench) -> None:
    flow, sink = ab.Flow("test"), ab.to_memory()
    keyed = flow.read(ab.memory(*frames_of([[reading(1, 5), reading(2, 3), reading(1, 1)]]))).key_by("key")
    keyed.process(AfterAWhile(), schema={"key": pl.Int64(), "rows": pl.Int64()}).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, slots=2)
    wait_until(lambda: sink.frame().height == 2, "the timers")
    handle.stop()
    assert sorted(sink.frame().rows()) == [(1, 2), (2, 1)]


def test_a_processing_time_timer_goes_off_though_nothing_comes(bench: SparkBench) -> None:
    class Alarm(ab.Processor):
        def on_time(self, row: Any, state: Any, timers: Any) -> None:
            timers.after_processing("1s", tag="wake up")

        def on_timer(self, timer: ab.Timer, state: Any, timers: Any) -> Any:
            return [{"tag": timer.tag, "waited": timers.now - timer.time >= timedelta(0)}]

    flow, sink = ab.Flow("test"), ab.to_memory()
    keyed = flow.read(ab.memory(*frames_of([[reading(7, 0)]]))).key_by("key").watermark("ts", per="key")
    keyed.process(Alarm(), schema={"key": pl.Int64, "tag": pl.String, "waited": pl.Boolean}).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, slots=2)
    try:
        wait_until(lambda: any(frame.height for _, frame in sink.batches()), "the timer")
    finally:
        handle.stop()
    assert [frame.to_dicts() for _, frame in sink.batches()] == [[{"key": 7, "tag": "wake up", "waited": True}]]
