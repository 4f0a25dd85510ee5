"""What aggregates in their keys' own time have in common: which keys to look at, their clocks, their state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, is_among, unite_hashes
from anabranch.eventtime.forgetting import Forgetting
from anabranch.eventtime.key_clocks import (
    CLOCK,
    PLACE,
    ROWS,
    SPOKE,
    KeyClocks,
    PartTimes,
    Times,
    align_parted,
    places_of,
    read_clocks,
    shared_times,
)
from anabranch.eventtime.lateness import ORIGINAL, Judged
from anabranch.model import (
    BEGINNING_OF_TIME,
    EMISSION,
    HASH,
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
from anabranch.operators.aggregates.partials import Partials, concatenate
from anabranch.operators.keyed.known_keys import place_keys, touched_hashes
from anabranch.operators.keyed.newest_rows import load_rows, newest_rows, store_rows, sweep_runs, take_out
from anabranch.operators.keyed.touched_keys import Advanced, Merged, Taken, gather_rows


class ClockedKernel(ABC):
    """Aggregates in windows of which every key has its own, or that may be emitted more than once.

    State rows are what a key has open, one row each, with the key's watermark where it has its own. All
    rows of a key are written anew whenever the key is touched, so that time and windows move together with the key.
    """

    @property
    def meeting(self) -> MeetingInTime | None:
        """Where parts of a key meet."""
        return None

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        window: WindowSpec,
        time_column: str,
        clock: Clock,
        *,
        places: Sequence[str],
        flags: Sequence[str],
    ) -> None:
        """``places`` are the Int64 columns that say where in time a state row is; the first is null in a row that has
        nothing open. ``flags`` are Boolean columns beside them."""
        self._keys = tuple(keys)
        self._window = window
        self._time_column = time_column
        self._clock = clock
        self._places = tuple(places)
        self._flags = tuple(flags)
        self._partials = Partials(keys, aggregates, time_column)
        # Late rows can be handed out as they came only if nothing was merged with them.
        self.mergeable = window.late != "side"
        own_time = [CLOCK, *([SPOKE] if clock.idle_us is not None else [])] if clock.per == "key" else []
        self._scanned_columns = [HASH, *own_time, *places, *flags]
        partial_columns = self._partials.plan.partial_columns
        self._run_columns = [HASH, *self._keys, *own_time, *places, *flags, *partial_columns]
        self._forgetting = Forgetting(clock, window.lateness_us)

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        taken = (WINDOW_START, WINDOW_END, *([EMISSION] if self._window.marks_emissions else []))
        check_aggregates(self._partials, input_schema, taken=taken)
        prepared = self.prepare(empty_rows(input_schema), OperatorTime(batch=0)).frame
        return dict(self._finish_open(self._combine_single(prepared)).schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        clock = self._clock
        return {
            **self._describe_window(),
            "clock": {"per": clock.per, "groups": clock.groups if clock.per == "group" else None}
            | {"idle": clock.idle_us is not None},
            **describe_aggregates(self._partials, input_schema),
        }

    @abstractmethod
    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep what is needed of rows; which are late is known only where their keys' watermarks are."""

    @abstractmethod
    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into partial rows, with the places of state rows and the number of ROWS behind each."""

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

        def is_dead(rows: pl.DataFrame) -> NDArray[np.bool_]:
            return ~self._has_content(rows, time.floor_us).to_numpy()

        # Slots share these, or did until now.
        parted = np.empty(0, np.uint64) if time.parted is None else time.parted.hashes()
        due = self._due_hashes(state, time)
        waited = gather_rows(held, combined=True, combine=self.combine)
        if waited is not None:
            due = touched_hashes(waited, due)
        if split.size or parted.size:
            # What becomes of a key with parts shows when they meet: each must say in every batch what it has.
            due = np.unique(np.concatenate((due, split, parted)))
        advanced: list[Advanced] = []
        merged = None if due.size or time.drains else self._merge_open(received, combined, state, time)
        if merged is None:
            arrived = self._gather(received, combined)
            hashes = touched_hashes(arrived, due)
            known = load_rows(state, hashes) if hashes.size else None
            known = self._forgetting.leave_out(known, time, parted, is_dead)
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
            advanced.append(self._advance_parts(known_parts, arrived_parts, time))
        if advanced:
            written = concatenate([some.written for some in advanced])
            store_rows(state, written, lambda merged: self._has_content(merged, time.floor_us))
        sweep = partial(sweep_runs, state)
        forgotten_us = self._forgetting.settle([some.written for some in advanced], time, split, is_dead, sweep)
        # What is due of a key with parts, the meeting says.
        live = [take_out(run, split)[0] for run in state.live()] if self._looks_ahead() else []
        left = [run for run in live if run is not None]
        judged = reduce(Judged.plus, (some.judged for some in advanced), Judged())
        to_meet = [some.shared for some in advanced if some.shared is not None]
        fired = judged.report(
            [frame for some in advanced for frame in some.results],
            self._next_due_us(left, time),
            self._wake_us(left, time),
            to_meet[0] if to_meet else None,
        )
        return replace(fired, forgotten_us=forgotten_us) if forgotten_us else fired

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept of keys that come here whole, with their time."""
        state.adopt(handed)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return what every key has open, and its clock."""
        rows = newest_rows(runs)
        return rows.filter(self._has_content(rows))

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots: each key is on one."""
        return concatenate(stored).sort(HASH, maintain_order=True)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the values so far of what is held; keys that only have a clock are left out."""
        held = self._finish_open(stored.filter(pl.col(self._places[0]).is_not_null()))
        return held.drop(EMISSION) if self._window.marks_emissions else held

    # -- what kinds of windows differ in -----------------------------------------------------------------------------

    @abstractmethod
    def _describe_window(self) -> dict[str, object]:
        """Return the kind of the kernel, and of its windows, as plain JSON data."""

    @abstractmethod
    def _finish_open(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return results so far of partial rows."""

    @abstractmethod
    def _take(
        self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime
    ) -> Taken:
        """Fire, take rows in, and fire again; known are the rows that have something open."""

    @abstractmethod
    def _is_kept(self, rows: pl.DataFrame, clock_us: Times) -> NDArray[np.bool_]:
        """Say of each row whether it is needed, or a late row may need it, under its key's clock."""

    @abstractmethod
    def _is_due(self, rows: pl.DataFrame, after_us: Times, until_us: Times | int) -> NDArray[np.bool_]:
        """Say of each row whether something is to be done when its key's clock rises from one time to another."""

    @abstractmethod
    def _is_waiting(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Say of each row whether something of it is still to be emitted; asked where keys have their own clocks."""

    @abstractmethod
    def _next_ends_us(self, rows: pl.DataFrame, passed_us: Times) -> Times:
        """Return the next ends after a time of the windows of those rows that have one."""

    # -- rows ------------------------------------------------------------------------------------------------------

    def _merge_open(
        self, received: list[pl.DataFrame], combined: bool, state: SlotState, time: OperatorTime
    ) -> Merged | None:
        """Take the rows of keys in whose windows all stay open, where the kind of window has a short way for them."""
        return None

    def _with_waited(self, known: pl.DataFrame | None, waited: pl.DataFrame) -> pl.DataFrame:
        """Return what keys have open with rows that waited elsewhere; never called where rows do not wait."""
        raise NotImplementedError

    def _gather(self, received: list[pl.DataFrame], combined: bool) -> pl.DataFrame | None:
        return gather_rows(received, combined, self.combine)

    def _advance_keys(self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, time: OperatorTime) -> Advanced:
        """Take rows of keys that are on no other slot."""
        keys, known, arrived = place_keys(self._keys, known, arrived)
        parts = align_parted(time.parted, keys)
        clocks = read_clocks(self._clock, time, hashes_of(keys), known, arrived, parts)
        taken = self._take(self._opened(known, parts), arrived, clocks, time)
        clock_us = clocks.after(taken.last_end_us)
        written = self._remains(keys, known, arrived, taken.rows, clocks.spoke_us, clock_us, time.floor_us)
        return Advanced(taken.judged, taken.results, written)

    def _advance_parts(self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, time: OperatorTime) -> Advanced:
        """Take rows of keys that other slots have parts of; never called where keys stay whole."""
        raise NotImplementedError

    def _opened(self, known: pl.DataFrame | None, parts: PartTimes | None) -> pl.DataFrame | None:
        """Return what keys have open; None if that is nothing."""
        if known is None:
            return None
        opened = known.filter(pl.col(self._places[0]).is_not_null())
        if parts is not None and opened.height:
            places = places_of(opened)
            opened = self._settle_rows(opened, parts.before_us[places], parts.clock_us[places])
        return opened if opened.height else None

    def _settle_rows(self, opened: pl.DataFrame, before_us: Times, clock_us: Times) -> pl.DataFrame:
        """Return rows as they are when their key's clock has risen, by what happened where its parts met."""
        return opened.filter(pl.Series(self._is_kept(opened, clock_us)))

    def _combine_single(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Merge rows that are not merged yet; what else they carry is dropped."""
        return self.combine(rows.drop(ROWS, PLACE, ORIGINAL, strict=False))

    # -- state -----------------------------------------------------------------------------------------------------

    def _remains(
        self,
        keys: pl.DataFrame,
        known: pl.DataFrame | None,
        arrived: pl.DataFrame | None,
        opened: pl.DataFrame | None,
        spoke_us: Times,
        clock_us: Times,
        floor_us: int,
    ) -> pl.DataFrame:
        """Return what remains of the keys: what a window or a late row may need, clocks, or tombstones."""
        rows = []
        is_bare = np.ones(keys.height, np.bool_)
        if opened is not None:
            rows.append(opened.filter(pl.Series(self._is_kept(opened, clock_us[places_of(opened)]))))
            is_bare[places_of(rows[0])] = False
        # A clock that the floor has passed says nothing unless windows are open: the key starts from the floor again.
        has_clock = (clock_us > floor_us) & (self._clock.per == "key")
        was_known = np.zeros(keys.height, np.bool_)
        if known is not None:
            was_known[places_of(known)] = True
        bare = is_bare & (has_clock | was_known)
        rows.append(keys.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PLACE)).filter(pl.Series(bare)))
        written = pl.concat([*rows, self._no_rows(known, arrived)], how="diagonal")
        if self._clock.per == "key":
            places = places_of(written)
            said = (has_clock | ~is_bare)[places]
            own = pl.Series(CLOCK, clock_us[places]).set(pl.Series(~said), None)
            written = written.with_columns(own, pl.Series(SPOKE, spoke_us[places]))
        return written.select(self._run_columns)

    def _no_rows(self, known: pl.DataFrame | None, arrived: pl.DataFrame | None) -> pl.DataFrame:
        """Return an empty frame with all columns of state rows; clocks may be missing."""
        if known is not None:
            return known.clear()
        assert arrived is not None, "no key is touched of which nothing is known and for which nothing came"
        partial_rows = arrived.clear() if self.mergeable else self._combine_single(arrived.clear())
        return partial_rows.select(
            *(HASH, *self._keys, *self._places, *self._partials.plan.partial_columns),
            *(pl.lit(None, pl.Boolean).alias(flag) for flag in self._flags),
        )

    def _has_content(self, rows: pl.DataFrame, floor_us: int = BEGINNING_OF_TIME) -> pl.Series:
        """Say of each row whether it is more than a tombstone, or than a clock that the floor has passed."""
        has_open = rows.get_column(self._places[0]).is_not_null()
        if self._clock.per != "key":
            return has_open
        return has_open | (rows.get_column(CLOCK) > floor_us).fill_null(False)

    # -- what is due without a row -----------------------------------------------------------------------------------

    def _due_hashes(self, state: SlotState, time: OperatorTime) -> Hashes:
        """Return the keys that must be looked at even if no row comes for them; some may turn out not to be due."""
        if not self._looks_for_due(time):
            return np.empty(0, np.uint64)
        found: list[Hashes] = []
        newer: list[Hashes] = []
        for run in reversed(state.live()):
            rows = self._open_rows(run)
            due = hashes_of(rows)[self._is_due_now(rows, time)]
            for superseding in newer:
                due = due[~is_among(due, superseding)]
            found.append(due)
            newer.append(hashes_of(run))
        return unite_hashes(found)

    def _is_due_now(self, rows: pl.DataFrame, time: OperatorTime) -> NDArray[np.bool_]:
        if time.drains:
            return np.ones(rows.height, np.bool_)
        if self._clock.per == "key":
            return self._is_silent(rows, time)
        fired_us, closed_us = shared_times(self._clock, time, hashes_of(rows))
        return self._is_due(rows, fired_us, np.maximum(closed_us, time.fire_us))

    def _looks_for_due(self, time: OperatorTime) -> bool:
        if time.drains:
            return True
        if self._clock.per != "key":
            return time.shared is not None or max(time.closed_us, time.fire_us) > time.fired_us
        return time.floor_us > BEGINNING_OF_TIME or time.looks_for_idle(self._clock)

    def _is_silent(self, rows: pl.DataFrame, time: OperatorTime) -> NDArray[np.bool_]:
        """Say of each row whether its key is too far behind, or was not heard of for too long."""
        clock_us = rows.get_column(CLOCK).fill_null(BEGINNING_OF_TIME).to_numpy()
        silent = self._is_due(rows, clock_us, time.floor_us)
        if time.looks_for_idle(self._clock) and self._clock.idle_us is not None:
            unheard = rows.get_column(SPOKE).to_numpy() + self._clock.idle_us <= time.now_us
            silent = silent | (unheard & self._is_waiting(rows))
        return silent

    def _open_rows(self, run: pl.DataFrame) -> pl.DataFrame:
        """Return what a run has open; rows that a newer run has superseded are among it."""
        return run.select(self._scanned_columns).filter(pl.col(self._places[0]).is_not_null())

    def _looks_ahead(self) -> bool:
        """Say whether it matters what is open: something may come to be due without a row of its key."""
        return self._clock.per != "key" or self._clock.behind_us is not None or self._clock.idle_us is not None

    def _next_due_us(self, runs: list[pl.DataFrame], time: OperatorTime) -> int | None:
        """Return when the next window ends under a watermark, or a floor of watermarks, that rises between batches."""
        if time.drains or (self._clock.per == "key" and self._clock.behind_us is None):
            return None
        earliest = []
        for run in runs:
            rows = self._open_rows(run)
            if self._clock.per == "key":
                own_us = rows.get_column(CLOCK).fill_null(BEGINNING_OF_TIME).to_numpy()
                passed_us = np.maximum(own_us, time.floor_us)
            else:
                _, closed_us = shared_times(self._clock, time, hashes_of(rows))
                passed_us = np.maximum(closed_us, time.fire_us)
            ends_us = self._next_ends_us(rows, passed_us)
            if ends_us.size:
                earliest.append(int(ends_us.min()))
        return min(earliest, default=None)

    def _wake_us(self, runs: list[pl.DataFrame], time: OperatorTime) -> int | None:
        """Return when it must be looked for keys that fell silent."""
        idle_us = self._clock.idle_us
        if self._clock.per != "key" or idle_us is None:
            return None
        # Once it was looked, who is still silent for too long has been superseded.
        passed_us = time.now_us if time.looks_for_idle(self._clock) else BEGINNING_OF_TIME
        forget_us = self._forgetting.wake_us(runs, time)
        earliest = []
        for run in runs:
            rows = self._open_rows(run)
            wake_us = rows.get_column(SPOKE).to_numpy()[self._is_waiting(rows)] + idle_us
            wake_us = wake_us[wake_us > passed_us]
            if wake_us.size:
                earliest.append(int(wake_us.min()))
        if not earliest:
            return forget_us
        silent_us = max(min(earliest), time.next_idle_look_us(idle_us))
        return silent_us if forget_us is None else min(silent_us, forget_us)


def _split_hashes(standing: Standing | None) -> Hashes:
    """Return the hashes of keys that other slots have parts of, sorted."""
    listed = standing.split_hashes if standing is not None else None
    return listed.to_numpy() if listed is not None else np.empty(0, np.uint64)
