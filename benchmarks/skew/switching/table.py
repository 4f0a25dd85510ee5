"""Table 9 of the load distribution paper, in the lab: triggers that switch strategies while the data changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.control.decide.balancer import Balancer
from anabranch.model import RouteError
from anabranch.model.balance import Balance, BalanceTrigger, Routing
from anabranch.routing.bases.base_routes import ModuloRoute
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import make_strategy, strategy_names
from benchmarks.skew.switching.lab import Lab, rows_a_second

SLOTS = 8
KEYS = 600
ROWS_A_BATCH = 640_000
"""A batch of even slots takes 0.4 s, at 5 µs a row and slot: 1.6 million rows a second, about the paper's."""
CHANGES_A_MINUTE = (0.1, 1.0, 5.0, 10.0, 30.0)
FIRST_BATCHES = 10
"""Batches in which the first decision is made; they are not counted where strategies are compared."""
TRIGGERS: dict[str, BalanceTrigger | None] = {
    "every 100 M rows": BalanceTrigger(every_rows=100_000_000),
    "every 10 M rows": BalanceTrigger(every_rows=10_000_000),
    "every 20 s": BalanceTrigger(every_seconds=20.0),
    "every 5 s": BalanceTrigger(every_seconds=5.0),
    "balance below 0.6": BalanceTrigger(balance_below=0.6),
    "balance below 0.4": BalanceTrigger(balance_below=0.4),
    "default": None,
}
"""The paper's six, and ours."""


@dataclass(frozen=True, slots=True)
class SwitchingRun:
    """One trigger, or one strategy that is fixed, at one rate of changes."""

    name: str
    fixed: bool
    """Whether it is a strategy that never switches to another."""
    changes_a_minute: float
    rows_per_second: float
    """From the first row on, moves counted."""
    settled_rows_per_second: float
    """Without the batches of the first decision."""
    switches: int
    """How often another strategy was taken."""
    moved_bytes: float


