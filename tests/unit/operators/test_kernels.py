"""Behaviour of the kernels that the oracle does not look at: runs, compaction, what is due next, shapes."""

from __future__ import annotations

import random
from datetime import datetime

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.model import (
    END_OF_TIME,
    HASH,
    ORDER,
    SEEN,
    WINDOW,
    AggregateSpec,
    DistinctSpec,
    Fired,
    Kernel,
    OperatorSpec,
    OperatorTime,
    TopKSpec,
    WindowSpec,
)
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.compaction import MOST_RUNS, count_runs_to_merge
from anabranch.operators.kernels import make_kernel
from unit.operators import oracle
from unit.operators.memory_state import MemoryState
from unit.operators.streams import SCHEMA, SECOND_US, Batch, Row, run_kernel, times_of, to_frame

TUMBLING = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US)
SLIDING = WindowSpec("sliding", 10 * SECOND_US, 5 * SECOND_US)
SESSION = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US)
COUNT = {"rows": ab.count()}


def send(kernel: Kernel, rows: list[Row], time: OperatorTime) -> list[pl.DataFrame]:
    """Return what stage A sends for rows of one split."""
    combined = kernel.combine(kernel.prepare(to_frame(list(enumerate(rows))), time).frame)
    return [combined.with_columns(pl.col("key").cast(pl.UInt64).alias(HASH))]


def advance(kernel: Kernel, state: MemoryState, rows: list[Row], time: OperatorTime) -> Fired:
    return kernel.advance(send(kernel, rows, time), True, state, time)


def seconds(value: int) -> int:
    return value * SECOND_US


def at_watermark(batch: int, before: int, now: int) -> OperatorTime:
    return OperatorTime(batch, seconds(now), seconds(now), 0, seconds(before))


def long_stream(batches: int, drift: int) -> list[Batch]:
    rng = random.Random(5)
    made = []
    for number in range(batches):
        rows = [
            Row(rng.randrange(6), number * drift + rng.randrange(8), rng.randrange(100), rng.randrange(9) / 4)
            for _ in range(6)
        ]
        made.append(Batch((tuple(rows[:3]), tuple(rows[3:])), watermark_seconds=number * drift - 60, now_us=number))
    return made


def test_compaction_leaves_windows_as_they_were() -> None:
    batches = long_stream(60, drift=1)
    times = times_of(batches, first_hop=True)
    state = MemoryState()
    got = run_kernel(make_kernel(AggregateSpec(("key",), COUNT, TUMBLING, "ts")), batches, times, True, state)
    assert state.compactions > 3
    expected = oracle.run_windows(oracle.WindowedOracle(TUMBLING), batches, times, lambda rows: [{"rows": len(rows)}])
    oracle.assert_same(got, expected)


def test_compaction_leaves_sessions_as_they_were() -> None:
    batches = long_stream(60, drift=1)
    times = times_of(batches, first_hop=True)
    state = MemoryState()
    window = WindowSpec("session", seconds(2), seconds(2))
    got = run_kernel(make_kernel(AggregateSpec(("key",), COUNT, window, "ts")), batches, times, True, state)
    assert state.compactions > 3
    expected = oracle.run_windows(oracle.SessionOracle(seconds(2)), batches, times, lambda rows: [{"rows": len(rows)}])
    oracle.assert_same(got, expected)


@pytest.mark.parametrize("ttl_us", [None, seconds(3)])
def test_compaction_leaves_running_aggregates_as_they_were(ttl_us: int | None) -> None:
    batches = long_stream(60, drift=1)
    times = times_of(batches, first_hop=True, drain=False)
    state = MemoryState()
    got = run_kernel(make_kernel(AggregateSpec(("key",), COUNT, None, "ts", ttl_us)), batches, times, True, state)
    assert state.compactions > 3
    expected = oracle.run_running(batches, times, ttl_us, True, lambda rows: [{"rows": len(rows)}])
    oracle.assert_same(got, expected)


