"""Joins in pairs: in an interval of time, in the same window, or over all that ever came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from anabranch.compiled.partners import Places
from anabranch.eventtime import drop_limit_us, pane_start
from anabranch.eventtime.windows import first_window_us, last_window_us
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
    WindowSpec,
)
from anabranch.model.joins import AT, LEFT, RIGHT, Interval, JoinSpec
from anabranch.operators.joins.alone import AloneEverywhere, mark_copies
from anabranch.operators.joins.fitting import make_predicate
from anabranch.operators.joins.rows import InputState, Layout, Piece, gather_rows, part_by_use
from anabranch.operators.joins.searching import PartnerSearch
from anabranch.operators.joins.sections import JoinSections

_ALL_TIMES = Interval(BEGINNING_OF_TIME, END_OF_TIME)
_AT_ONCE = Interval(0, 0)
_PRESERVED = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT), "semi": (), "anti": (LEFT,)}
"""Kind → the inputs whose rows are emitted when they met nobody."""


class PairJoin(JoinSections):
    """Pairs of rows, as a search finds them.

    A row is stored in the section of its input, in runs sorted by segment of time, hash and time, until no partner can
    come. New rows look for partners among the stored ones of the other input, and among each other.
    """

    mergeable = False

    def __init__(self, spec: JoinSpec, search: PartnerSearch) -> None:
        self._search = search
        self.meeting = AloneEverywhere() if spec.copied in _PRESERVED[spec.how] else None
        self._interval = _AT_ONCE if spec.window is not None else spec.within or _ALL_TIMES
        self._preserved = _PRESERVED[spec.how]
        remembered = (LEFT,) if spec.how == "semi" else self._preserved
        self._layouts = [
            Layout(
                source,
                spec.keys,
                number,
                spec.hold_us(number),
                number in remembered,
                may_be_copied=number == spec.copied,
                draws=spec.draws,
            )
            for number, source in enumerate(spec.inputs)
        ]
        super().__init__(spec, self._layouts)
        self._predicate = make_predicate(spec)

    def prepare_input(self, number: int, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep the columns that are needed, lay windows, drop and count late rows and those that can meet nobody."""
        layout = self._layouts[number]
        if number not in self._preserved and layout.source.keys:
            # A null is equal to nothing.
            frame = frame.drop_nulls(list(layout.source.keys))
        rows, late_rows = self._lay_out(layout, frame, time)
        return Prepared(self._search.arrange(number, rows), late_rows)

    def advance_inputs(
        self,
        received: Sequence[list[pl.DataFrame]],
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Find the partners of what came, keep it, and emit what can meet nobody any more."""
        states = self._sections.open(state)
        new = [part_by_use(gather_rows(frames)) for frames in received]
        results: list[pl.DataFrame] = []
        alone = _Alone(self, standing)
        old: list[list[Piece]] = [[], []]
        for seeker, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
            seeking = new[seeker].probing
            if seeking is not None:
                bounds = self._bounds(seeker)
                at_us = seeking.at_us
                old[other] = states[other].pieces(int(at_us.min()) + bounds.least_us, int(at_us.max()) + bounds.most_us)
                for piece in old[other]:
                    results += self._match(seeker, seeking, piece, standing)
        # A pair of new rows may meet on several slots: that one emits it which stores the left row.
        left, right = new[LEFT].stored, new[RIGHT].probing
        if left is not None and right is not None:
            results += self._match(RIGHT, right, left, standing)
        for number, pieces in enumerate(old):
            first_met = states[number].remember(pieces) if self._layouts[number].remembers else None
            if self.spec.how == "semi" and number == LEFT:
                met = [first_met, None if left is None else left.met_rows()]
                results += [self._results.once(rows) for rows in met if rows is not None]
        passed_us = time.passed_us
        for number, came in enumerate(new):
            strangers = None if came.stored is None else states[number].keep(came.stored, time.batch, passed_us)
            if strangers is not None and number in self._preserved:
                alone.add(number, strangers)
        reached_us = self._find_alone(states, time, alone)
        results += alone.results
        for one in states:
            one.forget(passed_us)
        due = [states[number].next_due_us(passed_us) for number in self._preserved]
        frames = [frame for frame in results if frame.height]
        return Fired(
            pl.concat(frames) if frames else pl.DataFrame(),
            next_due_us=min((one for one in due if one is not None), default=None),
            reached_us=reached_us,
            shared=alone.shared,
        )

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return all that runs hold in one frame, of which each row says its section."""
        return self._sections.unite(runs)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _lay_out(self, layout: Layout, frame: pl.DataFrame, time: OperatorTime) -> tuple[pl.DataFrame, int]:
        """Return rows as they travel, without late ones, and how many were late."""
        window = self.spec.window
        if self.spec.time_column is None:
            return layout.select(frame, pl.lit(0, pl.Int64)), 0
        time_us = pl.col(TIME).dt.timestamp("us")
        if window is None and self.spec.within is None:
            return layout.select(frame, time_us), 0
        if window is None:
            is_late = frame.select(time_us < time.closed_us).to_series()
        else:
            is_late = frame.select(pane_start(time_us, window) < drop_limit_us(window, time.closed_us)).to_series()
        late_rows = int(is_late.sum())
        rows = layout.select(frame.filter(~is_late) if late_rows else frame, time_us)
        return rows if window is None else _lay_windows(rows, window, time.closed_us), late_rows

    def _bounds(self, seeker: int) -> Interval:
        """Return how far the AT of a partner may be from that of a row of this input."""
        if seeker == LEFT:
            return self._interval
        return Interval(-self._interval.most_us, -self._interval.least_us)

    def _match(self, seeker: int, seeking: Piece, others: Piece, standing: Standing | None) -> Iterator[pl.DataFrame]:
        """Yield the results of pairs, and note who met somebody."""
        for found in self._search.find_pairs(seeker, seeking, others, self._bounds(seeker)):
            other_places, places = self._keep_fitting(seeker, seeking, others, found)
            if standing is not None:
                other_places, places = _leave_to_others(standing, others, other_places, seeking, places)
            if self._layouts[seeker].remembers:
                seeking.meet(places, others.at_us[other_places])
            if self._layouts[1 - seeker].remembers:
                others.meet(other_places, seeking.at_us[places])
            if self.spec.how not in ("semi", "anti"):
                pair = ((seeking, places), (others, other_places))
                (left, left_places), (right, right_places) = pair if seeker == LEFT else pair[::-1]
                yield self._results.pair(left, left_places, right, right_places)

    def _keep_fitting(
        self, seeker: int, seeking: Piece, others: Piece, found: tuple[Places, Places]
    ) -> tuple[Places, Places]:
        """Return those of some pairs that fulfil the predicate."""
        if self._predicate is None:
            return found
        other_places, places = found
        fits = self._predicate.find_fitting(seeker, seeking, places, others, other_places)
        return other_places[fits], places[fits]

    def _find_alone(self, states: Sequence[InputState], time: OperatorTime, alone: _Alone) -> int | None:
        """Find rows that met nobody and will not; return the time that a drain reached by that."""
        reached_us = None
        for number in self._preserved:
            rows = states[number].take_unmet(time.fired_us, END_OF_TIME if time.drains else time.passed_us)
            if rows is None:
                continue
            alone.add(number, rows)
            if time.drains:
                states[number].keep_met_only()
                done_us = int(rows.get_column(AT).max()) + (self._layouts[number].hold_us or 0)  # type: ignore[arg-type]
                reached_us = max(done_us, reached_us or done_us)
        return reached_us

    def alone(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the results of rows of an input that met nobody."""
        hold_us = self._layouts[number].hold_us
        assert hold_us is not None
        return self._results.alone(rows, hold_us)


class _Alone:
    """Rows that met nobody in one batch: those that are sure, and those of which other slots have a copy."""

    def __init__(self, kernel: PairJoin, standing: Standing | None) -> None:
        self._kernel = kernel
        self._standing = standing
        self.results: list[pl.DataFrame] = []
        self._to_meet: list[pl.DataFrame] = []

    @property
    def shared(self) -> pl.DataFrame | None:
        """What must meet what other slots say."""
        return pl.concat(self._to_meet) if self._to_meet else None

    def add(self, number: int, rows: pl.DataFrame) -> None:
        """Take rows of an input that met nobody here."""
        if self._standing is None or self._kernel.meeting is None or number != self._kernel.spec.copied:
            self.results.append(self._kernel.alone(number, rows))
            return
        slots = self._standing.count_slots(rows.get_column(HASH))
        if (slots == 1).any():
            self.results.append(self._kernel.alone(number, rows.filter(slots == 1)))
        copies = rows.filter(slots > 1)
        if copies.height:
            self._to_meet.append(mark_copies(self._kernel.alone(number, copies), copies, slots.filter(slots > 1)))


def _leave_to_others(
    standing: Standing, others: Piece, other_places: Places, seeking: Piece, places: Places
) -> tuple[Places, Places]:
    """Return pairs without those that another slot finds: while a change of routes waits, rows may be on two."""
    earlier_us = np.minimum(others.at_us[other_places], seeking.at_us[places])
    lacks = standing.lacks(pl.Series(seeking.hashes[places]), pl.Series(earlier_us))
    if lacks is None:
        return other_places, places
    found = ~lacks.to_numpy()
    return other_places[found], places[found]


def _lay_windows(rows: pl.DataFrame, window: WindowSpec, closed_us: int) -> pl.DataFrame:
    """Return rows once for each of their windows that is open, with its start as AT."""
    newest = last_window_us(pl.col(AT), window)
    if window.kind == "tumbling":
        return rows.with_columns(newest.alias(AT))
    starts = pl.int_ranges(first_window_us(pl.col(AT), window), newest + 1, window.slide_us)
    return rows.with_columns(starts.alias(AT)).explode(AT).filter(pl.col(AT) + window.size_us > closed_us)
