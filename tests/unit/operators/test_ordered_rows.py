"""Rows that are held until their time has come leave in its order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, HASH, Clock, LatePolicy, OperatorTime, OrderSpec
from anabranch.operators.kernels import make_kernel
from property_tests import tries
from unit.operators.memory_state import MemoryState
from unit.operators.oracle import Placed, place
from unit.operators.streams import SECOND_US, Batch, Row, batches_strategy, moments_strategy, times_of, to_frame

Outcome = tuple[list[tuple[int, int, int | None]], int, int]
"""(key, seconds, number) of what went on, the number of late rows, and of those that were put aside."""


def run(spec: OrderSpec, batches: list[Batch], times: list[OperatorTime]) -> list[Outcome]:
    kernel, state, outcomes = make_kernel(spec), MemoryState(), []
    for batch, time in zip([*batches, Batch((), 0)][: len(times)], times, strict=True):
        placed = batch.placed_rows()
        received = [
            kernel.prepare(to_frame([(order, row) for order, row in placed if order >> 36 == split]), time).frame
            for split in range(len(batch.splits))
        ]
        fired = kernel.advance(
            [frame.with_columns((pl.col("key") % 3).cast(pl.UInt64).alias(HASH)) for frame in received],
            False,
            state,
            time,
        )
        rows = fired.frame
        went_on = list(zip(rows["key"], rows["ts"].dt.epoch("s"), rows["whole"], strict=True)) if rows.height else []
        outcomes.append((went_on, fired.late_rows, 0 if fired.late is None else fired.late.height))
    return outcomes


def expect(late: LatePolicy, batches: list[Batch], times: list[OperatorTime], delay_us: int | None) -> list[Outcome]:
    """Return what goes on, under the flow's watermark or, with a delay, under each key's own."""
    held: list[Placed] = []
    watermarks: dict[int, int] = {}
    outcomes = []
    for number, time in enumerate(times):
        rows = place(number, batches[number]) if number < len(batches) else []
        closed = {row.key: watermarks.get(row.key, BEGINNING_OF_TIME) for *_, row in [*held, *rows]}
        fire = dict(closed)
        for at, _, _, row in rows if delay_us is not None else ():
            fire[row.key] = max(fire[row.key], at - delay_us)
        if delay_us is None:
            closed, fire = dict.fromkeys(closed, time.closed_us), dict.fromkeys(closed, time.fire_us)
        watermarks |= fire
        late_rows = [placed for placed in rows if placed[0] < closed[placed[3].key]]
        waiting = sorted([*held, *(placed for placed in rows if placed not in late_rows)])
        went_on = [placed for placed in waiting if time.drains or placed[0] < fire[placed[3].key]]
        held = [placed for placed in waiting if placed not in went_on]
        for at, _, _, row in went_on:
            watermarks[row.key] = max(watermarks[row.key], at)
        as_rows = [(row.key, row.seconds, row.whole) for *_, row in went_on]
        outcomes.append((as_rows, len(late_rows), len(late_rows) if late == "side" else 0))
    return outcomes


@tries(40)
@given(
    batches=batches_strategy,
    first_hop=st.booleans(),
    at_once=moments_strategy,
    late=st.sampled_from(["drop", "side"]),
)
def test_a_slots_rows_leave_in_the_order_of_their_time(
    batches: list[Batch], first_hop: bool, at_once: list[bool], late: Any
) -> None:
    times = times_of(batches, first_hop, at_once=at_once)
    assert run(OrderSpec(("key",), "ts", late=late), batches, times) == expect(late, batches, times, None)


@tries(40)
@given(batches=batches_strategy, delay=st.integers(0, 20), drains=st.sets(st.integers(0, 12), max_size=2))
def test_a_keys_rows_leave_when_its_own_watermark_has_passed_them(
    batches: list[Batch], delay: int, drains: set[int]
) -> None:
    times = [OperatorTime(number) for number in range(len(batches) + 1)]
    times = [replace(t, fire_us=END_OF_TIME) if t.batch in {*drains, len(batches)} else t for t in times]
    spec = OrderSpec(("key",), "ts", Clock("key", delay * SECOND_US))
    assert run(spec, batches, times) == expect("drop", batches, times, delay * SECOND_US)


def test_equal_times_leave_in_the_order_in_which_they_came() -> None:
    batches = [Batch(((Row(1, 5, 1), Row(2, 5, 2)), (Row(1, 5, 3),)), 0), Batch(((Row(2, 5, 4), Row(1, 4, 5)),), 0)]
    times = [OperatorTime(number) for number in range(2)] + [
        OperatorTime(2, closed_us=60 * SECOND_US, fire_us=60 * SECOND_US)
    ]
    outcomes = run(OrderSpec(("key",), "ts"), batches, times)
    assert [number for _, _, number in outcomes[-1][0]] == [5, 1, 2, 3, 4]


def test_a_drain_says_how_far_it_went() -> None:
    kernel, state = make_kernel(OrderSpec(("key",), "ts")), MemoryState()
    rows = kernel.prepare(to_frame([(0, Row(1, 25)), (1, Row(1, 3))]), OperatorTime(0)).frame
    received = [rows.with_columns(pl.lit(1, pl.UInt64).alias(HASH))]
    assert kernel.advance(received, False, state, OperatorTime(0)).next_due_us == 3 * SECOND_US + 1
    assert kernel.advance([], False, state, OperatorTime(1, fire_us=END_OF_TIME)).reached_us == 25 * SECOND_US
    assert kernel.stored(state.live(), 0).is_empty()
