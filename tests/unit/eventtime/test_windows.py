"""Panes, windows and sessions, against the definition taken literally."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.eventtime import (
    drop_limit_us,
    lay_windows_over_panes,
    next_window_end_us,
    number_sessions,
    pane_start,
    pane_us,
)
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, WindowSpec


@st.composite
def windows(draw: st.DrawFn) -> WindowSpec:
    size = draw(st.integers(1, 24))
    slide = draw(st.integers(1, size))
    return WindowSpec("tumbling" if size == slide else "sliding", size, slide, draw(st.integers(-5, 30)))


def ends_of(window: WindowSpec, time: int) -> list[int]:
    """Return the ends of all windows that hold a time, by trying every window near it."""
    since_offset = time - window.offset_us
    numbers = range((since_offset - window.size_us) // window.slide_us - 1, since_offset // window.slide_us + 2)
    starts = [number * window.slide_us + window.offset_us for number in numbers]
    return [start + window.size_us for start in starts if start <= time < start + window.size_us]


@given(window=windows(), times=st.lists(st.integers(-60, 60), min_size=1))
def test_all_times_of_a_pane_are_in_the_same_windows(window: WindowSpec, times: list[int]) -> None:
    panes = pl.DataFrame({"t": times}).select(pane_start(pl.col("t"), window)).to_series().to_list()
    for time, pane in zip(times, panes, strict=True):
        assert pane <= time < pane + pane_us(window)
        assert ends_of(window, pane) == ends_of(window, time)


@given(window=windows(), time=st.integers(-60, 60), watermark=st.integers(-80, 80))
def test_panes_below_the_drop_limit_are_those_whose_last_window_ended(
    window: WindowSpec, time: int, watermark: int
) -> None:
    over = max(ends_of(window, time)) <= watermark
    assert (time < drop_limit_us(window, watermark)) == over


@given(window=windows(), time=st.integers(-60, 60), watermark=st.integers(-80, 80))
def test_next_window_end_is_the_first_one_after_the_watermark(window: WindowSpec, time: int, watermark: int) -> None:
    open_ends = [end for end in ends_of(window, time) if end > watermark]
    if open_ends:
        assert next_window_end_us(window, time, watermark) == min(open_ends)


@given(
    window=windows(),
    times=st.lists(st.integers(-60, 60), min_size=1, max_size=10),
    after=st.integers(-80, 80) | st.just(BEGINNING_OF_TIME),
    length=st.integers(0, 60) | st.none(),
)
def test_windows_laid_over_panes_are_all_that_end_in_the_stretch(
    window: WindowSpec, times: list[int], after: int, length: int | None
) -> None:
    until = END_OF_TIME if length is None else after + length
    panes = pl.DataFrame({"t": times}).select(pane_start(pl.col("t"), window)).to_series()
    laid = lay_windows_over_panes(panes, window, after, until)
    expected = {
        (pane, end - window.size_us)
        for pane in panes.to_list()
        for end in ends_of(window, pane)
        if after < end <= until
    }
    assert sorted(laid.rows()) == sorted(expected)


@pytest.mark.parametrize("scale", [1, 2**56], ids=["packed", "too long to pack"])
@given(
    intervals=st.lists(st.tuples(st.integers(0, 3), st.integers(-30, 30), st.integers(1, 12)), min_size=1, max_size=20)
)
def test_sessions_are_the_connected_intervals_of_a_key(intervals: list[tuple[int, int, int]], scale: int) -> None:
    ordered = sorted((key, start) for key, start, _ in intervals)
    lengths = {(key, start): length for key, start, length in intervals}
    rows = [(f"k{key}", start * scale, (start + lengths[key, start]) * scale) for key, start in ordered]
    expected: list[int] = []
    reach: dict[str, int] = {}
    for key, start, end in rows:
        opens = key not in reach or start >= reach[key]
        expected.append((expected[-1] + 1 if opens else expected[-1]) if expected else 0)
        reach[key] = max(end, reach.get(key, end))
    frame = pl.DataFrame(rows, schema=["key", "start", "end"], orient="row")
    assert number_sessions(frame, ["key"], "start", "end").to_list() == expected


def test_row_exactly_a_gap_after_the_last_one_opens_a_new_session() -> None:
    rows = pl.DataFrame({"key": [1, 1, 1], "start": [0, 4, 9], "end": [5, 9, 14]})
    assert number_sessions(rows, ["key"], "start", "end").to_list() == [0, 0, 1]


def test_long_interval_of_one_key_does_not_reach_into_the_next_key() -> None:
    rows = pl.DataFrame({"key": ["a", "a", "b"], "start": [0, 1, 2], "end": [100, 3, 4]})
    assert number_sessions(rows, ["key"], "start", "end").to_list() == [0, 0, 1]


def test_short_interval_inside_a_long_one_does_not_end_the_session() -> None:
    rows = pl.DataFrame({"key": [1, 1, 1], "start": [0, 1, 50], "end": [100, 3, 55]})
    assert number_sessions(rows, ["key"], "start", "end").to_list() == [0, 0, 0]
