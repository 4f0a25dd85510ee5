"""Streams for kernels whose keys have their own time, and what they must emit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    HASH,
    Clock,
    ForgottenClocks,
    Kernel,
    OperatorTime,
    SharedClocks,
)
from anabranch.model.times import FLOW_CLOCK
from anabranch.operators.aggregates import functions as agg
from unit.operators.key_time_oracle import KeyTimeOracle, as_rows
from unit.operators.memory_state import MemoryState
from unit.operators.oracle import Placed, place
from unit.operators.streams import EPOCH, SECOND_US, Batch, to_frame

HASHES = 3
"""Few hashes for many keys: collisions must not matter."""
GROUPS = 2
AGGREGATES = {"rows": agg.count(), "total": agg.sum("whole")}

Outcomes = list[tuple[list[tuple[Any, ...]], int, int, int]]
"""By batch: what was emitted, late rows, those that changed a result, those that were handed out."""


def shape(rows: list[Placed]) -> dict[str, Any]:
    """Return what AGGREGATES make of rows."""
    wholes = [row.whole for *_, row in rows if row.whole is not None]
    return {"rows": len(rows), "total": sum(wholes) if wholes else None}


def run(
    kernel: Kernel, batches: list[Batch], times: list[OperatorTime], combined: bool, clock: Clock = FLOW_CLOCK
) -> Outcomes:
    """Feed a stream to a kernel on one slot."""
    state = MemoryState()
    forgotten = ForgottenClocks.none()
    combined = combined and kernel.mergeable
    outcomes = []
    for batch, began in zip([*batches, Batch((), 0)][: len(times)], times, strict=True):
        received = []
        time = replace(began, forgotten=forgotten)
        placed = batch.placed_rows()
        for ordinal in range(len(batch.splits)):
            frame = to_frame([(order, row) for order, row in placed if order >> 36 == ordinal])
            prepared = kernel.prepare(frame, time).frame
            sent = kernel.combine(prepared) if combined else prepared
            received.append(sent.with_columns((pl.col("key") % HASHES).cast(pl.UInt64).alias(HASH)))
        fired = kernel.advance(received, combined, state, time)
        forgotten = forgotten.plus(time.forget_until_us(clock), fired.forgotten_us or {})
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


def check(make: Callable[[], Kernel], oracle: KeyTimeOracle, batches: list[Batch], times: list[OperatorTime]) -> None:
    """Fail unless kernels, with and without a local merge, do what the oracle does."""
    expected = []
    for number, time in enumerate(times):
        rows = place(number, batches[number]) if number < len(batches) else []
        emitted, late, updated = oracle.advance(rows, time)
        handed = late - updated if oracle.window.late == "side" else 0
        expected.append((as_rows(emitted, shape), late, updated, handed))
    for combined in (True, False):
        assert run(make(), batches, times, combined, oracle.clock) == expected


@st.composite
def key_times(draw: st.DrawFn, count: int, updates: bool = True) -> tuple[Clock, list[OperatorTime]]:
    """Return clocks per key, with or without a floor and silence, and the times of so many batches and a drain.

    ``updates``: late rows may change results. Then no floor goes with keys that are forgotten: the oracle raises
    a key's clock by it also where there is nothing to do.
    """
    several = {"min_size": count, "max_size": count}
    # Wall clocks that are far before event times, or beside them: then keys that are silent are forgotten.
    unit_us = draw(st.sampled_from([1, SECOND_US]))
    floors = None
    if unit_us == 1 or not updates:
        floors = draw(st.none() | st.lists(st.integers(-30, 60), **several).map(sorted))
    floors = floors or [None] * count
    nows = draw(st.lists(st.integers(0, 100).map(lambda now: now * unit_us), **several).map(sorted))
    idle_us = draw(st.none() | st.integers(1, 40).map(lambda idle: idle * unit_us))
    forget_us = draw(st.none() | st.integers(1, 60)) if idle_us is not None else None
    clock = Clock(
        "key",
        draw(st.integers(0, 10)) * SECOND_US,
        idle_us=idle_us,
        forget_us=None if forget_us is None or idle_us is None else max(idle_us, forget_us * unit_us),
    )
    times = []
    for number, (floor_s, now) in enumerate(zip(floors, nows, strict=True)):
        floor_us = BEGINNING_OF_TIME if floor_s is None else floor_s * SECOND_US
        # Silence is looked for at every batch, as if the last one had been long ago.
        times.append(OperatorTime(number, now_us=now, floor_us=floor_us, last_now_us=-(10**9)))
    times.append(replace(times[-1], batch=count, fire_us=END_OF_TIME))
    return clock, times


@st.composite
def group_times(draw: st.DrawFn, count: int) -> tuple[Clock, list[OperatorTime]]:
    """Return clocks per group, and the times of so many batches and a drain."""
    rises = draw(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=count, max_size=count))
    fired = np.full(GROUPS, BEGINNING_OF_TIME, np.int64)
    closed = np.array([-20, -20], np.int64) * SECOND_US
    times = []
    for number, rise in enumerate(rises):
        times.append(OperatorTime(number, shared=SharedClocks(fired, closed)))
        fired, closed = closed, closed + np.array(rise, np.int64) * SECOND_US
    times.append(OperatorTime(count, fire_us=END_OF_TIME, shared=SharedClocks(fired, closed)))
    return Clock("group", groups=GROUPS), times


def time_of_flow(key: int, time: OperatorTime) -> tuple[int, int]:
    """Return (fired, closed) where all keys share one watermark."""
    return time.fired_us, time.closed_us


def time_of_group(key: int, time: OperatorTime) -> tuple[int, int]:
    """Return (fired, closed) of a key's group."""
    assert time.shared is not None
    group = key % HASHES % GROUPS
    return int(time.shared.fired_us[group]), int(time.shared.closed_us[group])
