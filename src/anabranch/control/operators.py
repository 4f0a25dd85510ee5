"""A stateful operator under control while its flow runs: what was learnt of it, and what is to become of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.control.decide.balancer import Balancer
from anabranch.control.decisions import Proposal
from anabranch.control.facts import OperatorFacts
from anabranch.control.observe.loads import OperatorLoads
from anabranch.model.exchanges import ExchangeFigures
from anabranch.model.loads import StateSizes
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.scores import score_loads


@dataclass(slots=True)
class ControlledOperator:
    """One stateful operator while its flow runs."""

    facts: OperatorFacts
    balancer: Balancer
    overrides: list[Proposal] = field(default_factory=list)
    """What people want instead, in the order in which they said so; one is carried out a batch."""
    proposal: Proposal | None = None
    """What the balancer wants."""
    loads: OperatorLoads | None = None
    sizes: StateSizes | None = None
    """How much state keys have, as last measured."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """The hottest keys as people read them, by hash."""
    latest_us: int | None = None
    """The latest event time of its rows."""
    event_us_a_batch: float | None = None
    """How far event time went in the last batch that it went on in."""
    phases: PhasedRoutes | None = None
    exchange: ExchangeFigures | None = None
    """What its exchange did in the last batch."""
    coming: Routes | None = None
    """The routes of the next batch, while the one at whose end they change is running."""

    @property
    def imbalance(self) -> float | None:
        """The busiest slot's load over its share, as it was seen last."""
        if self.loads is None or not self.loads.slot_rows.any():
            return None
        powers = self.balancer.routing.powers_over(len(self.loads.slot_rows))
        return score_loads(self.loads.slot_rows, powers).max_over_mean

    def newest_override(self, routes: Routes) -> Routes:
        """Return the routes that the next command is about: those of the last one, or else the given ones."""
        return self.overrides[-1].routes if self.overrides else routes

    def follow_time(self, latest_us: int | None) -> None:
        """Notice how far event time has come."""
        if latest_us is None:
            return
        if self.latest_us is not None and latest_us > self.latest_us:
            self.event_us_a_batch = float(latest_us - self.latest_us)
        self.latest_us = latest_us
