"""Sessions that close in their own key's time equal a row-by-row oracle."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import HASH, Clock, OperatorTime, WindowSpec
from anabranch.operators.windows.windows_by_key import WindowsByKey, make_windows_by_key
from property_tests import tries
from unit.operators.key_time_oracle import KeyTimeSessions
from unit.operators.memory_state import MemoryState
from unit.operators.streams import SECOND_US, Batch, Row, batches_strategy, moments_strategy, times_of, to_frame
from unit.operators.streams_by_key import (
    AGGREGATES,
    Outcomes,
    check,
    group_times,
    key_times,
    run,
    time_of_flow,
    time_of_group,
)

sessions = st.builds(
    lambda gap, late, lateness, early: WindowSpec(
        "session",
        gap * SECOND_US,
        gap * SECOND_US,
        0,
        late,
        lateness * SECOND_US if late == "update" else 0,
        early * SECOND_US if early else None,
    ),
    st.sampled_from([1, 4, 9]),
    st.sampled_from(["drop", "side", "update", "update"]),
    st.integers(1, 30),
    st.sampled_from([None, None, 3, 20]),
)


def make(window: WindowSpec, clock: Clock) -> WindowsByKey:
    return make_windows_by_key(["key"], AGGREGATES, window, "ts", clock)


@tries(60)
@given(window=sessions, batches=batches_strategy, data=st.data())
def test_sessions_in_a_keys_own_time_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject
) -> None:
    clock, times = data.draw(key_times(len(batches)))
    check(lambda: make(window, clock), KeyTimeSessions(window, clock), batches, times)


@tries(40)
@given(window=sessions, batches=batches_strategy, first_hop=st.booleans(), at_once=moments_strategy)
def test_sessions_in_the_flows_time_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], first_hop: bool, at_once: list[bool]
) -> None:
    times = times_of(batches, first_hop, at_once=at_once)
    check(lambda: make(window, Clock()), KeyTimeSessions(window, Clock(), time_of_flow), batches, times)


@tries(40)
@given(window=sessions, batches=batches_strategy, data=st.data())
def test_sessions_in_the_time_of_a_group_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject
) -> None:
    clock, times = data.draw(group_times(len(batches)))
    check(lambda: make(window, clock), KeyTimeSessions(window, clock, time_of_group), batches, times)


GAP = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US)
UPDATED = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US, late="update", lateness_us=20 * SECOND_US)


def emitted(outcomes: Outcomes) -> list[list[tuple[int, int, str, int]]]:
    """Return by batch (start, end, emission, number of rows), in seconds."""
    return [
        [(start // SECOND_US, end // SECOND_US, emission, values[0]) for start, end, _, emission, values in rows]
        for rows, *_ in outcomes
    ]


def run_seconds(window: WindowSpec, clock: Clock, *batches: list[int]) -> Outcomes:
    """Feed batches of rows at these seconds, all of one key."""
    stream = [Batch((tuple(Row(1, second, 1) for second in seconds),), 0) for seconds in batches]
    return run(make(window, clock), stream, [OperatorTime(number) for number in range(len(stream))], combined=True)


def test_old_row_is_in_time_if_it_meets_a_session_that_is_open() -> None:
    outcomes = run_seconds(GAP, Clock("key"), [0, 4, 8], [3], [30])
    assert emitted(outcomes) == [[], [], [(0, 13, "final", 4)]]
    assert [late for _, late, *_ in outcomes] == [0, 0, 0]


def test_late_row_extends_the_session_that_it_meets_and_it_is_emitted_again() -> None:
    outcomes = run_seconds(UPDATED, Clock("key"), [0], [20], [2], [30])
    assert emitted(outcomes) == [[], [(0, 5, "final", 1)], [(0, 7, "update", 2)], [(20, 25, "final", 1)]]
    assert [(late, updated) for _, late, updated, _ in outcomes] == [(0, 0), (0, 0), (1, 1), (0, 0)]


def test_late_row_that_meets_no_session_is_emitted_as_a_first_result() -> None:
    outcomes = run_seconds(UPDATED, Clock("key"), [20], [3], [-6])
    assert emitted(outcomes) == [[], [(3, 8, "final", 1)], []]
    assert [(late, updated) for _, late, updated, _ in outcomes] == [(0, 0), (1, 1), (1, 0)]


def test_row_that_joins_what_was_emitted_to_what_is_open_makes_one_session_of_them() -> None:
    outcomes = run_seconds(UPDATED, Clock("key"), [0], [8], [4], [40])
    assert emitted(outcomes) == [[], [(0, 5, "final", 1)], [], [(0, 13, "update", 3)]]
    assert [late for _, late, *_ in outcomes] == [0, 0, 0, 0]


def test_emitted_session_is_forgotten_when_the_lateness_has_passed() -> None:
    kernel, state = make(UPDATED, Clock("key")), MemoryState()
    for number, second in enumerate([0, 10, 24, 25]):
        frame = to_frame([(0, Row(1, second))])
        sent = kernel.combine(kernel.prepare(frame, OperatorTime(number)).frame)
        kernel.advance([sent.with_columns(pl.lit(1, pl.UInt64).alias(HASH))], True, state, OperatorTime(number))
        held = kernel.values(kernel.stored(state.live(), 0)).sort("window_start")
        starts = held.get_column("window_start").dt.timestamp("ms").to_list()
        assert starts[0] == (0 if second < 25 else 10_000)


def test_silent_keys_session_ends_and_its_next_row_begins_another() -> None:
    clock = Clock("key", 60 * SECOND_US, idle_us=10)
    stream = [Batch(((Row(1, 0),),), 0), Batch((), 0), Batch(((Row(1, -3), Row(1, 3)),), 0), Batch((), 0)]
    nows = [0, 12, 14, 40]
    times = [OperatorTime(number, now_us=now, last_now_us=now - 12) for number, now in enumerate(nows)]
    outcomes = run(make(GAP, clock), stream, times, combined=True)
    # The session until 5 s was closed: that of -3 s ended before it, that of 3 s goes on after it.
    assert emitted(outcomes) == [[], [(0, 5, "final", 1)], [], [(3, 8, "final", 1)]]
    assert [late for _, late, *_ in outcomes] == [0, 0, 1, 0]
