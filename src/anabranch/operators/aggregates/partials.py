"""Rows to partial rows, partial rows to fewer, and those to results: what all aggregating kernels share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from anabranch.errors import FlowError
from anabranch.model import BATCH, HASH, TIME, WINDOW, Aggregate, OperatorTime
from anabranch.operators.aggregates.grouping import add_up, code_keys, count_and_add, group_rows
from anabranch.operators.aggregates.layout import plan_aggregates, wide_type
from anabranch.operators.aggregates.overflows import LARGEST_INT64, SMALLEST_INT64, find_overflow, may_overflow, way_out


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
        return self._widen(self.plan.select_inputs(frame, [*carried, *(pl.col(key) for key in self.keys)]))

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
            coded = code_keys(rows, by)
            counted = count_and_add(coded.frame, by, [*self.plan.row_counts, *row_counts], sums, strides, largest)
            if counted is not None:
                return coded.restore(counted.select(*by, *largest, *row_counts, *self.plan.partial_columns))
            if not any(may_overflow(rows.get_column(column)) for column in sums.values()):
                return coded.restore(group_rows(coded.frame, by, [*own, *aggregations], strides))
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

        Polars lets sums wrap around in silence. Where those of Int64 might, they are made in Int128 and looked at;
        where wider ones might, they are looked at before they are made.
        """
        risky = {column for column in sums.values() if may_overflow(rows.get_column(column))}
        narrow = {column for column in risky if rows.schema[column] == pl.Int64}
        keys = [key for key in self.keys if key in rows.columns]
        for total, column in sums.items():
            found = find_overflow(rows, by, column, keys, strides) if column in risky - narrow else None
            if found is not None:
                raise self._overflow(total, found.row, found.total, rows.schema[column])
        if not narrow:
            return group_rows(rows, by, aggregations, strides)
        wide_rows = rows.with_columns(pl.col(column).cast(pl.Int128) for column in sorted(narrow))
        grouped = group_rows(wide_rows, by, aggregations, strides)
        wide_totals = [total for total, column in sums.items() if column in narrow]
        for total in wide_totals:
            beyond = grouped.filter(~pl.col(total).is_between(SMALLEST_INT64, LARGEST_INT64))
            if beyond.height:
                row = beyond.row(0, named=True)
                raise self._overflow(total, row, row[total], pl.Int64())
        return grouped.with_columns(pl.col(total).cast(pl.Int64) for total in wide_totals)

    def _widen(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with what is added up in types that are wide enough for it."""
        wide = {name: wide_type(rows.schema[name]) for name in self.plan.wide_inputs}
        narrow = {name: dtype for name, dtype in wide.items() if dtype != rows.schema[name]}
        for name, dtype in narrow.items():
            if dtype == pl.Int64 and rows.schema[name].is_unsigned_integer():
                beyond = rows.filter(pl.col(name) > LARGEST_INT64)
                if beyond.height:
                    row = beyond.row(0, named=True)
                    total = next(column.partial_column for column in self.plan.sums if column.input_column == name)
                    raise self._overflow(total, row, row[name], dtype)
        return rows.with_columns(pl.col(name).cast(dtype) for name, dtype in narrow.items()) if narrow else rows

    def _overflow(self, total: str, row: Mapping[str, Any], found: Any, dtype: pl.DataType) -> FlowError:
        name = next(column.aggregate for column in self.plan.sums if column.partial_column == total)
        key = ", ".join(f"{key}={row[key]!r}" for key in self.keys if key in row)
        what = "numbers" if dtype.is_decimal() else "whole numbers"
        width = f"the 38 digits of {dtype}" if dtype.is_decimal() else f"the range of {dtype}"
        return FlowError(
            f"{name}={self.aggregates[name].kind}: for {key} {what} add up to {found}, beyond {width}; {way_out(dtype)}"
        )


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
