"""Hand rows on in the order of their event time, across batches."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from anabranch.model import OrderSpec
from anabranch.operators.keyed.single_rows import KeyBatch, SingleRowsKernel, Work, drop_engine_columns, no_times
from anabranch.operators.processors.reorder_buffer import (
    HELD,
    changed_by_holding,
    first_held_due_us,
    held_type,
    hold_rows,
    last_released_us,
    release_rows,
)


class OrderedRows(SingleRowsKernel):
    """Holds every row until the watermark has passed it, and hands a slot's rows on by (time, order of arrival).

    A row that is older than the watermark is late: later ones may have gone on. A drain hands on what is held.
    """

    def __init__(self, spec: OrderSpec) -> None:
        super().__init__(spec.keys, spec.time_column, spec.clock, {HELD: None})
        self._late = spec.late

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns of the rows themselves."""
        return self._check_input(input_schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        columns = self._check_input(input_schema)
        return {
            "kind": "ordered",
            **self._describe_keys(input_schema),
            "columns": {name: str(dtype) for name, dtype in columns.items()},
        }

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that wait."""
        return drop_engine_columns(stored.select(HELD).drop_nulls().explode(HELD).unnest(HELD))

    def _work(self, batch: KeyBatch) -> Work:
        touched, rows, late = batch.touched, batch.rows, batch.late
        in_time = rows.filter(pl.Series(~late)) if rows is not None and late.any() else rows
        released, held = release_rows(touched, in_time)
        waiting = hold_rows(held, len(touched), held_type(touched, rows))
        late_frame = None
        if self._late == "side" and rows is not None and late.any():
            late_frame = drop_engine_columns(rows.filter(pl.Series(late)))
        return Work(
            content={HELD: waiting},
            due_us=first_held_due_us(waiting),
            wake_us=no_times(len(touched)),
            changed=changed_by_holding(touched, held),
            results=pl.DataFrame() if released is None else drop_engine_columns(released),
            late_rows=int(late.sum()),
            late=late_frame,
            reached_us=last_released_us(released, len(touched)),
        )
