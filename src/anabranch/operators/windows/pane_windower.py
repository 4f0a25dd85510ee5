"""Tumbling and sliding windows in the time of their key: what is kept of them are panes."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime import drop_limit_us, last_window_ends_us, pane_start, pane_us, window_ends_after_us
from anabranch.eventtime.key_clocks import CLOCK, LATEST, PLACE, ROWS, KeyClocks, Times, places_of
from anabranch.eventtime.lateness import Judged, judge_rows
from anabranch.eventtime.windows import last_end_until_us
from anabranch.model import (
    BEGINNING_OF_TIME,
    EMISSION,
    END_OF_TIME,
    HASH,
    WINDOW_END,
    WINDOW_START,
    Clock,
    OperatorTime,
    WindowSpec,
)
from anabranch.operators.aggregates.partials import Partials
from anabranch.operators.windows.panes import PANE, START, lay_windows
from anabranch.operators.windows.windower import Taken

DIRTY = "__dirty"
"""Boolean: the pane changed since its windows were last emitted early."""
CAME = "__came"
"""Boolean: rows of this batch are in it."""
WAS = "__was"
"""Boolean: it was there before this batch."""


class PaneWindower:
    """Tumbling and sliding windows; state rows are panes."""

    meets_by_interval = False
    places = (PANE,)

    def __init__(self, partials: Partials, window: WindowSpec, clock: Clock) -> None:
        self._partials = partials
        self._window = window
        self._clock = clock
        self._strides = {PANE: pane_us(window)}
        self.flags: tuple[str, ...] = (DIRTY,) if window.early_us is not None else ()

    def describe(self) -> dict[str, object]:
        """Return the windows as plain JSON data."""
        window = self._window
        return {
            "kind": "clocked windows",
            "window": {
                "kind": window.kind,
                "size_us": window.size_us,
                "slide_us": window.slide_us,
                "offset_us": window.offset_us,
                "early": window.early_us is not None,
            },
        }

    # -- rows ------------------------------------------------------------------------------------------------------

    def place_rows(self, time_column: str) -> list[pl.Expr]:
        """Return the pane of each row, and its time."""
        time_us = pl.col(time_column).dt.timestamp("us")
        return [pane_start(time_us, self._window).alias(PANE), time_us.alias(LATEST)]

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into one partial row per pane and key."""
        return self._partials.combine(prepared, [PANE], strides=self._strides, row_counts=[ROWS], largest=[LATEST])

    def with_latest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows: they have LATEST."""
        return rows

    def take(
        self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime
    ) -> Taken:
        """Fire what closed before the rows came, take those in that are in time, and fire what they complete."""
        judged = self.judge(arrived, clocks, time)
        return self.fire(judged, known, self.combine_in_time(judged), clocks)

    def finish_open(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the values so far, per pane."""
        return self._finish(rows.rename({PANE: START}), pl.lit("early"), pane_us(self._window))

    def merge_combined(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return one row a pane and key."""
        return self._partials.merge([rows], [PANE], [pl.col(LATEST).max(), pl.col(ROWS).sum()], strides=self._strides)

    def merge_open(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a pane and key."""
        return self._partials.merge(frames, [PANE], strides=self._strides)

    def combine_in_time(self, judged: Judged) -> pl.DataFrame | None:
        """Return the rows that count as partial rows, with the PLACE of their key."""
        rows = judged.in_time
        if rows is None or self._window.late != "side":
            return rows
        return self._partials.combine(rows, [PANE], extra=[pl.col(PLACE).first()])

    def fire(self, judged: Judged, known: pl.DataFrame | None, came: pl.DataFrame | None, clocks: KeyClocks) -> Taken:
        """Emit what closed before the rows came, what they complete, and what they change."""
        results: list[pl.DataFrame] = []
        if known is not None:
            # These windows are over for the rows of this batch, even if some of their panes are not.
            self._emit(known, clocks, clocks.fired_us, clocks.closed_us, results)
        panes = self.merge(known, came)
        last_end_us = np.full(len(clocks.fire_us), BEGINNING_OF_TIME, np.int64)
        if panes is not None:
            last_end_us = self._emit(panes, clocks, clocks.closed_us, clocks.fire_us, results)
            self._emit_updates(panes, clocks, results)
            panes = self._emit_early(panes, clocks, results)
        return Taken(judged, results, panes, last_end_us)

    def judge(self, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime) -> Judged:
        """Find the late rows."""
        if arrived is None:
            return Judged()
        panes = arrived.get_column(PANE).to_numpy()
        closed_us = clocks.closed_us[places_of(arrived)]
        late = refused = panes < drop_limit_us(self._window, closed_us)
        if self._window.late == "update":
            refused = panes < drop_limit_us(self._window, closed_us - self._window.lateness_us)
        slot_late = panes < drop_limit_us(self._window, int(time.slot_closed_us))
        return judge_rows(arrived, self._clock, late, refused, slot_late)

    def merge(self, panes: pl.DataFrame | None, came: pl.DataFrame | None) -> pl.DataFrame | None:
        """Return one row a pane and key, of what was there and of partial rows, with what became of it now."""
        columns = [HASH, *self._partials.keys, PLACE, PANE, *self._partials.plan.partial_columns]
        frames = []
        if panes is not None:
            frames.append(panes.select(*columns, *self.flags, pl.lit(False).alias(CAME), pl.lit(True).alias(WAS)))
        if came is not None:
            flags = {**dict.fromkeys(self.flags, True), CAME: True, WAS: False}
            frames.append(came.select(*columns, *(pl.lit(flag).alias(name) for name, flag in flags.items())))
        if not frames:
            return None
        flags_seen = (*self.flags, CAME, WAS)
        return self._partials.merge_placed(frames, [PLACE, PANE], flags_seen, strides=self._strides)

    def join(self, panes: pl.DataFrame | None) -> pl.DataFrame | None:
        """Return one row a pane and key of state rows, of which several slots may have some each."""
        if panes is None:
            return None
        columns = [HASH, *self._partials.keys, PLACE, PANE, *self.flags, *self._partials.plan.partial_columns]
        return self._partials.merge_placed([panes.select(columns)], [PLACE, PANE], self.flags, strides=self._strides)

    def _emit(
        self, panes: pl.DataFrame, clocks: KeyClocks, after_us: Times, until_us: Times, results: list[pl.DataFrame]
    ) -> Times:
        """Emit the windows that end in (after, until] of their key; return by key the end of the last of them."""
        last_end_us = np.full(len(clocks.fire_us), BEGINNING_OF_TIME, np.int64)
        windows = self._lay_windows(panes, after_us, until_us)
        if windows is not None:
            ends_us = windows.get_column(START).to_numpy() + self._window.size_us
            np.maximum.at(last_end_us, places_of(windows), ends_us)
            results.append(self._finish(windows, pl.lit("final")))
        return last_end_us

    def _emit_updates(self, panes: pl.DataFrame, clocks: KeyClocks, results: list[pl.DataFrame]) -> None:
        """Emit the windows again that had closed when late rows came for them."""
        if self._window.late != "update":
            return
        after_us = clocks.closed_us - self._window.lateness_us
        windows = self._lay_windows(panes, after_us, clocks.closed_us, touched=CAME)
        if windows is not None:
            # A window that nothing had come for was not emitted when it closed.
            results.append(self._finish(windows, pl.when(WAS).then(pl.lit("update")).otherwise(pl.lit("final"))))

    def _emit_early(self, panes: pl.DataFrame, clocks: KeyClocks, results: list[pl.DataFrame]) -> pl.DataFrame:
        """Emit what is open and changed, of keys whose watermark passed another interval; return the panes."""
        interval_us = self._window.early_us
        if interval_us is None:
            return panes
        # A key's own watermark rises by the rows of this batch, others may have risen since the last one.
        before_us = clocks.closed_us if self._clock.per == "key" else clocks.fired_us
        passed = self.passes_interval(before_us, clocks.fire_us)[places_of(panes)]
        until_us = np.full_like(clocks.fire_us, END_OF_TIME)
        windows = self._lay_windows(panes.filter(pl.Series(passed)), clocks.fire_us, until_us, touched=DIRTY)
        if windows is not None:
            results.append(self._finish(windows, pl.lit("early")))
        return panes.with_columns(pl.col(DIRTY) & ~pl.Series(passed))

    def passes_interval(self, before_us: Times, after_us: Times) -> NDArray[np.bool_]:
        """Say of each rise of a watermark whether results so far are emitted on the way."""
        interval_us = self._window.early_us
        if interval_us is None:
            return np.zeros(len(before_us), np.bool_)
        passed: NDArray[np.bool_] = before_us // interval_us < after_us // interval_us
        return passed

    def _lay_windows(
        self, panes: pl.DataFrame, after_us: Times, until_us: Times, touched: str | None = None
    ) -> pl.DataFrame | None:
        """Return the windows that end in (after, until] of their key; if said, only those with a pane so marked."""
        places = places_of(panes)
        flags = [name for name in (CAME, WAS, DIRTY) if name in panes.columns]
        windows = lay_windows(self._partials, self._window, panes, after_us[places], until_us[places], flags)
        if windows is not None and touched is not None:
            windows = windows.filter(touched)
        return windows if windows is not None and windows.height else None

    def _finish(self, windows: pl.DataFrame, emission: pl.Expr, length_us: int | None = None) -> pl.DataFrame:
        start = pl.col(START).cast(pl.Datetime("us")).alias(WINDOW_START)
        end = (pl.col(START) + (length_us or self._window.size_us)).cast(pl.Datetime("us")).alias(WINDOW_END)
        mark = [emission.alias(EMISSION)] if self._window.marks_emissions else []
        return self._partials.finish(windows, [start, end, *mark])

    # -- what remains, and what is due -------------------------------------------------------------------------------

    def held_until_us(self, closed_us: Times) -> Times:
        """Return the end of the last window that has closed: earlier panes are in such windows."""
        return last_end_until_us(self._window, closed_us)

    def is_kept(self, rows: pl.DataFrame, clock_us: Times) -> NDArray[np.bool_]:
        """Say of each pane whether a window of it is open, or late rows may change one."""
        kept: NDArray[np.bool_] = _panes_of(rows) >= drop_limit_us(self._window, clock_us - self._window.lateness_us)
        return kept

    def last_ends_us(self, rows: pl.DataFrame) -> Times:
        """Return the end of the last window of each pane."""
        return last_window_ends_us(self._window, _panes_of(rows))

    def is_due(self, rows: pl.DataFrame, after_us: Times, until_us: Times | int) -> NDArray[np.bool_]:
        """Say of each pane whether a window of it closes, or the watermark leaves it behind."""
        panes = _panes_of(rows)
        last_ends_us = np.minimum(last_window_ends_us(self._window, panes), until_us)
        due = window_ends_after_us(self._window, panes, after_us) <= last_ends_us
        due |= last_window_ends_us(self._window, panes) <= until_us - self._window.lateness_us
        if self._window.early_us is not None:
            passed = after_us // self._window.early_us < until_us // self._window.early_us
            due |= rows.get_column(DIRTY).to_numpy() & passed
        return due

    def is_waiting(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Say of each pane whether a window of it is open."""
        clock_us = rows.get_column(CLOCK).fill_null(BEGINNING_OF_TIME).to_numpy()
        waiting: NDArray[np.bool_] = last_window_ends_us(self._window, _panes_of(rows)) > clock_us
        return waiting

    def next_ends_us(self, rows: pl.DataFrame, passed_us: Times) -> Times:
        """Return the end of the next window of each pane that is in one."""
        panes = _panes_of(rows)
        waits = last_window_ends_us(self._window, panes) > passed_us
        return window_ends_after_us(self._window, panes, passed_us)[waits]


def _panes_of(rows: pl.DataFrame) -> Times:
    panes: Times = rows.get_column(PANE).to_numpy()
    return panes
