"""Windows in event time: rows fall into panes, panes are laid under windows, sessions are found by their gaps.

A pane is the longest stretch that every window either holds or does not touch: the greatest common divisor of
size and slide. A tumbling window is its own single pane. All times are Int64 microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import AggregateSpec, JoinSpec, OperatorSpec, OrderSpec, ProcessSpec, TopKSpec, WindowSpec

Times = NDArray[np.int64]
LastEnd = Callable[[Times], Times]
"""Says when the last window that holds an event ends."""

Time = TypeVar("Time", int, NDArray[np.int64])
"""Microseconds: one time, or an array of them."""


def pane_us(window: WindowSpec) -> int:
    """Return the length of a pane."""
    return gcd(window.size_us, window.slide_us)


def pane_start(time_us: pl.Expr, window: WindowSpec) -> pl.Expr:
    """Return the start of the pane that holds a time (in microseconds)."""
    length_us = pane_us(window)
    if window.offset_us % length_us == 0:
        return time_us // length_us * length_us
    return (time_us - window.offset_us) // length_us * length_us + window.offset_us


def first_window_us(pane: pl.Expr, window: WindowSpec) -> pl.Expr:
    """Return the start of the first window that holds a pane."""
    return (pane - window.size_us - window.offset_us) // window.slide_us * window.slide_us + (
        window.slide_us + window.offset_us
    )


def last_window_us(pane: pl.Expr, window: WindowSpec) -> pl.Expr:
    """Return the start of the last window that holds a pane."""
    return (pane - window.offset_us) // window.slide_us * window.slide_us + window.offset_us


def drop_limit_us(window: WindowSpec, watermark_us: Time) -> Time:
    """Return the limit below which every pane's last window has ended at or before the watermark.

    Rows in panes below it are late under this watermark, and state below it can be forgotten.
    """
    since_offset_us = watermark_us - window.size_us - window.offset_us
    return since_offset_us // window.slide_us * window.slide_us + window.slide_us + window.offset_us


def last_end_until_us(window: WindowSpec, time_us: Time) -> Time:
    """Return the end of the last window that has ended by a time: panes that start before it are in such windows."""
    since_offset_us = time_us - window.size_us - window.offset_us
    return since_offset_us // window.slide_us * window.slide_us + window.offset_us + window.size_us


def next_window_end_us(window: WindowSpec, pane: int, watermark_us: int) -> int:
    """Return the end of the first window that holds the pane and has not ended at or before the watermark."""
    after_us = max(pane, watermark_us)
    since_offset_us = after_us - window.size_us - window.offset_us
    return since_offset_us // window.slide_us * window.slide_us + window.slide_us + window.offset_us + window.size_us


def window_ends_after_us(
    window: WindowSpec, panes: NDArray[np.int64], after_us: NDArray[np.int64] | int
) -> NDArray[np.int64]:
    """Return for each pane the end of the first window that holds it and ends after the given time."""
    since_offset_us = np.maximum(panes, after_us) - window.size_us - window.offset_us
    ends: NDArray[np.int64] = (
        since_offset_us // window.slide_us * window.slide_us + window.slide_us + window.offset_us + window.size_us
    )
    return ends


def last_window_ends_us(window: WindowSpec, panes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each pane the end of the last window that holds it."""
    ends: NDArray[np.int64] = (
        (panes - window.offset_us) // window.slide_us * window.slide_us + window.offset_us + window.size_us
    )
    return ends


def last_end_of(spec: OperatorSpec) -> LastEnd:
    """Return the function that says when the last window of an operator that holds an event ends.

    A row that waits for its turn goes on once the watermark has passed it.
    """
    if isinstance(spec, ProcessSpec | OrderSpec) or (isinstance(spec, JoinSpec) and spec.newest):
        return _just_after
    if isinstance(spec, JoinSpec) and spec.within is not None:
        return partial(np.add, max(spec.within.most_us, -spec.within.least_us, 0) + 1)
    window = spec.window if isinstance(spec, AggregateSpec | TopKSpec | JoinSpec) else None
    return partial(_last_end_us, window) if window is not None else np.asarray


def _just_after(times_us: Times) -> Times:
    return times_us + 1


def _last_end_us(window: WindowSpec, times_us: Times) -> Times:
    return times_us + window.size_us if window.kind == "session" else last_window_ends_us(window, times_us)


def lay_windows_over_panes(panes: pl.Series, window: WindowSpec, after_us: int, until_us: int) -> pl.DataFrame:
    """Return (pane, window start) for every window that ends in (after, until] and holds one of the panes."""
    slide, size = window.slide_us, window.size_us
    pane = pl.col("pane")
    first_end = pl.max_horizontal(pane, pl.lit(after_us)) - size - window.offset_us
    first_end = first_end // slide * slide + slide + window.offset_us + size
    last_end = (pane - window.offset_us) // slide * slide + window.offset_us + size
    # Ends beyond the limit are cut off before the ranges are made: at a drain the limit is the end of time.
    last_end = pl.min_horizontal(last_end, pl.lit(until_us))
    return (
        panes.unique()
        .sort()
        .alias("pane")
        .to_frame()
        .with_columns(pl.int_ranges(first_end - size, last_end - size + 1, slide).alias("window"))
        .explode("window")
        .drop_nulls("window")
    )


def number_sessions(intervals: pl.DataFrame, keys: Sequence[str], start: str, end: str) -> pl.Series:
    """Return a number per row that is equal within a session; rows must be sorted by (keys, start).

    Sessions are half-open, [first, last + gap): an interval that starts exactly where those before it end opens a new
    one.
    """
    key_changed = pl.any_horizontal([pl.col(key) != pl.col(key).shift(1) for key in keys]).fill_null(False)
    key_number = key_changed.cum_sum().cast(pl.Int64)
    earliest, latest, key_count = intervals.select(
        pl.col(start).min().alias("earliest"), pl.col(end).max().alias("latest"), key_number.max().alias("keys")
    ).row(0)
    if earliest is None:
        return pl.Series("session", [], dtype=pl.Int64)
    span = latest - earliest + 1
    if (key_count + 1) * span < 2**62:
        # Every key gets a stretch of time to itself: one running maximum serves all, without grouping.
        from_start = key_number * span + pl.col(start) - earliest
        from_end = key_number * span + pl.col(end) - earliest
        opens = key_changed | (from_start >= from_end.cum_max().shift(1))
    else:
        opens = key_changed | (pl.col(start) >= pl.col(end).cum_max().over(list(keys)).shift(1))
    return intervals.select(opens.fill_null(False).cum_sum().cast(pl.Int64).alias("session")).to_series()
