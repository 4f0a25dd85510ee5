"""Windows in their key's own time, of keys that several slots share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, is_among
from anabranch.eventtime import last_window_ends_us, pane_us
from anabranch.eventtime.key_clocks import (
    CLOCK,
    LATEST,
    PLACE,
    SPOKE,
    KeyClocks,
    PartTimes,
    Times,
    align_parted,
    largest_by_key,
    places_of,
    read_clocks,
)
from anabranch.eventtime.lateness import Judged
from anabranch.model import (
    BEGINNING_OF_TIME,
    HASH,
    Aggregate,
    Clock,
    MeetingInTime,
    Met,
    OperatorTime,
    PartedClocks,
    RunRef,
    SlotState,
    WindowSpec,
)
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.keyed.known_keys import place_keys
from anabranch.operators.keyed.newest_rows import load_rows, take_out
from anabranch.operators.keyed.touched_keys import Advanced
from anabranch.operators.windows.key_time_windows import CAME, DIRTY, ClockedWindows
from anabranch.operators.windows.panes import PANE


class PartedWindows(ClockedWindows):
    """Tumbling and sliding windows in their key's own time, whose keys may be split.

    A part holds panes of the rows that it got. What closes, and how far the watermark is, shows when the parts meet:
    they send all that they have open, and all that came, so that the meeting does what one slot would. What became
    of it, they learn with the next batch, by the watermark that the driver keeps.
    """

    @property
    def meeting(self) -> MeetingInTime:
        """Where parts of a key meet."""
        return self

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        window: WindowSpec,
        time_column: str,
        clock: Clock,
    ) -> None:
        super().__init__(keys, aggregates, window, time_column, clock)
        self._met_columns = [*self._run_columns, CAME, LATEST]

    # -- a part ----------------------------------------------------------------------------------------------------

    def _advance_parts(self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, time: OperatorTime) -> Advanced:
        """Judge the rows by the watermark of the whole key, keep them, and send everything to the meeting."""
        keys, known, arrived = place_keys(self._keys, known, arrived)
        parts = align_parted(time.parted, keys)
        clocks = read_clocks(self._clock, time, hashes_of(keys), known, arrived, parts)
        opened = self._opened(known, parts)
        judged = self._judge(arrived, clocks, time)
        came = self._combine_in_time(judged)
        panes = self._merge(opened, came)
        shown = self._shown_now(clocks)
        if panes is not None and shown.any():
            panes = panes.with_columns(pl.col(DIRTY) & ~pl.Series(shown[places_of(panes)]))
        least_us = self._least_clock_us(panes, clocks, time)
        written = self._remains(keys, known, arrived, panes, clocks.spoke_us, least_us, time.floor_us)
        changed = shown | self._has_changed(keys.height, known, arrived, panes, parts, least_us)
        written = written.filter(pl.Series(is_among(hashes_of(written), np.unique(hashes_of(keys)[changed]))))
        return Advanced(judged, [], written, self._send(keys, known, opened, came, arrived))

    def _shown_now(self, clocks: KeyClocks) -> NDArray[np.bool_]:
        """Say of each key whether this batch emits results so far; of its own watermark that is known afterwards."""
        if self._clock.per == "key":
            return np.zeros(len(clocks.fire_us), np.bool_)
        return self._passes_interval(clocks.fired_us, clocks.fire_us)

    def _least_clock_us(self, panes: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime) -> Times:
        """Return the watermark that each key will have at least when the batch is over."""
        if not time.drains:
            return clocks.closed_us if self._clock.per == "key" else clocks.fire_us
        last_end_us = np.full(len(clocks.fire_us), BEGINNING_OF_TIME, np.int64)
        if panes is not None:
            np.maximum.at(last_end_us, places_of(panes), last_window_ends_us(self._window, panes[PANE].to_numpy()))
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
            changed |= self._passes_interval(parts.before_us, parts.clock_us)
        held = np.zeros(count, np.int64)
        if known is not None:
            held += np.bincount(places_of(known.filter(pl.col(PANE).is_not_null())), minlength=count)
        if panes is not None:
            places = places_of(panes)
            held -= np.bincount(places[self._is_kept(panes, clock_us[places])], minlength=count)
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
            partial_columns = self._partials.plan.partial_columns
            rows.append(came.select(HASH, *self._keys, PANE, *partial_columns, pl.lit(True).alias(CAME)))
        if arrived is not None:
            latest_us = largest_by_key(keys.height, arrived, LATEST)
            spoke = keys.with_columns(pl.lit(True).alias(CAME), pl.Series(LATEST, latest_us))
            rows.append(spoke.filter(pl.Series(latest_us > BEGINNING_OF_TIME)))
        if not rows:
            return None
        sent = pl.concat([*rows, self._no_rows(known, arrived)], how="diagonal")
        missing = [name for name in (CLOCK, SPOKE, LATEST) if name not in sent.columns]
        return sent.with_columns(pl.lit(None, pl.Int64).alias(name) for name in missing).select(self._met_columns)

    # -- the meeting -----------------------------------------------------------------------------------------------

    def meet_in_time(self, shared: list[pl.DataFrame], time: OperatorTime) -> Met:
        """Do with all parts of some keys what one slot would have done with the whole keys."""
        rows = concatenate(shared)
        known, came = (frame if frame.height else None for frame in (rows.filter(~pl.col(CAME)), rows.filter(CAME)))
        keys, known, came = place_keys(self._keys, known, came)
        parts = align_parted(time.parted, keys)
        clocks = read_clocks(self._clock, time, hashes_of(keys), known, came, parts)
        fresh = self._opened(came, None)
        taken = self._fire(Judged(), self._join_panes(known), fresh, clocks)
        clock_us = clocks.after(taken.last_end_us)
        left = self._left(taken.rows, clock_us, clocks.spoke_us)
        return Met(
            pl.concat(taken.results) if taken.results else pl.DataFrame(),
            self._report_clocks(keys, clocks.closed_us, clock_us, clocks.spoke_us),
            self._next_due_us(left, time),
            self._wake_us(left, time),
        )

    def _join_panes(self, known: pl.DataFrame | None) -> pl.DataFrame | None:
        """Return one row a pane and key of what the parts have."""
        if known is None:
            return None
        columns = [HASH, *self._keys, PLACE, PANE, *self._flags, *self._partials.plan.partial_columns]
        strides = {PANE: pane_us(self._window)}
        return self._partials.merge_placed([known.select(columns)], [PLACE, PANE], self._flags, strides=strides)

    def _left(self, panes: pl.DataFrame | None, clock_us: Times, spoke_us: Times) -> list[pl.DataFrame]:
        """Return what is open after the batch, as state rows have it."""
        if panes is None:
            return []
        places = places_of(panes)
        timed = panes.with_columns(pl.Series(CLOCK, clock_us[places]), pl.Series(SPOKE, spoke_us[places]))
        return [timed.filter(pl.Series(self._is_kept(panes, clock_us[places])))]

    def _report_clocks(self, keys: pl.DataFrame, before_us: Times, clock_us: Times, spoke_us: Times) -> PartedClocks:
        """Return what the driver keeps of keys with parts; where watermarks are shared, that they have parts."""
        if self._clock.per != "key":
            nothing = np.full(keys.height, BEGINNING_OF_TIME, np.int64)
            return PartedClocks(keys, nothing, nothing, nothing)
        return PartedClocks(keys, before_us, clock_us, spoke_us)

    # -- splitting and merging -------------------------------------------------------------------------------------

    def clocks_of(self, state: SlotState, hashes: NDArray[np.uint64], time: OperatorTime) -> PartedClocks | None:
        """Return the watermarks of keys that are about to be split; those of forgotten ones lie in files by chance."""
        rows = load_rows(state, hashes) if hashes.size else None
        if rows is not None:
            over = self._forgetting.find(rows, time.forget_until_us(self._clock), np.empty(0, np.uint64))
            rows = rows.filter(pl.Series(~over))
        if rows is None or rows.is_empty():
            return None
        keys, rows, _ = place_keys(self._keys, rows, None)
        clock_us, spoke_us = self._stored_times(keys.height, rows)
        return self._report_clocks(keys, clock_us, clock_us, spoke_us)

    def absorb_parts(self, handed: Sequence[RunRef], state: SlotState, time: OperatorTime) -> None:
        """Add what other slots kept; what they and this one have of a key becomes one part."""
        hashes: Hashes = time.parted.hashes() if time.parted is not None else np.empty(0, np.uint64)
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

    def settle(self, stored: pl.DataFrame, clocks: PartedClocks) -> pl.DataFrame:
        """Return state with what the last meeting did to it."""
        whole, parted = take_out(stored, clocks.hashes())
        if parted is None:
            return stored
        keys, parted, _ = place_keys(self._keys, parted, None)
        parts = align_parted(clocks, keys)
        assert parts is not None
        clock_us, spoke_us = self._stored_times(keys.height, parted)
        clock_us, spoke_us = np.maximum(clock_us, parts.clock_us), np.maximum(spoke_us, parts.spoke_us)
        settled = self._remains(keys, parted, None, self._opened(parted, parts), spoke_us, clock_us, BEGINNING_OF_TIME)
        rows = settled.filter(self._has_content(settled))
        return concatenate([rows] if whole is None else [whole, rows]).sort(HASH, maintain_order=True)

    def _join_parts(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the state rows of keys of which there are several parts."""
        keys, rows, _ = place_keys(self._keys, concatenate(parts), None)
        clock_us, spoke_us = self._stored_times(keys.height, rows)
        opened = self._join_panes(self._opened(rows, None))
        return self._remains(keys, rows, None, opened, spoke_us, clock_us, BEGINNING_OF_TIME)

    def _stored_times(self, count: int, rows: pl.DataFrame | None) -> tuple[Times, Times]:
        """Return by key the watermark, and when it last spoke, as state rows have it."""
        nothing = np.full(count, BEGINNING_OF_TIME, np.int64)
        has = [] if rows is None else rows.columns
        clock_us = largest_by_key(count, rows, CLOCK) if CLOCK in has else nothing
        spoke_us = largest_by_key(count, rows, SPOKE) if SPOKE in has else nothing
        return clock_us, spoke_us

    def _settle_rows(self, opened: pl.DataFrame, before_us: Times, clock_us: Times) -> pl.DataFrame:
        """Return panes without those that are over, and with none changed since results so far were emitted."""
        kept = super()._settle_rows(opened, before_us, clock_us)
        if self._window.early_us is None:
            return kept
        shown = pl.Series(self._passes_interval(before_us, clock_us)[self._is_kept(opened, clock_us)])
        return kept.with_columns(pl.col(DIRTY) & ~shown)
