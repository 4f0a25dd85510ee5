"""An aggregate that costs processor time for every row, and has an exact answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.lab.core_shares import CoreShares
from anabranch.model import Column

MULTIPLIER, MODULUS = 48_271, 2_147_483_647
_ROWS_AT_ONCE = 4_096
"""So many numbers stay in a core's own cache: it is the processor that is busy, not the memory."""


@dataclass(frozen=True, slots=True)
class LehmerSum:
    """Adds up what Lehmer's random generator makes of each value after so many steps: 2.6 ns a step and row."""

    column: str
    steps: int
    core_shares: CoreShares | None = None
    """Where a worker takes its part of a core from before it begins; None: it may use whole ones."""

    @property
    def kind(self) -> str:
        return f"lehmer_sum({self.steps})"

    def inputs(self) -> Mapping[str, pl.Expr]:
        # Values are quarters of whole numbers; a seed must not be 0.
        return {"seed": (pl.col(self.column) * 4).cast(pl.Int64) + 1}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        made = col("seed").map_batches(self._take_steps, return_dtype=pl.Int64(), is_elementwise=True)
        return {"sum": made.sum()}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"sum": col("sum").sum()}

    def finish(self, col: Column) -> pl.Expr:
        return col("sum").cast(pl.Float64)

    def _take_steps(self, seeds: pl.Series) -> pl.Series:
        if self.core_shares is not None:
            self.core_shares.take()
        numbers = seeds.to_numpy().copy()
        for start in range(0, len(numbers), _ROWS_AT_ONCE):
            some = numbers[start : start + _ROWS_AT_ONCE]
            for _ in range(self.steps):
                np.multiply(some, MULTIPLIER, out=some)
                np.remainder(some, MODULUS, out=some)
        return pl.Series(numbers)


def take_steps(value: float, steps: int) -> int:
    """Return what becomes of one value, in plain Python: the oracle's answer."""
    number = int(value * 4) + 1
    for _ in range(steps):
        number = number * MULTIPLIER % MODULUS
    return number
