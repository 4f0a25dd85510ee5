"""Keys that several slots share, whose windows are in their key's own time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, is_among
from anabranch.eventtime.key_clocks import (
    CLOCK,
    LATEST,
    SPOKE,
    KeyClocks,
    PartTimes,
    Times,
    align_split_keys,
    came_by_key,
    largest_by_key,
    places_of,
    read_clocks,
)
from anabranch.eventtime.lateness import Judged
from anabranch.model import BEGINNING_OF_TIME, HASH, Met, OperatorTime, RunRef, SlotState, SplitKeyClocks
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.keyed.known_keys import place_keys
from anabranch.operators.keyed.newest_rows import load_rows, take_out
from anabranch.operators.windows.pane_windower import CAME, DIRTY, PaneWindower
from anabranch.operators.windows.panes import PANE
from anabranch.operators.windows.window_state import Advanced, WindowState


class SplitKeys:
    """The parts of keys that slots share, and their meeting; their windows are tumbling or sliding ones.

    A part holds panes of the rows that it got. What closes, and how far the watermark is, shows when the parts meet:
    they send all that they have open, and all that came, so that the meeting does what one slot would. What became
    of it, they learn with the next batch, by the watermark that the driver keeps.
    """

    def __init__(self, panes: PaneWindower, state: WindowState) -> None:
        self._panes = panes
        self._state = state
        self._clock = state.clock
        self._keys = state.partials.keys
        self._partial_columns = state.partials.plan.partial_columns
        self._met_columns = [*state.run_columns, CAME, LATEST]

    # -- a part ----------------------------------------------------------------------------------------------------

    def advance(self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, time: OperatorTime) -> Advanced:
        """Judge the rows by the watermark of the whole key, keep them, and send everything to the meeting."""
        keys, known, arrived = place_keys(self._keys, known, arrived)
        parts, known = self._state.forgetting.recall_parts(keys, known, came_by_key(keys.height, arrived), time)
        clocks = read_clocks(self._clock, time, hashes_of(keys), known, arrived, parts)
        opened = self.settle_rows(self._state.select_open(known), parts)
        judged = self._panes.judge(arrived, clocks, time)
        came = self._panes.combine_in_time(judged)
        panes = self._panes.merge(opened, came)
        shown = self._shown_now(clocks)
        if panes is not None and shown.any():
            panes = panes.with_columns(pl.col(DIRTY) & ~pl.Series(shown[places_of(panes)]))
        least_us = self._least_clock_us(panes, clocks, time)
        written = self._state.remains(keys, known, arrived, panes, clocks.spoke_us, least_us, time.floor_us)
        changed = shown | self._has_changed(keys.height, known, arrived, panes, parts, least_us)
        written = written.filter(pl.Series(is_among(hashes_of(written), np.unique(hashes_of(keys)[changed]))))
        return Advanced(judged, [], written, self._send(keys, known, opened, came, arrived))

    def settle_rows(self, opened: pl.DataFrame | None, parts: PartTimes | None) -> pl.DataFrame | None:
        """Return what keys have open, as it is after what happened where their parts met; None if that is nothing.

        Panes that are over are left out, and none has changed since results so far were emitted.
        """
        if opened is None or parts is None:
            return opened
        places = places_of(opened)
        before_us, clock_us = parts.before_us[places], parts.clock_us[places]
        is_kept = self._panes.is_kept(opened, clock_us)
        kept = opened.filter(pl.Series(is_kept))
        if DIRTY in self._panes.flags:
            shown = pl.Series(self._panes.passes_interval(before_us, clock_us)[is_kept])
            kept = kept.with_columns(pl.col(DIRTY) & ~shown)
        return kept if kept.height else None

    def _shown_now(self, clocks: KeyClocks) -> NDArray[np.bool_]:
        """Say of each key whether this batch emits results so far; of its own watermark that is known afterwards."""
        if self._clock.per == "key":
            return np.zeros(len(clocks.fire_us), np.bool_)
        return self._panes.passes_interval(clocks.fired_us, clocks.fire_us)

    def _least_clock_us(self, panes: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime) -> Times:
        """Return the watermark that each key will have at least when the batch is over."""
        if not time.drains:
            return clocks.closed_us if self._clock.per == "key" else clocks.fire_us
        last_end_us = np.full(len(clocks.fire_us), BEGINNING_OF_TIME, np.int64)
        if panes is not None:
            np.maximum.at(last_end_us, places_of(panes), self._panes.last_ends_us(panes))
        return clocks.after(last_end_us)

    def _has_changed(
        self,
        count: int,
        known: pl.DataFrame | None,
        arrived: pl.DataFrame | None,
        panes: pl.DataFrame | None,
        parts: PartTimes | None,
        clock_us: Times,
    ) -> NDArray[np.bool_]:
        """Say of each key whether what is stored of it must be written anew."""
        changed = np.zeros(count, np.bool_)
        if arrived is not None:
            changed[places_of(arrived)] = True
        if parts is not None:
            changed |= self._panes.passes_interval(parts.before_us, parts.clock_us)
        held = np.zeros(count, np.int64)
        opened = self._state.select_open(known)
        if opened is not None:
            held += np.bincount(places_of(opened), minlength=count)
        if panes is not None:
            places = places_of(panes)
            held -= np.bincount(places[self._panes.is_kept(panes, clock_us[places])], minlength=count)
        changed |= held != 0
        return changed

    def _send(
        self,
        keys: pl.DataFrame,
        known: pl.DataFrame | None,
        opened: pl.DataFrame | None,
        came: pl.DataFrame | None,
        arrived: pl.DataFrame | None,
    ) -> pl.DataFrame | None:
        """Return what is open, what came and counts, and a row for each key that spoke; None if that is nothing."""
        rows = []
        if opened is not None:
            rows.append(opened.with_columns(pl.lit(False).alias(CAME)))
        if came is not None:
            rows.append(came.select(HASH, *self._keys, PANE, *self._partial_columns, pl.lit(True).alias(CAME)))
        if arrived is not None:
            latest_us = largest_by_key(keys.height, arrived, LATEST)
            spoke = keys.with_columns(pl.lit(True).alias(CAME), pl.Series(LATEST, latest_us))
            rows.append(spoke.filter(pl.Series(latest_us > BEGINNING_OF_TIME)))
        if not rows:
            return None
        sent = pl.concat([*rows, self._state.no_rows(known, arrived)], how="diagonal")
        missing = [name for name in (CLOCK, SPOKE, LATEST) if name not in sent.columns]
        return sent.with_columns(pl.lit(None, pl.Int64).alias(name) for name in missing).select(self._met_columns)

    # -- the meeting -----------------------------------------------------------------------------------------------

    def meet_in_time(self, shared: list[pl.DataFrame], time: OperatorTime) -> Met:
        """Do with all parts of some keys what one slot would have done with the whole keys."""
        rows = concatenate(shared)
        known, came = (frame if frame.height else None for frame in (rows.filter(~pl.col(CAME)), rows.filter(CAME)))
        keys, known, came = place_keys(self._keys, known, came)
        parts, known = self._state.forgetting.recall_parts(keys, known, came_by_key(keys.height, came), time)
        clocks = read_clocks(self._clock, time, hashes_of(keys), known, came, parts)
        taken = self._panes.fire(Judged(), self._panes.join(known), self._state.select_open(came), clocks)
        clock_us = clocks.after(taken.last_end_us)
        left = self._left(taken.rows, clock_us, clocks.spoke_us)
        return Met(
            pl.concat(taken.results) if taken.results else pl.DataFrame(),
            self._report_clocks(keys, clocks.closed_us, clock_us, clocks.spoke_us),
            self._state.next_due_us(left, time),
            self._state.wake_us(left, time),
        )

    def _left(self, panes: pl.DataFrame | None, clock_us: Times, spoke_us: Times) -> list[pl.DataFrame]:
        """Return what is open after the batch, as state rows have it."""
        if panes is None:
            return []
        places = places_of(panes)
        timed = panes.with_columns(pl.Series(CLOCK, clock_us[places]), pl.Series(SPOKE, spoke_us[places]))
        return [timed.filter(pl.Series(self._panes.is_kept(panes, clock_us[places])))]

    def _report_clocks(self, keys: pl.DataFrame, before_us: Times, clock_us: Times, spoke_us: Times) -> SplitKeyClocks:
        """Return what the driver keeps of keys with parts; where watermarks are shared, that they have parts."""
        if self._clock.per != "key":
            nothing = np.full(keys.height, BEGINNING_OF_TIME, np.int64)
            return SplitKeyClocks(keys, nothing, nothing, nothing)
        return SplitKeyClocks(keys, before_us, clock_us, spoke_us)

    # -- splitting and merging -------------------------------------------------------------------------------------

    def clocks_of(self, state: SlotState, hashes: NDArray[np.uint64], time: OperatorTime) -> SplitKeyClocks | None:
        """Return the watermarks of keys that are about to be split; those of forgotten ones lie in files by chance."""
        rows = load_rows(state, hashes) if hashes.size else None
        if rows is not None:
            until_us = time.forget_until_us(self._clock)
            rows = rows.filter(pl.Series(~self._state.forgetting.find(rows, until_us, np.empty(0, np.uint64))))
        if rows is None or rows.is_empty():
            return None
        keys, rows, _ = place_keys(self._keys, rows, None)
        clock_us, spoke_us = _stored_times(keys.height, rows)
        return self._report_clocks(keys, clock_us, clock_us, spoke_us)

    def absorb_parts(self, handed: Sequence[RunRef], state: SlotState, time: OperatorTime) -> None:
        """Add what other slots kept; what they and this one have of a key becomes one part."""
        hashes: Hashes = time.split_keys.hashes() if time.split_keys is not None else np.empty(0, np.uint64)
        own = load_rows(state, hashes) if hashes.size else None
        state.adopt(handed)
        parts = [own, *(take_out(state.read(ref), hashes)[1] for ref in handed)] if hashes.size else []
        found = [rows for rows in parts if rows is not None]
        if len(found) > 1:
            # The newest run that has a key speaks for all of it.
            state.append(self._join_parts(found).sort(HASH, maintain_order=True))

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots; parts of a key become one."""
        rows = concatenate(stored).sort(HASH, maintain_order=True)
        holders, counts = np.unique(np.concatenate([np.unique(hashes_of(part)) for part in stored]), return_counts=True)
        whole, parts = take_out(rows, holders[counts > 1])
        united = [*([] if whole is None else [whole]), *([] if parts is None else [self._join_parts([parts])])]
        return concatenate(united).sort(HASH, maintain_order=True) if united else rows

    def settle(self, stored: pl.DataFrame, clocks: SplitKeyClocks) -> pl.DataFrame:
        """Return state with what the last meeting did to it."""
        whole, held = take_out(stored, clocks.hashes())
        if held is None:
            return stored
        keys, held, _ = place_keys(self._keys, held, None)
        parts = align_split_keys(clocks, keys)
        assert parts is not None
        clock_us, spoke_us = _stored_times(keys.height, held)
        clock_us, spoke_us = np.maximum(clock_us, parts.clock_us), np.maximum(spoke_us, parts.spoke_us)
        opened = self.settle_rows(self._state.select_open(held), parts)
        settled = self._state.remains(keys, held, None, opened, spoke_us, clock_us, BEGINNING_OF_TIME)
        rows = settled.filter(self._state.has_content(settled))
        return concatenate([rows] if whole is None else [whole, rows]).sort(HASH, maintain_order=True)

    def _join_parts(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the state rows of keys of which there are several parts."""
        keys, rows, _ = place_keys(self._keys, concatenate(parts), None)
        clock_us, spoke_us = _stored_times(keys.height, rows)
        opened = self._panes.join(self._state.select_open(rows))
        return self._state.remains(keys, rows, None, opened, spoke_us, clock_us, BEGINNING_OF_TIME)


def _stored_times(count: int, rows: pl.DataFrame | None) -> tuple[Times, Times]:
    """Return by key the watermark, and when it last spoke, as state rows have it."""
    nothing = np.full(count, BEGINNING_OF_TIME, np.int64)
    has = [] if rows is None else rows.columns
    clock_us = largest_by_key(count, rows, CLOCK) if CLOCK in has else nothing
    spoke_us = largest_by_key(count, rows, SPOKE) if SPOKE in has else nothing
    return clock_us, spoke_us
