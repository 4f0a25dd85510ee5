"""The state of windows by key: what a key has open, its clock, and what of it is due without a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, is_among, unite_hashes
from anabranch.eventtime.forgetting import Forgetting
from anabranch.eventtime.key_clocks import CLOCK, PLACE, ROWS, SPOKE, Times, places_of, shared_times
from anabranch.eventtime.lateness import ORIGINAL, Judged
from anabranch.model import BEGINNING_OF_TIME, HASH, Clock, OperatorTime, SlotState
from anabranch.operators.aggregates.partials import Partials
from anabranch.operators.windows.windower import Windower


@dataclass(frozen=True, slots=True, eq=False)
class Advanced:
    """What became of some of a slot's keys in a batch."""

    judged: Judged
    results: list[pl.DataFrame]
    written: pl.DataFrame
    """All state rows of the keys that changed."""
    shared: pl.DataFrame | None = None
    """What must meet the parts that other slots have."""


class WindowState:
    """State rows are what a key has open, one row each, with the key's watermark where it has its own.

    All rows of a key are written anew whenever the key is touched, so that time and windows move together with it.
    """

    def __init__(self, partials: Partials, windower: Windower, clock: Clock, lateness_us: int) -> None:
        self.partials = partials
        self.windower = windower
        self.clock = clock
        self.forgetting = Forgetting(clock, lateness_us)
        own_time = [CLOCK, *([SPOKE] if clock.idle_us is not None else [])] if clock.per == "key" else []
        places_and_flags = [*windower.places, *windower.flags]
        self.run_columns = [HASH, *partials.keys, *own_time, *places_and_flags, *partials.plan.partial_columns]
        self._scanned_columns = [HASH, *own_time, *places_and_flags]
        self._is_open = pl.col(windower.places[0]).is_not_null()

    # -- rows ------------------------------------------------------------------------------------------------------

    def select_open(self, rows: pl.DataFrame | None) -> pl.DataFrame | None:
        """Return the rows that have something open; None if there are none."""
        if rows is None:
            return None
        opened = rows.filter(self._is_open)
        return opened if opened.height else None

    def has_content(self, rows: pl.DataFrame, floor_us: int = BEGINNING_OF_TIME) -> pl.Series:
        """Say of each row whether it is more than a tombstone, or than a clock that the floor has passed."""
        has_open = rows.get_column(self.windower.places[0]).is_not_null()
        if self.clock.per != "key":
            return has_open
        return has_open | (rows.get_column(CLOCK) > floor_us).fill_null(False)

    def remains(
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
            rows.append(opened.filter(pl.Series(self.windower.is_kept(opened, clock_us[places_of(opened)]))))
            is_bare[places_of(rows[0])] = False
        # A clock that the floor has passed says nothing unless windows are open: the key starts from the floor again.
        has_clock = (clock_us > floor_us) & (self.clock.per == "key")
        was_known = np.zeros(keys.height, np.bool_)
        if known is not None:
            was_known[places_of(known)] = True
        bare = is_bare & (has_clock | was_known)
        rows.append(keys.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PLACE)).filter(pl.Series(bare)))
        written = pl.concat([*rows, self.no_rows(known, arrived)], how="diagonal")
        if self.clock.per == "key":
            places = places_of(written)
            said = (has_clock | ~is_bare)[places]
            own = pl.Series(CLOCK, clock_us[places]).set(pl.Series(~said), None)
            written = written.with_columns(own, pl.Series(SPOKE, spoke_us[places]))
        return written.select(self.run_columns)

    def no_rows(self, known: pl.DataFrame | None, arrived: pl.DataFrame | None) -> pl.DataFrame:
        """Return an empty frame with all columns of state rows; clocks may be missing."""
        if known is not None:
            return known.clear()
        assert arrived is not None, "no key is touched of which nothing is known and for which nothing came"
        partial_rows = arrived.clear()
        if ORIGINAL in partial_rows.columns:
            partial_rows = self.windower.combine(partial_rows.drop(ROWS, PLACE, ORIGINAL))
        return partial_rows.select(
            *(HASH, *self.partials.keys, *self.windower.places, *self.partials.plan.partial_columns),
            *(pl.lit(None, pl.Boolean).alias(flag) for flag in self.windower.flags),
        )

    # -- what is due without a row -----------------------------------------------------------------------------------

    def due_hashes(self, state: SlotState, time: OperatorTime) -> Hashes:
        """Return the keys that must be looked at even if no row comes for them; some may turn out not to be due."""
        if not self._looks_for_due(time):
            return np.empty(0, np.uint64)
        found: list[Hashes] = []
        newer: list[Hashes] = []
        for run in reversed(state.live()):
            rows = self._scan_open(run)
            due = hashes_of(rows)[self._is_due_now(rows, time)]
            for superseding in newer:
                due = due[~is_among(due, superseding)]
            found.append(due)
            newer.append(hashes_of(run))
        return unite_hashes(found)

    @property
    def looks_ahead(self) -> bool:
        """Whether it matters what is open: something may come to be due without a row of its key."""
        return self.clock.per != "key" or self.clock.behind_us is not None or self.clock.idle_us is not None

    def next_due_us(self, runs: list[pl.DataFrame], time: OperatorTime) -> int | None:
        """Return when the next window ends under a watermark, or a floor of watermarks, that rises between batches."""
        if time.drains or (self.clock.per == "key" and self.clock.behind_us is None):
            return None
        earliest = []
        for run in runs:
            rows = self._scan_open(run)
            if self.clock.per == "key":
                own_us = rows.get_column(CLOCK).fill_null(BEGINNING_OF_TIME).to_numpy()
                passed_us = np.maximum(own_us, time.floor_us)
            else:
                _, closed_us = shared_times(self.clock, time, hashes_of(rows))
                passed_us = np.maximum(closed_us, time.fire_us)
            ends_us = self.windower.next_ends_us(rows, passed_us)
            if ends_us.size:
                earliest.append(int(ends_us.min()))
        return min(earliest, default=None)

    def wake_us(self, runs: list[pl.DataFrame], time: OperatorTime) -> int | None:
        """Return when it must be looked for keys that fell silent."""
        idle_us = self.clock.idle_us
        if self.clock.per != "key" or idle_us is None:
            return None
        # Once it was looked, who is still silent for too long has been superseded.
        passed_us = time.now_us if time.looks_for_idle(self.clock) else BEGINNING_OF_TIME
        forget_us = self.forgetting.wake_us(runs, time)
        earliest = []
        for run in runs:
            rows = self._scan_open(run)
            wake_us = rows.get_column(SPOKE).to_numpy()[self.windower.is_waiting(rows)] + idle_us
            wake_us = wake_us[wake_us > passed_us]
            if wake_us.size:
                earliest.append(int(wake_us.min()))
        if not earliest:
            return forget_us
        silent_us = max(min(earliest), time.next_idle_look_us(idle_us))
        return silent_us if forget_us is None else min(silent_us, forget_us)

    def _looks_for_due(self, time: OperatorTime) -> bool:
        if time.drains:
            return True
        if self.clock.per != "key":
            return time.shared is not None or max(time.closed_us, time.fire_us) > time.fired_us
        return time.floor_us > BEGINNING_OF_TIME or time.looks_for_idle(self.clock)

    def _is_due_now(self, rows: pl.DataFrame, time: OperatorTime) -> NDArray[np.bool_]:
        if time.drains:
            return np.ones(rows.height, np.bool_)
        if self.clock.per == "key":
            return self._is_silent(rows, time)
        fired_us, closed_us = shared_times(self.clock, time, hashes_of(rows))
        return self.windower.is_due(rows, fired_us, np.maximum(closed_us, time.fire_us))

    def _is_silent(self, rows: pl.DataFrame, time: OperatorTime) -> NDArray[np.bool_]:
        """Say of each row whether its key is too far behind, or was not heard of for too long."""
        clock_us = rows.get_column(CLOCK).fill_null(BEGINNING_OF_TIME).to_numpy()
        silent = self.windower.is_due(rows, clock_us, time.floor_us)
        if time.looks_for_idle(self.clock) and self.clock.idle_us is not None:
            unheard = rows.get_column(SPOKE).to_numpy() + self.clock.idle_us <= time.now_us
            silent = silent | (unheard & self.windower.is_waiting(rows))
        return silent

    def _scan_open(self, run: pl.DataFrame) -> pl.DataFrame:
        """Return what a run has open; rows that a newer run has superseded are among it."""
        return run.select(self._scanned_columns).filter(self._is_open)
