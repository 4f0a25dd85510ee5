"""Rows under routes that change with the window: each reaches every owner of its windows, and nobody twice."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.apply import can_wait
from anabranch.eventtime import pane_us
from anabranch.model import HASH, WINDOW, AggregateSpec, BucketMap, DistinctSpec, RoutingTable, WindowSpec
from anabranch.operators.aggregates import functions as ab
from anabranch.routing import BucketRoute, ChoiceSplitter, KeyBatch, ModuloRoute, Routes
from anabranch.routing.phases import (
    Earlier,
    PhasedRoutes,
    divide_by_phase,
    keys_of,
    moving_to,
    settle,
    switch_after,
    window_of,
)
from property_tests import tries
from wild_routes import make_wild_routes

TUMBLING = WindowSpec("tumbling", 10, 10)
SLIDING = WindowSpec("sliding", 10, 4, 1)
EVENLY_SLIDING = WindowSpec("sliding", 12, 3)
SESSION = WindowSpec("session", 5, 5)
HASHES = [number * 1_229_782_938_247_303_441 for number in range(15)]


def windows_of(pane: int, window: WindowSpec) -> list[int]:
    """Return the starts of all windows that hold a pane, one by one."""
    latest = (pane - window.offset_us) // window.slide_us * window.slide_us + window.offset_us
    return list(range(latest, pane - window.size_us, -window.slide_us))


def whole(slots: int = 3) -> Routes:
    return Routes(BucketRoute.even(slots, 8))


def split(slots: int = 3) -> Routes:
    return Routes(BucketRoute.even(slots, 8), RoutingTable.of({HASHES[1]: {0: 0.5, 1: 0.5}}))


@tries(150)
@given(
    seed=st.integers(0, 2**32),
    window=st.sampled_from([TUMBLING, SLIDING, EVENLY_SLIDING]),
    switch=st.integers(-3, 8),
    rows=st.lists(st.tuples(st.integers(-40, 60), st.sampled_from(HASHES)), max_size=60),
)
def test_each_row_reaches_every_owner_of_its_windows_exactly_once(
    seed: int, window: WindowSpec, switch: int, rows: list[tuple[int, int]]
) -> None:
    chance = random.Random(seed)
    may_split = window.kind == "tumbling"
    old, new = (make_wild_routes(chance, HASHES, splittable=may_split, by_value=False) for _ in range(2))
    switch_us = switch * window.slide_us + window.offset_us
    phases = PhasedRoutes(new, Earlier(old, switch_us))
    assert can_wait(window, old, new)
    pane = pane_us(window)
    panes = [(time - window.offset_us) // pane * pane + window.offset_us for time, _ in rows]
    schema = {WINDOW: pl.Int64, HASH: pl.UInt64, "row": pl.Int64}
    frame = pl.DataFrame({WINDOW: panes, HASH: [key for _, key in rows], "row": list(range(len(rows)))}, schema=schema)
    reached: dict[int, list[int]] = {row: [] for row in range(len(rows))}
    for routes, part in divide_by_phase(frame, phases, window):
        slots = routes.storage_slots(KeyBatch(part[HASH].to_numpy()))
        for row, slot in zip(part["row"].to_list(), slots.tolist(), strict=True):
            reached[row].append(slot)
    for row, slots_reached in reached.items():
        assert len(slots_reached) == len(set(slots_reached))
        key = KeyBatch(np.array([rows[row][1]], np.uint64))
        for start in windows_of(panes[row], window):
            _, owners = (old if start < switch_us else new).operation_slots(key)
            # Whole keys have one owner, which must have the row; of a split key's, one must.
            assert len(set(owners.tolist()) & set(slots_reached)) == 1
        sides = {start < switch_us for start in windows_of(panes[row], window)}
        assert 1 <= len(slots_reached) <= len(sides)


def test_one_phase_takes_all_rows() -> None:
    frame = pl.DataFrame({WINDOW: [0], HASH: [1]})
    assert [(routes, part.height) for routes, part in divide_by_phase(frame, PhasedRoutes(whole()), None)] == [
        (whole(), 1)
    ]


@pytest.mark.parametrize("window", [TUMBLING, SLIDING, EVENLY_SLIDING])
def test_whole_keys_may_wait_for_their_windows(window: WindowSpec) -> None:
    assert can_wait(window, whole(3), whole(5))


def test_split_keys_may_wait_where_windows_do_not_overlap() -> None:
    pkg = Routes(BucketRoute.even(3, 8), splitter=ChoiceSplitter(3))
    for shared in (split(), pkg):
        assert can_wait(TUMBLING, shared, whole())
        assert can_wait(TUMBLING, whole(), shared)
        assert not can_wait(SLIDING, shared, whole())
        assert not can_wait(SLIDING, whole(), shared)


def test_what_has_no_end_cannot_wait() -> None:
    assert not can_wait(SESSION, whole(), whole(2))
    assert not can_wait(None, whole(), whole(2))
    assert not can_wait(TUMBLING, whole(), Routes(ModuloRoute(3)))
    assert not can_wait(TUMBLING, Routes(ModuloRoute(3)), whole())


def test_only_operators_with_windows_have_one() -> None:
    assert window_of(DistinctSpec(("key",))) is None
    assert window_of(AggregateSpec(("key",), {"rows": ab.count()})) is None
    assert window_of(AggregateSpec(("key",), {"rows": ab.count()}, TUMBLING, "ts")) == TUMBLING


@given(st.integers(-(10**6), 10**6), st.sampled_from([TUMBLING, SLIDING, EVENLY_SLIDING]))
def test_the_switch_is_the_first_window_without_an_event(latest: int, window: WindowSpec) -> None:
    switch = switch_after(latest, window)
    assert (switch - window.offset_us) % window.slide_us == 0
    assert switch - window.slide_us <= latest < switch
    assert max(windows_of(latest, window)) < switch


@given(st.integers(-40, 60), st.sampled_from([TUMBLING, SLIDING, EVENLY_SLIDING]))
def test_phases_settle_once_no_pane_of_an_earlier_window_is_left(fired: int, window: WindowSpec) -> None:
    switch = 2 * window.slide_us + window.offset_us
    phases = PhasedRoutes(whole(2), Earlier(whole(3), switch))
    settled = settle(phases, window, fired)
    panes = range(window.offset_us - 60 * pane_us(window), window.offset_us + 60 * pane_us(window), pane_us(window))
    # A pane is still there while one of its windows has not fired.
    needed = any(
        min(windows_of(pane, window)) < switch and max(windows_of(pane, window)) + window.size_us > fired
        for pane in panes
    )
    assert (settled == phases) == needed
    assert settled.routes == phases.routes


def test_routes_without_a_past_stay_as_they_are() -> None:
    assert settle(PhasedRoutes(whole()), None, 0) == PhasedRoutes(whole())


def test_key_values_go_along_only_where_routes_ask_for_them() -> None:
    rows = pl.DataFrame({HASH: pl.Series([1], dtype=pl.UInt64), "a": [5], "b": [6]})
    assert keys_of(whole(), rows, ("a",)).values is None
    values = keys_of(Routes(ModuloRoute(3)), rows, ("a",)).values
    assert values is not None and values.to_list() == [5]
    assert keys_of(Routes(ModuloRoute(3, of_values=False)), rows, ("a", "b")).values is None


def test_state_goes_where_its_value_belongs() -> None:
    rows = pl.DataFrame({HASH: pl.Series([1, 2, 3], dtype=pl.UInt64), "key": [7, 8, 9]})
    leaving = moving_to(Routes(ModuloRoute(3)), ("key",), 0)(rows)
    assert leaving.stays.tolist() == [False, False, True]
    assert (leaving.rows.tolist(), leaving.slots.tolist()) == ([0, 1], [1, 2])
    everywhere = Routes(BucketRoute(BucketMap(2, (1,))))
    assert moving_to(everywhere, ("key",), 0)(rows).slots.tolist() == [1, 1, 1]
