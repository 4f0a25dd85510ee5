"""Streams that stay as they are, in the lab: how often does a flow change its strategy?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.control.decide.balancer import Balancer
from anabranch.model.balance import Balance, BalanceTrigger, Routing
from anabranch.routing import ModuloRoute, Routes
from benchmarks.skew.switching.lab import Lab, LabBatch

EVERY_BATCH = Balance(trigger=BalanceTrigger(every_rows=1))
"""Asks for a sample of every batch, and for a decision after every second one."""


@dataclass(frozen=True, slots=True, eq=False)
class SteadyFlow:
    """Keys drawn with the same weights in every batch."""

    lab: Lab
    weights: NDArray[np.float64]
    routes: Routes

    @classmethod
    def draw(cls, seed: int, *, splittable: bool) -> SteadyFlow:
        """Return a flow made by chance: few or many keys, even or not, in the order of their heat or not."""
        rng = np.random.default_rng([seed, 13])
        keys, slots = int(rng.choice([10, 20, 50, 200, 1_000])), int(rng.integers(2, 9))
        step = int(rng.choice([1, slots, rng.integers(2, 50)]))
        weights = np.arange(1, keys + 1) ** -float(rng.choice([0.0, rng.uniform(0.2, 2.0)]))
        weights = rng.permutation(weights) if rng.random() < 0.5 else weights
        values = pl.Series(step * np.arange(keys))
        values = values.cast(pl.String) if rng.random() < 0.2 else values
        rows = slots * int(rng.choice([2_000, 10_000, 100_000]))
        lab = Lab(values, slots, seed, rows, splittable, bytes_a_key=float(rng.choice([0, 100, 10_000])))
        by_modulo = values.dtype == pl.Int64 and rng.random() < 0.3
        routes = Routes(ModuloRoute(slots)) if by_modulo else Routes.even(slots, int(rng.choice([16, 64, 512])))
        return cls(lab, weights, routes)

    def run(self, batches: int, balance: Balance = EVERY_BATCH) -> list[LabBatch]:
        """Return what the batches did."""
        return self.lab.run(Balancer(Routing(balance=balance)), self.routes, lambda _: self.weights, batches=batches)


def count_switches(batches: list[LabBatch], after: int = 10) -> int:
    """Return how often the strategy changed, from a sample on."""
    return sum(before.strategy != now.strategy for before, now in pairwise(batches[after:]))
