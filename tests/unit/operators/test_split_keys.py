"""Keys that have their own time and are on several slots: what one slot would emit, in the same batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.decisions import RouteChange
from anabranch.model import AggregateSpec, Clock, OperatorTime, RoutingTable, WindowSpec
from anabranch.routing import Routes
from property_tests import tries
from unit.operators.key_time_oracle import KeyTimeOracle, as_rows
from unit.operators.many_slots import ManySlots
from unit.operators.oracle import place
from unit.operators.streams import EPOCH, SECOND_US, Batch, Outcome, Row, batches_strategy, moments_strategy, times_of
from unit.operators.streams_by_key import (
    AGGREGATES,
    HASHES,
    group_times,
    key_times,
    shape,
    time_of_flow,
    time_of_group,
)
from unit.operators.test_windows_by_key import windows
from wild_routes import make_wild_routes

SLOTS = 4
TUMBLING = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US)


def hash_few(frame: pl.DataFrame) -> pl.Series:
    """Return few hashes for many keys: those that collide are split together, and keep their times apart."""
    return (frame["key"] % HASHES).cast(pl.UInt64)


def spec_of(window: WindowSpec, clock: Clock) -> AggregateSpec:
    return AggregateSpec(("key",), AGGREGATES, window, "ts", clock=clock)


def rows_of(outcome: Outcome) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (row["window_start"] - EPOCH) // timedelta(microseconds=1),
            (row["window_end"] - EPOCH) // timedelta(microseconds=1),
            row["key"],
            row.get("emission", "final"),
            (row["rows"], row["total"]),
        )
        for row in outcome.rows
    )


def check(
    window: WindowSpec,
    clock: Clock,
    oracle: KeyTimeOracle,
    batches: Sequence[Batch],
    times: Sequence[OperatorTime],
    seed: int,
) -> None:
    """Fail unless slots, under routes that chance changes at every boundary, do what the oracle does."""
    chance = random.Random(seed)

    def routes() -> Routes:
        return make_wild_routes(chance, range(HASHES), splittable=True, spreadable=False, by_value=False)

    slots = ManySlots(spec_of(window, clock), routes(), hash_few)
    combined = chance.random() < 0.5
    for number, time in enumerate(times):
        batch = batches[number] if number < len(batches) else Batch((), 0)
        emitted, late, _ = oracle.advance(place(number, batch), time)
        change = RouteChange(routes(), "state") if chance.random() < 0.7 else None
        outcome = slots.advance(batch, time, combined, change)
        assert (rows_of(outcome), outcome.late_rows) == (as_rows(emitted, shape), late)


@tries(40)
@given(window=windows, batches=batches_strategy, data=st.data(), seed=st.integers(0, 2**32))
def test_split_keys_in_their_own_time_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject, seed: int
) -> None:
    clock, times = data.draw(key_times(len(batches)))
    check(window, clock, KeyTimeOracle(window, clock), batches, times, seed)


@tries(40)
@given(window=windows, batches=batches_strategy, data=st.data(), seed=st.integers(0, 2**32))
def test_split_keys_in_the_time_of_a_group_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject, seed: int
) -> None:
    clock, times = data.draw(group_times(len(batches)))
    check(window, clock, KeyTimeOracle(window, clock, time_of_group), batches, times, seed)


@tries(40)
@given(window=windows.filter(lambda window: window.marks_emissions), batches=batches_strategy, data=st.data())
def test_split_keys_whose_windows_are_emitted_again_equal_the_oracle(
    window: WindowSpec, batches: list[Batch], data: st.DataObject
) -> None:
    times = times_of(batches, data.draw(st.booleans()), at_once=data.draw(moments_strategy))
    oracle = KeyTimeOracle(window, Clock(), time_of_flow)
    check(window, Clock(), oracle, batches, times, data.draw(st.integers(0, 2**32)))


def routed(*slots: int) -> Routes:
    """Return routes under which key 1 is on these slots."""
    table = RoutingTable.of({1: {slot: 1 / len(slots) for slot in slots}}) if slots else RoutingTable.empty()
    return Routes(Routes.even(SLOTS, 8).base, table)


def rows_at(*seconds: int) -> Batch:
    """Return a batch of key 1; every row is a split, so that several slots get some."""
    return Batch(tuple((Row(1, second, 1),) for second in seconds), 0)


def feed(slots: ManySlots, batches: Sequence[Batch], **given: Any) -> list[tuple[list[int], int]]:
    """Return by batch the rows of each result, and the late rows."""
    outcomes = [slots.advance(batch, OperatorTime(n, **given), True) for n, batch in enumerate(batches)]
    return [([row["rows"] for row in outcome.rows], outcome.late_rows) for outcome in outcomes]


def test_windows_of_a_split_key_close_in_the_batch_that_brought_the_time() -> None:
    slots = ManySlots(spec_of(TUMBLING, Clock("key", 2 * SECOND_US)), routed(0, 1, 2), hash_few)
    early = [rows_at(*range(10)), rows_at(12), rows_at(*range(3, 9))]
    assert feed(slots, early) == [([], 0), ([10], 0), ([], 6)]
    assert sum(bool(runs) for runs in slots.runs.values()) > 1


def test_a_merged_key_takes_its_time_back_and_the_driver_forgets_it() -> None:
    slots = ManySlots(spec_of(TUMBLING, Clock("key")), routed(0, 1, 2), hash_few)
    slots.advance(rows_at(*range(20)), OperatorTime(0), True, RouteChange(routed(3), "state"))
    assert slots.split_keys is not None
    assert slots.advance(rows_at(*range(10)), OperatorTime(1), True).late_rows == 10
    assert slots.split_keys is None
    assert slots.advance(rows_at(5, 31), OperatorTime(2), True).late_rows == 1


def test_a_key_takes_its_time_along_when_it_is_split() -> None:
    slots = ManySlots(spec_of(TUMBLING, Clock("key")), routed(), hash_few)
    outcome = slots.advance(rows_at(3, 14), OperatorTime(0), True, RouteChange(routed(1, 2, 3), "state"))
    assert [row["rows"] for row in outcome.rows] == [1]
    assert slots.advance(rows_at(*range(8)), OperatorTime(1), True).late_rows == 8
    assert [row["rows"] for row in slots.advance(rows_at(15, 16, 20), OperatorTime(2), True).rows] == [3]


def test_parts_write_nothing_while_nothing_comes() -> None:
    slots = ManySlots(spec_of(TUMBLING, Clock("key")), routed(0, 1, 2), hash_few)
    slots.advance(rows_at(*range(6)), OperatorTime(0), True)
    before = dict(slots.runs)
    slots.advance(Batch((), 0), OperatorTime(1), True)
    assert slots.runs == before


def test_a_split_key_that_falls_silent_says_when_to_look() -> None:
    slots = ManySlots(spec_of(TUMBLING, Clock("key", idle_us=40)), routed(0, 1, 2), hash_few)
    slots.advance(rows_at(*range(6)), OperatorTime(0), True)
    assert slots.wakes_us == [40]
    assert [row["rows"] for row in slots.advance(Batch((), 0), OperatorTime(1, now_us=50), True).rows] == [6]
    assert slots.wakes_us == [40]


def test_a_floor_over_open_windows_of_a_split_key_is_waited_for() -> None:
    slots = ManySlots(spec_of(TUMBLING, Clock("key", 30 * SECOND_US, behind_us=SECOND_US)), routed(0, 1), hash_few)
    slots.advance(rows_at(*range(6)), OperatorTime(0), True)
    assert slots.dues_us == [10 * SECOND_US]
    closing = slots.advance(Batch((), 0), OperatorTime(1, floor_us=12 * SECOND_US), True)
    assert [row["rows"] for row in closing.rows] == [6]


@pytest.mark.parametrize("late", ["drop", "side", "update"])
def test_what_is_read_of_parts_is_what_one_slot_has_open(late: Any) -> None:
    window = WindowSpec("sliding", 10 * SECOND_US, 5 * SECOND_US, late=late)
    many = ManySlots(spec_of(window, Clock("key")), routed(0, 1, 2), hash_few)
    one = ManySlots(spec_of(window, Clock("key")), routed(2), hash_few)
    for number, batch in enumerate([rows_at(*range(8)), rows_at(9, 17), rows_at(16, 18, 31)]):
        time = OperatorTime(number)
        many.advance(batch, time, True)
        one.advance(batch, time, True)
        assert sorted(many.values(time).rows()) == sorted(one.values(time).rows())


def test_what_a_silent_split_key_fired_is_not_fired_again_where_another_key_has_its_hash() -> None:
    clock = Clock(per="key", delay_us=0, idle_us=11 * SECOND_US)
    whole, silent, other = Routes.even(SLOTS, 16), 0, HASHES
    split = whole.with_table(RoutingTable.of({0: {1: 0.5, 3: 0.5}}))
    moments = [
        # When, by the wall clock; seconds of rows of both keys; where they are from then on.
        (0, [37], [55], split),
        (1, [32], [56], None),
        (60, [], [57], whole.with_table(RoutingTable.of({0: {0: 1.0}}))),
        (65, [42, 54], [], None),
        (90, [], [], None),
    ]
    slots, oracle = ManySlots(spec_of(TUMBLING, clock), whole, hash_few), KeyTimeOracle(TUMBLING, clock)
    fired = []
    for number, (now, of_silent, of_other, routes) in enumerate(moments):
        seconds = [*((silent, second) for second in of_silent), *((other, second) for second in of_other)]
        rows = tuple(Row(key, second, None, None) for key, second in seconds)
        batch = Batch((rows,), 0, now * SECOND_US)
        time = OperatorTime(number, now_us=now * SECOND_US, last_now_us=-1)
        emitted, late, _ = oracle.advance(place(number, batch), time)
        change = None if routes is None else RouteChange(routes, "state")
        outcome = slots.advance(batch, time, False, change)
        assert (rows_of(outcome), outcome.late_rows) == (as_rows(emitted, shape), late)
        fired += [row[0] // SECOND_US for row in rows_of(outcome) if row[2] == silent]
    assert fired == [30, 40, 50]
