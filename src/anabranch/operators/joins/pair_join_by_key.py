"""Joins in pairs whose keys have their own time: what is late, what is kept and who met nobody differs by key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from anabranch.compiled.hash_order import hashes_of
from anabranch.eventtime.key_clocks import Times
from anabranch.eventtime.windows import last_window_ends_us
from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    TIME,
    Fired,
    OperatorTime,
    Prepared,
    SlotState,
    Standing,
)
from anabranch.model.columns import SECTION
from anabranch.model.joins import AT, CLOCKS_SECTION, LEFT, RIGHT, JoinSpec
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.joins.key_times import JoinClocks, JoinTimes
from anabranch.operators.joins.pair_join import lay_windows
from anabranch.operators.joins.pairing import Pairing
from anabranch.operators.joins.results import Results
from anabranch.operators.joins.rows import Came, InputState, Layout, Piece, gather_rows
from anabranch.operators.joins.searching import PartnerSearch
from anabranch.operators.joins.sections import JoinSections

_CLOSED = "__closed"
_NEVER = np.iinfo(np.int64).max


class PairJoinByKey(JoinSections):
    """Pairs of rows, as a search finds them, in the time of their key.

    A row is stored in the section of its input, in runs sorted by hash and time; it is over when the time of its key
    has passed all partners that it could have, and leaves when runs are merged. That time is the smaller one of both
    inputs' clocks of the key, which lie in a section of their own.
    """

    mergeable = False
    meeting = None

    def __init__(self, spec: JoinSpec, search: PartnerSearch) -> None:
        self._pairing = Pairing(spec, search, Results(spec))
        self._preserved = self._pairing.preserved
        self._clocks = JoinClocks(spec)
        # What is over differs from key to key, so no run is cut into segments of time.
        self._layouts = [
            Layout(source, spec.keys, number, None, self._pairing.remembers[number])
            for number, source in enumerate(spec.inputs)
        ]
        super().__init__(spec, self._layouts, self._clocks)

    def prepare_input(self, number: int, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep the columns that are needed; which rows are late is known only where the clocks of their keys are."""
        layout = self._layouts[number]
        if number not in self._preserved:
            # A null is equal to nothing.
            frame = frame.drop_nulls(list(layout.source.keys))
        return Prepared(layout.select(frame, pl.col(TIME).dt.timestamp("us")))

    def advance_inputs(
        self,
        received: Sequence[list[pl.DataFrame]],
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Find the partners of what came, keep it, and emit what can meet nobody any more, key by key."""
        clock_state = state.section(CLOCKS_SECTION)
        holds_us = [self._hold_us(number) for number in (LEFT, RIGHT)]
        find_over = [partial(self._clocks.find_over, clock_state, hold_us=hold_us) for hold_us in holds_us]
        states = self._sections.open(state, find_over)
        arrived, results = self._part_nulls(received)
        times = self._clocks.look(clock_state, arrived, time)
        late_rows, reached_us, forgotten_us = 0, None, None
        if times is None:
            forgotten_us = self._clocks.forget(clock_state, None, time)
        else:
            new, late_rows = self._take_in_time(arrived, times)
            found, reached_us, forgotten_us = self._advance_keys(new, states, clock_state, times, time)
            results += found
        if time.looks_for_idle(self.spec.clock):
            for one in states:
                one.sweep()
        frames = [frame for frame in results if frame.height]
        latest = [int(rows.get_column(AT).max()) for rows in arrived if rows is not None]  # type: ignore[arg-type]
        return Fired(
            pl.concat(frames) if frames else pl.DataFrame(),
            late_rows=late_rows,
            latest_us=max(latest, default=None),
            forgotten_us=forgotten_us,
            wake_us=self._clocks.wake_us(clock_state, time),
            next_due_us=self._clocks.next_due_us(clock_state, time),
            reached_us=reached_us,
        )

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return in one frame what runs hold of the clocks of keys, and of rows that these have not passed."""
        of_keys = [rows for run in runs if (rows := run.filter(pl.col(SECTION) == CLOCKS_SECTION)).height]
        clock_rows = self._clocks.stored([rows.select(self._clocks.columns) for rows in of_keys])
        kept = [] if clock_rows is None else [clock_rows]
        for run in runs:
            for layout in self._layouts:
                rows = run.filter(pl.col(SECTION).is_in([layout.rows_section, layout.fates_section]))
                if rows.height:
                    over = self._clocks.find_passed(clock_rows, rows, self._hold_us(layout.number))
                    kept.append(rows.filter(pl.Series(~over)))
        return self._sections.unite(kept) if kept else runs[0].clear()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _hold_us(self, number: int) -> int:
        hold_us = self.spec.hold_us(number)
        assert hold_us is not None, "joins over all that ever came follow no clock"
        return hold_us

    def _part_nulls(
        self, received: Sequence[list[pl.DataFrame]]
    ) -> tuple[list[pl.DataFrame | None], list[pl.DataFrame]]:
        """Return the rows of each input, and the results of those without a key: nobody comes for them, ever."""
        arrived: list[pl.DataFrame | None] = []
        results = []
        for number, frames in enumerate(received):
            some = [frame for frame in frames if frame.height]
            rows = concatenate(some).rechunk() if some else None
            if rows is not None and number in self._preserved:
                is_null = pl.any_horizontal(pl.col(key).is_null() for key in self.spec.keys)
                nobodys = rows.filter(is_null)
                if nobodys.height:
                    results += [self._alone(number, part) for part in self._lay_out([nobodys], None)]
                    rows = rows.filter(~is_null)
            arrived.append(rows if rows is not None and rows.height else None)
        return arrived, results

    def _take_in_time(self, arrived: Sequence[pl.DataFrame | None], times: JoinTimes) -> tuple[list[Came], int]:
        """Return the rows that are in time, in their windows if there are such, and how many are late."""
        came, late_rows = [], 0
        for rows in arrived:
            frames = []
            if rows is not None:
                closed_us = times.closed_us[times.places(rows)]
                at_us = rows.get_column(AT).to_numpy()
                window = self.spec.window
                is_late = at_us < closed_us if window is None else last_window_ends_us(window, at_us) <= closed_us
                late_rows += int(is_late.sum())
                frames = self._lay_out([rows.filter(pl.Series(~is_late))], closed_us[~is_late])
            piece = gather_rows(frames)
            came.append(Came(piece, piece))
        return came, late_rows

    def _lay_out(self, frames: list[pl.DataFrame], closed_us: Times | None) -> list[pl.DataFrame]:
        """Return rows once for each of their windows that is open, if there are windows."""
        window = self.spec.window
        if window is None:
            return frames
        (rows,) = frames
        closed = np.full(rows.height, BEGINNING_OF_TIME, np.int64) if closed_us is None else closed_us
        laid = lay_windows(rows.with_columns(pl.Series(_CLOSED, closed)), window, pl.col(_CLOSED))
        return [laid.drop(_CLOSED)]

    def _advance_keys(
        self,
        new: Sequence[Came],
        states: Sequence[InputState],
        clock_state: SlotState,
        times: JoinTimes,
        time: OperatorTime,
    ) -> tuple[list[pl.DataFrame], int | None, dict[int, int] | None]:
        """Return the results of keys, the time that a drain reached by them, and what was forgotten."""
        hashes = np.unique(hashes_of(times.keys))
        held: list[list[pl.DataFrame]] = [[], []]
        old: list[list[Piece]] = [[], []]
        for number in (LEFT, RIGHT):
            is_sought = new[1 - number].probing is not None
            if is_sought or number in self._preserved:
                held[number] = states[number].lookup(hashes)
            if is_sought:
                old[number] = [Piece(rows, is_sorted=True) for rows in held[number]]
        results = self._pairing.pair(new, old, None)
        results += self._pairing.remember(states, new, old)
        ends = _Ends(times, drains=time.drains)
        for number in self._preserved:
            alone = states[number].find_unmet(ends.take_due(held[number], self._hold_us(number)))
            if alone is not None:
                ends.reach(times.places(alone), alone.get_column(AT).to_numpy() + self._hold_us(number))
                results.append(self._alone(number, alone))
        pieces = [(number, came.stored) for number, came in enumerate(new) if came.stored is not None]
        over_us = {number: piece.at_us + self._hold_us(number) for number, piece in pieces}
        places = {number: times.places(piece.rows) for number, piece in pieces}
        for number, piece in pieces:
            if number in self._preserved and time.drains:
                unmet = np.ones(len(piece), np.bool_) if piece.met is None else ~piece.met
                ends.reach(places[number][unmet], over_us[number][unmet])
        for number, _ in pieces:
            ends.keep(places[number], over_us[number], may_be_alone=number in self._preserved)
        # Runs are merged by what clocks say.
        forgotten_us = self._clocks.write(clock_state, times, ends.after_us, ends.due_us, ends.last_us, time)
        for number, piece in pieces:
            is_needed = over_us[number] > ends.after_us[places[number]]
            strangers = states[number].keep(piece, time.batch, is_needed)
            if strangers is not None and number in self._preserved:
                results.append(self._alone(number, strangers))
        return results, ends.reached_us, forgotten_us

    def _alone(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:
        return self._results.alone(rows, self._hold_us(number))


class _Ends:
    """By key of a batch, when rows are over, and how far it has come by what was emitted."""

    def __init__(self, times: JoinTimes, *, drains: bool) -> None:
        self._times = times
        self._until_us = np.full(len(times), END_OF_TIME, np.int64) if drains else times.after_us
        self._drains = drains
        self.after_us = times.after_us
        """The time of keys when the batch is over."""
        self.last_us = times.last_us
        self._waiting: list[tuple[Times, Times]] = []
        self.reached_us: int | None = None
        """The latest time that a drain brought a key to."""

    def take_due(self, held: Sequence[pl.DataFrame], hold_us: int) -> list[pl.DataFrame]:
        """Return those of stored rows that are over now, and were not before."""
        due = []
        for rows in held:
            places = self._times.places(rows)
            over_us = rows.get_column(AT).to_numpy() + hold_us
            # Rows of a key that nothing is known of are over, and wait for the merging of runs.
            is_live = (places >= 0) & (over_us > self._times.fired_us[places])
            is_due = is_live & (over_us <= self._until_us[places])
            self._waiting.append((places[is_live], over_us[is_live]))
            due.append(rows.filter(pl.Series(is_due)))
        return due

    def reach(self, places: Times, over_us: Times) -> None:
        """Let keys be where rows are over that were emitted; only a drain emits before that."""
        if not self._drains or not len(places):
            return
        self.after_us = self.after_us.copy()
        np.maximum.at(self.after_us, places, over_us)
        self.reached_us = max(int(over_us.max()), self.reached_us or BEGINNING_OF_TIME)

    def keep(self, places: Times, over_us: Times, *, may_be_alone: bool) -> None:
        """Take new rows into account."""
        self.last_us = self.last_us.copy()
        np.maximum.at(self.last_us, places, over_us)
        if may_be_alone:
            self._waiting.append((places, over_us))

    @property
    def due_us(self) -> Times:
        """When the next row is over that may have to be emitted; the end of all numbers if none is."""
        earliest_us = np.full(len(self._times), _NEVER)
        for places, over_us in self._waiting:
            is_left = over_us > self.after_us[places]
            np.minimum.at(earliest_us, places[is_left], over_us[is_left])
        return earliest_us
