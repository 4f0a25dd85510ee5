"""How even loads are, and how even every strategy would make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch.model import RouteError
from anabranch.routing.keys import KeySample
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import goes_by_history, make_strategy, strategy_names


@dataclass(frozen=True, slots=True)
class Score:
    """How even some loads are; each load is divided by its slot's power first, if powers are known."""

    balance: float
    """The least load by the largest, from 0 to 1."""
    extra_time: float
    """What the fullest slot needs beyond the mean, as a part of the mean: 0 is best."""
    max_over_mean: float
    """The largest load by the mean: 1 is best, the number of slots worst."""


@dataclass(frozen=True, slots=True, eq=False)
class StrategyScore:
    """What a strategy would do with a sample."""

    strategy: str
    score: Score
    loads: NDArray[np.float64]
    """By slot, not divided by power."""
    routes: Routes


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The scores of the strategies that could be tried, best first, and why the others could not."""

    ranked: tuple[StrategyScore, ...]
    refused: dict[str, str]

    def of(self, name: str) -> StrategyScore:
        """Return the score of one strategy."""
        for scored in self.ranked:
            if scored.strategy == name:
                return scored
        reason = self.refused.get(name, f"it was not tried; tried were: {', '.join(s.strategy for s in self.ranked)}")
        msg = f"the strategy {name!r} has no score: {reason}"
        raise RouteError(msg)


def score_loads(loads: ArrayLike, powers: ArrayLike | None = None) -> Score:
    """Return how even the loads of the slots are; no load at all is even.

    With powers, the mean is the load a unit of power: what every slot would have if all ended at the same time.
    """
    by_slot = np.asarray(loads, np.float64)
    power = np.ones(len(by_slot)) if powers is None else np.asarray(powers, np.float64)
    if len(power) != len(by_slot) or not len(by_slot) or (power <= 0).any():
        msg = f"{len(by_slot)} loads and powers {power.tolist()}; give one power above 0 for every slot"
        raise RouteError(msg)
    if not by_slot.any():
        return Score(1.0, 0.0, 1.0)
    times = by_slot / power
    mean = by_slot.sum() / power.sum()
    return Score(float(times.min() / times.max()), float((times.max() - mean) / mean), float(times.max() / mean))


def score_all(
    sample: KeySample,
    current: Routes,
    rng: np.random.Generator,
    decided_on: KeySample | None = None,
    names: Iterable[str] | None = None,
) -> Scores:
    """Return the score that each strategy would get on a sample if the flow switched to it now.

    A strategy that decides on the very sample it is scored on looks better than it is, most of all when the sample is
    small: give an earlier one as ``decided_on`` to score it on rows that it has not seen.
    """
    routes, refused = decide_all(sample if decided_on is None else decided_on, current, rng, names)
    scores = score_routes(sample, routes)
    return Scores(scores.ranked, refused | scores.refused)


def decide_all(
    sample: KeySample,
    current: Routes,
    rng: np.random.Generator,
    names: Iterable[str] | None = None,
    remembered: KeySample | None = None,
) -> tuple[dict[str, Routes], dict[str, str]]:
    """Return the routes that each strategy decides on, and why others cannot.

    ``remembered`` is the sample with earlier ones as its history, for strategies that go by it.
    """
    routes, refused = {}, {}
    # Each strategy draws from the same numbers, so what it decides doesn't depend on who was asked before.
    seed = int(rng.integers(2**63))
    for name in strategy_names() if names is None else names:
        try:
            strategy = make_strategy(name)
            seen = remembered if remembered is not None and goes_by_history(strategy) else sample
            routes[name] = strategy.decide(seen, current, np.random.default_rng(seed))
        except RouteError as error:
            refused[name] = str(error)
    return routes, refused


def score_routes(sample: KeySample, routes: Mapping[str, Routes]) -> Scores:
    """Return how even a sample would be under each strategy's routes."""
    ranked, refused = [], {}
    for name, decided in routes.items():
        try:
            loads = decided.loads(sample)
        except RouteError as error:
            refused[name] = str(error)
            continue
        ranked.append(StrategyScore(name, score_loads(loads, sample.powers), loads, decided))
    ranked.sort(key=lambda scored: scored.score.max_over_mean)
    return Scores(tuple(ranked), refused)
