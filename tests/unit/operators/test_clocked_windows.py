"""Windows that close in their own key's time equal a row-by-row oracle."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, HASH, Clock, OperatorTime, SharedClocks, WindowSpec
from anabranch.operators import aggregates as agg
from anabranch.operators.clocked_windows import ClockedWindows
from unit.operators.key_time_oracle import KeyTimeOracle, as_rows
from unit.operators.memory_state import MemoryState
from unit.operators.oracle import Placed, place
from unit.operators.streams import EPOCH, SECOND_US, Batch, Row, batches_strategy, times_of, to_frame

HASHES = 3
"""Few hashes for many keys: collisions must not matter."""

windows = st.builds(
    lambda kind, late, lateness, early: WindowSpec(
        "tumbling" if kind[0] == kind[1] else "sliding",
        kind[0] * SECOND_US,
        kind[1] * SECOND_US,
        kind[2] * SECOND_US,
        late,
        lateness * SECOND_US if late == "update" else 0,
        early * SECOND_US if early else None,
    ),
    st.sampled_from([(10, 10, 0), (10, 5, 0), (12, 4, 1), (9, 6, 2), (7, 7, 3)]),
    st.sampled_from(["drop", "side", "update"]),
    st.integers(0, 30),
    st.sampled_from([None, None, 3, 20]),
)


def shape(rows: list[Placed]) -> dict[str, Any]:
    wholes = [row.whole for *_, row in rows if row.whole is not None]
    return {"rows": len(rows), "total": sum(wholes) if wholes else None}


def run(
    kernel: ClockedWindows, batches: list[Batch], times: list[OperatorTime], combined: bool
) -> list[tuple[list[tuple[Any, ...]], int, int, int]]:
    state = MemoryState()
    combined = combined and kernel.mergeable
    outcomes = []
    for batch, time in zip([*batches, Batch((), 0)][: len(times)], times, strict=True):
        received = []
        placed = batch.placed_rows()
        for ordinal in range(len(batch.splits)):
            frame = to_frame([(order, row) for order, row in placed if order >> 36 == ordinal])
            prepared = kernel.prepare(frame, time).frame
            sent = kernel.combine(prepared) if combined else prepared
            received.append(sent.with_columns((pl.col("key") % HASHES).cast(pl.UInt64).alias(HASH)))
        fired = kernel.advance(received, combined, state, time)
        rows = [
            (
                (row["window_start"] - EPOCH) // timedelta(microseconds=1),
                (row["window_end"] - EPOCH) // timedelta(microseconds=1),
                row["key"],
                row.get("emission", "final"),
                (row["rows"], row["total"]),
            )
            for row in fired.frame.to_dicts()
        ]
        handed = fired.late.height if fired.late is not None else 0
        outcomes.append((sorted(rows), fired.late_rows, fired.updated_rows, handed))
    return outcomes


def make(window: WindowSpec, clock: Clock) -> ClockedWindows:
    return ClockedWindows(["key"], {"rows": agg.count(), "total": agg.sum("whole")}, window, "ts", clock)


def check(window: WindowSpec, clock: Clock, batches: list[Batch], times: list[OperatorTime], shared: Any = None) -> None:
    oracle = KeyTimeOracle(window, clock, shared)
    expected = []
    for number, time in enumerate(times):
        rows = place(number, batches[number]) if number < len(batches) else []
        emitted, late, updated = oracle.advance(rows, time)
        refused = late - updated
        expected.append((as_rows(emitted, shape), late, updated, refused if window.late == "side" else 0))
    for combined in (True, False):
        assert run(make(window, clock), batches, times, combined) == expected


@settings(deadline=None, max_examples=200)
@given(window=windows, batches=batches_strategy, delay=st.integers(0, 10), data=st.data())
def test_windows_in_a_keys_own_time_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], delay: int, data: st.DataObject
) -> None:
    floor = st.none() | st.lists(st.integers(-30, 60), min_size=len(batches), max_size=len(batches)).map(sorted)
    floors = data.draw(floor) or [None] * len(batches)
    idle_us = data.draw(st.none() | st.integers(1, 40))
    nows = data.draw(st.lists(st.integers(0, 100), min_size=len(batches), max_size=len(batches)).map(sorted))
    clock = Clock("key", delay * SECOND_US, idle_us=idle_us)
    times = []
    for number, (floor_s, now) in enumerate(zip(floors, nows, strict=True)):
        floor_us = BEGINNING_OF_TIME if floor_s is None else floor_s * SECOND_US
        # Silence is looked for at every batch, as if the last one had been long ago.
        times.append(OperatorTime(number, now_us=now, floor_us=floor_us, last_now_us=-(10**9)))
    times.append(replace(times[-1], batch=len(batches), fire_us=END_OF_TIME))
    check(window, clock, batches, times)


@settings(deadline=None, max_examples=100)
@given(window=windows, batches=batches_strategy, first_hop=st.booleans())
def test_windows_in_the_flows_time_equal_the_oracle(window: WindowSpec, batches: list[Batch], first_hop: bool) -> None:
    times = times_of(batches, first_hop)
    check(window, Clock(), batches, times, lambda key, time: (time.fired_us, time.closed_us))


@settings(deadline=None, max_examples=100)
@given(window=windows, batches=batches_strategy, data=st.data())
def test_windows_in_the_time_of_a_group_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject
) -> None:
    groups = 2
    clock = Clock("group", groups=groups)
    rises = data.draw(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=12))
    fired = np.full(groups, BEGINNING_OF_TIME, np.int64)
    closed = np.array([-20, -20], np.int64) * SECOND_US
    times = []
    for number in range(len(batches)):
        times.append(OperatorTime(number, shared=SharedClocks(fired, closed)))
        fired, closed = closed, closed + np.array(rises[number % len(rises)], np.int64) * SECOND_US
    times.append(OperatorTime(len(batches), fire_us=END_OF_TIME, shared=SharedClocks(fired, closed)))

    def shared(key: int, time: OperatorTime) -> tuple[int, int]:
        assert time.shared is not None
        group = key % HASHES % groups
        return int(time.shared.fired_us[group]), int(time.shared.closed_us[group])

    check(window, clock, batches, times, shared)


def test_slow_keys_rows_are_in_time_though_others_are_far_ahead() -> None:
    window, clock = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US), Clock("key", 2 * SECOND_US)
    batches = [
        Batch(((Row(1, 100), Row(2, 3)),), 0),
        Batch(((Row(1, 130), Row(2, 5)),), 0),
        Batch(((Row(2, 14),),), 0),
    ]
    outcomes = run(make(window, clock), batches, [OperatorTime(number) for number in range(3)], combined=True)
    assert [late for _, late, *_ in outcomes] == [0, 0, 0]
    assert outcomes[1][0] == [(100 * SECOND_US, 110 * SECOND_US, 1, "final", (1, None))]
    assert outcomes[2][0] == [(0, 10 * SECOND_US, 2, "final", (2, None))]


def test_a_clock_that_the_floor_has_passed_is_dropped() -> None:
    window, clock = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US), Clock("key")
    kernel, state = make(window, clock), MemoryState()
    frame = to_frame([(0, Row(1, 25))])
    received = [kernel.combine(kernel.prepare(frame, OperatorTime(0)).frame).with_columns(pl.lit(1, pl.UInt64).alias(HASH))]
    kernel.advance(received, True, state, OperatorTime(0))
    assert kernel.stored(state.live(), 0).height == 1
    fired = kernel.advance([], True, state, OperatorTime(1, floor_us=60 * SECOND_US))
    assert fired.frame["rows"].to_list() == [1]
    assert kernel.stored(state.live(), 0).is_empty()


@pytest.mark.parametrize("per", ["key", "group"])
def test_slot_level_lateness_is_counted_beside(per: Any) -> None:
    clock = Clock(per, groups=4)
    kernel, state = make(WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US), clock), MemoryState()
    frame = to_frame([(0, Row(1, 25)), (1, Row(1, 3)), (2, Row(2, 7))])
    far = np.full(4, BEGINNING_OF_TIME, np.int64)
    time = OperatorTime(0, shared=SharedClocks(far, far), slot_closed_us=20 * SECOND_US)
    prepared = kernel.prepare(frame, time).frame.with_columns(pl.col("key").cast(pl.UInt64).alias(HASH))
    fired = kernel.advance([prepared], False, state, time)
    assert (fired.late_rows, fired.slot_late_rows, fired.latest_us) == (0, 2, 25 * SECOND_US)
    assert fired.group_latest_us == ({1: 25 * SECOND_US, 2: 7 * SECOND_US} if per == "group" else None)
