"""An aggregate that costs processor time a row, and has an exact answer in every system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from anabranch.model import Column

MULTIPLIER, MODULUS = 48_271, 2_147_483_647


@dataclass(frozen=True, slots=True)
class LehmerSum:
    """Adds up what Lehmer's random generator makes of each value after so many steps."""

    column: str
    steps: int

    @property
    def kind(self) -> str:
        return f"lehmer_sum({self.steps})"

    def inputs(self) -> Mapping[str, pl.Expr]:
        return {"seed": pl.col(self.column)}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        # Values are quarters of whole numbers; a seed must not be 0.
        number = (col("seed") * 4).cast(pl.Int64) + 1
        for _ in range(self.steps):
            number = number * MULTIPLIER % MODULUS
        return {"sum": number.sum()}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sum": col("sum").sum()}

    def finish(self, col: Column) -> pl.Expr:
        return col("sum").cast(pl.Float64)


def take_steps(value: float, steps: int) -> int:
    """Return what becomes of one value, in plain Python: the oracle's answer."""
    number = int(value * 4) + 1
    for _ in range(steps):
        number = number * MULTIPLIER % MODULUS
    return number


def write_sql(column: str, steps: int, double: str = "DOUBLE") -> str:
    """Return the same aggregate as SQL; the sum is a double, as the answers' totals are."""
    number = f"CAST({column} * 4 AS BIGINT) + 1"
    for _ in range(steps):
        number = f"MOD(({number}) * {MULTIPLIER}, {MODULUS})"
    return f"CAST(SUM({number}) AS {double})"