def make_shapes(rng: np.random.Generator, keys: int, slots: int, count: int) -> list[NDArray[np.float64]]:
    """Return weights by key for one phase after the other, each a shape drawn by chance: what is even, what is hot."""
    shapes = []
    for _ in range(count):
        kind = rng.integers(5)
        ranks = np.arange(1, keys + 1, dtype=np.float64)
        if kind == 0:
            weights = np.ones(keys)
        elif kind == 1:
            weights = rng.permutation(ranks ** -rng.uniform(0.4, 1.1))
        elif kind == 2:
            # Neighbours are hot: hard on ranges that were cut before.
            weights = np.exp(-(((ranks - rng.uniform(0, keys)) / (keys / rng.uniform(6, 20))) ** 2)) + 0.02
        elif kind == 3:
            # Keys that are alike modulo the slots are hot: hard on modulo.
            weights = np.where(np.arange(keys) % slots == rng.integers(slots), rng.uniform(2, 6), 1.0)
        else:
            weights = np.ones(keys)
            weights[rng.choice(keys, keys // 20, replace=False)] = rng.uniform(3, 12)
        shapes.append(weights)
    return shapes


@dataclass(frozen=True, slots=True, eq=False)
class ChangingData:
    """Keys whose weights change so many times a minute, for so long."""

    changes_a_minute: float
    seconds: float
    shapes: Sequence[NDArray[np.float64]]

    @classmethod
    def draw(cls, lab: Lab, changes_a_minute: float, seconds: float, seed: int) -> ChangingData:
        """Return data of random shapes."""
        count = int(seconds * changes_a_minute / 60) + 2
        shapes = make_shapes(np.random.default_rng([seed, 9]), len(lab.values), lab.slots, count)
        return cls(changes_a_minute, seconds, shapes)

    def weights_at(self, now_seconds: float) -> NDArray[np.float64]:
        """Return what comes at a time: one shape after the other, the last one to the end."""
        return self.shapes[min(int(now_seconds * self.changes_a_minute / 60), len(self.shapes) - 1)]


def make_lab(seed: int, *, splittable: bool = False) -> Lab:
    """Return the lab of the table: whole numbers as keys, which stay whole, as all of the paper's do."""
    return Lab(pl.Series(np.arange(KEYS)), SLOTS, seed, ROWS_A_BATCH, splittable=splittable)


def run_trigger(lab: Lab, name: str, data: ChangingData) -> SwitchingRun:
    """Return how a flow does that starts from Modulo and switches when a trigger says so."""
    balancer = Balancer(Routing(balance=Balance(trigger=TRIGGERS[name])))
    return _run(lab, name, balancer, Routes(ModuloRoute(lab.slots)), data, fixed=False)


def run_fixed(lab: Lab, strategy: str, data: ChangingData) -> list[SwitchingRun]:
    """Return how one strategy does: as decided on the first batch, and decided anew whenever slots are uneven.

    Nothing, if it splits keys that stay whole, or cannot decide.
    """
    if make_strategy(strategy).splits_keys and not lab.splittable:
        return []
    first = lab.look(0, data.weights_at(0.0))
    try:
        routes = make_strategy(strategy).decide(first, Routes.even(lab.slots), np.random.default_rng(lab.seed))
    except RouteError:
        return []
    anew = Balancer(Routing(strategy, Balance()))
    return [
        _run(lab, strategy, None, routes, data, fixed=True),
        _run(lab, f"{strategy}, anew", anew, routes, data, fixed=True),
    ]


def run_table(seed: int, *, seconds: float = 120.0) -> list[SwitchingRun]:
    """Return all triggers and, to compare with, all strategies that are fixed, at every rate of changes."""
    lab = make_lab(seed)
    runs = []
    for rate in CHANGES_A_MINUTE:
        # At the slowest rate, the data changes once on the way.
        data = ChangingData.draw(lab, rate, max(seconds, 90 / rate), seed)
        runs += [run_trigger(lab, name, data) for name in TRIGGERS]
        runs += [run for name in strategy_names() for run in run_fixed(lab, name, data)]
    return runs


def find_best_fixed(runs: Sequence[SwitchingRun], changes_a_minute: float) -> SwitchingRun:
    """Return the fastest strategy that never switches."""
    fixed = [run for run in runs if run.fixed and run.changes_a_minute == changes_a_minute]
    return max(fixed, key=lambda run: run.settled_rows_per_second)


def compare_with_best(runs: Sequence[SwitchingRun], changes_a_minute: float, trigger: str = "default") -> float:
    """Return the speed of a trigger, once the first decision is made, by that of the best fixed strategy."""
    found = next(run for run in runs if run.name == trigger and run.changes_a_minute == changes_a_minute)
    return found.settled_rows_per_second / find_best_fixed(runs, changes_a_minute).settled_rows_per_second


def compute_switching_figures(runs: Sequence[SwitchingRun]) -> dict[str, float]:
    """Return how near our default comes to the best fixed strategy, at the two slower rates."""
    return {
        f"switching_over_best_fixed_{f'{rate:g}'.replace('.', '_')}": compare_with_best(runs, rate)
        for rate in CHANGES_A_MINUTE
        if rate <= 1
    }


def _run(
    lab: Lab, name: str, balancer: Balancer | None, routes: Routes, data: ChangingData, *, fixed: bool
) -> SwitchingRun:
    batches = lab.run(balancer, routes, data.weights_at, seconds=data.seconds)
    taken = [batch.strategy for batch in batches]
    return SwitchingRun(
        name=name,
        fixed=fixed,
        changes_a_minute=data.changes_a_minute,
        rows_per_second=rows_a_second(batches),
        settled_rows_per_second=rows_a_second(batches, FIRST_BATCHES),
        switches=sum(now != before for before, now in pairwise(taken)),
        moved_bytes=sum(batch.moved_bytes for batch in batches),
    )
