"""Which strategy to go by: what every sample says of each of them is weighed against the cost of changing.

Rows that the busiest slot would not have had under another strategy are added up, sample by sample, as that strategy's
*lead*; a sample that speaks against it takes away from it. When the lead has paid for the change, the change is worth
it: as much has been lost by staying as it costs to go. So a small advantage must last, a large one need not, and chance
cancels itself out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

PLAN = "plan"
"""What the planner makes of keys that go by their hash: a strategy beside those that have a name."""

HYSTERESIS = 0.03
"""By how much the busiest slot must be fuller than under another strategy, as a part, before that counts at all."""
_FEWEST_SLOT_LOADS = 0.1
"""A change costs at least this part of a slot's batch: tables are sent anew, and caches are cold."""
_PROMISE_SLOT_LOADS = 8.0
"""So many batches' worth of a slot may be lost to plans that promise what they do not keep."""
_FADE = 0.8
"""What the past counts in a smoothed score, a sample further back."""
_CERTAINTY = 16.0
"""How surely a lead must not be chance: e to the minus this, a sample."""
_FIRST_NOISE = 0.03**2
_NOISE_WEIGHT = 0.02
"""What a sample counts in the variance of scores, once there are many."""
_LARGEST_STEP = 0.3
"""Steps of a score from sample to sample that are larger are no noise: the data changed."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one sample says of the routes as they are, and of every strategy."""

    slot_rows: float
    """Rows of the batch by the number of slots."""
    held: float
    """The busiest slot's load over the mean under the routes as they are."""
    scores: Mapping[str, float]
    """Strategy → the same for the routes that it decided on earlier rows."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a strategy has done so far."""

    score: float
    """On the last sample: the busiest slot's load over the mean."""
    smoothed: float
    lead_rows: float = 0.0
    """Rows of the busiest slot that it would have saved, beyond the hysteresis, since it last was no better."""
    noise: float = _FIRST_NOISE
    """How much its score and that of what it is compared with come apart by chance, from sample to sample: variance."""
    samples: int = 0
    _gap: float | None = None

    def after(self, score: float, rival: float, slot_rows: float) -> Standing:
        """Return the standing after one more sample, on which what is there had the score ``rival``."""
        gap = rival - score * (1 + HYSTERESIS)
        noise = self.noise
        if self._gap is not None:
            # Half of what two samples differ by, squared, is the variance of one.
            now = max(-_LARGEST_STEP, min(_LARGEST_STEP, gap - self._gap)) ** 2 / 2
            noise += max(_NOISE_WEIGHT, 1 / (self.samples + 1)) * (now - noise)
        lead_rows = max(0.0, self.lead_rows + gap * slot_rows)
        smoothed = _FADE * self.smoothed + (1 - _FADE) * score
        return Standing(score, smoothed, lead_rows, noise, self.samples + 1, gap)


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy that a flow goes by, and how all the others stand."""

    strategy: str = PLAN
    samples: int = 0
    slot_rows: float = 0.0
    held: float = 1.0
    """The smoothed score of the routes as they are."""
    standings: Mapping[str, Standing] = field(default_factory=dict)

    def after(self, seen: Round) -> Choice:
        """Return the choice with what one more sample says; a strategy that could not be tried has no standing."""
        own = seen.scores.get(self.strategy, seen.held)
        standings = {}
        for name, score in seen.scores.items():
            before = self.standings.get(name, Standing(score, score))
            # Another strategy must be better than this one at its best; this one decides anew to be better than it is.
            rival = seen.held if name == self.strategy else min(own, seen.held)
            standings[name] = before.after(score, rival, seen.slot_rows)
        held = seen.held if not self.samples else _FADE * self.held + (1 - _FADE) * seen.held
        return Choice(self.strategy, self.samples + 1, seen.slot_rows, held, standings)

    def choose(self, find_cost: Callable[[str], float], promised: float | None = None) -> str | None:
        """Return the strategy whose lead has paid most beyond its price, or None while none has paid.

        ``find_cost`` says how many rows it costs to carry the state over. ``promised`` is the score of a new plan,
        where keys go by plans: it is not passed over for a strategy that does no better, until too much was lost to
        plans that did not keep what they promised.
        """
        best, most = None, 0.0
        # Ties to the strategy that is there, then to a plan, then by name: equal samples must give equal choices.
        names = sorted(self.standings, key=lambda name: (name != self.strategy, name != PLAN, name))
        for name in names:
            standing = self.standings[name]
            if not standing.lead_rows or (promised is not None and name == self.strategy):
                continue
            beyond = standing.lead_rows - self.price(name, find_cost(name))
            no_better = promised is not None and standing.score * (1 + HYSTERESIS) > promised
            if (beyond > most or (best is None and beyond == 0)) and (
                not no_better or beyond >= _PROMISE_SLOT_LOADS * self.slot_rows
            ):
                best, most = name, beyond
        return best

    def price(self, name: str, cost_rows: float) -> float:
        """Return the lead in rows that a change to a strategy asks for, if carrying its state costs so many rows."""
        # A sum of steps that are h below 0 in the mean, with variance v, ever exceeds x with probability exp(-2hx/v).
        by_chance = _CERTAINTY * self.standings[name].noise / (2 * HYSTERESIS)
        return cost_rows + max(_FEWEST_SLOT_LOADS, by_chance) * self.slot_rows

    def changed(self, strategy: str) -> Choice:
        """Return the choice once the routes are others: a new strategy's, or this one's, which decided anew."""
        same = strategy == self.strategy
        # What differs by chance from the old routes differs as much from the new ones, the old ones included.
        least = 0.0 if same or strategy not in self.standings else self.standings[strategy].noise
        standings = {
            name: Standing(
                old.score,
                old.smoothed,
                old.lead_rows if same and name != strategy else 0.0,
                max(old.noise, least),
                old.samples,
            )
            for name, old in self.standings.items()
        }
        return replace(self, strategy=strategy, samples=0, standings=standings)
