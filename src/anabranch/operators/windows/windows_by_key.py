"""Aggregates in windows whose state lies together by key: each key has its own time, or results may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, sort_by_hash
from anabranch.eventtime.key_clocks import ROWS, came_by_key, latest_by_group, read_clocks, shared_times
from anabranch.eventtime.lateness import ORIGINAL, Judged, carry_original
from anabranch.model import (
    BEGINNING_OF_TIME,
    EMISSION,
    HASH,
    WINDOW,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Clock,
    Fired,
    MeetingInTime,
    OperatorTime,
    Prepared,
    RunRef,
    SlotState,
    Standing,
    WindowSpec,
)
from anabranch.operators.aggregates.checks import check_aggregates, describe_aggregates, empty_rows
from anabranch.operators.aggregates.partials import Partials, concatenate, sort_as_run
from anabranch.operators.keyed.known_keys import place_keys, touched_hashes
from anabranch.operators.keyed.newest_rows import load_rows, newest_rows, store_rows, sweep_runs, take_out
from anabranch.operators.windows.open_windows import OpenWindows
from anabranch.operators.windows.pane_windower import PaneWindower
from anabranch.operators.windows.session_windower import SessionWindower
from anabranch.operators.windows.split_keys import SplitKeys
from anabranch.operators.windows.window_state import Advanced, WindowState


def make_windows_by_key(
    keys: Sequence[str], aggregates: Mapping[str, Aggregate], window: WindowSpec, time_column: str, clock: Clock
) -> WindowsByKey:
    """Return the kernel for windows of any kind under a clock of any level."""
    partials = Partials(keys, aggregates, time_column)
    if window.kind == "session":
        state = WindowState(partials, SessionWindower(partials, window, clock), clock, window.lateness_us)
        return WindowsByKey(window, time_column, state)
    panes = PaneWindower(partials, window, clock)
    state = WindowState(partials, panes, clock, window.lateness_us)
    # Parts of a key on slots that each have their own time would have no time in common.
    split_keys = None if clock.per == "slot" else SplitKeys(panes, state)
    return WindowsByKey(window, time_column, state, OpenWindows(partials, window, clock), split_keys)


class WindowsByKey:
    """Aggregates in windows of which every key has its own, or that may be emitted more than once.

    What kind they are is the windower's, what is kept of them the state's. This is the order of a batch: which keys
    are looked at, by which clocks, and what is written.
    """

    def __init__(
        self,
        window: WindowSpec,
        time_column: str,
        state: WindowState,
        open_windows: OpenWindows | None = None,
        split_keys: SplitKeys | None = None,
    ) -> None:
        """``open_windows`` is a short way for keys whose windows stay open, ``split_keys`` for those that slots share;
        where there is none, each key is on one slot."""
        self._window = window
        self._time_column = time_column
        self._state = state
        self._partials = state.partials
        self._windower = state.windower
        self._clock = state.clock
        self._open_windows = open_windows
        self._split_keys = split_keys
        # Late rows can be handed out as they came only if nothing was merged with them.
        self.mergeable = window.late != "side"
        self.meets_by_interval = state.windower.meets_by_interval

    @property
    def meeting(self) -> MeetingInTime | None:
        """Where parts of a key meet."""
        return self._split_keys

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        taken = (WINDOW_START, WINDOW_END, *([EMISSION] if self._window.marks_emissions else []))
        check_aggregates(self._partials, input_schema, taken=taken)
        prepared = self.prepare(empty_rows(input_schema), OperatorTime(batch=0)).frame
        return dict(self._windower.finish_open(self.combine(prepared.drop(ORIGINAL, strict=False))).schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        clock = self._clock
        return {
            **self._windower.describe(),
            "clock": {"per": clock.per, "groups": clock.groups if clock.per == "group" else None}
            | {"idle": clock.idle_us is not None},
            **describe_aggregates(self._partials, input_schema),
        }

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep what is needed of rows; which are late is known only where their keys' watermarks are."""
        carried = self._windower.place_rows(self._time_column)
        if not self.mergeable:
            carried.append(carry_original())
        return Prepared(self._partials.select_rows(frame, time, carried))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into partial rows, with their places and the number of ROWS behind each."""
        return self._windower.combine(prepared)

    # -- a batch ---------------------------------------------------------------------------------------------------

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Fire what closed before this batch, take its rows in, fire what they complete, key by key."""
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
        """Do the same with rows of earlier batches that waited where they were read, as if they had been here."""
        split = _split_hashes(standing)
        forgetting = self._state.forgetting

        def is_dead(rows: pl.DataFrame) -> NDArray[np.bool_]:
            return ~self._state.has_content(rows, time.floor_us).to_numpy()

        # Slots share these, or did until now.
        lately_split = np.empty(0, np.uint64) if time.split_keys is None else time.split_keys.hashes()
        due = self._state.due_hashes(state, time)
        waited = self._gather(held, combined=True)
        if waited is not None:
            due = touched_hashes(waited, due)
        if split.size or lately_split.size:
            # What becomes of a key with parts shows when they meet: each must say in every batch what it has.
            due = np.unique(np.concatenate((due, split, lately_split)))
        advanced: list[Advanced] = []
        merged = None
        if self._open_windows is not None and not due.size and not time.drains:
            merged = self._open_windows.merge(
                received, combined, lambda hashes: state.lookup_newest(pl.Series(hashes, dtype=pl.UInt64)), time
            )
        if merged is None:
            arrived = self._gather(received, combined)
            hashes = touched_hashes(arrived, due)
            known = load_rows(state, hashes) if hashes.size else None
            known = forgetting.leave_out(known, time, is_dead)
            known = self._with_waited(known, waited) if waited is not None else known
        else:
            arrived = None if merged.arrived is None else self._gather([merged.arrived], combined)
            known = merged.known
            advanced += [merged.advanced] if merged.advanced is not None else []
        known, known_parts = take_out(known, split)
        arrived, arrived_parts = take_out(arrived, split)
        if arrived is not None or known is not None:
            advanced.append(self._advance_keys(known, arrived, time))
        if arrived_parts is not None or known_parts is not None:
            assert self._split_keys is not None, "only kernels that can split keys are told of split ones"
            advanced.append(self._split_keys.advance(known_parts, arrived_parts, time))
        if advanced:
            written = concatenate([some.written for some in advanced])
            store_rows(state, written, lambda merged: self._state.has_content(merged, time.floor_us))
        sweep = partial(sweep_runs, state)
        forgotten_us = forgetting.settle([some.written for some in advanced], time, split, is_dead, sweep)
        # What is due of a key with parts, the meeting says.
        live = [take_out(run, split)[0] for run in state.live()] if self._state.looks_ahead else []
        left = [run for run in live if run is not None]
        judged = reduce(Judged.plus, (some.judged for some in advanced), Judged())
        to_meet = [some.shared for some in advanced if some.shared is not None]
        fired = judged.report(
            [frame for some in advanced for frame in some.results],
            self._state.next_due_us(left, time),
            self._state.wake_us(left, time),
            to_meet[0] if to_meet else None,
        )
        return replace(fired, forgotten_us=forgotten_us) if forgotten_us else fired

    def _gather(self, received: list[pl.DataFrame], combined: bool) -> pl.DataFrame | None:
        """Return what came as one frame, by hash: partial rows, or single ones where they are carried as they came."""
        frames = [frame for frame in received if frame.height]
        if not frames:
            return None
        rows = concatenate(frames)
        if not combined:
            is_single = ORIGINAL in rows.columns
            rows = rows.with_columns(pl.lit(1, pl.Int64).alias(ROWS)) if is_single else self.combine(rows)
        return self._windower.with_latest(sort_by_hash(rows))

    def _with_waited(self, known: pl.DataFrame | None, waited: pl.DataFrame) -> pl.DataFrame:
        """Return what keys have open with rows that waited elsewhere; tombstones have nothing to merge with."""
        opened = self._state.select_open(known)
        frames = [*([] if opened is None else [opened]), waited.select(self._state.run_columns)]
        return self._windower.merge_open(frames).select(self._state.run_columns)

    def _advance_keys(self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, time: OperatorTime) -> Advanced:
        """Take rows of keys that are on no other slot."""
        keys, known, arrived = place_keys(self._partials.keys, known, arrived)
        came = came_by_key(keys.height, arrived)
        parts, known = self._state.forgetting.recall_parts(keys, known, came, time)
        clocks = read_clocks(self._clock, time, hashes_of(keys), known, arrived, parts)
        opened = self._state.select_open(known)
        if self._split_keys is not None:
            opened = self._split_keys.settle_rows(opened, parts)
        taken = self._windower.take(opened, arrived, clocks, time)
        clock_us = clocks.after(taken.last_end_us)
        written = self._state.remains(keys, known, arrived, taken.rows, clocks.spoke_us, clock_us, time.floor_us)
        return Advanced(taken.judged, taken.results, written)

    # -- state that is moved or read ---------------------------------------------------------------------------------

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept of keys that come here whole, with their time."""
        state.adopt(handed)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return what every key has open, and its clock."""
        rows = newest_rows(runs)
        return rows.filter(self._state.has_content(rows))

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots; parts of a key become one."""
        if self._split_keys is not None:
            return self._split_keys.unite(stored)
        return concatenate(stored).sort(HASH, maintain_order=True)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the values so far of what is held; keys that only have a clock are left out."""
        opened = self._state.select_open(stored)
        held = self._windower.finish_open(stored.clear() if opened is None else opened)
        return held.drop(EMISSION) if self._window.marks_emissions else held

    # -- rows that wait where they were read: readers know watermarks that keys share, too ---------------------------

    def hold(self, combined: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with their place in time as the WINDOW."""
        return combined.with_columns(pl.col(self._windower.places[0]).alias(WINDOW))

    def unite_held(self, held: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a place and key."""
        merged = self._windower.merge_combined(concatenate(held))
        return sort_as_run(self.hold(merged).select(held[0].columns))

    def release(self, held: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they were combined."""
        return held.drop(WINDOW)

    def must_go_until_us(self, time: OperatorTime) -> int:
        """Return the place below which rows have to be sent if theirs is the group that is furthest ahead."""
        closed_us = np.array([BEGINNING_OF_TIME]) if time.shared is None else time.shared.closed_us
        return int(self._windower.held_until_us(closed_us).max())

    def must_go(self, held: pl.DataFrame, time: OperatorTime) -> pl.Series:
        """Say of each row whether the watermark of its group has reached it."""
        _, closed_us = shared_times(self._clock, time, hashes_of(held))
        return pl.Series(held.get_column(WINDOW).to_numpy() < self._windower.held_until_us(closed_us))

    def next_held_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return the first place of a row that waits; which group it is of, and when that is due, readers find out."""
        return min((run.min_window for run in state.runs() if run.min_window is not None), default=None)

    def with_held(self, stored: list[pl.DataFrame], runs: list[pl.DataFrame]) -> pl.DataFrame:
        """Return what every key has open."""
        return self._with_waited(self.unite(stored) if stored else None, self.unite_held(runs))

    def group_latest_us(self, combined: pl.DataFrame) -> dict[int, int]:
        """Return the latest event time of each group that rows came for."""
        return latest_by_group(self._windower.with_latest(combined), self._clock.groups)


def _split_hashes(standing: Standing | None) -> Hashes:
    """Return the hashes of keys that other slots have parts of, sorted."""
    listed = standing.split_hashes if standing is not None else None
    return listed.to_numpy() if listed is not None else np.empty(0, np.uint64)
