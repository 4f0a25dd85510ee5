"""The aggregates: count, sum, min, max, mean, variance, stddev, first and last.

Nulls are ignored, as in SQL: an aggregate of no values is null, and only ``count()`` counts every row.

An aggregate of your own is any object with the members of ``anabranch.model.Aggregate``. The sum of squares::

    @dataclass(frozen=True)
    class SumOfSquares:
        column: str
        kind: str = "sum_of_squares"

        def inputs(self):
            return {"x": pl.col(self.column).cast(pl.Float64)}

        def partial(self, col):
            return {"squares": (col("x") ** 2).sum()}

        def merge(self, col):
            return {"squares": col("squares").sum()}

        def finish(self, col):
            return col("squares")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from anabranch.errors import FlowError
from anabranch.model import BATCH, ORDER, TIME, Column

Argument = str | pl.Expr
"""What is aggregated: a column's name or a Polars expression over rows."""


def as_expression(argument: object) -> pl.Expr:
    """Return the expression that an aggregate's argument stands for."""
    if not isinstance(argument, str | pl.Expr):
        msg = f"an aggregate takes a column's name or a Polars expression, found {argument!r}"
        raise FlowError(msg)
    return pl.col(argument) if isinstance(argument, str) else argument


@dataclass(frozen=True, slots=True, eq=False)
class Count:
    """Counts rows, or the rows where the argument is not null."""

    argument: pl.Expr | None = None
    accepts: Literal["anything"] = "anything"

    @property
    def kind(self) -> str:
        return "count"

    @property
    def counts_into(self) -> str | None:
        """The partial column that counts every row, if it does."""
        return "n" if self.argument is None else None

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {} if self.argument is None else {"value": self.argument}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        counted = pl.len() if self.argument is None else col("value").count()
        return {"n": counted.cast(pl.Int64)}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"n": col("n").sum()}

    def finish(self, col: Column) -> pl.Expr:
        return col("n")


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """Adds up: whole numbers in Int64 (Int128 in itself), floats in Float64, decimals in 38 digits.

    A total of whole numbers or decimals beyond that, even if only that of a part of the rows, is an error.
    """

    argument: pl.Expr
    accepts: Literal["numbers"] = "numbers"
    sums_into: str = "sum"

    @property
    def kind(self) -> str:
        return "sum"

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"value": self.argument}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sum": _sum_or_null(col("value"))}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sum": _sum_or_null(col("sum"))}

    def finish(self, col: Column) -> pl.Expr:
        return col("sum")


@dataclass(frozen=True, slots=True, eq=False)
class Extreme:
    """Keeps the smallest or the largest value."""

    argument: pl.Expr
    which: Literal["min", "max"]
    accepts: Literal["ordered"] = "ordered"

    @property
    def kind(self) -> str:
        return self.which

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"value": self.argument}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"value": self._reduce(col("value"))}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"value": self._reduce(col("value"))}

    def finish(self, col: Column) -> pl.Expr:
        return col("value")

    def _reduce(self, value: pl.Expr) -> pl.Expr:
        return value.min() if self.which == "min" else value.max()


@dataclass(frozen=True, slots=True, eq=False)
class Mean:
    """The arithmetic mean, as Float64."""

    argument: pl.Expr
    accepts: Literal["numbers"] = "numbers"
    sums_into: str = "sum"

    @property
    def kind(self) -> str:
        return "mean"

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"value": self.argument}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sum": col("value").sum(), "n": col("value").count().cast(pl.Int64)}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sum": col("sum").sum(), "n": col("n").sum()}

    def finish(self, col: Column) -> pl.Expr:
        return pl.when(col("n") > 0).then(col("sum").cast(pl.Float64) / col("n"))


@dataclass(frozen=True, slots=True, eq=False)
class Variance:
    """The variance or its root, from counts, means and squared distances merged as Chan et al. do."""

    argument: pl.Expr
    ddof: int
    root: bool
    accepts: Literal["numbers"] = "numbers"

    @property
    def kind(self) -> str:
        return f"{'stddev' if self.root else 'variance'}(ddof={self.ddof})"

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"value": self.argument}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        value = col("value").cast(pl.Float64)
        return {
            "n": value.count().cast(pl.Int64),
            "mean": value.mean(),
            "m2": value.var(ddof=0) * value.count(),
        }

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        n, mean, m2 = col("n"), col("mean"), col("m2")
        common = (n * mean).sum() / n.sum()
        some = n.sum() > 0
        return {
            "n": n.sum(),
            "mean": pl.when(some).then(common),
            "m2": pl.when(some).then(m2.sum() + (n * (mean - common) ** 2).sum()),
        }

    def finish(self, col: Column) -> pl.Expr:
        variance = pl.when(col("n") > self.ddof).then(col("m2") / (col("n") - self.ddof))
        return variance.sqrt() if self.root else variance