def test_compaction_leaves_distinct_as_it_was() -> None:
    batches = long_stream(60, drift=1)
    times = times_of(batches, first_hop=True, drain=False)
    state = MemoryState()
    got = run_kernel(make_kernel(DistinctSpec(("key",), None, 3)), batches, times, True, state)
    assert state.compactions > 0
    oracle.assert_same(got, oracle.run_distinct(batches, times, 3, in_event_time=False))


def test_expired_keys_leave_the_state_when_runs_are_compacted() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, None, "ts", seconds(5)))
    state = MemoryState()
    for batch in range(3 * MOST_RUNS):
        now = batch * 10
        advance(kernel, state, [Row(key=batch, seconds=now)], at_watermark(batch, now - 10, now))
    held = pl.concat(state.live())
    assert held.height <= MOST_RUNS + 1
    assert held[SEEN].min() > 0  # type: ignore[operator]


def test_few_runs_are_left_alone() -> None:
    assert count_runs_to_merge([5] * MOST_RUNS) == 0


def merging_batch(first_rows: int) -> int:
    """Return the batch in which a slot that began with so many rows merges its runs."""
    kernel = make_kernel(AggregateSpec(("key",), COUNT, TUMBLING, "ts"))
    state = MemoryState()
    for batch in range(2 * MOST_RUNS):
        rows = [Row(key=key, seconds=1) for key in range(first_rows if batch == 0 else 100)]
        advance(kernel, state, rows, at_watermark(batch, 0, 0))
        if state.compactions:
            return batch
    msg = "the runs are never merged"
    raise AssertionError(msg)


def test_slots_that_began_together_do_not_merge_together() -> None:
    assert sorted(merging_batch(100 + more) for more in range(8)) == [7, 7, 8, 8, 9, 9, 10, 10]


def test_a_slot_whose_state_changes_hands_merges_its_runs_later_but_not_for_ever() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, TUMBLING, "ts"))
    state = MemoryState()
    state.changes_hands = True
    most = 0
    for batch in range(3 * MOST_RUNS):
        advance(kernel, state, [Row(key=1, seconds=1)], at_watermark(batch, 0, 0))
        most = max(most, len(state.runs()))
    assert MOST_RUNS < most < 2 * MOST_RUNS
    state.changes_hands = False
    for batch in range(3 * MOST_RUNS, 3 * MOST_RUNS + 5):
        advance(kernel, state, [Row(key=1, seconds=1)], at_watermark(batch, 0, 0))
    assert len(state.runs()) <= MOST_RUNS


def test_equal_runs_are_all_merged() -> None:
    assert count_runs_to_merge([5] * (MOST_RUNS + 1)) == MOST_RUNS + 1


def test_large_old_run_is_not_rewritten_for_small_new_ones() -> None:
    assert count_runs_to_merge([1_000_000] + [5] * MOST_RUNS) == MOST_RUNS


def test_rows_are_rewritten_a_logarithmic_number_of_times() -> None:
    runs: list[int] = []
    written = 0
    for _ in range(4096):
        runs.append(10)
        count = count_runs_to_merge(runs)
        if count:
            merged = sum(runs[-count:])
            runs[-count:] = [merged]
            written += merged
    assert written < 12 * 40_960
    assert len(runs) <= MOST_RUNS


def test_window_fires_once_and_is_forgotten() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, TUMBLING, "ts"))
    state = MemoryState()
    advance(kernel, state, [Row(1, 3), Row(1, 4), Row(1, 12)], OperatorTime(0))
    fired = advance(kernel, state, [], at_watermark(1, -100, 10))
    assert fired.frame.rows() == [(datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 10), 1, 2)]
    assert advance(kernel, state, [], at_watermark(2, 10, 10)).frame.is_empty()
    assert [run[WINDOW].to_list() for run in state.live()] == [[seconds(10)]]


