"""The left input of an as-of join: rows wait until the watermark has passed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.model import HASH, WINDOW, SlotState
from anabranch.model.columns import SECTION
from anabranch.model.joins import AT
from anabranch.operators.aggregates.partials import concatenate, sort_as_run
from anabranch.operators.compaction import compact
from anabranch.operators.joins.rows import Layout, Piece

_SEGMENTS = 8


@dataclass(frozen=True, slots=True)
class WaitingLayout(Layout):
    """How rows lie in state that leave it as soon as the watermark has passed them.

    How far rows are ahead of the watermark differs from flow to flow, so a run is cut into segments by its own span of
    time. A segment bears the moment at which the first of its rows is due.
    """

    def unite(self, runs: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return rows, in whatever order, as one run."""
        due = pl.col(AT) + 1
        length = (due.max() - due.min()) // _SEGMENTS + 1
        segment = due.min().over((due - due.min()) // length).alias(WINDOW)
        rows = concatenate(list(runs)).with_columns(segment, pl.lit(self.rows_section, pl.Int8).alias(SECTION))
        return sort_as_run(rows.select(self.columns))


class WaitingRows:
    """What a slot has of the left input."""

    def __init__(self, layout: WaitingLayout, state: SlotState) -> None:
        self._layout = layout
        self._state = state

    def take(self, received: Sequence[pl.DataFrame], until_us: int) -> Piece | None:
        """Take in what came; return the rows, old and new, that a watermark has passed, and keep the others."""
        layout = self._layout
        columns = [HASH, *layout.keys, AT, *layout.source.columns]
        # The first segment of a run may be due in part: what is left of it lies in the next run.
        found = [*self._state.due(until_us + 1), *received]
        self._state.drop_due(until_us + 1)
        some = [rows.select(columns) for rows in found if rows.height]
        if not some:
            return None
        rows = concatenate(some).rechunk()
        is_due = rows.get_column(AT) < until_us
        if is_due.all():
            return Piece(rows, is_sorted=False)
        self._state.append(layout.unite([rows.filter(~is_due)]))
        # Rows that leave a merged run are in its sources all the same: those would do in its place only at once.
        compact(self._state, layout.unite, rebuildable=False)
        return Piece(rows.filter(is_due), is_sorted=False) if is_due.any() else None

    def next_due_us(self) -> int | None:
        """Return the watermark at which the next row is due."""
        return min((run.min_window for run in self._state.runs() if run.min_window is not None), default=None)
