"""Rows that came to a slot which itself finds the late ones among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime.key_clocks import LATEST, ROWS, latest_by_group
from anabranch.model import BATCH, ORDER, TIME, Clock, Fired

ORIGINAL = "__original"
"""Struct: a row as it came."""
_ENGINE_COLUMNS = (ORDER, TIME, BATCH)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The rows of a batch on a slot, and what was found out about them."""

    in_time: pl.DataFrame | None = None
    """Those that count; among them late ones that change results."""
    late: pl.DataFrame | None = None
    """Those that do not, as they came, where the flow wants them."""
    late_rows: int = 0
    updated_rows: int = 0
    slot_late_rows: int = 0
    latest_us: int | None = None
    group_latest_us: dict[int, int] | None = None

    def plus(self, other: Judged) -> Judged:
        """Return what was found out about the rows of both; none that counts is kept."""
        late = [rows for rows in (self.late, other.late) if rows is not None]
        latest = [us for us in (self.latest_us, other.latest_us) if us is not None]
        by_group = dict(self.group_latest_us or {})
        for group, us in (other.group_latest_us or {}).items():
            by_group[group] = max(us, by_group.get(group, us))
        has_groups = self.group_latest_us is not None or other.group_latest_us is not None
        return Judged(
            late=pl.concat(late) if late else None,
            late_rows=self.late_rows + other.late_rows,
            updated_rows=self.updated_rows + other.updated_rows,
            slot_late_rows=self.slot_late_rows + other.slot_late_rows,
            latest_us=max(latest, default=None),
            group_latest_us=by_group if has_groups else None,
        )

    def report(
        self,
        results: list[pl.DataFrame],
        next_due_us: int | None,
        wake_us: int | None,
        shared: pl.DataFrame | None = None,
    ) -> Fired:
        """Return what the operator emits, with what was found out."""
        return Fired(
            pl.concat(results) if results else pl.DataFrame(),
            late_rows=self.late_rows,
            slot_late_rows=self.slot_late_rows,
            late=self.late,
            updated_rows=self.updated_rows,
            latest_us=self.latest_us,
            group_latest_us=self.group_latest_us,
            next_due_us=next_due_us,
            wake_us=wake_us,
            shared=shared,
        )


def carry_original() -> pl.Expr:
    """Return the whole rows as one column, to hand late ones out as they came."""
    return pl.struct(pl.exclude(*_ENGINE_COLUMNS)).alias(ORIGINAL)


def judge_rows(
    arrived: pl.DataFrame | None,
    clock: Clock,
    late: NDArray[np.bool_],
    refused: NDArray[np.bool_],
    slot_late: NDArray[np.bool_],
) -> Judged:
    """Sort out the rows that are refused; all those that are late are counted, at both levels."""
    if arrived is None:
        return Judged()
    rows = arrived.get_column(ROWS).to_numpy()
    late_frame = None
    if refused.any() and ORIGINAL in arrived.columns:
        late_frame = arrived.filter(pl.Series(refused)).select(ORIGINAL).unnest(ORIGINAL)
    in_time = arrived.filter(pl.Series(~refused)) if refused.any() else arrived
    return Judged(
        in_time=in_time.drop(ORIGINAL, strict=False) if in_time.height else None,
        late=late_frame,
        late_rows=int(rows[late].sum()),
        updated_rows=int(rows[late & ~refused].sum()),
        slot_late_rows=int(rows[slot_late].sum()),
        latest_us=int(arrived.get_column(LATEST).max()),  # type: ignore[arg-type]
        group_latest_us=latest_by_group(arrived, clock.groups) if clock.per == "group" else None,
    )
