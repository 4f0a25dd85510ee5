"""Aggregates per key in sessions: rows less than a gap apart belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.eventtime.key_clocks import ROWS
from anabranch.model import (
    HASH,
    WINDOW,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Fired,
    OperatorTime,
    Prepared,
    RunRef,
    SlotState,
    Standing,
    WindowSpec,
)
from anabranch.operators.aggregates.checks import check_aggregates, describe_aggregates, empty_rows
from anabranch.operators.aggregates.partials import Partials, concatenate, sort_as_run
from anabranch.operators.compaction import compact
from anabranch.operators.windows.session_fragments import END, SESSION, START, Fragments

_CHECK = "__check"
"""When a fragment must be looked at: the end of its session as far as known when it was written."""
_UNTIL, _MINE = "__until", "__mine"

_SESSION_END = pl.col(END).max().over(SESSION)
_MINE_YES, _MINE_NO = pl.lit(True).alias(_MINE), pl.lit(False).alias(_MINE)

_SEGMENTS_PER_GAP = 4


class SessionAggregate:
    """Aggregates in sessions.

    State rows are fragments of sessions, and deltas: each batch appends its own, and they meet by interval when the
    first of them is due. If their session goes on then, they are written again as one, to be looked at when it
    should end. WINDOW is the check time, rounded down, so that runs have few segments to search; a fragment
    whose check time has passed is gone, even while its segment is still there.
    """

    mergeable = True
    meeting = None
    meets_by_interval = True

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        window: WindowSpec,
        time_column: str,
    ) -> None:
        self._keys = tuple(keys)
        self._gap_us = window.size_us
        self._segment_us = max(1, window.size_us // _SEGMENTS_PER_GAP)
        self._time_column = time_column
        self._partials = Partials(keys, aggregates, time_column)
        self._fragments = Fragments(self._partials, self._gap_us)
        self._run_columns = [
            *(WINDOW, HASH, *self._keys, START, END, _CHECK, ROWS),
            *self._partials.plan.partial_columns,
        ]

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        check_aggregates(self._partials, input_schema, taken=(WINDOW_START, WINDOW_END))
        prepared = self.prepare(empty_rows(input_schema), OperatorTime(batch=0)).frame
        return dict(self._fragments.finish(self.combine(prepared)).schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        return {
            "kind": "session aggregate",
            "window": {"kind": "session", "gap_us": self._gap_us},
            **describe_aggregates(self._partials, input_schema),
        }

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep the columns that are needed; which rows are late is known only where the open sessions are."""
        return Prepared(self._partials.select_rows(frame, time, self._fragments.place_rows(self._time_column)))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into fragments of sessions."""
        return self._fragments.combine(prepared)

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Fire the sessions that closed before this batch, take its rows in, fire what they complete."""
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
        """Do the same with fragments of earlier batches that waited where they were read, as if they had been here."""
        fired: list[pl.DataFrame] = []
        held = [frame.with_columns(pl.col(END).alias(_CHECK)) for frame in held if frame.height]
        passed_us = time.fired_us
        if time.closed_us > passed_us:
            held = self._settle(state, held, passed_us, time.closed_us, fired)
            passed_us = time.closed_us
        arrived, late_rows = self._take(received, combined, state, held, passed_us, time.closed_us)
        held += arrived
        if time.fire_us > passed_us:
            held = self._settle(state, held, passed_us, time.fire_us, fired)
            passed_us = time.fire_us
        if held:
            state.append(self._as_run(concatenate(held)))
            # Merged fragments have one check time. The single ones would be gone, one by one, before it has come.
            compact(state, lambda runs: self._compacted(runs, passed_us), rebuildable=False)
        results = pl.concat(fired) if fired else pl.DataFrame()
        return Fired(results, late_rows, next_due_us=self._next_due_us(state, passed_us))

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept of keys that come here whole."""
        state.adopt(handed)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return one row an open session."""
        return self._compacted(runs, passed_us)

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row an open session: each key is on one slot, but readers may hold some of its fragments."""
        return self._as_run(self._merge_fragments(self._numbered(concatenate(stored))))

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the sessions that are open, as they stand."""
        return self._fragments.finish(stored)

    def hold(self, combined: pl.DataFrame) -> pl.DataFrame:
        """Return fragments with their start as the WINDOW.

        Whether a row is late, and whether a session has ended, can depend only on fragments that start no later than
        the watermark: all that meet it have a start that is not behind the end of what they meet.
        """
        return combined.with_columns(pl.col(START).alias(WINDOW), pl.col(END).alias(_CHECK)).select(self._run_columns)

    def unite_held(self, held: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one fragment where several meet."""
        return sort_as_run(self.hold(self._merge_fragments(self._numbered(concatenate(held))).drop(SESSION)))

    def release(self, held: pl.DataFrame) -> pl.DataFrame:
        """Return fragments as they were combined."""
        return held.drop(WINDOW, _CHECK)

    def must_go_until_us(self, time: OperatorTime) -> int:
        """Return the first start behind the watermark."""
        return time.passed_us + 1

    def must_go(self, held: pl.DataFrame, time: OperatorTime) -> None:
        """Say that all such fragments have to be sent."""
        return

    def next_held_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return the first end of a fragment that waits."""
        ends = [frame.get_column(END).min() for frame in state.live() if frame.height]
        return min((int(end) for end in ends), default=None)  # type: ignore[arg-type]

    def with_held(self, stored: list[pl.DataFrame], runs: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row an open session."""
        return self.unite([*stored, *runs])

    def _take(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        held: list[pl.DataFrame],
        passed_us: int,
        closed_us: int,
    ) -> tuple[list[pl.DataFrame], int]:
        """Return the batch's fragments with their check times, and the number of late rows among them."""
        frames = [frame for frame in received if frame.height]
        if not frames:
            return [], 0
        rows = concatenate(frames)
        fragments = self._merge_fragments(self._numbered(rows)).drop(SESSION) if combined else self.combine(rows)
        fragments = fragments.with_columns(pl.col(END).alias(_CHECK))
        doubtful = fragments.filter(pl.col(END) <= closed_us)
        if doubtful.is_empty():
            return [fragments], 0
        # A fragment that ended before the watermark is in time only if it meets a session that is still open.
        hashes = doubtful.get_column(HASH).unique().sort()
        touched = pl.col(HASH).is_in(hashes.implode())
        mine = fragments.filter(touched)
        others = [f.select(mine.columns) for f in self._open_fragments(state, held, hashes, passed_us)]
        marked = [mine.with_columns(_MINE_YES), *(f.with_columns(_MINE_NO) for f in others)]
        judged = self._numbered(concatenate(marked)).with_columns(_SESSION_END.alias(_CHECK)).filter(_MINE)
        judged = judged.drop(SESSION, _MINE)
        late = judged.filter(pl.col(_CHECK) <= closed_us)
        in_time = [fragments.filter(~touched), judged.filter(pl.col(_CHECK) > closed_us)]
        return [f for f in in_time if f.height], int(late.get_column(ROWS).sum())

    def _settle(
        self, state: SlotState, held: list[pl.DataFrame], passed_us: int, until_us: int, fired: list[pl.DataFrame]
    ) -> list[pl.DataFrame]:
        """Fire the sessions that end at or before ``until_us`` into ``fired``; return what remains to be written."""
        is_due = pl.col(_CHECK) <= until_us
        due = [f.filter((pl.col(_CHECK) > passed_us) & is_due) for f in state.due(until_us + 1)]
        due = [f for f in [*due, *(h.filter(is_due) for h in held)] if f.height]
        if not due:
            state.drop_due((until_us + 1) // self._segment_us * self._segment_us)
            return held
        hashes = pl.concat([f.get_column(HASH) for f in due]).unique().sort()
        columns = due[0].drop(WINDOW, strict=False).columns
        fragments = [f.select(columns) for f in self._open_fragments(state, held, hashes, passed_us)]
        numbered = self._numbered(concatenate(fragments)).with_columns(_SESSION_END.alias(_UNTIL))
        ended = numbered.filter(pl.col(_UNTIL) <= until_us)
        if ended.height:
            fired.append(self._fragments.finish(self._merge_fragments(ended)))
        goes_on = numbered.filter((pl.col(_UNTIL) > until_us) & is_due)
        remaining = [h.filter(~is_due) for h in held]
        if goes_on.height:
            goes_on = goes_on.with_columns(pl.col(_UNTIL).alias(_CHECK)).drop(_UNTIL)
            remaining.append(self._merge_fragments(goes_on).drop(SESSION).select(columns))
        state.drop_due((until_us + 1) // self._segment_us * self._segment_us)
        return [f for f in remaining if f.height]

    def _open_fragments(
        self, state: SlotState, held: list[pl.DataFrame], hashes: pl.Series, passed_us: int
    ) -> list[pl.DataFrame]:
        stored = [f.filter(pl.col(_CHECK) > passed_us) for f in state.lookup(hashes)]
        unwritten = [h.filter(pl.col(HASH).is_in(hashes.implode())) for h in held]
        return [f for f in [*stored, *unwritten] if f.height]

    def _numbered(self, fragments: pl.DataFrame) -> pl.DataFrame:
        return self._fragments.number(fragments, self._keys)

    def _merge_fragments(self, numbered: pl.DataFrame) -> pl.DataFrame:
        """Merge the fragments of each session into one."""
        check = [pl.col(_CHECK).max()] if _CHECK in numbered.columns else []
        return self._fragments.merge(numbered, [pl.col(ROWS).sum(), *check])

    def _as_run(self, fragments: pl.DataFrame) -> pl.DataFrame:
        segment = pl.col(_CHECK) // self._segment_us * self._segment_us
        placed = fragments.with_columns(segment.alias(WINDOW)).select(self._run_columns)
        return sort_as_run(placed)

    def _compacted(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        alive = concatenate(runs).filter(pl.col(_CHECK) > passed_us)
        return self._as_run(self._merge_fragments(self._numbered(alive)))

    def _next_due_us(self, state: SlotState, passed_us: int) -> int | None:
        # Nearly always something is due in the segment that is open now; only else all runs are looked through.
        for rows in (state.due(passed_us + self._segment_us), state.live()):
            earliest = pl.col(_CHECK).filter(pl.col(_CHECK) > passed_us).min()
            checks = [frame.select(earliest).item() for frame in rows]
            waiting = [int(check) for check in checks if check is not None]
            if waiting:
                return min(waiting)
        return None
