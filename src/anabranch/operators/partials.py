"""Rows to partial rows, partial rows to fewer, and those to results: what all aggregating kernels share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from anabranch.errors import FlowError
from anabranch.model import BATCH, HASH, TIME, WINDOW, Aggregate, OperatorTime
from anabranch.operators.grouping import add_up, count_and_add, group_rows
from anabranch.operators.plan import plan_aggregates

SMALLEST_INT64, LARGEST_INT64 = -(2**63), 2**63 - 1


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
        row_counts: Sequence[str] = (),
        largest: Sequence[str] = (),
    ) -> pl.DataFrame:
        """Aggregate rows into one partial row per place and key; HASH is kept if it is there.

        ``row_counts`` names columns for the number of rows, ``largest`` Int64 columns of which the largest is kept.
        """
        by = [*places, *self.keys]
        own = [*(pl.col(name).max() for name in largest), *(pl.len().cast(pl.Int64).alias(name) for name in row_counts)]
        aggregations = [*_first_hash(rows), *extra, *self.plan.partials]
        sums = {column.partial_column: column.input_column for column in self.plan.sums}
        if len(aggregations) == len(sums) + len(self.plan.row_counts):
            counted = count_and_add(rows, by, [*self.plan.row_counts, *row_counts], sums, strides, largest)
            if counted is not None:
                return counted.select(*by, *largest, *row_counts, *self.plan.partial_columns)
        return self._group(rows, by, [*own, *aggregations], sums, strides)

    def merge(
        self,
        partial_rows: Sequence[pl.DataFrame],
        places: Sequence[str] = (),
        extra: Sequence[pl.Expr] = (),
        strides: Mapping[str, int] | None = None,
    ) -> pl.DataFrame:
        """Merge partial rows into one per place and key."""
        rows = concatenate(partial_rows)
        return self.merge_groups(rows, [*places, *self.keys], [*_first_hash(rows), *extra], strides)

    def merge_groups(
        self,
        partial_rows: pl.DataFrame,
        by: Sequence[str],
        extra: Sequence[pl.Expr] = (),
        strides: Mapping[str, int] | None = None,
    ) -> pl.DataFrame:
        """Merge partial rows into one per group of the given columns."""
        sums = {column.partial_column: column.partial_column for column in self.plan.sums}
        return self._group(partial_rows, by, [*extra, *self.plan.merges], sums, strides)

    def merge_placed(
        self,
        partial_rows: Sequence[pl.DataFrame],
        by: Sequence[str],
        flags: Sequence[str] = (),
        strides: Mapping[str, int] | None = None,
    ) -> pl.DataFrame:
        """Merge partial rows into one per group of whole numbers that say its key and place.

        All other columns are the same throughout a group, but for flags, which are true if any of them is.
        """
        rows = concatenate(partial_rows)
        adds = {*(column.partial_column for column in self.plan.sums), *self.plan.row_counts}
        if adds == set(self.plan.partial_columns) and not any(may_overflow(rows.get_column(name)) for name in adds):
            added = add_up(rows, by, sorted(adds), flags, strides)
            if added is not None:
                return added
        own = {*by, *flags, *self.plan.partial_columns}
        firsts = [pl.col(column).first() for column in rows.columns if column not in own]
        return self.merge_groups(rows, by, [*firsts, *(pl.col(flag).any() for flag in flags)], strides)

    def finish(self, partial_rows: pl.DataFrame, carried: Sequence[pl.Expr] = ()) -> pl.DataFrame:
        """Turn partial rows into results."""
        return partial_rows.select(*carried, *(pl.col(key) for key in self.keys), *self.plan.finishes)

    def _group(
        self,
        rows: pl.DataFrame,
        by: Sequence[str],
        aggregations: Sequence[pl.Expr],
        sums: Mapping[str, str],
        strides: Mapping[str, int] | None,
    ) -> pl.DataFrame:
        """Group rows; ``sums`` names the columns that are added up, by the column of their total.

        Polars lets sums of Int64 wrap around in silence. Where they might, they are made in Int128 and looked at.
        """
        risky = {column for column in sums.values() if may_overflow(rows.get_column(column))}
        if not risky:
            return group_rows(rows, by, aggregations, strides)
        wide_rows = rows.with_columns(pl.col(column).cast(pl.Int128) for column in sorted(risky))
        grouped = group_rows(wide_rows, by, aggregations, strides)
        wide_totals = [total for total, column in sums.items() if column in risky]
        for total in wide_totals:
            beyond = grouped.filter(~pl.col(total).is_between(SMALLEST_INT64, LARGEST_INT64))
            if beyond.height:
                raise self._overflow(total, beyond.row(0, named=True))
        return grouped.with_columns(pl.col(total).cast(pl.Int64) for total in wide_totals)

    def _overflow(self, total: str, row: Mapping[str, Any]) -> FlowError:
        name = next(column.aggregate for column in self.plan.sums if column.partial_column == total)
        key = ", ".join(f"{key}={row[key]!r}" for key in self.keys if key in row)
        return FlowError(
            f"{name}={self.aggregates[name].kind}: for {key} whole numbers add up to {row[total]}, beyond the range of "
            f"Int64; cast what is added up, to pl.Decimal(38) or pl.Float64, and start with a new checkpoint"
        )


def may_overflow(column: pl.Series) -> bool:
    """Say whether some of these numbers could add up beyond Int64: a look at the largest costs next to nothing."""
    if column.dtype != pl.Int64:
        return False
    lowest, highest = column.min(), column.max()
    if lowest is None or highest is None:
        return False
    return len(column) * max(-int(lowest), int(highest)) > LARGEST_INT64  # type: ignore[arg-type]


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
