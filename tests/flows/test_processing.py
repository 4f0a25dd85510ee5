"""Processors: state, timers and order as the oracle has them, across batches, restarts and changed classes."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import CheckpointError, FlowError
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, OperatorTime
from anabranch.model.times import Clock, ClockLevel
from anabranch.query.streams import Stream
from flows.running import START, FlowBench, frames_of, reading
from unit.operators.oracle import Placed, place
from unit.operators.processing_oracle import ProcessOracle, microseconds
from unit.operators.processors_under_test import OUTPUT, Scripted
from unit.operators.streams import SECOND_US, Batch, Row

START_SECONDS = microseconds(START) // SECOND_US
# What a row's number makes the processor do; those that look at the wall clock are left out.
NUMBERS = [number for number in range(60) if number % 9 not in (1, 7)]


def make_stream(seed: int, count: int = 6) -> list[list[Row]]:
    """Return batches of rows out of order, of keys that disagree about the time."""
    chance = random.Random(seed)
    return [
        [
            Row(key, START_SECONDS + 8 * number - 20 * (key % 2) + chance.randrange(-9, 9), chance.choice(NUMBERS))
            for key in (chance.randrange(5) for _ in range(12))
        ]
        for number in range(count)
    ]


def as_batches(rows: list[list[Row]]) -> list[list[dict[str, Any]]]:
    return [[reading(row.key, row.seconds - START_SECONDS, row.whole) for row in batch] for batch in rows]


class AfterAWhile(ab.Processor):
    """Tells of a key so long after its first row, by the wall clock."""

    rows = ab.value(pl.Int64(), default=0)

    def on_time(self, row: Any, state: Any, timers: Any) -> None:
        state.rows += 1
        if state.rows == 1:
            timers.after_processing("200ms")

    def on_timer(self, timer: Any, state: Any, timers: Any) -> list[dict[str, Any]]:
        return [{"rows": state.rows}]


def expect(
    per: ClockLevel, ordered: bool, delay_us: int, rows: list[list[Row]]
) -> tuple[dict[int, list[dict[str, Any]]], int]:
    """Return by key what is emitted in order, and the number of late rows."""
    shared = None if per == "key" else (lambda _, time: time.closed_us)
    oracle = ProcessOracle(Scripted(), Clock(per, delay_us), ordered, shared)
    emitted: dict[int, list[dict[str, Any]]] = defaultdict(list)
    late_rows = 0
    watermark_us = BEGINNING_OF_TIME
    # The last batch has no rows, and drains.
    for number in range(len(rows) + 1):
        placed: list[Placed] = place(number, Batch((tuple(rows[number]),), 0)) if number < len(rows) else []
        leaves_us = max([watermark_us, *(row.time_us - delay_us for *_, row in placed)])
        fire_us = END_OF_TIME if number == len(rows) else leaves_us
        found, late = oracle.advance(placed, OperatorTime(number, watermark_us, fire_us))
        late_rows += late
        for key, found_rows in found.items():
            emitted[key] += found_rows
        watermark_us = leaves_us
    return dict(emitted), late_rows


def by_key(rows: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["key"]].append(row)
    return dict(found)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("per", ["key", "flow"])
def test_processors_emit_what_the_oracle_says(bench: FlowBench, per: ClockLevel, ordered: bool) -> None:
    rows = make_stream(3)
    expected, late_rows = expect(per, ordered, 4 * SECOND_US, rows)

    def build(stream: Stream) -> Stream:
        keyed = stream.key_by("key").watermark("ts", delay="4s", per=per)
        return (keyed.ordered("ts") if ordered else keyed).process(Scripted(), schema=OUTPUT)

    got = bench.run(as_batches(rows), build)
    assert by_key(got.rows) == expected
    assert got.late_rows == late_rows > 0


class Counter(ab.Processor):
    """Counts rows."""

    rows = ab.value(pl.Int64(), default=0)

    def on_time(self, row: Any, state: Any, timers: Any) -> Any:
        state.rows += 1
        yield {"rows": state.rows}


class CounterWithTotal(Counter):
    """The same, some time later."""

    total = ab.value(pl.Int64(), default=100)

    def on_time(self, row: Any, state: Any, timers: Any) -> Any:
        yield from super().on_time(row, state, timers)
        state.total += row["whole"]
        yield {"rows": state.total}


class CounterWithoutDefault(Counter):
    total = ab.value(pl.Int64())


class RetypedCounter(Counter):
    rows = ab.value(pl.Int32(), default=0)


def make_flow(source: Any, processor: ab.Processor, sink: Any) -> ab.Flow:
    flow = ab.Flow("test")
    keyed = flow.read(source).key_by("key").watermark("ts", per="key")
    keyed.process(processor, schema={"key": pl.Int64, "rows": pl.Int64}).write(sink)
    return flow


def test_an_added_field_starts_with_its_default_and_other_changes_are_refused(bench: FlowBench) -> None:
    source = ab.memory(*frames_of([[reading(1, 0), reading(2, 1)], [reading(1, 5, 7)]]))
    sink, checkpoint = ab.to_memory(), bench.new_checkpoint()
    bench.run_flow(make_flow(source, Counter(), sink), [sink], checkpoint=checkpoint, trigger="once", drain=False)
    for changed, word in (
        (CounterWithoutDefault(), "no default"),
        (RetypedCounter(), "Int32"),
        (ab.Processor(), "gone"),
    ):
        with pytest.raises(CheckpointError, match=word):
            bench.run_flow(make_flow(source, changed, sink), [sink], checkpoint=checkpoint)
    bench.run_flow(make_flow(source, CounterWithTotal(), sink), [sink], checkpoint=checkpoint)
    assert [frame["rows"].to_list() for _, frame in sink.batches()] == [[1, 1], [2, 107]]


def test_rows_leave_ordered_in_the_order_of_their_time_across_batches(bench: FlowBench) -> None:
    rows = make_stream(5)

    def build(stream: Stream) -> Stream:
        return stream.key_by("key").watermark("ts", delay="30s").ordered("ts")

    got = bench.run(as_batches(rows), build, slots=1)
    frames = [frame["ts"].to_list() for _, frame in got.batches if frame.height]
    times = [at for frame in frames for at in frame]
    assert len(frames) > 1
    assert times == sorted(times)
    assert len(times) + got.late_rows == sum(map(len, rows))


def test_rows_that_are_too_late_to_be_in_order_can_be_had(bench: FlowBench) -> None:
    flow, ordered, late = ab.Flow("test"), ab.to_memory(), ab.to_memory()
    batches = [[reading(1, 50, 1)], [reading(1, 10, 2), reading(2, 60, 3)], [reading(2, 49, 4), reading(2, 55, 5)]]
    stream = flow.read(ab.memory(*frames_of(batches))).key_by("key").watermark("ts", delay="5s")
    stream.ordered("ts", late="side").write(ordered).late_rows().write(late)
    bench.run_flow(flow, [ordered, late])
    assert [frame["whole"].to_list() for _, frame in ordered.batches() if frame.height] == [[1], [5, 3]]
    assert sorted(late.frame()["whole"]) == [2, 4]


def test_an_error_in_a_processor_names_it_its_method_and_the_key(bench: FlowBench) -> None:
    class Careless(ab.Processor):
        def on_time(self, row: Any, state: Any, timers: Any) -> Any:
            return [{"rows": 1 // (row["whole"] - 3)}]

    with pytest.raises(FlowError, match=r"processor Careless: on_time for key=4: ZeroDivisionError.*line \d+"):
        bench.run(
            [[reading(4, 0, 3)]],
            lambda s: s.key_by("key").watermark("ts").process(Careless(), schema={"rows": pl.Int64}),
        )
