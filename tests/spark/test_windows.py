"""Windows on Spark answer as the oracle does, batch by batch."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.query.streams import Stream
from oracle import Sessions, Windows, answer_flow, assert_same_batches, compute
from spark.running import Batches, FlowBench, reading

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
