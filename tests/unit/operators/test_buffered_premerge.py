"""Rows that readers merge and hold back: results are those of rows that are sent at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, HASH, AggregateSpec, OperatorTime, WindowSpec
from anabranch.model.exchanges import HoldSpec, StoreKernel
from anabranch.operators.kernels import make_kernel
from anabranch.operators.windows.buffered_premerge import BufferTally, Sending, merge_in_buffer
from property_tests import tries
from unit.operators import oracle
from unit.operators.memory_state import MemoryState
from unit.operators.streams import SECOND_US, Batch, Outcome, Row, batches_strategy, times_of, to_frame
from unit.operators.test_kernels_equal_the_oracle import AGGREGATES, one, windows

HOLDS = {
    "sends at once": None,
    "waits for the window": HoldSpec(),
    "waits three seconds": HoldSpec(delay_us=3 * SECOND_US),
    "waits for twenty rows": HoldSpec(count_rows=20),
    "waits for a value": HoldSpec(predicate=pl.col("rows") >= 3),
}
holds = st.sampled_from(list(HOLDS.values()))
hold_choices = st.lists(holds, min_size=1, max_size=13)
"""By batch: what is chosen may change from one to the next."""
thorough = tries(40)
TEN_SECONDS = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US)


class Buffers:
    """Readers in front of one slot."""

    def __init__(self, spec: AggregateSpec, hold: HoldSpec | Sequence[HoldSpec | None] | None) -> None:
        """``hold`` may be another in every batch."""
        self.kernel: StoreKernel = make_kernel(spec)  # type: ignore[assignment]
        self.holds = hold if isinstance(hold, Sequence) else [hold]
        self.slot = MemoryState()
        self.held: dict[int, tuple[MemoryState, BufferTally]] = {}
        self.sent_rows = 0

    def send(self, batch: Batch, time: OperatorTime, readers: int) -> tuple[list[Sending], int]:
        """Let so many readers, and those that hold something, do a batch; return what they send, and late rows."""
        arrived: dict[int, list[pl.DataFrame]] = {reader: [] for reader in sorted({*range(readers), *self.held})}
        counts = dict.fromkeys(arrived, 0)
        late_rows = 0
        placed = batch.placed_rows()
        for ordinal in range(len(batch.splits)):
            frame = to_frame([(order, row) for order, row in placed if order >> 36 == ordinal])
            prepared = self.kernel.prepare(frame, time)
            late_rows += prepared.late_rows
            combined = self.kernel.combine(prepared.frame)
            arrived[ordinal % readers].append(combined.with_columns((pl.col("key") % 3).cast(pl.UInt64).alias(HASH)))
            counts[ordinal % readers] += prepared.frame.height
        sendings = []
        hold = self.holds[time.batch % len(self.holds)]
        for reader, frames in arrived.items():
            state, tally = self.held.get(reader) or (MemoryState(), BufferTally())
            sending = merge_in_buffer(self.kernel, hold, state, frames, counts[reader], tally, time)
            self.held[reader] = (state, sending.tally)
            if not state.runs():
                del self.held[reader]
            sendings.append(sending)
        return sendings, late_rows

    def run(self, batch: Batch, time: OperatorTime, readers: int) -> Outcome:
        """Run a batch on readers and slot."""
        sendings, late_rows = self.send(batch, time, readers)
        held = [sending.held for sending in sendings if sending.held is not None]
        received = [sending.current for sending in sendings if sending.current is not None]
        self.sent_rows += sum(frame.height for frame in (*held, *received))
        if held:
            fired = self.kernel.advance_held(held, received, True, self.slot, time)
        else:
            fired = self.kernel.advance(received, True, self.slot, time)
        return Outcome(fired.frame.to_dicts(), late_rows + fired.late_rows)


def run_all(
    buffers: Buffers, batches: Sequence[Batch], times: Sequence[OperatorTime], readers: Sequence[int]
) -> list[Outcome]:
    padded = [*batches, Batch((), 0)][: len(times)]
    return [buffers.run(*step) for step in zip(padded, times, readers, strict=False)]


def clocked(batches: list[Batch], times: list[OperatorTime]) -> list[OperatorTime]:
    """Return the times with a wall clock that goes on a second a batch."""
    return [replace(time, now_us=(number + 1) * SECOND_US) for number, time in enumerate(times)]


reader_counts = st.lists(st.integers(1, 4), min_size=13, max_size=13)


@thorough
@given(
    batches=batches_strategy,
    window=windows,
    first_hop=st.booleans(),
    chosen=hold_choices,
    readers=reader_counts,
    parts=st.sampled_from([None, 1, 2]),
)
def test_windows_answer_batch_for_batch_as_without_holding(
    batches: list[Batch],
    window: WindowSpec,
    first_hop: bool,
    chosen: list[HoldSpec | None],
    readers: list[int],
    parts: int | None,
) -> None:
    slice_us = None if parts is None else SECOND_US // parts
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, window, "ts", slice_us=slice_us), chosen)
    times = clocked(batches, times_of(batches, first_hop))
    expected = oracle.run_windows(oracle.WindowedOracle(window), batches, times, one)
    oracle.assert_same(run_all(buffers, batches, times, readers), expected)
    assert not buffers.held, "a drain leaves nothing held"


@thorough
@given(
    batches=batches_strategy,
    gap_seconds=st.sampled_from([1, 5, 12]),
    first_hop=st.booleans(),
    chosen=hold_choices,
    readers=reader_counts,
)
def test_sessions_answer_batch_for_batch_as_without_holding(
    batches: list[Batch], gap_seconds: int, first_hop: bool, chosen: list[HoldSpec | None], readers: list[int]
) -> None:
    gap_us = gap_seconds * SECOND_US
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, WindowSpec("session", gap_us, gap_us), "ts"), chosen)
    times = clocked(batches, times_of(batches, first_hop))
    expected = oracle.run_windows(oracle.SessionOracle(gap_us), batches, times, one)
    oracle.assert_same(run_all(buffers, batches, times, readers), expected)
    assert not buffers.held, "a drain leaves nothing held"


@thorough
@given(batches=batches_strategy, hold=holds, readers=reader_counts)
def test_running_aggregates_end_with_the_same_values(
    batches: list[Batch], hold: HoldSpec | None, readers: list[int]
) -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, None, "ts"), hold)
    times = clocked(batches, times_of(batches, first_hop=True))
    expected = oracle.run_running(batches, times[:-1], None, True, one)
    got = run_all(buffers, batches, times, readers)
    oracle.assert_same([_last_values(got)], [_last_values(expected)])


@thorough
@given(batches=batches_strategy, window=windows, hold=holds, readers=reader_counts)
def test_partial_rows_of_windows_come_to_the_results_wherever_they_meet(
    batches: list[Batch], window: WindowSpec, hold: HoldSpec | None, readers: list[int]
) -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, window, "ts"), hold)
    times = clocked(batches, times_of(batches, first_hop=True))
    expected = oracle.run_windows(oracle.WindowedOracle(window), batches, times, one)
    met: list[pl.DataFrame] = []
    for batch, time, count in zip([*batches, Batch((), 0)], times, readers, strict=False):
        for sending in buffers.send(batch, time, count)[0]:
            parts = [(sending.held, time.fired_us), (sending.current, time.closed_us)]
            met += [buffers.kernel.by_window(rows, after_us) for rows, after_us in parts if rows is not None]
    some = [rows for rows in met if rows.height]
    rows = buffers.kernel.results(buffers.kernel.unite(some)).to_dicts() if some else []
    oracle.assert_same([Outcome(rows, 0)], [Outcome([row for outcome in expected for row in outcome.rows], 0)])


def _last_values(outcomes: Sequence[Outcome]) -> Outcome:
    last: dict[Any, dict[str, Any]] = {}
    for outcome in outcomes:
        last |= {row["key"]: row for row in outcome.rows}
    return Outcome(list(last.values()), 0)


def _time(number: int, watermark_seconds: int | None = None, fired_seconds: int | None = None) -> OperatorTime:
    closed_us = BEGINNING_OF_TIME if watermark_seconds is None else watermark_seconds * SECOND_US
    fired_us = BEGINNING_OF_TIME if fired_seconds is None else fired_seconds * SECOND_US
    return OperatorTime(number, closed_us, closed_us, number * SECOND_US, fired_us)


def _batch(*seconds: int) -> Batch:
    return Batch((tuple(Row(1, at, 1, 1.0) for at in seconds),), 0)


def test_what_is_not_due_stays_with_its_reader() -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, TEN_SECONDS, "ts"), HoldSpec())
    for number in range(5):
        sendings, _ = buffers.send(_batch(1, 2, 3), _time(number), readers=1)
        assert [(one_of.held, one_of.current) for one_of in sendings] == [(None, None)]
    assert sendings[0].next_due_us == 10 * SECOND_US


def test_rows_are_sent_in_the_batch_in_which_their_window_fires() -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, TEN_SECONDS, "ts"), HoldSpec())
    buffers.send(_batch(1, 2, 12), _time(0), readers=1)
    sendings, _ = buffers.send(Batch((), 0), _time(1, 10), readers=1)
    assert sendings[0].held is not None
    assert buffers.kernel.results(sendings[0].held)["rows"].to_list() == [2]
    assert sendings[0].next_due_us == 20 * SECOND_US


def test_a_delay_counts_from_the_oldest_row_that_is_held() -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, TEN_SECONDS, "ts"), HoldSpec(delay_us=2 * SECOND_US))
    sent = []
    for number in range(5):
        (sending,), _ = buffers.send(_batch(1), _time(number), readers=1)
        sent.append(sending.current is not None)
        if not sent[-1]:
            assert sending.wake_us is not None
    assert sent == [False, False, True, False, False]


def test_a_count_of_rows_is_that_of_rows_that_were_read() -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, TEN_SECONDS, "ts"), HoldSpec(count_rows=5))
    sent = []
    for number in range(4):
        (sending,), _ = buffers.send(_batch(1, 2), _time(number), readers=1)
        sent.append(0 if sending.current is None else buffers.kernel.results(sending.current)["rows"].sum())
    assert sent == [0, 0, 6, 0]


def test_an_expression_chooses_merged_rows_by_their_values() -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, TEN_SECONDS, "ts"), HoldSpec(predicate=pl.col("rows") >= 3))
    (sending,), _ = buffers.send(_batch(1, 2, 3, 12), _time(0), readers=1)
    assert sending.current is not None
    assert buffers.kernel.results(sending.current)["window_start"].dt.second().to_list() == [0]


def test_state_that_is_read_has_every_row_that_waits_of_running_aggregates() -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, None, "ts"), HoldSpec())
    for number in range(3):
        buffers.send(_batch(1, 2), _time(number), readers=1)
    state, _ = buffers.held[0]
    assert len(state.runs()) == 3
    assert buffers.kernel.values(buffers.kernel.with_held([], state.live()))["rows"].to_list() == [6]


def test_everything_is_sent_when_the_flow_drains() -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, TEN_SECONDS, "ts"), HoldSpec())
    buffers.send(_batch(1, 12), _time(0), readers=1)
    drain = OperatorTime(1, BEGINNING_OF_TIME, END_OF_TIME, 0, BEGINNING_OF_TIME)
    (sending,), _ = buffers.send(Batch((), 0), drain, readers=1)
    assert sending.current is not None and sending.current.height == 2
    assert not buffers.held


@pytest.mark.parametrize("hold", [HoldSpec(), HoldSpec(predicate=pl.lit(value=False))])
def test_a_row_of_which_some_windows_have_closed_is_sent_at_once(hold: HoldSpec) -> None:
    sliding = WindowSpec("sliding", 10 * SECOND_US, 5 * SECOND_US)
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, sliding, "ts"), hold)
    (sending,), late_rows = buffers.send(_batch(7), _time(0, 10), readers=1)
    assert late_rows == 0
    assert sending.held is None and sending.current is not None


def test_fragments_of_sessions_wait_until_the_watermark_reaches_their_start() -> None:
    gap = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US)
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, gap, "ts"), HoldSpec())
    sent = []
    for number, watermark in enumerate([0, 10, 19, 20, 21]):
        (sending,), _ = buffers.send(_batch(20 + number) if number < 3 else Batch((), 0), _time(number, watermark), 1)
        sent.append(sending.held is not None)
        assert sending.current is None
    assert sent == [False, False, False, True, False]


def test_held_rows_of_many_batches_are_merged_into_few_runs() -> None:
    buffers = Buffers(AggregateSpec(("key",), AGGREGATES, TEN_SECONDS, "ts"), HoldSpec())
    for number in range(50):
        buffers.send(_batch(1, 2, 3), _time(number), readers=1)
    state, tally = buffers.held[0]
    assert len(state.runs()) <= 11
    assert tally.rows == 150
