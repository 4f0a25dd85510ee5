"""Windows on Spark answer as the oracle does, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.query.streams import Stream
from flows.random_flows import SCHEMA as FLOW_SCHEMA
from flows.random_flows import make_random_flow
from flows.running import Batches, FlowBench, frames_of, make_batches, reading
from oracle import Sessions, Windows, answer_flow, assert_same_batches, compute

SECOND_US = 1_000_000

# Out of order, with rows that come when their window has closed, keys that fall silent and keys that come late.
BATCHES: Batches = [
    [reading(1, 0, 4, 0.5), reading(2, 3, 7, 1.25), reading(1, 9.5, 1, -2.0), reading(3, 4, None, 8.0)],
    [reading(1, 11, 2, 0.25), reading(2, 8, 5, None), reading(4, 1, 9, 3.5), reading(1, 19, 6, 1.0)],
    [reading(2, 31, 3, 2.5), reading(1, 12, 8, 0.75), reading(1, 2, 100, 64.0), reading(3, 26, 2, -1.5)],
    [reading(1, 33, 1, 0.5), reading(4, 30.5, 4, 4.0), reading(2, 14, 50, 32.0), reading(3, 36, 2, 0.125)],
]

WANTED = {
    "rows": ("count", None),
    "values": ("count", "whole"),
    "total": ("sum", "whole"),
    "lowest": ("min", "real"),
    "highest": ("max", "whole"),
    "average": ("mean", "real"),
    "spread": ("variance", "real"),
    "opening": ("first", "whole"),
    "closing": ("last", "real"),
}


def aggregated(stream: Stream) -> Stream:
    return stream.agg(
        rows=ab.count(),
        values=ab.count("whole"),
        total=ab.sum("whole"),
        lowest=ab.min("real"),
        highest=ab.max("whole"),
        average=ab.mean("real"),
        spread=ab.variance("real"),
        opening=ab.first("whole"),
        closing=ab.last("real"),
    )


def tumbling(stream: Stream) -> Stream:
    return aggregated(stream.key_by("key").watermark("ts", delay="2s").window("10s"))


def shape(group):
    return [compute(group, WANTED)]


@pytest.mark.parametrize("drain", [True, False])
def test_tumbling_windows_fire_in_the_batch_that_the_oracle_says(bench: FlowBench, drain: bool) -> None:
    expected = answer_flow(
        BATCHES,
        [Windows(["key"], shape, 10 * SECOND_US, 10 * SECOND_US)],
        time="ts",
        delay_us=2 * SECOND_US,
        drain=drain,
    )
    got = bench.run(BATCHES, tumbling, drain=drain)
    assert_same_batches(got.batches, expected.batches)
    assert got.late_rows == expected.late_rows == 2
    assert len(got.progress) == expected.batch_count


def test_a_window_is_emitted_by_the_batch_whose_rows_pass_its_end(bench: FlowBench) -> None:
    batches = [
        [reading(1, 3), reading(2, 4)],
        [reading(1, 5), reading(3, 12)],
        [reading(2, 18)],
        [reading(1, 41), reading(1, 20.5)],
    ]
    flow, sinks = ab.Flow("test"), [ab.to_memory(), ab.to_memory()]
    windows = flow.read(ab.memory(*frames_of(batches))).key_by("key").watermark("ts", delay="1s").window("10s")
    counted = windows.agg(rows=ab.count())
    counted.write(sinks[0])
    # Windows of windows end in the same batch.
    counted.key_by("key").window("20s").agg(windows=ab.count(), rows=ab.sum("rows")).write(sinks[1])
    got = bench.run_flow(flow, sinks, drain=False)
    assert len(got.progress) == len(batches), "no batch without data had to come"
    assert [(batch, sorted(frame.select("key", "rows").rows())) for batch, frame in sinks[0].batches()] == [
        (1, [(1, 2), (2, 1)]),
        (3, [(1, 1), (2, 1), (3, 1)]),
    ]
    assert [(batch, sorted(frame.select("key", "windows", "rows").rows())) for batch, frame in sinks[1].batches()] == [
        (3, [(1, 1, 1), (1, 1, 2), (2, 2, 2), (3, 1, 1)])
    ]
    assert got.late_rows == 0


@pytest.mark.parametrize("case", [("tumbling", 1), ("sliding", 2), ("session", 3)], ids=str)
def test_a_checkpoint_whose_windows_still_wait_goes_on(
    bench: FlowBench, case: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where windows fire in the batch after the one that brings their watermark, a checkpoint has some that are due."""
    flow_made = replace(make_random_flow(*case), batch_rows=(40, 40, 40, 40), frames_per_batch=1, second_hop=True)
    frames, checkpoint, sink = frames_of(flow_made.batches(), FLOW_SCHEMA), bench.new_checkpoint(), ab.to_memory()
    source = ab.memory(schema=FLOW_SCHEMA, max_frames=1)

    def run(added: list[pl.DataFrame], drain: bool) -> int:
        for frame in added:
            source.add(frame)
        flow = ab.Flow("test")
        flow_made.build(flow.read(source)).write(sink)
        return bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=drain, slots=3).late_rows

    monkeypatch.setattr("anabranch.engine.batches.batch.fires_at_once", lambda plan: False)
    monkeypatch.setattr("anabranch.engine.flow_run.is_due", lambda plan, manifest: False)
    late_rows = run(frames[:2], drain=False)
    monkeypatch.undo()
    late_rows += run(frames[2:], drain=True)
    expected = replace(flow_made, drain=True).answer(at_once_from=2)
    assert_same_batches(sink.batches(), expected.batches)
    assert late_rows == expected.late_rows


