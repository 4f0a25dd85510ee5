"""Hand rows on in the order of their event time, across batches."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from anabranch.model import OrderSpec
from anabranch.operators.keyed.single_rows import Done, KeyedRows, drop_engine_columns, no_times
from anabranch.operators.processors.reorder_buffer import (
    HELD,
    changed_by_holding,
    first_held_due_us,
    held_type,
    hold_rows,
    last_released_us,
    release_rows,
)


class OrderedRows:
    """Holds every row until the watermark has passed it, and hands a slot's rows on by (time, order of arrival).

    A row that is older than the watermark is late: later ones may have gone on. A drain hands on what is held.
    """

    kind = "ordered"

    def __init__(self, spec: OrderSpec) -> None:
        self._late = spec.late
        self.content: dict[str, pl.DataType | None] = {HELD: None}

    def output_schema(self, columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns of the rows themselves."""
        return dict(columns)

    def describe(self, columns: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Return the columns of the rows that wait."""
        return {"columns": {name: str(dtype) for name, dtype in columns.items()}}

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that wait."""
        return drop_engine_columns(stored.select(HELD).drop_nulls().explode(HELD).unnest(HELD))

    def do(self, batch: KeyedRows) -> Done:
        """Hand on the rows that the watermark has passed, and hold the others."""
        touched, rows, late = batch.touched, batch.rows, batch.late
        in_time = rows.filter(pl.Series(~late)) if rows is not None and late.any() else rows
        released, held = release_rows(touched, in_time)
        waiting = hold_rows(held, len(touched), held_type(touched, rows))
        late_frame = None
        if self._late == "side" and rows is not None and late.any():
            late_frame = drop_engine_columns(rows.filter(pl.Series(late)))
        return Done(
            content={HELD: waiting},
            due_us=first_held_due_us(waiting),
            wake_us=no_times(len(touched)),
            changed=changed_by_holding(touched, held),
            results=pl.DataFrame() if released is None else drop_engine_columns(released),
            late_rows=int(late.sum()),
            late=late_frame,
            reached_us=last_released_us(released, len(touched)),
        )
