"""As-of joins: each row of the left input with the version of its key that was valid at its time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

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
from anabranch.model.joins import AT, LEFT, RIGHT, JoinSpec
from anabranch.operators.joins.rows import Layout, Piece
from anabranch.operators.joins.sections import JoinSections
from anabranch.operators.joins.versions import NOWHERE, Versions, find_newest, unite_pieces, unite_versions
from anabranch.operators.joins.waiting import WaitingLayout, WaitingRows

_SHORTEST_HOLD_US = 4_000_000
"""Versions are kept for at least so long, however short the tolerance: segments of time must not be more than rows."""


class AsofJoin(JoinSections):
    """Left rows, each with the newest version of its key that is not after it.

    A left row waits until the watermark has passed its time: until then an older version, or a newer one, may come. Of
    versions, those stay that a row may still ask for.
    """

    mergeable = False
    meeting = None

    def __init__(self, spec: JoinSpec) -> None:
        assert spec.within is not None, "how old versions may be is known, be it that all ages are"
        self._within = spec.within
        self._waiting = WaitingLayout(spec.inputs[LEFT], spec.keys, LEFT, hold_us=1, remembers=False)
        self._versions = Layout(spec.inputs[RIGHT], spec.keys, RIGHT, self._hold_us(), remembers=False, is_ranked=True)
        self._layouts = (self._waiting, self._versions)
        super().__init__(spec, self._layouts)

    def prepare_input(self, number: int, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep the columns that are needed, drop and count late rows, drop those whose key is nobody's."""
        layout = self._layouts[number]
        if number == RIGHT or self.spec.how == "inner":
            # A null is equal to nothing.
            frame = frame.drop_nulls(list(layout.source.keys))
        time_us = pl.col(TIME).dt.timestamp("us")
        is_late = frame.select(time_us < time.closed_us).to_series()
        late_rows = int(is_late.sum())
        return Prepared(layout.select(frame.filter(~is_late) if late_rows else frame, time_us), late_rows)

    def advance_inputs(
        self,
        received: Sequence[list[pl.DataFrame]],
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Take in what came, and emit the rows that the watermark has passed with the versions that they had."""
        self._sections.part(state)
        waiting = WaitingRows(self._waiting, state.section(self._waiting.rows_section))
        versions = Versions(self._versions, state.section(self._versions.rows_section))
        came = versions.gather(received[RIGHT], time.batch)
        due = waiting.take(received[LEFT], END_OF_TIME if time.drains else time.passed_us)
        results = [] if due is None else self._emit(due, versions, came)
        versions.keep(came, time.passed_us)
        return Fired(
            pl.concat(results) if results else pl.DataFrame(),
            next_due_us=waiting.next_due_us(),
            reached_us=int(due.at_us.max()) + 1 if due is not None and time.drains else None,
        )

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return all that runs hold in one frame, of which each row says its section."""
        rows = self._sections.unite(runs)
        if passed_us >= END_OF_TIME:
            # A drain lets no time pass: rows that come behind it may ask for every version.
            return rows
        is_version = pl.col(SECTION) == self._versions.rows_section
        found = rows.filter(is_version)
        if not found.height:
            return rows
        needed = unite_versions(self._versions, [found.select(self._versions.columns)], passed_us)
        return self._sections.unite([rows.filter(~is_version), needed])

    # -- inside ------------------------------------------------------------------------------------------------------

    def _hold_us(self) -> int | None:
        if self._within.least_us == BEGINNING_OF_TIME:
            return None
        return max(-self._within.least_us + 1, _SHORTEST_HOLD_US)

    def _emit(self, due: Piece, versions: Versions, came: Piece | None) -> list[pl.DataFrame]:
        """Return the results of rows, piece by piece of the versions."""
        earliest_us, latest_us = int(due.at_us.min()), int(due.at_us.max())
        pieces = versions.pieces(earliest_us + self._within.least_us, latest_us + self._within.most_us)
        if came is not None:
            pieces.append(came)
        if len(pieces) > 1 and sum(map(len, pieces)) < len(due):
            # To put a few versions in order takes less than to search each piece for many rows.
            pieces = [unite_pieces(pieces)]
        chosen, places = find_newest(due, pieces, self._within, self.spec.keys)
        results = []
        for number, piece in enumerate(pieces):
            rows = np.flatnonzero(chosen == number)
            if rows.size:
                results.append(self._results.pair(due, rows, piece, places[rows]))
        alone = np.flatnonzero(chosen == NOWHERE)
        if self.spec.how == "left" and alone.size:
            own = due.take([*self.spec.keys, AT, *self.spec.inputs[LEFT].columns], alone)
            results.append(self._results.alone(own, 1))
        return results
