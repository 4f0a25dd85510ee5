"""Sessions in the time of their key: what is kept of them are sessions, merged."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime.key_clocks import LATEST, PLACE, ROWS, KeyClocks, Times, places_of
from anabranch.eventtime.lateness import Judged, judge_rows
from anabranch.model import BEGINNING_OF_TIME, EMISSION, HASH, Clock, OperatorTime, WindowSpec
from anabranch.operators.aggregates.partials import Partials, concatenate
from anabranch.operators.windows.session_fragments import END, SESSION, START, Fragments
from anabranch.operators.windows.windower import Taken

_PENDING = "__pending"
"""Boolean: what is in the session now has not been emitted."""
_EMITTED = "__emitted"
"""Boolean: the session, or a part of it, has been emitted before."""
_DIRTY = "__dirty"
"""Boolean: the session changed since it was last emitted early."""
_NUMBER = "__number"


class SessionWindower:
    """Sessions; state rows are sessions, merged.

    A session that rows meet after it was emitted goes on: if it is open again then, it is emitted once more when it
    ends, else at once. It takes the place of all earlier results of its key that it overlaps.
    """

    meets_by_interval = True
    places = (START, END)

    def __init__(self, partials: Partials, window: WindowSpec, clock: Clock) -> None:
        self._partials = partials
        self._window = window
        self._clock = clock
        self._fragments = Fragments(partials, window.size_us)
        self._updates = window.late == "update"
        # Where results are never changed, a session is forgotten as soon as it is emitted.
        updated = (_PENDING, _EMITTED) if self._updates else ()
        self.flags: tuple[str, ...] = (*updated, *([_DIRTY] if window.early_us is not None else []))

    def describe(self) -> dict[str, object]:
        """Return the sessions as plain JSON data."""
        window: dict[str, object] = {"kind": "session", "gap_us": self._window.size_us, "updates": self._updates}
        if self._window.early_us is not None:
            window["early"] = True
        return {"kind": "clocked sessions", "window": window}

    # -- rows ------------------------------------------------------------------------------------------------------

    def place_rows(self, time_column: str) -> list[pl.Expr]:
        """Return what rows must carry to be combined."""
        return self._fragments.place_rows(time_column)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into fragments of sessions."""
        return self._fragments.combine(prepared)

    def with_latest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows or fragments with their END and LATEST."""
        end = pl.col(END) if END in rows.columns else pl.col(START) + self._window.size_us
        return rows.with_columns(end.alias(END), (end - self._window.size_us).alias(LATEST))

    def take(
        self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime
    ) -> Taken:
        """Fire what ended before the rows came, take those in that are in time, and fire what they complete."""
        results: list[pl.DataFrame] = []
        last_end_us = np.full(len(clocks.fire_us), BEGINNING_OF_TIME, np.int64)
        sessions = known
        if sessions is not None:
            # These are over for the rows of this batch, which only late rows could change.
            sessions = self._emit(sessions, clocks.closed_us, results, last_end_us)
            sessions = sessions.filter(pl.Series(self.is_kept(sessions, clocks.closed_us[places_of(sessions)])))
        judged = self._judge(sessions, arrived, clocks, time)
        sessions = self._merge(sessions, judged.in_time)
        if sessions is not None:
            sessions = self._emit(sessions, clocks.fire_us, results, last_end_us)
            sessions = self._emit_early(sessions, clocks, results)
        return Taken(judged, results, sessions, last_end_us)

    def finish_open(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the sessions as they stand."""
        return self._finish(rows, pl.lit("early"))

    def merge_combined(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return one fragment where several meet."""
        numbered = self._fragments.number(rows, self._partials.keys)
        return self._fragments.merge(numbered, [pl.col(ROWS).sum()]).drop(SESSION)

    def merge_open(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a session."""
        return self._fragments.merge(self._fragments.number(concatenate(frames), self._partials.keys), [])

    def _judge(
        self, sessions: pl.DataFrame | None, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime
    ) -> Judged:
        """Find the late rows: those whose session, with all that meets it, had ended."""
        if arrived is None:
            return Judged()
        ends_us = self._session_ends_us(sessions, arrived)
        closed_us = clocks.closed_us[places_of(arrived)]
        late = ends_us <= closed_us
        refused = ends_us <= closed_us - self._window.lateness_us
        return judge_rows(arrived, self._clock, late, refused, ends_us <= int(time.slot_closed_us))

    def _session_ends_us(self, sessions: pl.DataFrame | None, arrived: pl.DataFrame) -> Times:
        """Return by arrived row the end of the session that it is in, late or not."""
        columns = [PLACE, START, END]
        frames = [arrived.select(columns)] + ([] if sessions is None else [sessions.select(columns)])
        numbered = self._fragments.number(pl.concat(frames).with_row_index(_NUMBER), [PLACE])
        ends = numbered.select(_NUMBER, pl.col(END).max().over(SESSION)).sort(_NUMBER).get_column(END)
        ends_us: Times = ends.head(arrived.height).to_numpy()
        return ends_us

    def _merge(self, sessions: pl.DataFrame | None, arrived: pl.DataFrame | None) -> pl.DataFrame | None:
        """Return one row a session of what was there and what came."""
        columns = [HASH, *self._partials.keys, PLACE, START, END, *self._partials.plan.partial_columns]
        frames = []
        if sessions is not None:
            frames.append(sessions.select(*columns, *self.flags))
        if arrived is not None:
            rows = arrived if self._window.late != "side" else self._fragments.combine(arrived, [pl.col(PLACE).first()])
            flags = {name: name != _EMITTED for name in self.flags}
            frames.append(rows.select(*columns, *(pl.lit(flag).alias(name) for name, flag in flags.items())))
        if not frames:
            return None
        numbered = self._fragments.number(pl.concat(frames), [PLACE])
        carried = [pl.col(PLACE).first(), *(pl.col(flag).any() for flag in self.flags)]
        return self._fragments.merge(numbered, carried).select(*columns, *self.flags)

    def _emit(
        self, sessions: pl.DataFrame, until_us: Times, results: list[pl.DataFrame], last_end_us: Times
    ) -> pl.DataFrame:
        """Emit what is pending and ended, note by key the last end, and return the sessions as they are then."""
        places = places_of(sessions)
        due = _ends_of(sessions) <= until_us[places]
        if self._updates:
            due &= sessions.get_column(_PENDING).to_numpy()
        if not due.any():
            return sessions
        ended = pl.Series(due)
        np.maximum.at(last_end_us, places[due], _ends_of(sessions)[due])
        emission = pl.lit("final")
        if self._updates:
            emission = pl.when(_EMITTED).then(pl.lit("update")).otherwise(emission)
        results.append(self._finish(sessions.filter(ended), emission))
        if not self._updates:
            return sessions.filter(~ended)
        return sessions.with_columns(pl.col(_PENDING) & ~ended, pl.col(_EMITTED) | ended)

    def _emit_early(self, sessions: pl.DataFrame, clocks: KeyClocks, results: list[pl.DataFrame]) -> pl.DataFrame:
        """Emit what is open and changed, of keys whose watermark passed another interval; return the sessions."""
        interval_us = self._window.early_us
        if interval_us is None:
            return sessions
        # A key's own watermark rises by the rows of this batch, others may have risen since the last one.
        before_us = clocks.closed_us if self._clock.per == "key" else clocks.fired_us
        places = places_of(sessions)
        passed = (before_us // interval_us < clocks.fire_us // interval_us)[places]
        shown = sessions.filter(pl.col(_DIRTY) & pl.Series(passed & (_ends_of(sessions) > clocks.fire_us[places])))
        if shown.height:
            results.append(self._finish(shown, pl.lit("early")))
        return sessions.with_columns(pl.col(_DIRTY) & ~pl.Series(passed))

    def _finish(self, sessions: pl.DataFrame, emission: pl.Expr) -> pl.DataFrame:
        return self._fragments.finish(sessions, [emission.alias(EMISSION)] if self._window.marks_emissions else [])

    # -- what remains, and what is due -------------------------------------------------------------------------------

    def held_until_us(self, closed_us: Times) -> Times:
        """Return the first start behind the watermark: no later fragment can make a row late, or end a session."""
        return closed_us + 1

    def is_kept(self, rows: pl.DataFrame, clock_us: Times) -> NDArray[np.bool_]:
        """Say of each session whether it is open, or late rows may change it."""
        kept: NDArray[np.bool_] = _ends_of(rows) > clock_us - self._window.lateness_us
        return kept

    def is_due(self, rows: pl.DataFrame, after_us: Times, until_us: Times | int) -> NDArray[np.bool_]:
        """Say of each session whether it is to be emitted, or no late row can change it any more."""
        ends_us = _ends_of(rows)
        due: NDArray[np.bool_] = ends_us <= until_us - self._window.lateness_us
        if self._window.early_us is not None:
            passed = after_us // self._window.early_us < until_us // self._window.early_us
            due |= rows.get_column(_DIRTY).to_numpy() & passed
        return due | (self.is_waiting(rows) & (ends_us <= until_us))

    def is_waiting(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Say of each session whether it is still to be emitted."""
        waiting: NDArray[np.bool_] = (
            rows.get_column(_PENDING).to_numpy() if self._updates else np.ones(rows.height, np.bool_)
        )
        return waiting

    def next_ends_us(self, rows: pl.DataFrame, passed_us: Times) -> Times:
        """Return the ends of the sessions that are open."""
        ends_us = _ends_of(rows)
        return ends_us[ends_us > passed_us]


def _ends_of(rows: pl.DataFrame) -> Times:
    ends_us: Times = rows.get_column(END).to_numpy()
    return ends_us
