"""Rows to partial rows, partial rows to fewer, and those to results: what all aggregating kernels share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.model import BATCH, HASH, TIME, WINDOW, Aggregate, OperatorTime
from anabranch.operators.grouping import group_rows
from anabranch.operators.plan import plan_aggregates


class Partials:
    """The frames of one aggregating operator.

    Prepared rows have the key columns and the aggregates' inputs; partial rows have the key columns and the
    aggregates' partial columns. Both may carry further columns to group by (``places``, such as WINDOW).
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], time_column: str | None) -> None:
        self.keys = tuple(keys)
        self.aggregates = dict(aggregates)
        self.time_column = time_column
        self.plan = plan_aggregates(aggregates)

    def select_rows(self, frame: pl.DataFrame, time: OperatorTime, carried: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return keys, carried columns and inputs of the rows."""
        needed = self.plan.engine_columns
        engine_columns: list[pl.Expr] = []
        if TIME in needed and self.time_column != TIME:
            event_time = pl.lit(0) if self.time_column is None else pl.col(self.time_column)
            engine_columns.append(event_time.cast(pl.Datetime("us")).alias(TIME))
        if BATCH in needed:
            engine_columns.append(pl.lit(time.batch, dtype=pl.Int64).alias(BATCH))
        if engine_columns:
            frame = frame.with_columns(engine_columns)
        return self.plan.select_inputs(frame, [*carried, *(pl.col(key) for key in self.keys)])

    def combine(
        self,
        rows: pl.DataFrame,
        places: Sequence[str] = (),
        extra: Sequence[pl.Expr] = (),
        strides: Mapping[str, int] | None = None,
    ) -> pl.DataFrame:
        """Aggregate rows into one partial row per place and key; HASH is kept if it is there."""
        aggregations = [*_first_hash(rows), *extra, *self.plan.partials]
        return group_rows(rows, [*places, *self.keys], aggregations, strides)

    def merge(
        self,
        partial_rows: Sequence[pl.DataFrame],
        places: Sequence[str] = (),
        extra: Sequence[pl.Expr] = (),
        strides: Mapping[str, int] | None = None,
    ) -> pl.DataFrame:
        """Merge partial rows into one per place and key."""
        rows = concatenate(partial_rows)
        aggregations = [*_first_hash(rows), *extra, *self.plan.merges]
        return group_rows(rows, [*places, *self.keys], aggregations, strides)

    def finish(self, partial_rows: pl.DataFrame, carried: Sequence[pl.Expr] = ()) -> pl.DataFrame:
        """Turn partial rows into results."""
        return partial_rows.select(*carried, *(pl.col(key) for key in self.keys), *self.plan.finishes)


def concatenate(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the frames one after the other, columns by name."""
    if len(frames) == 1:
        return frames[0]
    columns = frames[0].columns
    return pl.concat([frame if frame.columns == columns else frame.select(columns) for frame in frames])


def sort_as_run(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows in the order of runs: by WINDOW, if they have one, then by HASH, else as they came."""
    # Two stable sorts by one number each are twice as fast as one by both.
    rows = rows.sort(HASH, maintain_order=True)
    return rows.sort(WINDOW, maintain_order=True) if WINDOW in rows.columns else rows


def _first_hash(rows: pl.DataFrame) -> list[pl.Expr]:
    return [pl.col(HASH).first()] if HASH in rows.columns else []
