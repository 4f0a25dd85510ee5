"""Ways to spread keys over slots, as the benches give them to operators."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from anabranch.model.balance import AUTO, Balance, BalanceTrigger, SampleRate


@dataclass(frozen=True, slots=True)
class Competitor:
    """One operator: how its keys are spread."""

    name: str
    routing: str = AUTO
    planner: str | None = None
    """None: keys stay where the strategy puts them at first."""
    every_rows: int | None = None
    """Decide anew when so many rows have passed, and for no other reason; None: when slots are uneven."""
    sample_rate: SampleRate = "auto"

    @property
    def balance(self) -> Balance | None:
        """What the operator is told."""
        if self.planner is None:
            return None
        trigger = None
        if self.every_rows is not None:
            trigger = BalanceTrigger(every_rows=self.every_rows, imbalance_above=None, smallest_improvement=0.0)
        return Balance(planner=self.planner, trigger=trigger, sample_rate=self.sample_rate)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data: the keywords of an equal competitor."""
        return asdict(self)


HASH = Competitor("hash", "hash")
"""What every other system does: keys go by their hash, whatever comes."""
BALANCED = Competitor("auto", planner="mnrt")
"""What a flow does by default."""
UNBALANCED = Competitor("off")
"""The same without balance."""

_DECIDING_ANEW = (
    "consistent-hash",
    "modulo",
    "least-key",
    "least-count",
    "least-count-history",
    "weight-random",
    "pkg",
    "d-choices",
    "w-choices",
)
STRATEGIES = (
    HASH,
    # Under a strategy, the planner's name says only that there is to be balance.
    *(Competitor(name, name, "mnrt") for name in _DECIDING_ANEW),
    *(Competitor(f"auto-{planner}", planner=planner) for planner in ("balance-load", "readj", "qmmp")),
    BALANCED,
)
MAIN_STRATEGIES = tuple(
    competitor
    for competitor in STRATEGIES
    if competitor.name in ("hash", "least-count-history", "pkg", "w-choices", "auto-readj", "auto-qmmp", "auto")
)
"""One of each kind: all of them under every skew would take minutes more, and the others come out alike."""


def list_papers_strategies(every_rows: int) -> tuple[Competitor, ...]:
    """Return the load distribution paper's strategies, which decide once so many rows have told them of the past.

    They decide from all rows, not a part of them: how even they can be is asked here.
    """
    deciding = ("modulo", "least-key", "least-count", "least-count-history")
    return (HASH, *(Competitor(name, name, "mnrt", every_rows=every_rows, sample_rate=1.0) for name in deciding))
