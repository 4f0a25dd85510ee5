"""How keys are spread over slots, and when that is looked at again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from anabranch.model.exchanges import ExchangeSpec
from anabranch.model.loads import LoadError

ProtocolChoice = Literal["auto", "state", "window"]
PROTOCOLS: tuple[str, ...] = get_args(ProtocolChoice)
SampleRate = float | Literal["auto"]
SAMPLED_SHARE, SAMPLED_ROWS_AT_LEAST = 0.1, 20_000
"""What is looked at of a slot's rows where no rate is given: so many of few tell a key with a hundredth of them within
a few percent."""
OversizedChoice = Literal["fill", "alone"]
OVERSIZED: tuple[str, ...] = get_args(OversizedChoice)

CONDITIONS = ("every_seconds", "every_rows", "imbalance_above", "balance_below")
"""The fields of a ``BalanceTrigger`` that say when."""

AUTO: Final = "auto"
"""The routing that chooses for itself: keys are moved and split by a planner, or another strategy is taken."""


@dataclass(frozen=True, slots=True)
class BalanceTrigger:
    """When to plan: by time, by rows, or by how uneven slots are; what is not given plays no part.

    Of several conditions, any is enough. With none, slots are planned for when one is beyond the tolerance of their
    ``Balance``. Cool-down and smallest improvement keep from thrashing.

    Examples:
        >>> ab.BalanceTrigger(every_seconds=20, imbalance_above=1.2).conditions
        {'every_seconds': 20, 'imbalance_above': 1.2}
        >>> _ = readings.key_by("sensor", balance=ab.Balance(trigger=ab.BalanceTrigger(every_rows=1_000_000)))
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
    """What an operator does about skew.

    Examples:
        >>> careful = ab.Balance(tolerance=0.2, planner="balance-load", sample_rate=0.01)
        >>> _ = readings.key_by("sensor", balance=careful)
    """

    tolerance: float = 0.05
    """How far above its fair share a slot may be."""
    planner: str = "mnrt"
    trigger: BalanceTrigger | None = None
    """When to look for a better spread; where it names no condition, when a slot is beyond the tolerance."""
    protocol: ProtocolChoice = "auto"
    """How state follows its keys: *state* hands it over in one batch, *window* lets open windows end where they are."""
    sample_rate: SampleRate = AUTO
    """The part of a slot's rows that is looked at for hot keys; *auto* is a tenth, and more where rows are few."""
    fewest_rows_a_slot: int = 2_000
    """Batches with fewer rows a slot say nothing about skew: chance alone makes such loads uneven."""
    oversized: OversizedChoice = "fill"
    """Where a key goes that is too hot for any slot: it *fills* the gaps of all, or has as few as will do *alone*."""

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance <= 10:
            msg = f"tolerance is {self.tolerance}; it is the share by which a slot may exceed its own, such as 0.05"
            raise LoadError(msg)
        if self.protocol not in PROTOCOLS:
            msg = f"protocol is {self.protocol!r}; there are {', '.join(PROTOCOLS)}"
            raise LoadError(msg)
        if self.oversized not in OVERSIZED:
            msg = f"oversized is {self.oversized!r}; there are {', '.join(OVERSIZED)}"
            raise LoadError(msg)
        if self.sample_rate != AUTO and not (isinstance(self.sample_rate, int | float) and 0 < self.sample_rate <= 1):
            msg = f"sample_rate is {self.sample_rate}; give a part above 0 and at most 1, or {AUTO!r}"
            raise LoadError(msg)
        if self.fewest_rows_a_slot < 1:
            msg = f"fewest_rows_a_slot is {self.fewest_rows_a_slot}; give at least 1"
            raise LoadError(msg)

    @property
    def planning(self) -> BalanceTrigger:
        """The trigger that counts."""
        trigger = self.trigger if self.trigger is not None else BalanceTrigger()
        return trigger if trigger.conditions else replace(trigger, imbalance_above=1 + self.tolerance)


@dataclass(frozen=True, slots=True, init=False)
class NamedStrategy:
    """A strategy with its options, and how strong each slot is beside the others.

    ``NamedStrategy("weight-hash", weights=[50, 30, 20])`` gives slots as many keys as their weights say;
    ``NamedStrategy("auto", powers=[2, 1, 1])`` plans for a first slot that bears twice what each of the others does.

    Examples:
        >>> strategy = ab.NamedStrategy("weight-hash", weights=[60, 30, 10])
        >>> str(strategy)
        'weight-hash weights=60,30,10'
        >>> _ = readings.key_by("sensor", routing=strategy)
    """

    name: str
    powers: tuple[float, ...] | None
    options: Mapping[str, Any]

    def __init__(self, name: str = AUTO, /, *, powers: Sequence[float] | None = None, **options: Any) -> None:
        frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "powers", None if powers is None else _check_powers(powers))
        object.__setattr__(self, "options", frozen)

    def __str__(self) -> str:
        given = self.options if self.powers is None else {**self.options, "powers": self.powers}
        words = [f"{name}={_as_words(value)}" for name, value in given.items()]
        return " ".join((self.name, *words))


def _check_powers(powers: Any) -> tuple[float, ...]:
    numbers = tuple(powers) if isinstance(powers, list | tuple) else ()
    if not numbers or any(isinstance(power, bool) or not isinstance(power, int | float) for power in numbers):
        msg = f"powers are {powers!r}; give a list with one number a slot, such as [2, 1, 1]"
        raise LoadError(msg)
    if not all(0 < power < math.inf for power in numbers):
        msg = f"powers are {list(numbers)}; each must be above 0: a slot without power is better left out"
        raise LoadError(msg)
    return tuple(float(power) for power in numbers)


def _as_words(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Routing:
    """What a stateful operator was told about where its keys go."""

    strategy: str = AUTO
    balance: Balance | None = field(default_factory=Balance)
    """None: keys stay where the strategy puts them at first."""
    exchange: ExchangeSpec = field(default_factory=ExchangeSpec)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the strategy."""
    powers: tuple[float, ...] | None = None
    """By slot, as the flow was told; None when all slots are alike, or as strong as the strategy's weights say."""

    @property
    def named(self) -> NamedStrategy:
        """The strategy as people write it."""
        return NamedStrategy(self.strategy, powers=self.powers, **self.options)

    def going_by(self, named: NamedStrategy) -> Routing:
        """Return the routing with another strategy; slots keep their powers where it says nothing of them."""
        powers = self.powers if named.powers is None else named.powers
        return replace(self, strategy=named.name, options=named.options, powers=powers)

    @property
    def told_powers(self) -> tuple[float, ...] | None:
        """The power of each slot that the flow was told of; weights stand for powers."""
        return self.powers if self.powers is not None else self.options.get("weights")

    def powers_over(self, slots: int) -> tuple[float, ...] | None:
        """Return the power of each of so many slots; None when all are alike.

        A slot beyond those that were told of is as strong as they are in the mean.
        """
        told = self.told_powers
        if told is None:
            return None
        return (*told[:slots], *[sum(told) / len(told)] * (slots - len(told)))

    def check_slots(self, slots: int) -> None:
        """Raise ``LoadError`` unless weights and powers, where they are given, are one a slot."""
        for name, told in (("weights", self.options.get("weights")), ("powers", self.powers)):
            if told is not None and len(told) != slots:
                msg = f"there are {len(told)} {name} ({_as_words(tuple(told))}) for {slots} slots; give one a slot"
                raise LoadError(msg)