@pytest.mark.parametrize("every_seconds", [5, 3, 4])
def test_sliding_windows_fire_in_the_batch_that_the_oracle_says(bench: FlowBench, every_seconds: int) -> None:
    def sliding(stream: Stream) -> Stream:
        windowed = (
            stream.key_by("key").watermark("ts", delay="2s").window("10s", every=f"{every_seconds}s", offset="1s")
        )
        return aggregated(windowed)

    operator = Windows(["key"], shape, 10 * SECOND_US, every_seconds * SECOND_US, SECOND_US)
    expected = answer_flow(BATCHES, [operator], time="ts", delay_us=2 * SECOND_US, drain=True)
    got = bench.run(BATCHES, sliding)
    assert_same_batches(got.batches, expected.batches)
    assert got.late_rows == expected.late_rows > 0


def test_sessions_fire_in_the_batch_that_the_oracle_says(bench: FlowBench) -> None:
    def sessions(stream: Stream) -> Stream:
        return aggregated(stream.key_by("key").watermark("ts", delay="2s").session("6s"))

    operator = Sessions(["key"], shape, 6 * SECOND_US)
    expected = answer_flow(BATCHES, [operator], time="ts", delay_us=2 * SECOND_US, drain=True)
    got = bench.run(BATCHES, sessions)
    assert_same_batches(got.batches, expected.batches)
    assert got.late_rows == expected.late_rows > 0


def roll_up(per: str) -> Callable[[Stream], Stream]:
    """Return ten-second windows rolled up to minutes, as the guide writes them."""

    def build(stream: Stream) -> Stream:
        tens = (
            stream.watermark("ts", delay="10m", per=per)  # type: ignore[arg-type]
            .key_by("key")
            .window("10s")
            .agg(rows=ab.count(), total=ab.sum("whole"), lowest=ab.min("real"))
        )
        if per == "key":
            tens = tens.with_columns(at="window_end - INTERVAL '1us'").watermark("at", delay="10m")
        minutes = tens.key_by("key").window("1m")
        return minutes.agg(windows=ab.count(), rows=ab.sum("rows"), total=ab.sum("total"), lowest=ab.min("lowest"))

    return build


@pytest.mark.parametrize("per", ["flow", "key"])
def test_ten_second_windows_rolled_up_to_minutes_are_what_polars_makes_of_the_rows(bench: FlowBench, per: str) -> None:
    # Rows at both edges of minutes are those that a roll-up by window_end itself would put into the wrong one.
    edges = [reading(key, seconds, 1000) for key in (1, 2) for seconds in (0, 50, 59.999999, 60, 119.5, 120)]
    batches = [edges, *make_batches(12)]
    got = bench.run(batches, roll_up(per), drain=True)
    rows = pl.concat(frames_of(batches)).with_columns(tens=pl.col("ts").dt.truncate("10s"))
    by_minute = rows.group_by("key", pl.col("ts").dt.truncate("1m").alias("window_start"))
    expected = by_minute.agg(
        windows=pl.col("tens").n_unique().cast(pl.Int64),
        rows=pl.len().cast(pl.Int64),
        total=pl.col("whole").sum(),
        lowest=pl.col("real").min(),
    )
    results = pl.concat([frame for _, frame in got.batches])
    assert got.late_rows == 0
    assert_frame_equal(
        results.select(expected.columns).sort("key", "window_start"), expected.sort("key", "window_start")
    )