def test_row_of_a_closed_window_is_late_even_while_the_window_fires() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, TUMBLING, "ts"))
    prepared = kernel.prepare(to_frame([(0, Row(1, 9)), (1, Row(1, 10))]), at_watermark(1, 0, 10))
    assert (prepared.late_rows, prepared.frame.height) == (1, 1)


def test_partly_late_row_feeds_only_the_windows_that_are_open() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, SLIDING, "ts"))
    state = MemoryState()
    time = at_watermark(0, 0, 10)
    # The window [0, 10) is closed, [5, 15) is open: a row at 7 is not late.
    fired = advance(kernel, state, [Row(1, 7)], time)
    assert fired.late_rows == 0 and fired.frame.is_empty()
    drained = advance(kernel, state, [], OperatorTime(1, seconds(10), END_OF_TIME, 0, seconds(10)))
    assert drained.frame["window_start"].to_list() == [datetime(1970, 1, 1, 0, 0, 5)]


def test_rows_that_fire_in_their_own_batch_are_not_written() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, TUMBLING, "ts"))
    state = MemoryState()
    fired = advance(kernel, state, [Row(1, 3), Row(1, 13)], OperatorTime(0, fire_us=seconds(10)))
    assert fired.frame["rows"].to_list() == [1]
    assert [run[WINDOW].to_list() for run in state.live()] == [[seconds(10)]]


def test_session_that_goes_on_is_kept_when_its_first_fragment_is_due() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, SESSION, "ts"))
    state = MemoryState()
    advance(kernel, state, [Row(1, 0)], OperatorTime(0))
    advance(kernel, state, [Row(1, 4)], at_watermark(1, -100, 0))
    assert advance(kernel, state, [], at_watermark(2, 0, 6)).frame.is_empty()
    fired = advance(kernel, state, [], at_watermark(3, 6, 9))
    assert fired.frame.rows() == [(datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 9), 1, 2)]
    assert fired.next_due_us is None


def test_late_row_joins_a_session_that_is_still_open() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, SESSION, "ts"))
    state = MemoryState()
    advance(kernel, state, [Row(1, 10)], OperatorTime(0))
    # At 6 alone, the session would end at 11 and be late; together with the row at 10 it is open until 15.
    fired = advance(kernel, state, [Row(1, 6), Row(2, 6)], at_watermark(1, -100, 12))
    assert fired.late_rows == 1
    assert advance(kernel, state, [], at_watermark(2, 12, 15)).frame["rows"].to_list() == [2]


@pytest.mark.parametrize(
    ("window", "due"), [(TUMBLING, 20), (SLIDING, 15), (SESSION, 16)], ids=["tumbling", "sliding", "session"]
)
def test_next_due_is_the_end_of_the_first_open_window(window: WindowSpec, due: int) -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT, window, "ts"))
    state = MemoryState()
    fired = advance(kernel, state, [Row(1, 11), Row(2, 31)], at_watermark(0, -100, 5))
    assert fired.next_due_us == seconds(due)
    still = kernel.advance([], True, state, at_watermark(1, 5, 6))
    assert still.next_due_us == seconds(due)
    drained = kernel.advance([], True, state, OperatorTime(2, seconds(6), END_OF_TIME, 0, seconds(6)))
    assert drained.frame.height > 0 and drained.next_due_us is None
    assert not state.live()


SPECS: dict[str, OperatorSpec] = {
    "tumbling": AggregateSpec(("key",), COUNT, TUMBLING, "ts"),
    "sliding": AggregateSpec(("key",), COUNT, SLIDING, "ts"),
    "session": AggregateSpec(("key",), COUNT, SESSION, "ts"),
    "running": AggregateSpec(("key",), COUNT, None, "ts", seconds(5)),
    "top_k": TopKSpec(("key",), "whole", 2, True, ("real", "name"), TUMBLING, "ts"),
    "running top_k": TopKSpec(("key",), "whole", 2, True, ("real",)),
    "distinct": DistinctSpec(("key",), "ts", seconds(5)),
}
every_kernel = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


