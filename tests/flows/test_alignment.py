"""Joins that hold back whichever source runs ahead: state stays small, and answers are the same."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import FlowError
from flows.running import FlowBench, LocalBench, Outcome
from flows.test_joins import ask_duckdb
from property_tests import tries

START = datetime(2026, 1, 1)
SCHEMA = {"key": pl.Int64, "ts": pl.Datetime("us")}
RATE = 100
"""Rows a second of event time, of both streams."""
FAST, SLOW = 1_000, 100
"""Rows a batch: by one batch, the fast stream gets ten seconds further, the slow one a second."""


@dataclass(frozen=True)
class TwoSpeeds:
    """Two generated streams of which one is read ten times as fast as the other."""

    seconds: int
    """Of event time, of both."""

    @property
    def sources(self) -> list[Any]:
        """The fast one, then the slow one."""
        return [
            ab.generate(
                None,
                total_rows=self.seconds * RATE,
                keys=50,
                columns=("key", "ts", f"value_{number}"),
                disorder="1s",
                event_rows_per_second=RATE,
                seed=number,
                max_rows=rows,
            )
            for number, rows in enumerate((FAST, SLOW))
        ]

    def run(self, bench: FlowBench, align: str | None, **settings: Any) -> Outcome:
        """Join them within five seconds, to the end."""
        flow, sink = ab.Flow("speeds"), ab.to_memory()
        fast, slow = (flow.read(source).watermark("ts", delay="1s") for source in self.sources)
        fast.join(slow, on="key", within="5s", align=align).write(sink)
        return bench.run_flow(flow, [sink], **settings)

    def expected(self) -> pl.DataFrame:
        """Return the pairs as Polars finds them."""
        fast, slow = (
            pl.concat(outcome.frame for split in planner.plan(None, 0.0).splits for outcome in source.read(split))
            for source in self.sources
            for planner in (ab.generate(None, total_rows=source.total_rows, max_rows=10**9).planner(),)
        )
        pairs = fast.join(slow, on="key")
        return pairs.filter((pl.col("ts_right") - pl.col("ts")).abs() <= timedelta(seconds=5)).drop("ts", "ts_right")


def pairs_of(outcome: Outcome) -> pl.DataFrame:
    found = pl.concat(frame for _, frame in outcome.batches)
    return found.select("key", "value_0", "value_1").sort(pl.all())


def test_state_is_bounded_by_time_and_not_by_the_difference_in_speed(bench: FlowBench) -> None:
    speeds = TwoSpeeds(seconds=80)
    held, free = speeds.run(bench, "5s"), speeds.run(bench, None)
    assert pairs_of(held).equals(pairs_of(free))
    assert pairs_of(held).equals(speeds.expected().select("key", "value_0", "value_1").sort(pl.all()))
    # Slow rows of 5 s and the delay, and fast ones of these, of what they may be ahead, and of the batch beyond that.
    assert max(one.state_rows for one in held.progress) <= RATE * (5 + 1) + SLOW + RATE * (5 + 1 + 5) + 2 * FAST
    assert max(one.state_rows for one in free.progress) > RATE * (speeds.seconds - 10)
    ahead = [one.held_back["generator"] for one in held.progress if one.held_back]
    assert ahead
    assert 5 < max(ahead) <= 15
    assert not any(one.held_back for one in free.progress)


def test_a_restart_after_every_batch_keeps_to_it(bench: FlowBench) -> None:
    speeds = TwoSpeeds(seconds=40)
    checkpoint = bench.new_checkpoint()
    flow, sink = ab.Flow("speeds"), ab.to_memory()
    fast, slow = (flow.read(source).watermark("ts", delay="1s") for source in speeds.sources)
    fast.join(slow, on="key", within="5s", align="5s").write(sink)
    ran = []
    for _ in range(20):
        ran += bench.run_flow(flow, [sink], checkpoint=checkpoint, trigger="once", drain=False).progress
    assert sum(bool(one.held_back) for one in ran) >= 10
    # The slow one is at 20 s, and the fast one a batch beyond 25 s at most.
    assert sum(one.rows_in for one in ran) <= 20 * SLOW + 35 * RATE
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert pairs_of(Outcome([sink])).equals(speeds.expected().select("key", "value_0", "value_1").sort(pl.all()))


@tries(8)
@given(st.integers(0, 2**32), st.sampled_from(("inner", "left", "right", "full", "semi", "anti")), st.integers(1, 40))
def test_answers_are_duckdbs_whoever_waits_and_whenever_it_starts_again(
    tmp_path_factory: pytest.TempPathFactory, seed: int, how: Any, align: int
) -> None:
    chance = random.Random(seed)
    bench = LocalBench(tmp_path_factory.mktemp("aligned"))
    speeds = [chance.choice((2, 10, 40)) for _ in range(2)]
    sides = [
        [rows_at(*(speed * batch + chance.randrange(-5, 6) for _ in range(3))) for batch in range(90 // speed)]
        for speed in speeds
    ]
    numbered = [
        [frame.with_columns(pl.int_range(pl.len()).alias(name) + 3 * place) for place, frame in enumerate(frames)]
        for name, frames in zip(("a", "b"), sides, strict=True)
    ]
    flow, sink, checkpoint = ab.Flow("aligned"), ab.to_memory(), bench.new_checkpoint()
    # Nothing is late: which rows are would depend on who is read when.
    left, right = (flow.read(ab.memory(*frames)).watermark("ts", delay="5m") for frames in numbered)
    left.join(right, on="key", within="4s", how=how, align=timedelta(seconds=align)).write(sink)
    for _ in range(chance.randrange(8)):
        bench.run_flow(flow, [sink], checkpoint=checkpoint, trigger="once", drain=False)
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    columns = "l.a" if how in ("semi", "anti") else "l.a, r.b"
    near = "l.key = r.key AND abs(epoch(r.ts) - epoch(l.ts)) <= 4"
    expected = ask_duckdb(*map(pl.concat, numbered), how, near, columns)
    found = sink.frame()
    kept = [name for name in ("a", "b") if name in found.columns]
    assert sorted(map(repr, found.select(kept).rows() if found.width else ())) == expected


def rows_at(*seconds: int) -> pl.DataFrame:
    times = [START + timedelta(seconds=second) for second in seconds]
    return pl.DataFrame({"key": [1] * len(seconds), "ts": times}, schema=SCHEMA)


def test_whoever_is_ahead_waits_and_reads_on_when_the_other_is_near_or_at_its_end(bench: FlowBench) -> None:
    flow, sink = ab.Flow("ahead"), ab.to_memory()
    left = flow.read(ab.memory(*(rows_at(second) for second in (0, 50, 100, 150, 200))), name="left")
    right = flow.read(ab.memory(*(rows_at(second) for second in range(0, 120, 20))), name="right")
    joined = left.watermark("ts").join(right.watermark("ts"), on="key", within="1s", how="anti", align="30s")
    joined.write(sink)
    outcome = bench.run_flow(flow, [sink])
    assert [(one.rows_in, one.held_back) for one in outcome.progress if one.rows_in] == [
        (2, {}),
        (2, {}),  # left is at 50 s, right at 20 s
        (2, {"left": 60.0}),  # at 100 s, and at 40 s
        (1, {"left": 40.0}),
        (1, {}),
        (2, {"left": 50.0}),  # at 150 s, and at 100 s: right has nothing more
        (1, {"left": 100.0}),
    ]
    assert sorted(outcome.sinks[0].frame()["ts"].to_list()) == rows_at(50, 150, 200)["ts"].to_list()


def make_flow(**right: Any) -> ab.Flow:
    flow = ab.Flow("ahead")
    sides = (flow.read(ab.memory(schema=SCHEMA), name=name) for name in ("left", "right"))
    left, other = (stream.watermark("ts", **given) for stream, given in zip(sides, ({}, right), strict=True))
    left.join(other, on="key", within="5s", align="10s").write(ab.to_memory())
    return flow


def hold_left(tester: ab.testing.FlowTester) -> None:
    """Bring the left source so far ahead that it waits, with a row left to read."""
    tester.add(rows_at(0), "left").add(rows_at(0), "right").run()
    tester.add(rows_at(60), "left").run()
    assert tester.last.progress.held_back == {"left": 60.0}
    tester.add(rows_at(70), "left")
    assert tester.run_all() == []


def test_who_waits_reads_on_when_the_other_has_caught_up() -> None:
    with ab.testing.FlowTester(make_flow()) as tester:
        hold_left(tester)
        with pytest.raises(FlowError, match="a source waits for another to catch up"):
            tester.run()
        tester.add(rows_at(65), "right")
        assert [batch.progress.rows_in for batch in tester.run_all()] == [1, 1]
        assert tester.results().height == 3


def test_the_next_driver_lets_it_wait_too() -> None:
    with ab.testing.FlowTester(make_flow()) as tester:
        hold_left(tester)
        tester.kill()
        assert tester.run_all() == []
        assert [batch.progress.rows_in for batch in tester.add(rows_at(65), "right").run_all()] == [1, 1]


def test_nobody_waits_for_ever_for_a_source_whose_time_stands_still() -> None:
    with ab.testing.FlowTester(make_flow()) as tester:
        hold_left(tester)
        assert tester.advance("29s") == []
        assert [batch.progress.rows_in for batch in tester.advance("2s")] == [1]
        assert [batch.progress.rows_in for batch in tester.add(rows_at(90), "left").run_all()] == [1]
        # As soon as it moves, it is waited for.
        tester.add(rows_at(20), "right").run()
        assert tester.last.progress.held_back == {"left": 70.0}


def test_a_source_that_is_idle_is_not_waited_for() -> None:
    with ab.testing.FlowTester(make_flow(idle="5s")) as tester:
        hold_left(tester)
        assert tester.advance("4s") == []
        assert [batch.progress.rows_in for batch in tester.advance("1s")] == [1]
        assert tester.last.progress.held_back == {}


@pytest.mark.parametrize("per", ["flow", "key"])
def test_a_source_that_is_held_back_does_not_count_as_silent(per: Any) -> None:
    flow = ab.Flow("silence")
    left, right = (flow.read(ab.memory(schema=SCHEMA), name=name) for name in ("left", "right"))
    joined = left.watermark("ts", idle="5s").join(right.watermark("ts"), on="key", within="5s", align="10s")
    joined.write(ab.to_memory(), name="joined")
    windows = left.watermark("ts", per=per, idle="5s").key_by("key").window("1m").agg(rows=ab.count())
    windows.write(ab.to_memory(), name="windows")
    with ab.testing.FlowTester(flow) as tester:
        hold_left(tester)
        for second in range(1, 6):
            tester.add(rows_at(second), "right").run()
            tester.advance("4s")
        tester.add(rows_at(60), "right").run_all()
        tester.drain()
        assert tester.late_count == 0
        assert sorted(tester.results("windows")["rows"].to_list()) == [1, 2]


def test_a_drain_reads_first_what_waits() -> None:
    with ab.testing.FlowTester(make_flow()) as tester:
        hold_left(tester)
        assert [(batch.progress.rows_in, batch.progress.drained) for batch in tester.drain()] == [(1, False), (0, True)]


def test_inputs_of_one_source_hold_nobody_back(bench: FlowBench) -> None:
    flow, sink = ab.Flow("itself"), ab.to_memory()
    stream = flow.read(ab.memory(rows_at(0), rows_at(100), rows_at(200))).watermark("ts")
    early = stream.filter(pl.col("ts") < START + timedelta(seconds=1))
    stream.join(early, on="key", within="5s", align="10s").write(sink)
    outcome = bench.run_flow(flow, [sink])
    assert [one.held_back for one in outcome.progress] == [{}, {}, {}, {}]
    assert "both inputs come from the same source, so nothing is held back" in flow.explain()
