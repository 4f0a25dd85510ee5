"""Routes on trial: what every strategy decided on earlier rows, scored on those that came since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from anabranch.control.decide.choosing import PLAN
from anabranch.routing.bases.base_routes import BucketRoute, ModuloRoute, RingRoute, WeightRoute
from anabranch.routing.bases.drawn import BipartiteRoute, GridRoute
from anabranch.routing.bases.ranges import RangeRoute
from anabranch.routing.keys import KeySample
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.scores import Scores, decide_all, score_routes
from anabranch.routing.strategies.splitters import ChoiceSplitter

FADE = 0.9
"""What the past counts beside the present, a sample further back: some ten samples even chance out and follow skew."""
_MOST_KEYS = 8_000
"""Larger samples are thinned out: with 32,000 keys, all strategies together would take 0.1 s."""


@dataclass(slots=True)
class Trials:
    """Every strategy's routes, until the next sample shows how good they are."""

    _decided: dict[str, Routes] = field(default_factory=dict)
    _remembered: KeySample | None = None

    def latest(self, name: str) -> Routes:
        """Return the routes that a strategy decided on with all that was seen, the last sample included."""
        return self._decided[name]

    def judge(self, sample: KeySample, current: Routes, seed: int, plan: Callable[[], Routes]) -> Scores:
        """Return how every strategy's last decision does on a sample that it has not seen; then let all decide anew.

        The first decision of a strategy is scored on the sample that it is made on: there is no other.
        """
        few = sample.thinned(_MOST_KEYS)
        if self._remembered is not None:
            self._remembered = few.remembering(self._remembered, FADE).hottest(_MOST_KEYS)
        else:
            self._remembered = few
        fresh, refused = decide_all(few, current, np.random.default_rng(seed), remembered=self._remembered)
        fresh = {PLAN: plan()} | fresh
        earlier = {name: routes for name, routes in self._decided.items() if routes.slots == current.slots}
        scores = score_routes(few, fresh | {name: earlier[name] for name in earlier if name in fresh})
        self._decided = fresh
        return Scores(scores.ranked, refused | scores.refused)


def name_strategy(routes: Routes) -> str:
    """Return the strategy that routes look like; keys that go by buckets are a planner's."""
    if isinstance(routes.splitter, ChoiceSplitter):
        if not routes.splitter.head:
            return "pkg"
        return "w-choices" if routes.splitter.head_choices == routes.slots else "d-choices"
    if isinstance(routes.base, BucketRoute):
        return PLAN
    if isinstance(routes.base, GridRoute):
        return "matrix" if routes.base.doubles else "grid"
    by_base = {
        BipartiteRoute: "bi",
        ModuloRoute: "modulo",
        RangeRoute: "ranges",
        RingRoute: "consistent-hash",
        WeightRoute: "weight-hash",
    }
    return by_base.get(type(routes.base), "its own")
