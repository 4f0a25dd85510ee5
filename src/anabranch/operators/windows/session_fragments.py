"""Fragments of sessions: partial rows with the interval that they cover, which meet by interval."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from anabranch.eventtime import number_sessions
from anabranch.eventtime.key_clocks import ROWS
from anabranch.model import HASH, WINDOW_END, WINDOW_START
from anabranch.operators.aggregates.partials import Partials

START, END = "__start", "__end"
"""Int64 microseconds: the interval of a fragment, [first row, last row + gap)."""
SESSION = "__session"
"""Int64: equal in all fragments of one session."""
_CELL = "__cell"


class Fragments:
    """The fragments of one operator's sessions."""

    def __init__(self, partials: Partials, gap_us: int) -> None:
        self._partials = partials
        self._gap_us = gap_us

    def place_rows(self, time_column: str) -> list[pl.Expr]:
        """Return what rows must carry to be combined."""
        start = pl.col(time_column).dt.timestamp("us")
        # Rows of one cell, as long as the gap, are in one session for sure.
        return [start.alias(START), (start // self._gap_us).alias(_CELL)]

    def combine(self, rows: pl.DataFrame, extra: Sequence[pl.Expr] = ()) -> pl.DataFrame:
        """Aggregate rows into fragments, with the number of ROWS behind each."""
        interval = [
            pl.col(START).min(),
            (pl.col(START).max() + self._gap_us).alias(END),
            pl.len().cast(pl.Int64).alias(ROWS),
        ]
        cells = self._partials.combine(rows, [_CELL], extra=[*interval, *extra]).drop(_CELL)
        return self.merge(self.number(cells, self._partials.keys), [pl.col(ROWS).sum(), *extra]).drop(SESSION)

    def number(self, fragments: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """Return fragments by key and start, with their SESSION."""
        fragments = fragments.sort(*keys, START, maintain_order=True)
        return fragments.with_columns(number_sessions(fragments, keys, START, END).alias(SESSION))

    def merge(self, numbered: pl.DataFrame, extra: Sequence[pl.Expr]) -> pl.DataFrame:
        """Merge the fragments of each session into one; ``extra`` says what becomes of their further columns."""
        if not numbered.select((pl.col(SESSION).diff() == 0).any()).item():
            return numbered
        carried = [*self._partials.keys, *([HASH] if HASH in numbered.columns else [])]
        first = [pl.col(column).first() for column in carried]
        interval = [pl.col(START).min(), pl.col(END).max()]
        return self._partials.merge_groups(numbered, [SESSION], [*first, *interval, *extra])

    def finish(self, sessions: pl.DataFrame, carried: Sequence[pl.Expr] = ()) -> pl.DataFrame:
        """Turn sessions into results."""
        start = pl.col(START).cast(pl.Datetime("us")).alias(WINDOW_START)
        end = pl.col(END).cast(pl.Datetime("us")).alias(WINDOW_END)
        return self._partials.finish(sessions, [start, end, *carried])
