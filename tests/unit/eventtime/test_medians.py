"""The median of a flow's event times: the same however rows are cut, and not moved by a few wrong clocks."""

from __future__ import annotations

from functools import reduce

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from anabranch.eventtime.medians import (
    FEWEST_ROWS,
    MOST_REMEMBERED_ROWS,
    MOST_STEPS,
    TimeTally,
    fade,
    median_of,
    remember,
    step_for,
)
from property_tests import tries

STEP_US = 1_000


def tally_of(times: list[int], step_us: int = STEP_US) -> TimeTally:
    return TimeTally.of(pl.Series(times, dtype=pl.Int64), step_us)


def test_steps_are_fine_enough_to_see_who_is_behind() -> None:
    assert step_for(16_000_000) == 1_000_000
    assert step_for(10) == 1_000


def test_median_is_the_beginning_of_the_step_that_holds_it() -> None:
    times = [us for us in range(0, 100_000, 500)]
    assert median_of(tally_of(times).by_start_us()) == 49_000


def test_times_before_1970_fall_into_steps_like_all_others() -> None:
    assert tally_of([-1, -1_000, -1_001, 0]).rows == {-1: 2, -2: 1, 0: 1}


def test_few_rows_have_no_median() -> None:
    assert median_of({0: FEWEST_ROWS - 1}) is None
    assert median_of({0: FEWEST_ROWS}) == 0


def test_one_bad_clock_in_a_batch_of_its_own_does_not_move_the_median() -> None:
    rows = fade(remember({}, tally_of([5_000_000] * 100)))
    for _ in range(20):
        rows = fade(remember(rows, tally_of([9_000_000_000])))
    assert median_of(rows) == 5_000_000


def test_median_follows_the_rows_that_came_last() -> None:
    rows: dict[int, int] = {}
    for second in range(50):
        rows = remember(fade(rows), tally_of([second * 1_000_000] * 2_000))
    assert median_of(rows) == 49_000_000


def test_what_is_remembered_stays_small() -> None:
    rows: dict[int, int] = {}
    for batch in range(20):
        rows = fade(remember(rows, tally_of([(batch * 1_000 + n) * STEP_US for n in range(1_000)])))
        assert len(rows) <= MOST_STEPS
        assert sum(rows.values()) <= MOST_REMEMBERED_ROWS


def test_many_single_rows_do_not_vanish_when_they_fade() -> None:
    rows = fade({us: 1 for us in range(0, 3_000_000, 1_000)})
    assert sum(rows.values()) == MOST_REMEMBERED_ROWS
    assert abs((median_of(rows) or 0) - 1_500_000) <= 20_000


@tries(60)
@given(st.lists(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=400), min_size=1, max_size=5))
def test_tally_does_not_depend_on_how_rows_are_cut(parts: list[list[int]]) -> None:
    whole = tally_of([us for part in parts for us in part])
    tallies = [tally_of(part) for part in parts]
    assert reduce(TimeTally.plus, tallies) == whole
    assert reduce(TimeTally.plus, reversed(tallies)) == whole
    assert len(whole.rows) <= MOST_STEPS
    assert sum(whole.rows.values()) == sum(map(len, parts))
    assert TimeTally.from_json(whole.to_json()) == whole
