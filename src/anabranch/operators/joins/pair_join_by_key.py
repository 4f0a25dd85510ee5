"""Joins in pairs whose keys have their own time: what is late, what is kept and who met nobody differs by key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import hashes_of, is_among
from anabranch.compiled.partners import Places
from anabranch.eventtime.key_clocks import Times
from anabranch.eventtime.windows import last_window_ends_us
from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    HASH,
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
from anabranch.operators.joins.split_join_keys import SplitJoinKeys, split_now

_CLOSED = "__closed"
_NEVER = np.iinfo(np.int64).max


class PairJoinByKey(JoinSections):
    """Pairs of rows, as a search finds them, in the time of their key.

    A row is stored in the section of its input, in runs sorted by hash and time; it is over when the time of its key
    has passed all partners that it could have, and leaves when runs are merged. That time is the smaller one of both
    inputs' clocks of the key, which lie in a section of their own.
    """

    mergeable = False

    def __init__(self, spec: JoinSpec, search: PartnerSearch) -> None:
        self._pairing = Pairing(spec, search, Results(spec))
        self._preserved = self._pairing.preserved
        self._clocks = JoinClocks(spec)
        self.meeting = SplitJoinKeys(spec, Results(spec), self._clocks, lambda rows: self.stored(rows, END_OF_TIME))
        # What is over differs from key to key, so no run is cut into segments of time.
        self._layouts = [
            Layout(
                source, spec.keys, number, None, self._pairing.remembers[number], may_be_copied=number == spec.copied
            )
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
        split, shared = split_now(None if standing is None else standing.split_hashes, time)
        arrived, results = self._part_nulls(received, standing)
        times = self._clocks.look(clock_state, arrived, time, shared)
        late_rows = 0
        reached_us = written = to_meet = None
        if times is not None:
            new, late_rows = self._take_in_time(arrived, times, standing)
            ends = _Ends(times, is_among(hashes_of(times.keys), split), time)
            results += self._pair_keys(new, states, times, ends)
            to_meet = self._find_parts_alone(new, states, times, ends, standing)
            results += self._take_alone(new, states, times, ends)
            # Runs are merged by what clocks say.
            written = self._clocks.write(clock_state, times, ends.after_us, ends.due_us, ends.last_us, time)
            results += self._keep(new, states, times, ends)
            reached_us = ends.reached_us
        forgotten_us = self._clocks.forget(clock_state, written, time, shared)
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
            shared=to_meet,
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
        self, received: Sequence[list[pl.DataFrame]], standing: Standing | None
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
                    nobodys = nobodys.filter(pl.Series(self._counts_here(nobodys, number, standing)))
                    results += [self._alone(number, part) for part in self._lay_out([nobodys], None)]
                    rows = rows.filter(~is_null)
            arrived.append(rows if rows is not None and rows.height else None)
        return arrived, results

    def _counts_here(self, rows: pl.DataFrame, number: int, standing: Standing | None) -> NDArray[np.bool_]:
        """Say of each row of an input whether it counts on this slot; copies count on one of theirs."""
        if standing is None:
            return np.ones(rows.height, np.bool_)
        spec = self.spec
        copies = standing.finds_copies(rows.get_column(HASH), may_swap=spec.swaps_sides, is_usual=number == spec.copied)
        counts: NDArray[np.bool_] = ~copies.to_numpy()
        return counts

    def _take_in_time(
        self, arrived: Sequence[pl.DataFrame | None], times: JoinTimes, standing: Standing | None
    ) -> tuple[list[Came], int]:
        """Return the rows that are in time, in their windows if there are such, and how many are late."""
        came, late_rows = [], 0
        for number, rows in enumerate(arrived):
            frames = []
            if rows is not None:
                closed_us = times.closed_us[times.places(rows)]
                at_us = rows.get_column(AT).to_numpy()
                window = self.spec.window
                is_late = at_us < closed_us if window is None else last_window_ends_us(window, at_us) <= closed_us
                late = rows.filter(pl.Series(is_late))
                late_rows += int(self._counts_here(late, number, standing).sum())
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

    def _pair_keys(
        self,
        new: Sequence[Came],
        states: Sequence[InputState],
        times: JoinTimes,
        ends: _Ends,
    ) -> list[pl.DataFrame]:
        """Return the results of pairs; ``ends`` learns of all rows, old and new, that may have to be emitted alone."""
        hashes = np.unique(hashes_of(times.keys))
        old: list[list[Piece]] = [[], []]
        for number in (LEFT, RIGHT):
            is_sought = new[1 - number].probing is not None
            held = states[number].lookup(hashes) if is_sought or number in self._preserved else []
            if is_sought:
                old[number] = [Piece(rows, is_sorted=True) for rows in held]
            if number in self._preserved:
                ends.see_held(number, held, self._hold_us(number))
        results = self._pairing.pair(new, old, None)
        results += self._pairing.remember(states, new, old)
        for number, came in enumerate(new):
            if came.stored is not None:
                over_us = came.stored.at_us + self._hold_us(number)
                ends.see_new(number, came.stored, over_us, may_be_alone=number in self._preserved)
        return results

    def _take_alone(
        self, new: Sequence[Came], states: Sequence[InputState], times: JoinTimes, ends: _Ends
    ) -> list[pl.DataFrame]:
        """Return the results of stored rows that are over and met nobody; a drain brings their keys there."""
        results = []
        for number in self._preserved:
            rows = states[number].find_unmet(ends.take_due(number))
            if rows is not None:
                ends.reach(times.places(rows), rows.get_column(AT).to_numpy() + self._hold_us(number))
                results.append(self._alone(number, rows))
            ends.reach_new(number, new[number].stored)
        return results

    def _find_parts_alone(
        self,
        new: Sequence[Came],
        states: Sequence[InputState],
        times: JoinTimes,
        ends: _Ends,
        standing: Standing | None,
    ) -> pl.DataFrame | None:
        """Return what the meeting must know of keys that slots share; None if there are none."""
        if not ends.is_part.any():
            return None
        assert standing is not None, "only slots that share keys have parts of them"
        until_us = self.meeting.latest_end_us(times, drains=ends.drains)
        told = [self.meeting.tell(times, ends.is_part, ends.last_us)]
        for number in self._preserved:
            found = [states[number].find_unmet(ends.take_parts(number, until_us))]
            stored = new[number].stored
            if stored is not None:
                chosen = ends.choose_new_parts(number, stored, until_us)
                found.append(states[number].show(stored, chosen, ends.batch))
            for rows in found:
                if rows is not None and rows.height:
                    slots = pl.Series(np.ones(rows.height, np.int64))
                    if number == self.spec.copied:
                        slots = standing.count_slots(rows, self.spec.keys)
                    over_us = rows.get_column(AT).to_numpy() + self._hold_us(number)
                    told.append(self.meeting.tell_alone(self._alone(number, rows), rows, over_us, slots))
        return pl.concat(told, how="diagonal")

    def _keep(
        self,
        new: Sequence[Came],
        states: Sequence[InputState],
        times: JoinTimes,
        ends: _Ends,
    ) -> list[pl.DataFrame]:
        """Write new rows that are not over; return the results of those that are, and met nobody."""
        results = []
        for number, came in enumerate(new):
            if came.stored is None:
                continue
            strangers = states[number].keep(came.stored, ends.batch, ends.is_needed(number))
            if strangers is not None and number in self._preserved:
                # Of parts, the meeting says what becomes of them.
                whole = strangers.filter(pl.Series(~ends.is_part[times.places(strangers)]))
                results.append(self._alone(number, whole))
        return results

    def _alone(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:
        return self._results.alone(rows, self._hold_us(number))


class _Ends:
    """By key of a batch: when rows are over, and how far the key is by that and by what a drain emits.

    Of keys that slots share, this slot knows the time that they had when the batch began.
    """

    def __init__(self, times: JoinTimes, is_part: NDArray[np.bool_], time: OperatorTime) -> None:
        self._times = times
        self.is_part = is_part
        self.drains = time.drains
        self.batch = time.batch
        self.after_us = np.where(is_part, times.fired_us, times.after_us)
        """The time of keys when the batch is over, as far as it is known here."""
        end_us = np.full(len(times), END_OF_TIME, np.int64) if time.drains else times.after_us
        self._until_us = np.where(is_part, times.fired_us, end_us)
        self.last_us = times.last_us.copy()
        """When the last row is over."""
        self.reached_us: int | None = None
        """The latest time that a drain brought a key to."""
        self._held: dict[int, list[tuple[pl.DataFrame, Places, Times]]] = {LEFT: [], RIGHT: []}
        self._new: dict[int, tuple[Places, Times]] = {}
        self._waiting: list[tuple[Places, Times]] = []

    def see_held(self, number: int, held: Sequence[pl.DataFrame], hold_us: int) -> None:
        """Take stored rows of an input that may have to be emitted."""
        for rows in held:
            places = self._times.places(rows)
            over_us = rows.get_column(AT).to_numpy() + hold_us
            # Rows of a key that nothing is known of are over, and wait for the merging of runs.
            is_live = (places >= 0) & (over_us > self._times.fired_us[places])
            live = (places[is_live], over_us[is_live])
            self._held[number].append((rows.filter(pl.Series(is_live)), *live))
            self._waiting.append(live)

    def see_new(self, number: int, piece: Piece, over_us: Times, *, may_be_alone: bool) -> None:
        """Take new rows of an input."""
        places = self._times.places(piece.rows)
        self._new[number] = (places, over_us)
        np.maximum.at(self.last_us, places, over_us)
        if may_be_alone:
            self._waiting.append((places, over_us))

    def take_due(self, number: int) -> list[pl.DataFrame]:
        """Return those stored rows of whole keys that are over now, and were not before."""
        return [rows.filter(pl.Series(over <= self._until_us[places])) for rows, places, over in self._held[number]]

    def take_parts(self, number: int, until_us: Times) -> list[pl.DataFrame]:
        """Return those stored rows of keys that slots share which may be over now."""
        return [
            rows.filter(pl.Series(self.is_part[places] & (over <= until_us[places])))
            for rows, places, over in self._held[number]
        ]

    def choose_new_parts(self, number: int, piece: Piece, until_us: Times) -> NDArray[np.bool_]:
        """Say of each new row whether it is of a key that slots share, met nobody here, and may be over now."""
        places, over_us = self._new[number]
        chosen: NDArray[np.bool_] = self.is_part[places] & (over_us <= until_us[places]) & _find_unmet(piece)
        return chosen

    def reach(self, places: Places, over_us: Times) -> None:
        """Let keys be where rows are over that were emitted; only a drain emits before that."""
        if self.drains and len(places):
            np.maximum.at(self.after_us, places, over_us)
            self.reached_us = max(int(over_us.max()), self.reached_us or BEGINNING_OF_TIME)

    def reach_new(self, number: int, piece: Piece | None) -> None:
        """Do the same by new rows that will be emitted."""
        if piece is not None:
            places, over_us = self._new[number]
            chosen = _find_unmet(piece) & ~self.is_part[places]
            self.reach(places[chosen], over_us[chosen])

    def is_needed(self, number: int) -> NDArray[np.bool_]:
        """Say of each new row of an input whether it is not over yet."""
        places, over_us = self._new[number]
        needed: NDArray[np.bool_] = over_us > self.after_us[places]
        return needed

    @property
    def due_us(self) -> Times:
        """When the next row is over that may have to be emitted; the end of all numbers if none is."""
        earliest_us = np.full(len(self._times), _NEVER)
        for places, over_us in self._waiting:
            is_left = over_us > self.after_us[places]
            np.minimum.at(earliest_us, places[is_left], over_us[is_left])
        return earliest_us


def _find_unmet(piece: Piece) -> NDArray[np.bool_]:
    return np.ones(len(piece), np.bool_) if piece.met is None else ~piece.met