@every_kernel
def test_slot_without_rows_and_without_state_does_nothing(spec: OperatorSpec) -> None:
    state = MemoryState()
    fired = make_kernel(spec).advance([], True, state, at_watermark(3, 0, 100))
    assert fired.frame.is_empty() and fired.late_rows == 0 and fired.next_due_us is None
    assert state.runs() == ()


@every_kernel
@pytest.mark.parametrize("combined", [True, False])
def test_blocks_without_rows_are_like_no_blocks(spec: OperatorSpec, combined: bool) -> None:
    kernel = make_kernel(spec)
    prepared = kernel.prepare(to_frame([]), OperatorTime(0)).frame
    sent = (kernel.combine(prepared) if combined else prepared).with_columns(pl.lit(0, dtype=pl.UInt64).alias(HASH))
    state = MemoryState()
    assert kernel.advance([sent, sent], combined, state, at_watermark(0, 0, 100)).frame.is_empty()
    assert state.runs() == ()


@every_kernel
def test_nothing_between_the_stages_is_an_unsigned_32_bit_number(spec: OperatorSpec) -> None:
    kernel = make_kernel(spec)
    rows = to_frame([(0, Row(1, 3, 4, 0.5))])
    combined = kernel.combine(kernel.prepare(rows, OperatorTime(0)).frame)
    assert not {pl.UInt8, pl.UInt16, pl.UInt32} & set(combined.dtypes)
    assert not {pl.UInt8, pl.UInt16, pl.UInt32} & set(kernel.output_schema(SCHEMA).values())


@every_kernel
def test_stored_state_is_readable_and_could_be_a_run(spec: OperatorSpec) -> None:
    kernel = make_kernel(spec)
    state = MemoryState()
    for batch, rows in enumerate(([Row(1, 3, 1), Row(2, 4, 2)], [Row(1, 5, 3), Row(3, 6, 4)])):
        advance(kernel, state, rows, OperatorTime(batch))
    stored = kernel.stored(state.live(), passed_us=-(2**62))
    assert stored.schema == state.live()[0].schema
    assert set(kernel.values(stored)["key"].to_list()) == {1, 2, 3}
    state.replace(stored)


def test_keys_of_equal_hash_stay_apart() -> None:
    kernel = make_kernel(AggregateSpec(("key",), COUNT))
    state = MemoryState()
    time = OperatorTime(0)
    for key, total in ((1, 1), (2, 1), (1, 2)):
        (sent,) = send(kernel, [Row(key, 0)], time)
        fired = kernel.advance([sent.with_columns(pl.lit(9, dtype=pl.UInt64).alias(HASH))], True, state, time)
        assert fired.frame.rows() == [(key, total)]


def test_top_k_refuses_columns_that_are_missing_or_taken() -> None:
    with pytest.raises(FlowError, match="no column 'volts'"):
        make_kernel(TopKSpec(("key",), "volts", 2)).output_schema(SCHEMA)
    with pytest.raises(FlowError, match="adds a column 'rank'"):
        make_kernel(TopKSpec(("key",), "rank", 2)).output_schema({**SCHEMA, "rank": pl.Int64()})
    with pytest.raises(FlowError, match="k must be at least 1, got 0"):
        make_kernel(TopKSpec(("key",), "whole", 0))


def test_top_k_does_not_show_the_columns_of_the_engine() -> None:
    schema = make_kernel(SPECS["top_k"]).output_schema(SCHEMA)
    assert list(schema) == ["window_start", "window_end", "key", "rank", "whole", "real", "name"]


def test_distinct_keeps_the_columns_of_the_row_and_nothing_else() -> None:
    schema = {**SCHEMA, "__time": pl.Datetime("us"), ORDER: pl.Int64()}
    assert make_kernel(DistinctSpec(("key",), "ts")).output_schema(schema) == SCHEMA
