"""Processors with state and timers equal a row-by-row oracle, whatever their keys' time does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import FlowError
from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    HASH,
    Clock,
    ForgottenClocks,
    Kernel,
    OperatorTime,
    ProcessSpec,
    SharedClocks,
)
from anabranch.model.times import FLOW_CLOCK
from anabranch.operators.kernels import make_kernel
from anabranch.operators.processors.declared_state import value
from anabranch.operators.processors.processor import FrameProcessor, Processor
from property_tests import tries
from unit.operators.memory_state import MemoryState
from unit.operators.oracle import place
from unit.operators.processing_oracle import FramesOracle, ProcessOracle
from unit.operators.processors_under_test import FRAME_OUTPUT, OUTPUT, Scripted, ScriptedFrames
from unit.operators.streams import SCHEMA, SECOND_US, Batch, Row, batches_strategy, moments_strategy, times_of, to_frame

HASHES = 3
"""Few hashes for many keys: collisions must not matter."""

Outcome = tuple[dict[int, list[dict[str, Any]]], int]


def spec_of(processor: Any, clock: Clock, ordered: bool = False, output: Any = None) -> ProcessSpec:
    return ProcessSpec(("key",), processor, SCHEMA, output or OUTPUT, "ts", clock, ordered)


def run(
    kernel: Kernel,
    batches: list[Batch],
    times: list[OperatorTime],
    hashes: int = HASHES,
    clock: Clock = FLOW_CLOCK,
) -> list[Outcome]:
    state = MemoryState()
    forgotten = ForgottenClocks.none()
    outcomes = []
    for batch, began in zip([*batches, Batch((), 0)][: len(times)], times, strict=True):
        received = []
        time = replace(began, forgotten=forgotten)
        placed = batch.placed_rows()
        for ordinal in range(len(batch.splits)):
            frame = to_frame([(order, row) for order, row in placed if order >> 36 == ordinal])
            prepared = kernel.prepare(frame, time).frame
            received.append(prepared.with_columns((pl.col("key") % hashes).cast(pl.UInt64).alias(HASH)))
        fired = kernel.advance(received, False, state, time)
        forgotten = forgotten.plus(time.forget_until_us(clock), fired.forgotten_us or {})
        emitted: dict[int, list[dict[str, Any]]] = {}
        for row in fired.frame.to_dicts():
            emitted.setdefault(row["key"], []).append(row)
        outcomes.append((emitted, fired.late_rows))
    return outcomes


def check(clock: Clock, ordered: bool, batches: list[Batch], times: list[OperatorTime], shared: Any = None) -> None:
    forms = (
        (ProcessOracle(Scripted(), clock, ordered, shared), spec_of(Scripted(), clock, ordered)),
        (FramesOracle(Scripted(), clock, ordered, shared), spec_of(ScriptedFrames(), clock, ordered, FRAME_OUTPUT)),
    )
    for oracle, spec in forms:
        expected = []
        for number, time in enumerate(times):
            rows = place(number, batches[number]) if number < len(batches) else []
            expected.append(oracle.advance(rows, time))
        assert run(make_kernel(spec), batches, times, clock=clock) == expected


@tries(40)
@given(batches=batches_strategy, ordered=st.booleans(), delay=st.integers(0, 10), data=st.data())
def test_processors_in_a_keys_own_time_equal_the_oracle(
    batches: list[Batch], ordered: bool, delay: int, data: st.DataObject
) -> None:
    count = len(batches)
    floors = data.draw(st.none() | st.lists(st.integers(-30, 60), min_size=count, max_size=count).map(sorted))
    # Wall clocks that are far before event times, or beside them: then keys that are silent are forgotten.
    unit_us = data.draw(st.sampled_from([1, SECOND_US]))
    moments = st.integers(0, 100).map(lambda now: now * unit_us)
    nows = data.draw(st.lists(moments, min_size=count + 2, max_size=count + 2).map(sorted))
    drains = data.draw(st.lists(st.integers(0, count), max_size=2))
    idle_us = data.draw(st.none() | st.integers(1, 40).map(lambda idle: idle * unit_us))
    clock = Clock("key", delay * SECOND_US, idle_us=idle_us)
    times = []
    for number in range(count + 1):
        floor_us = BEGINNING_OF_TIME if floors is None else floors[min(number, count - 1)] * SECOND_US
        # Silence is looked for at every batch, as if the last one had been long ago.
        time = OperatorTime(number, now_us=nows[number], floor_us=floor_us, last_now_us=-(10**9))
        times.append(replace(time, fire_us=END_OF_TIME) if number in (*drains, count) else time)
    check(clock, ordered, batches, times)


def test_a_timer_that_was_set_while_all_was_closed_by_force_comes_with_the_next_batch() -> None:
    rows = (Row(key=0, seconds=38, whole=None, real=None), Row(key=0, seconds=-1, whole=-40, real=None))
    batches = [Batch((rows,), 0), Batch((), 0)]
    times = [OperatorTime(0, fire_us=END_OF_TIME), OperatorTime(1), OperatorTime(2, fire_us=END_OF_TIME)]
    check(Clock("key"), False, batches, times)


@tries(30)
@given(batches=batches_strategy, ordered=st.booleans(), first_hop=st.booleans(), at_once=moments_strategy)
def test_processors_in_the_flows_time_equal_the_oracle(
    batches: list[Batch], ordered: bool, first_hop: bool, at_once: list[bool]
) -> None:
    times = times_of(batches, first_hop, at_once=at_once)
    check(Clock(), ordered, batches, times, lambda key, time: time.closed_us)


@tries(30)
@given(batches=batches_strategy, ordered=st.booleans(), data=st.data())
def test_processors_in_the_time_of_a_group_equal_the_oracle(
    batches: list[Batch], ordered: bool, data: st.DataObject
) -> None:
    groups = 2
    rises = data.draw(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=12))
    fired = np.full(groups, BEGINNING_OF_TIME, np.int64)
    closed = np.array([-20, -20], np.int64) * SECOND_US
    times = []
    for number in range(len(batches)):
        times.append(OperatorTime(number, shared=SharedClocks(fired, closed)))
        fired, closed = closed, closed + np.array(rises[number % len(rises)], np.int64) * SECOND_US
    times.append(OperatorTime(len(batches), fire_us=END_OF_TIME, shared=SharedClocks(fired, closed)))

    def shared(key: int, time: OperatorTime) -> int:
        assert time.shared is not None
        return int(time.shared.closed_us[key % HASHES % groups])

    check(Clock("group", groups=groups), ordered, batches, times, shared)


class Greeter(Processor):
    """Counts rows, and tells of them so long after the first one, by the wall clock."""

    rows = value(pl.Int32(), default=0)

    def on_time(self, row: Any, state: Any, timers: Any) -> None:
        state.rows += 1
        if row["whole"] is None:
            timers.at(row["ts"])
        elif state.rows == 1:
            timers.after_processing("1s")

    def on_timer(self, timer: Any, state: Any, timers: Any) -> list[dict[str, Any]]:
        return [{"rows": state.rows}]


class FrameGreeter(FrameProcessor):
    """Does the same with frames."""

    rows = value(pl.Int32(), default=0)

    def process(self, frame: pl.DataFrame, state: pl.DataFrame, time: Any) -> Any:
        told = state.join(time.timers, on="key", how="semi").select("key", "rows")
        counted = state.with_columns(pl.col("rows") + frame.height)
        domain = pl.lit("event" if frame["whole"].null_count() else "processing")
        at = pl.lit(time.now).cast(pl.Datetime("us")) + pl.duration(seconds=1)
        return told, counted, state.filter(pl.col("rows") == 0).select("key", at.alias("at"), domain.alias("domain"))


@pytest.mark.parametrize("processor", [Greeter(), FrameGreeter()], ids=["rows", "frames"])
def test_processors_without_event_time_have_timers_of_the_wall_clock(processor: Any) -> None:
    output = {"key": pl.Int64(), "rows": pl.Int32()}
    kernel = make_kernel(ProcessSpec(("key",), processor, SCHEMA, output, None))
    batches = [Batch(((Row(1, 50, 1),),), 0), Batch(((Row(1, 3, 2),),), 0), Batch((), 0)]
    times = [OperatorTime(number, now_us=number * 600_000) for number in range(3)]
    outcomes = run(kernel, batches, times)
    assert outcomes == [({}, 0), ({}, 0), ({1: [{"key": 1, "rows": 2}]}, 0)]
    with pytest.raises(FlowError, match="the stream has no event time"):
        run(kernel, [Batch(((Row(1, 50),),), 0)], times[:1])