_PICKED = ("value", "time", "batch", "order")


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """The value of the earliest or the latest row that has one, by (event time, batch, order)."""

    argument: pl.Expr
    which: Literal["first", "last"]
    accepts: Literal["anything"] = "anything"

    @property
    def kind(self) -> str:
        return self.which

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"value": self.argument, "time": pl.col(TIME), "batch": pl.col(BATCH), "order": pl.col(ORDER)}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        # Rows of one call are of one batch, so two numbers decide; packed into one they are compared faster.
        rank = col("time").to_physical().cast(pl.Int128) * 2**64 + col("order")
        return {"picked": self._pick(pl.struct([col(part).alias(part) for part in _PICKED]), col("value"), rank)}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        picked = col("picked")
        rank = pl.struct([picked.struct.field(part) for part in _PICKED[1:]])
        return {"picked": self._pick(picked, picked.struct.field("value"), rank)}

    def finish(self, col: Column) -> pl.Expr:
        return col("picked").struct.field("value")

    def _pick(self, rows: pl.Expr, value: pl.Expr, rank: pl.Expr) -> pl.Expr:
        present = pl.when(value.is_not_null()).then(rank)
        return rows.min_by(present) if self.which == "first" else rows.max_by(present)


def count(argument: Argument | None = None) -> Count:
    """Count rows, or the values of a column that are not null.

    Examples:
        >>> collect(readings.key_by("sensor").agg(rows=ab.count(), values=ab.count("volts")))
        [(1, 3, 3), (2, 1, 1)]
    """
    return Count(None if argument is None else as_expression(argument))


def sum(argument: Argument) -> Sum:
    """Add up a column.

    Examples:
        >>> collect(readings.key_by("sensor").agg(watts=ab.sum(pl.col("volts") * 2)))
        [(1, 1334.5), (2, 459.0)]
    """
    return Sum(as_expression(argument))


def min(argument: Argument) -> Extreme:
    """Keep the smallest value.

    Examples:
        >>> collect(readings.key_by("sensor").agg(lowest=ab.min("volts")))
        [(1, 206.25), (2, 229.5)]
    """
    return Extreme(as_expression(argument), "min")


def max(argument: Argument) -> Extreme:
    """Keep the largest value.

    Examples:
        >>> collect(readings.key_by("sensor").agg(highest=ab.max("volts")))
        [(1, 231.0), (2, 229.5)]
    """
    return Extreme(as_expression(argument), "max")


def mean(argument: Argument) -> Mean:
    """Take the arithmetic mean.

    Examples:
        >>> collect(readings.filter("volts > 220").key_by("sensor").agg(mean=ab.mean("volts")))
        [(1, 230.5), (2, 229.5)]
    """
    return Mean(as_expression(argument))


def variance(argument: Argument, ddof: int = 1) -> Variance:
    """Take the variance: null of a single value; ``ddof=0`` for that of a whole population, 0 of a single value.

    Examples:
        >>> collect(readings.filter("volts > 220").key_by("sensor").agg(variance=ab.variance("volts")))
        [(1, 0.5), (2, None)]
    """
    return Variance(as_expression(argument), ddof, root=False)


def stddev(argument: Argument, ddof: int = 1) -> Variance:
    """Take the standard deviation: null of a single value; ``ddof=0`` for a whole population, 0 of a single value.

    Examples:
        >>> collect(readings.filter("volts > 220").key_by("sensor").agg(spread=ab.stddev("volts", ddof=0)))
        [(1, 0.5), (2, 0.0)]
    """
    return Variance(as_expression(argument), ddof, root=True)


def first(argument: Argument) -> Edge:
    """Keep the value of the earliest row, by event time, then by place in the stream.

    Examples:
        >>> collect(readings.watermark("ts").key_by("sensor").agg(first=ab.first("volts")))
        [(1, 230.0), (2, 229.5)]
    """
    return Edge(as_expression(argument), "first")


def last(argument: Argument) -> Edge:
    """Keep the value of the latest row, by event time, then by place in the stream.

    Examples:
        >>> collect(readings.watermark("ts").key_by("sensor").agg(last=ab.last("volts")))
        [(1, 231.0), (2, 229.5)]
    """
    return Edge(as_expression(argument), "last")


def _sum_or_null(value: pl.Expr) -> pl.Expr:
    # Polars adds nothing up to 0, SQL to null. Counting a column without nulls costs nothing.
    return pl.when(value.count() > 0).then(value.sum())
