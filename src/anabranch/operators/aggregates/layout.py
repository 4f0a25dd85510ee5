"""The expressions of all aggregates of one operator, laid out over one frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.errors import FlowError
from anabranch.model import BATCH, ORDER, TIME, Aggregate, Column

_ENGINE_COLUMNS = frozenset({BATCH, ORDER, TIME})


@dataclass(frozen=True, slots=True)
class SummedColumn:
    """An input column, and the partial column that it is added up into."""

    aggregate: str
    input_column: str
    partial_column: str


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """What to compute before, while and after rows are grouped; made once per kernel by ``plan_aggregates``."""

    inputs: tuple[pl.Expr, ...]
    """One expression per input column; equal expressions of several aggregates share one."""
    wide_inputs: tuple[str, ...]
    """Input columns that are summed: narrow numbers among them must be widened, because Polars sums Int32 in Int32."""
    sums: tuple[SummedColumn, ...]
    """The sums among the partials."""
    row_counts: tuple[str, ...]
    """The partial columns that count all rows."""
    partials: tuple[pl.Expr, ...]
    merges: tuple[pl.Expr, ...]
    finishes: tuple[pl.Expr, ...]
    partial_columns: tuple[str, ...]
    input_columns_of: Mapping[str, Mapping[str, str]]
    """Aggregate name → short name → input column."""
    engine_columns: frozenset[str]
    """Which of TIME, BATCH and ORDER the inputs refer to."""

    def select_inputs(self, frame: pl.DataFrame, carried: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return the carried columns and the inputs, and nothing else."""
        return frame.select(*carried, *self.inputs)


def plan_aggregates(aggregates: Mapping[str, Aggregate]) -> AggregatePlan:
    """Lay out the inputs, partials, merges and results of named aggregates."""
    inputs: list[pl.Expr] = []
    wide_inputs: list[str] = []
    partials: list[pl.Expr] = []
    merges: list[pl.Expr] = []
    finishes: list[pl.Expr] = []
    sums: list[SummedColumn] = []
    row_counts: list[str] = []
    input_columns_of: dict[str, dict[str, str]] = {}
    shared: list[tuple[pl.Expr, bool, str]] = []
    for name, aggregate in aggregates.items():
        sums_into: str | None = getattr(aggregate, "sums_into", None)
        wide = sums_into is not None
        columns: dict[str, str] = {}
        for short, expression in aggregate.inputs().items():
            column = next((c for e, w, c in shared if w == wide and e.meta.eq(expression)), None)
            if column is None:
                column = f"__in{len(shared)}"
                shared.append((expression, wide, column))
                inputs.append(expression.alias(column))
                if wide:
                    wide_inputs.append(column)
            columns[short] = column
        input_columns_of[name] = columns
        partial = aggregate.partial(_by_name(columns))
        partial_columns = {short: f"__{name}.{short}" for short in partial}
        if sums_into is not None:
            sums += [SummedColumn(name, column, partial_columns[sums_into]) for column in columns.values()]
        counts_into: str | None = getattr(aggregate, "counts_into", None)
        if counts_into is not None:
            row_counts.append(partial_columns[counts_into])
        merge = aggregate.merge(_by_name(partial_columns))
        if set(merge) != set(partial):
            msg = (
                f"{name}={aggregate.kind}: partial makes {', '.join(partial)}, but merge makes {', '.join(merge)}; "
                "both must make the same columns"
            )
            raise FlowError(msg)
        partials += [partial[short].alias(column) for short, column in partial_columns.items()]
        merges += [merge[short].alias(column) for short, column in partial_columns.items()]
        finishes.append(aggregate.finish(_by_name(partial_columns)).alias(name))
    roots = {root for expression in inputs for root in expression.meta.root_names()}
    return AggregatePlan(
        inputs=tuple(inputs),
        wide_inputs=tuple(wide_inputs),
        sums=tuple(sums),
        row_counts=tuple(row_counts),
        partials=tuple(partials),
        merges=tuple(merges),
        finishes=tuple(finishes),
        partial_columns=tuple(expression.meta.output_name() for expression in partials),
        input_columns_of=input_columns_of,
        engine_columns=frozenset(roots & _ENGINE_COLUMNS),
    )


def _by_name(columns: Mapping[str, str]) -> Column:
    return lambda short: pl.col(columns[short])


def wide_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type in which numbers of a type are added up."""
    if dtype.is_integer() or dtype == pl.Boolean:
        return pl.Int128() if dtype == pl.Int128 else pl.Int64()
    if dtype.is_float():
        return pl.Float64()
    return dtype
