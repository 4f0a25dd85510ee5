"""Aggregates in tumbling and sliding windows that close when their own key's watermark says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime import drop_limit_us, last_window_ends_us, pane_start, pane_us, window_ends_after_us
from anabranch.eventtime.key_clocks import CLOCK, LATEST, PLACE, ROWS, KeyClocks, Times, places_of
from anabranch.eventtime.lateness import Judged, carry_original, judge_rows
from anabranch.eventtime.windows import last_end_until_us
from anabranch.model import (
    BEGINNING_OF_TIME,
    EMISSION,
    END_OF_TIME,
    HASH,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Clock,
    OperatorTime,
    Prepared,
    SlotState,
    WindowSpec,
)
from anabranch.operators.keyed.touched_keys import Merged, Taken
from anabranch.operators.windows.group_time_buffers import ClockedLanes
from anabranch.operators.windows.open_windows import OpenWindows
from anabranch.operators.windows.panes import PANE, START, lay_windows

DIRTY = "__dirty"
"""Boolean: the pane changed since its windows were last emitted early."""
CAME = "__came"
"""Boolean: rows of this batch are in it."""
WAS = "__was"
"""Boolean: it was there before this batch."""


class ClockedWindows(ClockedLanes):
    """Tumbling and sliding windows in their key's own time; state rows are panes."""

    meets_by_interval = False

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        window: WindowSpec,
        time_column: str,
        clock: Clock,
    ) -> None:
        flags = [DIRTY] if window.early_us is not None else []
        super().__init__(keys, aggregates, window, time_column, clock, places=[PANE], flags=flags)
        self._open_windows = OpenWindows(self._partials, window, clock)

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Put rows into panes; which are late is known only where their keys' watermarks are."""
        time_us = pl.col(self._time_column).dt.timestamp("us")
        carried = [pane_start(time_us, self._window).alias(PANE), time_us.alias(LATEST)]
        if not self.mergeable:
            carried.append(carry_original())
        return Prepared(self._partials.select_rows(frame, time, carried))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into one partial row per pane and key."""
        strides = {PANE: pane_us(self._window)}
        return self._partials.combine(prepared, [PANE], strides=strides, row_counts=[ROWS], largest=[LATEST])

    def _describe_window(self) -> dict[str, object]:
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

    def _finish_open(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the values so far, per pane."""
        return self._finish(rows.rename({PANE: START}), pl.lit("early"), pane_us(self._window))

    # -- rows ------------------------------------------------------------------------------------------------------

    def _merge_open(
        self, received: list[pl.DataFrame], combined: bool, state: SlotState, time: OperatorTime
    ) -> Merged | None:
        return self._open_windows.merge(
            received, combined, lambda hashes: state.lookup_newest(pl.Series(hashes, dtype=pl.UInt64)), time
        )

    def _take(
        self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime
    ) -> Taken:
        judged = self._judge(arrived, clocks, time)
        return self._fire(judged, known, self._combine_in_time(judged), clocks)

    def _combine_in_time(self, judged: Judged) -> pl.DataFrame | None:
        """Return the rows that count as partial rows, with the PLACE of their key."""
        rows = judged.in_time
        if rows is None or self.mergeable:
            return rows
        return self._partials.combine(rows, [PANE], extra=[pl.col(PLACE).first()])

    def _fire(self, judged: Judged, known: pl.DataFrame | None, came: pl.DataFrame | None, clocks: KeyClocks) -> Taken:
        """Emit what closed before the rows came, what they complete, and what they change."""
        results: list[pl.DataFrame] = []
        if known is not None:
            # These windows are over for the rows of this batch, even if some of their panes are not.
            self._emit(known, clocks, clocks.fired_us, clocks.closed_us, results)
        panes = self._merge(known, came)
        last_end_us = np.full(len(clocks.fire_us), BEGINNING_OF_TIME, np.int64)
        if panes is not None:
            last_end_us = self._emit(panes, clocks, clocks.closed_us, clocks.fire_us, results)
            self._emit_updates(panes, clocks, results)
            panes = self._emit_early(panes, clocks, results)
        return Taken(judged, results, panes, last_end_us)

    def _judge(self, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime) -> Judged:
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

    def _merge(self, panes: pl.DataFrame | None, came: pl.DataFrame | None) -> pl.DataFrame | None:
        """Return one row a pane and key, of what was there and of partial rows, with what became of it now."""
        columns = [HASH, *self._keys, PLACE, PANE, *self._partials.plan.partial_columns]
        frames = []
        if panes is not None:
            frames.append(panes.select(*columns, *self._flags, pl.lit(False).alias(CAME), pl.lit(True).alias(WAS)))
        if came is not None:
            flags = {**dict.fromkeys(self._flags, True), CAME: True, WAS: False}
            frames.append(came.select(*columns, *(pl.lit(flag).alias(name) for name, flag in flags.items())))
        if not frames:
            return None
        flags_seen = (*self._flags, CAME, WAS)
        return self._partials.merge_placed(frames, [PLACE, PANE], flags_seen, strides={PANE: pane_us(self._window)})

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
        passed = self._passes_interval(before_us, clocks.fire_us)[places_of(panes)]
        until_us = np.full_like(clocks.fire_us, END_OF_TIME)
        windows = self._lay_windows(panes.filter(pl.Series(passed)), clocks.fire_us, until_us, touched=DIRTY)
        if windows is not None:
            results.append(self._finish(windows, pl.lit("early")))
        return panes.with_columns(pl.col(DIRTY) & ~pl.Series(passed))

    def _passes_interval(self, before_us: Times, after_us: Times) -> NDArray[np.bool_]:
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

    # -- rows that wait ----------------------------------------------------------------------------------------------

    def _held_until_us(self, closed_us: Times) -> Times:
        """Return the end of the last window that has closed: earlier panes are in such windows."""
        return last_end_until_us(self._window, closed_us)

    def _merge_held(self, rows: pl.DataFrame) -> pl.DataFrame:
        extra = [pl.col(LATEST).max(), pl.col(ROWS).sum()]
        return self._partials.merge([rows], [PANE], extra, strides={PANE: pane_us(self._window)})

    def _with_latest(self, combined: pl.DataFrame) -> pl.DataFrame:
        return combined

    def _with_waited(self, known: pl.DataFrame | None, waited: pl.DataFrame) -> pl.DataFrame:
        # Tombstones have nothing to merge with.
        opened = [] if known is None else [known.filter(pl.col(self._places[0]).is_not_null())]
        frames = [*opened, self._as_open(waited)]
        merged = self._partials.merge(frames, [PANE], strides={PANE: pane_us(self._window)})
        return merged.select(self._run_columns)

    # -- state -----------------------------------------------------------------------------------------------------

    def _is_kept(self, rows: pl.DataFrame, clock_us: Times) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = _panes_of(rows) >= drop_limit_us(self._window, clock_us - self._window.lateness_us)
        return kept

    def _is_due(self, rows: pl.DataFrame, after_us: Times, until_us: Times | int) -> NDArray[np.bool_]:
        """Say of each pane whether a window of it closes, or the watermark leaves it behind."""
        panes = _panes_of(rows)
        last_ends_us = np.minimum(last_window_ends_us(self._window, panes), until_us)
        due = window_ends_after_us(self._window, panes, after_us) <= last_ends_us
        due |= last_window_ends_us(self._window, panes) <= until_us - self._window.lateness_us
        if self._window.early_us is not None:
            passed = after_us // self._window.early_us < until_us // self._window.early_us
            due |= rows.get_column(DIRTY).to_numpy() & passed
        return due

    def _is_waiting(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        clock_us = rows.get_column(CLOCK).fill_null(BEGINNING_OF_TIME).to_numpy()
        waiting: NDArray[np.bool_] = last_window_ends_us(self._window, _panes_of(rows)) > clock_us
        return waiting

    def _next_ends_us(self, rows: pl.DataFrame, passed_us: Times) -> Times:
        panes = _panes_of(rows)
        waits = last_window_ends_us(self._window, panes) > passed_us
        return window_ends_after_us(self._window, panes, passed_us)[waits]


def _panes_of(rows: pl.DataFrame) -> Times:
    panes: Times = rows.get_column(PANE).to_numpy()
    return panes
