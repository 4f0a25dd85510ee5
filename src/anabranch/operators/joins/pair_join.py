"""Joins in pairs: in an interval of time, in the same window, or over all that ever came."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from anabranch.eventtime import drop_limit_us, pane_start
from anabranch.eventtime.windows import first_window_us, last_window_us
from anabranch.model import (
    END_OF_TIME,
    TIME,
    Fired,
    OperatorTime,
    Prepared,
    SlotState,
    Standing,
    WindowSpec,
)
from anabranch.model.joins import AT, LEFT, RIGHT, JoinSpec
from anabranch.operators.joins.alone import AloneEverywhere, mark_copies
from anabranch.operators.joins.pairing import Pairing
from anabranch.operators.joins.results import Results
from anabranch.operators.joins.rows import InputState, Layout, Piece, gather_rows, part_by_use
from anabranch.operators.joins.searching import PartnerSearch
from anabranch.operators.joins.sections import JoinSections


class PairJoin(JoinSections):
    """Pairs of rows, as a search finds them.

    A row is stored in the section of its input, in runs sorted by segment of time, hash and time, until no partner can
    come. New rows look for partners among the stored ones of the other input, and among each other.
    """

    mergeable = False

    def __init__(self, spec: JoinSpec, search: PartnerSearch) -> None:
        self._search = search
        self._pairing = Pairing(spec, search, Results(spec))
        self._preserved = self._pairing.preserved
        self.meeting = AloneEverywhere() if spec.copied in self._preserved else None
        self._layouts = [
            Layout(
                source,
                spec.keys,
                number,
                spec.hold_us(number),
                self._pairing.remembers[number],
                may_be_copied=number == spec.copied,
                draws=spec.draws,
            )
            for number, source in enumerate(spec.inputs)
        ]
        super().__init__(spec, self._layouts)

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
        alone = _Alone(self, standing)
        old: list[list[Piece]] = [[], []]
        for seeker, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
            seeking = new[seeker].probing
            if seeking is not None:
                bounds = self._pairing.bounds(seeker)
                at_us = seeking.at_us
                old[other] = states[other].pieces(int(at_us.min()) + bounds.least_us, int(at_us.max()) + bounds.most_us)
        results = self._pairing.pair(new, old, standing)
        results += self._pairing.remember(states, new, old)
        passed_us = time.passed_us
        for number, came in enumerate(new):
            if came.stored is None:
                continue
            is_needed = self._layouts[number].is_needed(came.stored.at_us, passed_us)
            strangers = states[number].keep(came.stored, time.batch, is_needed)
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
        return rows if window is None else lay_windows(rows, window, time.closed_us), late_rows

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
        slots = self._standing.count_slots(rows, self._kernel.spec.keys)
        if (slots == 1).any():
            self.results.append(self._kernel.alone(number, rows.filter(slots == 1)))
        copies = rows.filter(slots > 1)
        if copies.height:
            self._to_meet.append(mark_copies(self._kernel.alone(number, copies), copies, slots.filter(slots > 1)))


def lay_windows(rows: pl.DataFrame, window: WindowSpec, closed_us: int | pl.Expr) -> pl.DataFrame:
    """Return rows once for each of their windows that is open, with its start as AT."""
    newest = last_window_us(pl.col(AT), window)
    if window.kind == "tumbling":
        return rows.with_columns(newest.alias(AT))
    starts = pl.int_ranges(first_window_us(pl.col(AT), window), newest + 1, window.slide_us)
    return rows.with_columns(starts.alias(AT)).explode(AT).filter(pl.col(AT) + window.size_us > closed_us)
