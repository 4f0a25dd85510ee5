"""Aggregates in windows of so many rows of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, unite_hashes
from anabranch.eventtime import last_window_ends_us, pane_us
from anabranch.eventtime.key_clocks import PLACE, SPOKE, Times, places_of
from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    HASH,
    ORDER,
    WINDOW_NUMBER,
    Aggregate,
    Clock,
    CountWindowSpec,
    Fired,
    OperatorTime,
    Prepared,
    RunRef,
    SlotState,
    Standing,
    WindowSpec,
)
from anabranch.operators.aggregates.checks import check_aggregates, describe_aggregates, empty_rows
from anabranch.operators.aggregates.partials import Partials, concatenate
from anabranch.operators.keyed.known_keys import place_keys, touched_hashes
from anabranch.operators.keyed.newest_rows import load_rows, newest_rows, store_rows, sweep_runs
from anabranch.operators.windows.panes import PANE, START, lay_windows

_COUNTED = "__counted"
"""Int64: how many rows of a key came, since the last drain if there was one."""
_DRAINED = "__drained"
"""Int64: how many windows of a key began before that."""


class CountWindows:
    """Aggregates in windows of a key's rows, numbered in the order they come: by batch, then by ORDER.

    The rows of a key are its time: a window ends at a number of rows, and closes when as many have come. State rows
    are the panes of a key whose windows are not all full, with the number of its rows; that number is kept
    for ever, unless silent keys are forgotten. A drain emits the windows that are not full, and lets every key begin
    anew.
    """

    mergeable = False
    meeting = None

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        window: CountWindowSpec,
        time_column: str | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._spec = window
        # The same arithmetic as for time, with a row in the place of a microsecond.
        kind: Literal["tumbling", "sliding"] = "tumbling" if window.size_rows == window.slide_rows else "sliding"
        self._window = WindowSpec(kind, window.size_rows, window.slide_rows)
        self._partials = Partials(keys, aggregates, time_column)
        self._pane_columns = [HASH, *self._keys, PLACE, PANE, *self._partials.plan.partial_columns]
        # Whoever forgets keys must know when they last spoke.
        self._clock = Clock("key", idle_us=window.idle_us)
        spoke = [SPOKE] if window.idle_us is not None else []
        self._run_columns = [HASH, *self._keys, _COUNTED, _DRAINED, *spoke, PANE, *self._partials.plan.partial_columns]

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        check_aggregates(self._partials, input_schema, taken=(WINDOW_NUMBER,))
        prepared = self.prepare(empty_rows(input_schema), OperatorTime(batch=0)).frame
        panes = self._partials.combine(prepared)
        nowhere = panes.with_columns(pl.lit(0, pl.Int64).alias(name) for name in (PLACE, START))
        return dict(self._finish(nowhere, np.zeros(0, np.int64)).schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        window: dict[str, object] = {"size_rows": self._spec.size_rows, "slide_rows": self._spec.slide_rows}
        if self._spec.idle_us is not None:
            window["idle"] = True
        return {
            "kind": "count windows",
            "count_window": window,
            **describe_aggregates(self._partials, input_schema),
        }

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep the columns that are needed, and where each row stands in its batch."""
        return Prepared(self._partials.select_rows(frame, time, [pl.col(ORDER)]))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows: which window one is in is known only where all rows of its key are."""
        return prepared

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Number the rows that came, and emit the windows that they fill."""
        frames = [frame for frame in received if frame.height]
        rows = concatenate(frames).sort(ORDER, maintain_order=True) if frames else None
        hashes = touched_hashes(rows, self._due_hashes(state, time))
        found = load_rows(state, hashes) if hashes.size else None
        if found is None and rows is None:
            return Fired(pl.DataFrame(), wake_us=self._wake_us(state, time))
        results = self._advance_keys(state, found, rows, time)
        if time.looks_for_idle(self._clock):
            sweep_runs(state, lambda run: run.get_column(_COUNTED).is_null().to_numpy())
        return Fired(results, wake_us=self._wake_us(state, time))

    def _advance_keys(
        self, state: SlotState, known: pl.DataFrame | None, rows: pl.DataFrame | None, time: OperatorTime
    ) -> pl.DataFrame:
        """Return the windows of these keys that are full, or that a drain or silence ends; write what remains."""
        keys, known, rows = place_keys(self._keys, known, rows)
        counted, drained = _of_keys(known, _COUNTED, keys.height), _of_keys(known, _DRAINED, keys.height)
        panes = self._merge(known, rows, counted)
        after = counted if rows is None else counted + np.bincount(places_of(rows), minlength=keys.height)
        spoke_us = self._spoke_us(keys.height, known, rows, time)
        silent = self._is_silent(spoke_us, time)
        ended = silent & (self._spec.unfilled == "emit") | time.drains
        windows = self._lay_windows(panes, counted, np.where(ended, END_OF_TIME, after))
        results = pl.DataFrame() if windows is None else self._finish(windows, drained)
        if time.drains:
            # No window that was emitted is filled up later: the next one begins with the next row.
            drained = drained + -(-after // self._spec.slide_rows)
            after = np.zeros_like(after)
            panes = panes.clear()
        panes = panes.filter(pl.Series(~silent[places_of(panes)]))
        self._store(state, keys, panes, after, drained, spoke_us, silent)
        return results

    # -- silence ---------------------------------------------------------------------------------------------------

    def _due_hashes(self, state: SlotState, time: OperatorTime) -> Hashes:
        """Return the keys that must be looked at even if no row comes for them; some may turn out not to be due."""
        due = _open_hashes(state) if time.drains else np.empty(0, np.uint64)
        if self._spec.idle_us is None or not time.looks_for_idle(self._clock):
            return due
        for run in state.live():
            unheard = run.select(HASH, SPOKE, _COUNTED).drop_nulls(_COUNTED)
            due = np.union1d(due, hashes_of(unheard)[self._is_silent(unheard.get_column(SPOKE).to_numpy(), time)])
        return due

    def _spoke_us(self, count: int, known: pl.DataFrame | None, rows: pl.DataFrame | None, time: OperatorTime) -> Times:
        """Return by key when it last had a row, by the wall clock."""
        if self._spec.idle_us is None:
            return np.full(count, time.now_us, np.int64)
        spoke_us = _of_keys(known, SPOKE, count)
        if rows is not None:
            spoke_us[places_of(rows)] = time.now_us
        return spoke_us

    def _is_silent(self, spoke_us: Times, time: OperatorTime) -> NDArray[np.bool_]:
        idle_us = self._spec.idle_us
        # Nobody was silent before the flow began to listen.
        if idle_us is None or time.since_us + idle_us > time.now_us:
            return np.zeros(len(spoke_us), np.bool_)
        silent: NDArray[np.bool_] = spoke_us + idle_us <= time.now_us
        return silent

    def _wake_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return when it must be looked for keys that fell silent and have a window that is not full."""
        idle_us = self._spec.idle_us
        if idle_us is None:
            return None
        begun = [run.select(SPOKE, PANE).drop_nulls(PANE) for run in state.live()]
        wakes = [run.get_column(SPOKE).to_numpy() + idle_us for run in begun]
        # Once it was looked, who is still silent for too long has been superseded.
        passed_us = time.now_us if time.looks_for_idle(self._clock) else BEGINNING_OF_TIME
        waiting = [int(found.min()) for wake in wakes if (found := wake[wake > passed_us]).size]
        return max(min(waiting), time.next_idle_look_us(idle_us)) if waiting else None

    # -- the kernel's other ends -----------------------------------------------------------------------------------

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept of keys that come here whole."""
        state.adopt(handed)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return the open panes of every key, and the number of its rows."""
        rows = newest_rows(runs)
        return rows if self._spec.idle_us is None else rows.drop_nulls(_COUNTED)

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots: each key is on one."""
        return concatenate(stored).sort(HASH, maintain_order=True)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the windows that have rows and are not full, as they stand."""
        keys, known, _ = place_keys(self._keys, stored, None)
        counted, drained = _of_keys(known, _COUNTED, keys.height), _of_keys(known, _DRAINED, keys.height)
        panes = self._merge(known, None, counted)
        windows = self._lay_windows(panes, counted, np.full_like(counted, END_OF_TIME))
        return self._finish(panes.rename({PANE: START}) if windows is None else windows, drained)

    def _merge(self, known: pl.DataFrame | None, rows: pl.DataFrame | None, counted: Times) -> pl.DataFrame:
        """Return one row a pane and key, of those that were open and those that rows came for."""
        frames = []
        if known is not None:
            frames.append(known.filter(pl.col(PANE).is_not_null()).select(self._pane_columns))
        if rows is not None:
            length = pane_us(self._window)
            number = pl.Series(counted[places_of(rows)]) + rows.select(pl.int_range(pl.len()).over(PLACE)).to_series()
            placed = rows.with_columns((number // length * length).alias(PANE))
            fresh = self._partials.combine(placed, [PANE], extra=[pl.col(PLACE).first()])
            frames.append(fresh.select(self._pane_columns))
        return self._partials.merge(frames, [PANE], extra=[pl.col(PLACE).first()])

    def _lay_windows(self, panes: pl.DataFrame, counted: Times, until: Times) -> pl.DataFrame | None:
        """Return the windows that were not full after so many rows, and end at or before a number of them, by key."""
        places = places_of(panes)
        # No window begins before the first row: the first is full when as many rows as it holds have come.
        after = np.maximum(counted, self._spec.size_rows - 1)
        return lay_windows(self._partials, self._window, panes, after[places], until[places])

    def _store(
        self,
        state: SlotState,
        keys: pl.DataFrame,
        panes: pl.DataFrame,
        counted: Times,
        drained: Times,
        spoke_us: Times,
        forgotten: NDArray[np.bool_],
    ) -> None:
        """Write what remains of the keys: panes of windows that are not full, and the number of rows, or tombstones."""
        last_ends = last_window_ends_us(self._window, panes.get_column(PANE).to_numpy())
        kept = panes.filter(pl.Series(last_ends > counted[places_of(panes)]))
        is_bare = np.ones(keys.height, np.bool_)
        is_bare[places_of(kept)] = False
        bare = keys.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PLACE)).filter(pl.Series(is_bare))
        written = pl.concat([kept, bare], how="diagonal")
        places = places_of(written)
        number = pl.Series(_COUNTED, counted[places]).set(pl.Series(forgotten[places]), None)
        written = written.with_columns(number, pl.Series(_DRAINED, drained[places]), pl.Series(SPOKE, spoke_us[places]))
        store_rows(state, written.select(self._run_columns), lambda merged: merged.get_column(_COUNTED).is_not_null())

    def _finish(self, windows: pl.DataFrame, drained: Times) -> pl.DataFrame:
        number = pl.col(START) // self._spec.slide_rows + pl.Series(drained[places_of(windows)])
        return self._partials.finish(windows, [number.alias(WINDOW_NUMBER)])


def _open_hashes(state: SlotState) -> Hashes:
    """Return the keys that have panes, sorted; those that a newer run has superseded are among them."""
    found = [hashes_of(rows.select(HASH, PANE).drop_nulls(PANE)) for rows in state.live()]
    return unite_hashes(found)


def _of_keys(known: pl.DataFrame | None, column: str, count: int) -> Times:
    """Return what the state says of each key in a column that all rows of a key agree in; 0 for new keys."""
    numbers = np.zeros(count, np.int64)
    if known is not None:
        numbers[places_of(known)] = known.get_column(column).fill_null(0).to_numpy()
    return numbers
