"""Aggregates per key in tumbling and sliding windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from anabranch.eventtime import (
    drop_limit_us,
    lay_windows_over_panes,
    next_window_end_us,
    pane_start,
    pane_us,
)
from anabranch.eventtime.windows import last_end_until_us
from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    HASH,
    ORDER,
    TIME,
    WINDOW,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Fired,
    Meeting,
    OperatorTime,
    Prepared,
    RunRef,
    SlotState,
    Standing,
    WindowSpec,
)
from anabranch.operators.aggregates.checks import check_aggregates, describe_aggregates, empty_rows
from anabranch.operators.aggregates.partials import Partials, concatenate, sort_as_run
from anabranch.operators.compaction import compact

_ROWS_SPREAD_AT_ONCE = 4_000_000
"""Pane rows that are copied to their windows at a time: a drain may fire many windows, each with all its panes."""


class WindowedAggregate:
    """Aggregates in tumbling or sliding windows.

    State rows are deltas: each batch appends the partial results of its own rows, per pane and key, and they meet
    when a window that holds the pane fires. A row that comes when only some of its windows have closed
    feeds the others and is not counted as late.
    """

    mergeable = True
    meets_by_interval = False

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        window: WindowSpec,
        time_column: str,
        slice_us: int | None = None,
    ) -> None:
        """``slice_us`` is the length of the slices that rows are merged in before they meet, a part of a pane."""
        self._keys = tuple(keys)
        self._window = window
        self._time_column = time_column
        self._partials = Partials(keys, aggregates, time_column)
        self._slice_us = slice_us or pane_us(window)
        self._strides = {WINDOW: self._slice_us}
        self._run_columns = [WINDOW, HASH, *self._keys, *self._partials.plan.partial_columns]

    @property
    def meeting(self) -> Meeting:
        """Where parts of a key meet: in the windows that they fire."""
        return self

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        check_aggregates(self._partials, input_schema, taken=(WINDOW_START, WINDOW_END))
        prepared = self.prepare(empty_rows(input_schema), OperatorTime(batch=0)).frame
        return dict(self._finish(self.combine(prepared)).schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        window = self._window
        return {
            "kind": "windowed aggregate",
            "window": {
                "kind": window.kind,
                "size_us": window.size_us,
                "slide_us": window.slide_us,
                "offset_us": window.offset_us,
            },
            **describe_aggregates(self._partials, input_schema),
        }

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Put rows into panes; drop and count those whose last window has closed."""
        time_us = pl.col(self._time_column).dt.timestamp("us")
        rows = self._partials.select_rows(frame, time, [self._slot_start(time_us).alias(WINDOW)])
        limit_us = drop_limit_us(self._window, time.closed_us)
        earliest = rows.get_column(WINDOW).min()
        # Looking first is cheap; most batches have no late rows and need no copy.
        if earliest is None or earliest >= limit_us:  # type: ignore[operator]
            return Prepared(rows)
        is_late = rows.get_column(WINDOW) < limit_us
        in_time = rows.filter(~is_late)
        late = frame.filter(is_late).drop(ORDER, TIME, strict=False) if self._window.late == "side" else None
        return Prepared(in_time, late_rows=rows.height - in_time.height, late=late)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into one partial row per slice (a pane, unless said) and key."""
        return self._partials.combine(prepared, [WINDOW], strides=self._strides)

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Fire what closed before this batch, take the batch's rows in, fire what they complete."""
        return self.advance_held([], received, combined, state, time, standing)

    def advance_held(
        self,
        held: list[pl.DataFrame],
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Do the same with rows of earlier batches that waited where they were read: they are in time for all."""
        # These windows are over for the rows of this batch, even if some of their panes are not.
        results = _Results(self._finish, standing)
        waited = self._take(held, combined=True)
        self._fire(state, waited, time.fired_us, time.closed_us, results)
        rows = self._take(received, combined)
        if waited is not None:
            waited = waited.filter(pl.col(WINDOW) >= drop_limit_us(self._window, time.closed_us))
            rows = waited if rows is None else self._merge_panes([waited, rows]).select(self._run_columns)
        if time.fire_us > time.closed_us:
            self._fire(state, rows, max(time.fired_us, time.closed_us), time.fire_us, results)
            if rows is not None:
                # What is over already need not be written.
                rows = rows.filter(pl.col(WINDOW) >= drop_limit_us(self._window, time.fire_us))
        if rows is not None and rows.height:
            state.append(sort_as_run(rows))
            compact(state, self._compacted)
        return Fired(
            pl.concat(results.finished) if results.finished else pl.DataFrame(),
            next_due_us=self._next_due_us(state, time),
            shared=concatenate(results.shared) if results.shared else None,
        )

    def meet(self, shared: list[pl.DataFrame]) -> pl.DataFrame:
        """Merge the windows that several slots have parts of."""
        return self._finish(self._partials.merge(shared, [WINDOW], strides={WINDOW: self._window.slide_us}))

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept: deltas meet when their window fires, whoever wrote them."""
        state.adopt(handed)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return one row a pane and key."""
        # What readers hold may lie in slices that are shorter than panes.
        return self._compacted(self._as_panes(runs)).filter(pl.col(WINDOW) >= drop_limit_us(self._window, passed_us))

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a pane and key."""
        return self._compacted(stored)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the values so far; those of sliding windows are per pane, from which windows are made."""
        return self._finish(self._as_panes([stored])[0], pane_us(self._window))

    def hold(self, combined: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are: their WINDOW is the pane."""
        return combined

    def unite_held(self, held: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a slice and key."""
        return self._compacted(held)

    def release(self, held: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return held

    def must_go_until_us(self, time: OperatorTime) -> int:
        """Return the end of the last window that fires by the end of a batch: earlier panes are in such windows."""
        return last_end_until_us(self._window, time.passed_us)

    def must_go(self, held: pl.DataFrame, time: OperatorTime) -> None:
        """Say that all such rows have to be sent."""
        return

    def next_held_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return the end of the first window that waits for rows which wait."""
        return self._next_due_us(state, time)

    def with_held(self, stored: list[pl.DataFrame], runs: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a pane and key."""
        return self.unite([*stored, self.stored(runs, BEGINNING_OF_TIME)])

    def by_window(self, rows: pl.DataFrame, after_us: int) -> pl.DataFrame:
        """Return partial rows of panes as partial rows of all their windows that end after the given time."""
        merged = self._partials.merge(self._as_panes([rows]), [WINDOW], strides=self._strides)
        if self._window.kind == "tumbling" or merged.is_empty():
            return merged.select(self._run_columns)
        laid = list(self._merge_windows([merged], after_us, END_OF_TIME))
        return (concatenate(laid) if laid else merged.clear()).select(self._run_columns)

    def results(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return partial rows of windows as results, row by row."""
        return self._finish(rows)

    def _take(self, received: list[pl.DataFrame], combined: bool) -> pl.DataFrame | None:
        frames = [frame for frame in received if frame.height]
        if not frames:
            return None
        if not combined:
            rows = self._partials.combine(concatenate(self._as_panes(frames)), [WINDOW], strides=self._strides)
        elif self._slice_us != pane_us(self._window):
            rows = self._partials.merge(self._as_panes(frames), [WINDOW], strides=self._strides)
        else:
            rows = self._merge_panes(frames)
        return rows.select(self._run_columns)

    def _slot_start(self, time_us: pl.Expr) -> pl.Expr:
        if self._slice_us == pane_us(self._window):
            return pane_start(time_us, self._window)
        return (time_us - self._window.offset_us) // self._slice_us * self._slice_us + self._window.offset_us

    def _as_panes(self, frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
        """Return rows of slices as rows of the panes that hold them."""
        if self._slice_us == pane_us(self._window):
            return frames
        return [frame.with_columns(pane_start(pl.col(WINDOW), self._window)) for frame in frames]

    def _fire(
        self, state: SlotState, arrived: pl.DataFrame | None, after_us: int, until_us: int, results: _Results
    ) -> None:
        """Emit the windows that end in (after, until], forget what no later window holds."""
        limit_us = drop_limit_us(self._window, until_us)
        if limit_us == drop_limit_us(self._window, after_us):
            return
        # All of a tumbling window fires at once; a sliding one leaves its later panes to the next.
        panes_until_us = limit_us if self._window.kind == "tumbling" else until_us
        panes = state.due(panes_until_us)
        if arrived is not None:
            panes = [*panes, arrived.filter(pl.col(WINDOW) < panes_until_us)]
        panes = [frame for frame in panes if frame.height]
        state.drop_due(limit_us)
        if not panes:
            return
        if self._window.kind == "tumbling":
            results.take(self._merge_panes(panes))
            return
        for rows in self._merge_windows(panes, after_us, until_us):
            results.take(rows)

    def _merge_panes(self, panes: list[pl.DataFrame]) -> pl.DataFrame:
        # Within one frame, be it a run or what one local merge made, every pane and key is there only once.
        whole = len(panes) == 1 and self._slice_us == pane_us(self._window)
        return panes[0] if whole else self._partials.merge(panes, [WINDOW], strides=self._strides)

    def _merge_windows(self, panes: list[pl.DataFrame], after_us: int, until_us: int) -> Iterator[pl.DataFrame]:
        """Yield the partial rows of the windows that end in (after, until], some windows at a time."""
        starts = pl.concat([frame.get_column(WINDOW) for frame in panes])
        windows = lay_windows_over_panes(starts, self._window, after_us, until_us)
        single = windows.get_column("window").n_unique() == 1
        # Panes of several windows are merged once for all of them.
        rows = concatenate(panes) if single else self._merge_panes(panes)
        rows = rows.rename({WINDOW: "pane"})
        rows_of_pane = rows.group_by("pane").len()
        sizes = windows.join(rows_of_pane, on="pane").group_by("window").agg(pl.col("len").sum()).sort("window")
        chunk = (sizes.get_column("len").cum_sum() - 1) // _ROWS_SPREAD_AT_ONCE
        for some in sizes.with_columns(chunk.alias("chunk")).partition_by("chunk", maintain_order=True):
            chosen = windows.join(some, on="window", how="semi", maintain_order="left")
            spread = rows.join(chosen, on="pane", how="inner", maintain_order="left_right")
            spread = spread.rename({"window": WINDOW}).drop("pane")
            yield self._partials.merge([spread], [WINDOW], strides={WINDOW: self._window.slide_us})

    def _finish(self, partial_rows: pl.DataFrame, length_us: int | None = None) -> pl.DataFrame:
        start = pl.col(WINDOW).cast(pl.Datetime("us")).alias(WINDOW_START)
        end = (pl.col(WINDOW) + (length_us or self._window.size_us)).cast(pl.Datetime("us")).alias(WINDOW_END)
        return self._partials.finish(partial_rows, [start, end])

    def _compacted(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        return sort_as_run(self._merge_panes(frames).select(self._run_columns))

    def _next_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        panes = [run.min_window for run in state.runs() if run.min_window is not None]
        watermark_us = max(time.closed_us, time.fire_us)
        return next_window_end_us(self._window, min(panes), watermark_us) if panes else None


class _Results:
    """Collects fired windows: finished where the slot has all of them, as they are where others have parts."""

    def __init__(self, finish: Callable[[pl.DataFrame], pl.DataFrame], standing: Standing | None) -> None:
        self._finish = finish
        self._standing = standing
        self.finished: list[pl.DataFrame] = []
        self.shared: list[pl.DataFrame] = []

    def take(self, rows: pl.DataFrame) -> None:
        if self._standing is not None:
            rows = self._keep_own(rows, self._standing)
        self.finished.append(self._finish(rows))

    def _keep_own(self, rows: pl.DataFrame, standing: Standing) -> pl.DataFrame:
        lacked = standing.lacks(rows[HASH], rows[WINDOW])
        if lacked is not None:
            rows = rows.filter(~lacked)
        shared = standing.shares(rows[HASH], rows[WINDOW])
        if not shared.any():
            return rows
        self.shared.append(rows.filter(shared))
        return rows.filter(~shared)
