"""Windows of so many rows of a key."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import FlowError
from anabranch.model import END_OF_TIME, HASH, AggregateSpec, CountWindowSpec, OperatorTime, TopKSpec, WindowSpec
from anabranch.operators.aggregates import functions as agg
from anabranch.operators.kernels import make_kernel
from property_tests import tries
from unit.operators import oracle
from unit.operators.memory_state import MemoryState
from unit.operators.streams import Batch, Outcome, Row, batches_strategy, run_kernel, times_of, to_frame

AGGREGATES = {
    "rows": agg.count(),
    "total": agg.sum("whole"),
    "average": agg.mean("real"),
    "opening": agg.first("whole"),
    "closing": agg.last("real"),
}
windows = st.sampled_from([(1, 1), (3, 3), (4, 2), (5, 3), (6, 4), (4, 1)]).map(lambda rows: CountWindowSpec(*rows))


def aggregate(rows: list[oracle.Placed]) -> list[dict[str, object]]:
    return [{name: value for name, value in oracle.aggregate(rows).items() if name in AGGREGATES}]


@tries(60)
@given(window=windows, batches=batches_strategy, drains=st.sets(st.integers(0, 11)))
def test_count_windows_equal_the_oracle(window: CountWindowSpec, batches: list[Batch], drains: set[int]) -> None:
    kernel = make_kernel(AggregateSpec(("key",), AGGREGATES, None, "ts", count_window=window))
    times = [
        replace(time, fire_us=END_OF_TIME) if number in drains else time
        for number, time in enumerate(times_of(batches, first_hop=True))
    ]
    expected = oracle.run_count_windows(window, batches, times, aggregate)
    oracle.assert_same(run_kernel(kernel, batches, times, combined=False), expected)


@tries(30)
@given(window=windows, batches=batches_strategy)
def test_best_rows_of_count_windows_equal_the_oracle(window: CountWindowSpec, batches: list[Batch]) -> None:
    kernel = make_kernel(TopKSpec(("key",), "whole", 2, True, ("real",), None, "ts", count_window=window))
    times = times_of(batches, first_hop=True)
    expected = oracle.run_count_windows(window, batches, times, lambda rows: oracle.best(rows, 2, True))
    oracle.assert_same(run_kernel(kernel, batches, times, combined=False), expected)


def run_counts(window: CountWindowSpec, *counts: int, drained: bool = False) -> list[Outcome]:
    """Feed batches of so many rows of one key, without event time, numbered on; each drains, if said."""
    batches, number = [], 0
    for count in counts:
        batches.append(Batch((tuple(Row(1, 0, number + i) for i in range(count)),), 0))
        number += count
    aggregates = {"opening": agg.first("whole"), "closing": agg.last("whole")}
    fire_us = {"fire_us": END_OF_TIME} if drained else {}
    times = [OperatorTime(batch, **fire_us) for batch in range(len(batches))]
    return run_kernel(make_kernel(AggregateSpec(("key",), aggregates, count_window=window)), batches, times, False)


def spans(outcomes: list[Outcome]) -> list[list[tuple[int, int, int]]]:
    return [sorted((row["window"], row["opening"], row["closing"]) for row in outcome.rows) for outcome in outcomes]


def test_windows_fill_across_batches_and_one_batch_may_fill_several() -> None:
    assert spans(run_counts(CountWindowSpec(3, 3), 2, 2, 6)) == [[], [(0, 0, 2)], [(1, 3, 5), (2, 6, 8)]]


def test_sliding_windows_are_always_full() -> None:
    assert spans(run_counts(CountWindowSpec(4, 1), 3, 2, 1)) == [[], [(0, 0, 3), (1, 1, 4)], [(2, 2, 5)]]


def test_a_drain_emits_what_is_not_full_and_every_key_begins_anew() -> None:
    outcomes = run_counts(CountWindowSpec(4, 2), 5, 3, drained=True)
    assert spans(outcomes) == [[(0, 0, 3), (1, 2, 4), (2, 4, 4)], [(3, 5, 7), (4, 7, 7)]]


def test_rows_are_numbered_by_their_place_in_the_batch_not_by_arrival() -> None:
    kernel = make_kernel(AggregateSpec(("key",), {"opening": agg.first("whole")}, count_window=CountWindowSpec(2, 2)))
    splits = [[(split << 36 | row, Row(1, 0, 10 * split + row)) for row in range(2)] for split in (1, 0)]
    sent = [kernel.prepare(to_frame(rows), OperatorTime(0)).frame for rows in splits]
    received = [frame.with_columns(pl.lit(1, pl.UInt64).alias(HASH)) for frame in sent]
    fired = kernel.advance(received, False, MemoryState(), OperatorTime(0))
    assert sorted(fired.frame.select("window", "opening").rows()) == [(0, 0), (1, 10)]


def test_state_of_many_batches_is_merged_and_holds_one_pane_a_key() -> None:
    kernel, state = (
        make_kernel(AggregateSpec(("key",), {"rows": agg.count()}, count_window=CountWindowSpec(7, 7))),
        MemoryState(),
    )
    batches = [Batch(((Row(number % 3, 0),),), 0) for number in range(60)]
    run_kernel(kernel, batches, [OperatorTime(number) for number in range(60)], False, state)
    assert state.compactions > 3
    held = kernel.values(kernel.stored(state.live(), 0))
    assert sorted(held.select("key", "window", "rows").rows()) == [(key, 2, 6) for key in range(3)]


@pytest.mark.parametrize(("size", "every"), [(0, 0), (3, 0), (3, 4), (-1, -1)])
def test_impossible_windows_are_refused(size: int, every: int) -> None:
    with pytest.raises(FlowError, match="must be at least 1"):
        make_kernel(AggregateSpec(("key",), {"rows": agg.count()}, count_window=CountWindowSpec(size, every)))


def test_windows_go_by_time_or_by_rows() -> None:
    window = WindowSpec("tumbling", 1, 1)
    with pytest.raises(FlowError, match="give one of"):
        make_kernel(AggregateSpec(("key",), {"rows": agg.count()}, window, "ts", count_window=CountWindowSpec(2, 2)))


def run_silently(window: CountWindowSpec, *batches: tuple[int, int]) -> list[tuple[list[tuple[int, int]], int | None]]:
    """Feed batches of (wall clock, rows of one key); return (window, rows) of what is emitted, and when to wake."""
    kernel, state = make_kernel(AggregateSpec(("key",), {"rows": agg.count()}, count_window=window)), MemoryState()
    found, last_us = [], 0
    for number, (now_us, count) in enumerate(batches):
        time = OperatorTime(number, now_us=now_us, last_now_us=last_us)
        sent = kernel.prepare(to_frame([(row, Row(1, 0, row)) for row in range(count)]), time).frame
        received = [sent.with_columns(pl.lit(1, pl.UInt64).alias(HASH))] if count else []
        fired = kernel.advance(received, False, state, time)
        found.append(([(row["window"], row["rows"]) for row in fired.frame.to_dicts()], fired.wake_us))
        last_us = now_us
    assert window.unfilled == "drop" or kernel.values(kernel.stored(state.live(), 0)).height in (0, 1)
    return found


def test_windows_of_silent_keys_are_emitted_and_the_key_begins_anew() -> None:
    window = CountWindowSpec(3, 3, idle_us=40)
    silent = run_silently(window, (100, 4), (120, 1), (161, 0), (200, 1))
    # A run that a newer one has superseded may wake the slot too early, and then no more.
    assert silent == [([(0, 3)], 140), ([], 140), ([(1, 2)], None), ([], 240)]


def test_windows_of_silent_keys_are_dropped_if_so_said() -> None:
    window = CountWindowSpec(3, 3, idle_us=40, unfilled="drop")
    assert run_silently(window, (100, 2), (161, 0), (200, 3)) == [([], 140), ([], None), ([(0, 3)], None)]


def test_keys_that_speak_are_not_silent() -> None:
    window = CountWindowSpec(3, 3, idle_us=40)
    assert [rows for rows, _ in run_silently(window, (100, 1), (139, 1), (178, 1))] == [[], [], [(0, 3)]]


def test_forgotten_keys_leave_nothing_behind() -> None:
    window = CountWindowSpec(2, 2, idle_us=40)
    kernel, state = make_kernel(AggregateSpec(("key",), {"rows": agg.count()}, count_window=window)), MemoryState()
    sent = kernel.prepare(to_frame([(0, Row(1, 0, 0)), (1, Row(1, 0, 1))]), OperatorTime(0)).frame
    kernel.advance([sent.with_columns(pl.lit(1, pl.UInt64).alias(HASH))], False, state, OperatorTime(0, now_us=1))
    assert kernel.stored(state.live(), 0).height == 1
    kernel.advance([], False, state, OperatorTime(1, now_us=99, last_now_us=1))
    assert state.live() == [], "no file, either"
