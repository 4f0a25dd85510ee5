"""Keys whose windows all stay open take a short way, and nobody sees it."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import BEGINNING_OF_TIME, HASH, Clock, OperatorTime, WindowSpec
from anabranch.operators.aggregates import functions as agg
from anabranch.operators.windows.open_windows import Merged, OpenWindows
from anabranch.operators.windows.windows_by_key import WindowsByKey, make_windows_by_key
from property_tests import tries
from unit.compiled_loops import compiled_from
from unit.operators import streams_by_key
from unit.operators.key_time_oracle import KeyTimeOracle
from unit.operators.memory_state import MemoryState
from unit.operators.streams import SECOND_US, Batch, batches_strategy, to_frame
from unit.operators.streams_by_key import AGGREGATES, check, key_times
from unit.operators.test_windows_by_key import windows

HOUR = WindowSpec("tumbling", 3600 * SECOND_US, 3600 * SECOND_US)
CLOCK = Clock("key", delay_us=2 * SECOND_US)
BEGINNING_US = 1_700_000_000 * SECOND_US // HOUR.size_us * HOUR.size_us


def without_nulls(batch: Batch) -> Batch:
    rows = (
        (replace(row, whole=7 if row.whole is None else row.whole, real=row.real or 0.5) for row in split)
        for split in batch.splits
    )
    return replace(batch, splits=tuple(tuple(split) for split in rows))


@tries(60)
@given(window=windows, batches=batches_strategy, data=st.data(), hashes=st.sampled_from([3, 1000]))
def test_the_short_way_equals_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject, hashes: int
) -> None:
    clock, times = data.draw(key_times(len(batches)))
    clock = replace(clock, idle_us=None)
    whole = [without_nulls(batch) for batch in batches]
    with compiled_from(1), patch.object(streams_by_key, "HASHES", hashes):
        check(
            lambda: make_windows_by_key(["key"], AGGREGATES, window, "ts", clock),
            KeyTimeOracle(window, clock),
            whole,
            times,
        )


NUMBERS = {"rows": agg.count(), "whole": agg.sum("whole"), "real": agg.sum("real")}


@tries(40)
@given(window=windows, batches=batches_strategy, data=st.data())
def test_the_short_way_equals_the_long_one(window: WindowSpec, batches: list[Batch], data: st.DataObject) -> None:
    check_both_ways(window, batches, data)


def check_both_ways(window: WindowSpec, batches: list[Batch], data: st.DataObject) -> None:
    """Fail unless windows that stay open are the same whether they are merged by compiled code or not."""
    clock, times = data.draw(key_times(len(batches)))
    if data.draw(st.booleans()):
        times = [replace(time, floor_us=BEGINNING_OF_TIME) for time in times]
    # Others never go the short way, and without a long delay few rows leave their windows open.
    window = replace(window, early_us=None, late="drop" if window.late == "side" else window.late)
    clock = replace(clock, idle_us=None, delay_us=data.draw(st.sampled_from([0, 10, 60, 60])) * SECOND_US)
    combined = data.draw(st.booleans())
    hashes = data.draw(st.sampled_from([3, 1000]))
    # Nulls close the short way; where there are none in some batches, both ways alternate on one state.
    whole = [batch if data.draw(st.integers(0, 5)) == 5 else without_nulls(batch) for batch in batches]
    # From 2^50 times as much on, sums might not fit: that is left to the long way.
    numbers = NUMBERS | {"huge": agg.sum(pl.col("whole").cast(pl.Int64) * data.draw(st.sampled_from([2**40, 2**50])))}
    found = []
    for worth in (1, 10**9):
        kernel, state, emitted = make_windows_by_key(["key"], numbers, window, "ts", clock), MemoryState(), []
        merges = combined and kernel.mergeable
        with compiled_from(worth):
            for number, time in enumerate(times):
                received = []
                for split in whole[number].splits if number < len(whole) else ():
                    frame = to_frame([(at, row) for at, row in enumerate(split)])
                    prepared = kernel.prepare(frame, time).frame
                    sent = kernel.combine(prepared) if merges else prepared
                    received.append(sent.with_columns((pl.col("key") % hashes).cast(pl.UInt64).alias(HASH)))
                fired = kernel.advance(received, merges, state, time)
                stored = kernel.stored(state.live(), 0) if state.live() else pl.DataFrame()
                rows = sorted(fired.frame.rows(), key=repr)
                held = sorted(stored.select(sorted(stored.columns)).rows(), key=repr)
                emitted.append((rows, held, fired.late_rows, fired.slot_late_rows, fired.latest_us, fired.next_due_us))
        found.append(emitted)
    assert found[0] == found[1]


def make_rows(kernel: WindowsByKey, count: int, second: int, key: pl.Expr, combined: bool) -> list[pl.DataFrame]:
    """Return a row a key, in two frames, as a slot gets them."""
    rows = pl.select(pl.int_range(count).alias("number")).select(
        key.alias("key"),
        pl.lit(BEGINNING_US + second * SECOND_US).cast(pl.Datetime("us")).alias("ts"),
        (pl.col("number") % 5).cast(pl.Float64).alias("real"),
        (pl.col("number") % 7).alias("whole"),
        pl.col("number"),
    )
    received = []
    for part in (rows[::2], rows[1::2]):
        prepared = kernel.prepare(part, OperatorTime(0)).frame
        sent = kernel.combine(prepared) if combined else prepared
        received.append(sent.with_columns(sent.get_column("key").hash(7).alias(HASH)))
    return received


def make_kernel() -> WindowsByKey:
    aggregates = {"rows": agg.count(), "total": agg.sum("real"), "whole": agg.sum("whole")}
    return make_windows_by_key(["key"], aggregates, HOUR, "ts", CLOCK)


@pytest.mark.parametrize("combined", [True, False])
@pytest.mark.parametrize("dtype", [pl.Int64, pl.String])
def test_many_keys_are_merged_the_short_way(dtype: type[pl.DataType], combined: bool) -> None:
    seen: list[Merged | None] = []
    merge = OpenWindows.merge

    def watch(*arguments: object) -> Merged | None:
        seen.append(merge(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    states = []
    for short in (True, False):
        kernel, state = make_kernel(), MemoryState()
        with patch.object(OpenWindows, "merge", watch if short else lambda *_: None):
            for second in range(3):
                key = (pl.col("number") + 1000 * second).cast(dtype)
                kernel.advance(make_rows(kernel, 70_000, second, key, combined), combined, state, OperatorTime(second))
        states.append(kernel.stored(state.live(), 0).sort("key"))
    assert all(merged is not None and merged.advanced is not None and merged.arrived is None for merged in seen)
    assert len(seen) == 3
    assert states[0].equals(states[1].select(states[0].columns))


def test_keys_of_which_a_window_ends_go_the_long_way() -> None:
    kernel, state = make_kernel(), MemoryState()
    key = pl.col("number")
    kernel.advance(make_rows(kernel, 70_000, 0, key, False), False, state, OperatorTime(0))
    few = make_rows(kernel, 500, 3603, key, False)
    most = make_rows(kernel, 69_500, 1, key + 500, False)
    fired = kernel.advance([*few, *most], False, state, OperatorTime(1))
    assert fired.frame.height == 500
    assert fired.frame.get_column("rows").to_list() == [1] * 500
    stored = kernel.stored(state.live(), 0)
    assert stored.filter(pl.col("key") >= 500).get_column("__rows.n").to_list() == [2] * 69_500


def test_sums_that_might_not_fit_are_left_to_who_finds_out() -> None:
    kernel, state = make_kernel(), MemoryState()
    received = [
        frame.with_columns(pl.lit(2**62, pl.Int64).alias("__in1"))
        for frame in make_rows(kernel, 70_000, 0, pl.col("number"), False)
    ]
    kernel.advance(received, False, state, OperatorTime(0))
    assert kernel.stored(state.live(), 0).get_column("__whole.sum").unique().to_list() == [2**62]


def test_rows_that_would_be_late_for_their_slot_are_counted() -> None:
    kernel, state = make_kernel(), MemoryState()
    time = OperatorTime(0, slot_closed_us=BEGINNING_US + 2 * HOUR.size_us)
    fired = kernel.advance(make_rows(kernel, 70_000, 0, pl.col("number"), True), True, state, time)
    assert (fired.late_rows, fired.slot_late_rows) == (0, 70_000)
    assert fired.latest_us == BEGINNING_US


def test_hashes_are_those_of_the_rows() -> None:
    kernel, state = make_kernel(), MemoryState()
    kernel.advance(make_rows(kernel, 70_000, 0, pl.col("number"), False), False, state, OperatorTime(0))
    stored = kernel.stored(state.live(), 0)
    assert np.array_equal(stored.get_column(HASH).to_numpy(), stored.get_column("key").hash(7).to_numpy())
