"""How keys are spread over slots, and when that is looked at again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from anabranch.model.exchanges import ExchangeSpec
from anabranch.model.loads import LoadError

ProtocolChoice = Literal["auto", "state", "window"]
PROTOCOLS: tuple[str, ...] = get_args(ProtocolChoice)

CONDITIONS = ("every_seconds", "every_rows", "imbalance_above", "balance_below")
"""The fields of a ``Trigger`` that say when."""

AUTO = "auto"
"""The routing that chooses for itself: keys are moved and split by a planner, or another strategy is taken."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """When to plan: by time, by rows, or by how uneven slots are; what is not given plays no part.

    Of several conditions, any is enough. With none, slots are planned for when one is beyond the tolerance of their
    ``Balance``. Cool-down and smallest improvement keep from thrashing.
    """

    every_seconds: float | None = None
    every_rows: int | None = None
    imbalance_above: float | None = None
    """Plan when the busiest slot's load over its fair share is above this."""
    balance_below: float | None = None
    """Plan when the idlest slot's load over the busiest's is below this, each over its fair share."""
    smallest_improvement: float = 0.01
    """A plan must lower the imbalance by this much."""
    cool_down_seconds: float = 0.0
    cool_down_batches: int = 1
    """Batches to let pass after a plan, carried out or refused, before the next; loads must be seen first."""

    def __post_init__(self) -> None:
        for name in ("every_seconds", "every_rows"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                msg = f"{name} is {value}; give a number above 0, or None for no such trigger"
                raise LoadError(msg)
        if self.imbalance_above is not None and not self.imbalance_above >= 1:
            msg = f"imbalance_above is {self.imbalance_above}; it is 1 when all slots are even, so give 1 or more"
            raise LoadError(msg)
        if self.balance_below is not None and not 0 < self.balance_below <= 1:
            msg = f"balance_below is {self.balance_below}; it is 1 when all slots are even, so give at most 1"
            raise LoadError(msg)
        for name in ("smallest_improvement", "cool_down_seconds", "cool_down_batches"):
            if not getattr(self, name) >= 0:
                msg = f"{name} is {getattr(self, name)}; give 0 for none"
                raise LoadError(msg)

    @property
    def conditions(self) -> dict[str, float]:
        """The conditions that are given, by name."""
        found = {name: getattr(self, name) for name in CONDITIONS}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Balance:
    """What an operator does about skew."""

    tolerance: float = 0.05
    """How far above its fair share a slot may be."""
    planner: str = "mnrt"
    trigger: Trigger | None = None
    """When to look for a better spread; where it names no condition, when a slot is beyond the tolerance."""
    protocol: ProtocolChoice = "auto"
    """How state follows its keys: *state* hands it over in one batch, *window* lets open windows end where they are."""
    sample_rate: float = 0.1
    """The part of a slot's rows that is looked at for hot keys; some 20,000 at least, if there are as many."""
    fewest_rows_a_slot: int = 2_000
    """Batches with fewer rows a slot say nothing about skew: chance alone makes such loads uneven."""

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance <= 10:
            msg = f"tolerance is {self.tolerance}; it is the share by which a slot may exceed its own, such as 0.05"
            raise LoadError(msg)
        if self.protocol not in PROTOCOLS:
            msg = f"protocol is {self.protocol!r}; there are {', '.join(PROTOCOLS)}"
            raise LoadError(msg)
        if not 0 < self.sample_rate <= 1:
            msg = f"sample_rate is {self.sample_rate}; give a part above 0 and at most 1"
            raise LoadError(msg)
        if self.fewest_rows_a_slot < 1:
            msg = f"fewest_rows_a_slot is {self.fewest_rows_a_slot}; give at least 1"
            raise LoadError(msg)

    @property
    def planning(self) -> Trigger:
        """The trigger that counts."""
        trigger = self.trigger if self.trigger is not None else Trigger()
        return trigger if trigger.conditions else replace(trigger, imbalance_above=1 + self.tolerance)


@dataclass(frozen=True, slots=True)
class Routing:
    """What a stateful operator was told about where its keys go."""

    strategy: str = AUTO
    balance: Balance | None = field(default_factory=Balance)
    """None: keys stay where the strategy puts them at first."""
    exchange: ExchangeSpec = field(default_factory=ExchangeSpec)
