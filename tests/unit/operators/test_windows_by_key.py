"""Windows that close in their own key's time equal a row-by-row oracle."""

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
    HASH,
    ORDER,
    AggregateSpec,
    Clock,
    OperatorSpec,
    OperatorTime,
    SharedClocks,
    TopKSpec,
    WindowSpec,
)
from anabranch.operators.aggregates import functions as agg
from anabranch.operators.kernels import make_kernel
from anabranch.operators.windows.windows_by_key import WindowsByKey, make_windows_by_key
from property_tests import tries
from unit.operators.key_time_oracle import KeyTimeOracle
from unit.operators.memory_state import MemoryState
from unit.operators.streams import (
    SCHEMA,
    SECOND_US,
    Batch,
    Row,
    batches_strategy,
    moments_strategy,
    run_kernel,
    times_of,
    to_frame,
)
from unit.operators.streams_by_key import AGGREGATES, check, group_times, key_times, run, time_of_flow, time_of_group

ASIDE = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US, late="side")

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


def make(window: WindowSpec, clock: Clock) -> WindowsByKey:
    return make_windows_by_key(["key"], AGGREGATES, window, "ts", clock)


@tries(60)
@given(window=windows, batches=batches_strategy, data=st.data())
def test_windows_in_a_keys_own_time_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject
) -> None:
    clock, times = data.draw(key_times(len(batches)))
    check(lambda: make(window, clock), KeyTimeOracle(window, clock), batches, times)


@tries(40)
@given(window=windows, batches=batches_strategy, first_hop=st.booleans(), at_once=moments_strategy)
def test_windows_in_the_flows_time_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], first_hop: bool, at_once: list[bool]
) -> None:
    times = times_of(batches, first_hop, at_once=at_once)
    check(lambda: make(window, Clock()), KeyTimeOracle(window, Clock(), time_of_flow), batches, times)


@tries(40)
@given(window=windows, batches=batches_strategy, data=st.data())
def test_windows_in_the_time_of_a_group_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject
) -> None:
    clock, times = data.draw(group_times(len(batches)))
    check(lambda: make(window, clock), KeyTimeOracle(window, clock, time_of_group), batches, times)


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
    received = [
        kernel.combine(kernel.prepare(frame, OperatorTime(0)).frame).with_columns(pl.lit(1, pl.UInt64).alias(HASH))
    ]
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


LATE_SPECS: dict[str, OperatorSpec] = {
    "windows": AggregateSpec(("key",), {"opening": agg.first("whole")}, ASIDE, "ts", clock=Clock("key")),
    "sessions": AggregateSpec(("key",), {"opening": agg.first("whole")}, replace(ASIDE, kind="session"), "ts"),
    "best of windows": TopKSpec(("key",), "whole", 1, True, ("real",), ASIDE, "ts", clock=Clock("key")),
    "best of sessions": TopKSpec(("key",), "whole", 1, True, (), replace(ASIDE, kind="session"), "ts"),
}


@pytest.mark.parametrize("spec", LATE_SPECS.values(), ids=LATE_SPECS.keys())
def test_late_rows_are_handed_out_as_they_came(spec: OperatorSpec) -> None:
    kernel, state = make_kernel(spec), MemoryState()
    frames = [to_frame([(0, Row(1, 25, 3, 0.5))]), to_frame([(0, Row(1, 26, 4, 1.5)), (1, Row(1, 3, 7, 2.5))])]
    late = None
    for number, frame in enumerate(frames):
        closed_us = 20 * SECOND_US if number else BEGINNING_OF_TIME
        time = OperatorTime(number, closed_us, closed_us, fired_us=BEGINNING_OF_TIME)
        sent = kernel.prepare(frame, time).frame.with_columns(pl.lit(1, pl.UInt64).alias(HASH))
        late = kernel.advance([sent], False, state, time).late
    assert late is not None
    assert late.equals(frames[1].slice(1).drop(ORDER))


def test_best_rows_of_windows_say_which_emission_they_are() -> None:
    window = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US, late="update", lateness_us=60 * SECOND_US)
    spec = TopKSpec(("key",), "whole", 1, True, (), window, "ts", clock=Clock("key"))
    batches = [Batch(((Row(1, second, whole),),), 0) for second, whole in [(3, 5), (14, 1), (4, 8), (5, 2)]]
    outcomes = run_kernel(make_kernel(spec), batches, [OperatorTime(number) for number in range(4)], combined=True)
    found = [[(row["emission"], row["whole"], row["rank"]) for row in outcome.rows] for outcome in outcomes]
    assert found == [[], [("final", 5, 1)], [("update", 8, 1)], [("update", 8, 1)]]


def test_best_rows_that_have_a_column_of_that_name_are_refused() -> None:
    window = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US, early_us=SECOND_US)
    spec = TopKSpec(("key",), "whole", 1, True, ("emission",), window, "ts")
    with pytest.raises(FlowError, match="rename it first"):
        make_kernel(spec).output_schema({**SCHEMA, "emission": pl.String()})


def test_silent_key_that_was_closed_is_not_looked_at_again_and_again() -> None:
    window = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US, late="update", lateness_us=60 * SECOND_US)
    kernel, state = make(window, Clock("key", idle_us=40)), MemoryState()
    sent = kernel.combine(kernel.prepare(to_frame([(0, Row(1, 3))]), OperatorTime(0)).frame)
    fired = kernel.advance([sent.with_columns(pl.lit(1, pl.UInt64).alias(HASH))], True, state, OperatorTime(0))
    assert fired.wake_us == 40
    fired = kernel.advance([], True, state, OperatorTime(1, now_us=50))
    assert fired.frame["emission"].to_list() == ["final"]
    runs = len(state.runs())
    for number in range(2, 4):
        fired = kernel.advance([], True, state, OperatorTime(number, now_us=250 * number, last_now_us=50))
        # Only once more: when nobody can change its result, and its clock can go.
        assert (fired.wake_us, len(state.runs())) == (70 * SECOND_US + 40, runs)
