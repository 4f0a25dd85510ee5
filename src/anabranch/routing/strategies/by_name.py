"""Strategies by name: from a sample of keys to the routes of the next batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any, ClassVar, Protocol

import numpy as np

from anabranch.errors import name_alternatives
from anabranch.model import RouteError
from anabranch.model.balance import AUTO, NamedStrategy, Routing
from anabranch.model.routes import DEFAULT_BUCKETS
from anabranch.routing.bases.base_routes import (
    BaseRoute,
    BucketRoute,
    ModuloRoute,
    RingRoute,
    WeightRoute,
    check_weights,
    has_modulo,
    weights_of,
)
from anabranch.routing.bases.ranges import RangeRoute
from anabranch.routing.bases.ring import DEFAULT_POINTS_A_SLOT
from anabranch.routing.keys import KeySample
from anabranch.routing.registry import Registry
from anabranch.routing.routes import Routes


class Strategy(Protocol):
    """A way to spread keys over slots, decided by the driver at a batch boundary.

    Keys that the sample did not see go by the base route until a later sample sees them.
    """

    @property
    def splits_keys(self) -> bool:
        """Whether one key may end up in several slots, so that its partial results must be merged."""

    # Besides: ``looks_at_keys``, False where types of keys and powers of slots are all that it decides by;
    # ``places_rows``, True where rows have places and keys have none, which is for joins only.

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        """Return the routes of the next batch; equal arguments, and an equal generator, give equal routes."""


_strategies: Registry[Callable[..., Strategy]] = Registry("strategy")


def strategy(name: str) -> Callable[[Callable[..., Strategy]], Callable[..., Strategy]]:
    """Enter the class or factory that is decorated as a strategy, for ``key_by(…, routing=name)``.

    It must be importable where the flow is written. The same name again is refused unless it comes from the same
    place, as when a notebook cell runs twice.

    Examples:
        >>> from anabranch import routing
        >>> @routing.strategy("as-it-was")
        ... class AsItWas:
        ...     splits_keys = False
        ...
        ...     def decide(self, sample, current, rng):
        ...         return current
        >>> collect(readings.key_by("sensor", routing="as-it-was").agg(rows=ab.count()))
        [(1, 3), (2, 1)]
    """
    return _strategies.register(name)


def make_strategy(name: str, /, **options: Any) -> Strategy:
    """Return the strategy of a name; an unknown name or option is refused with those that exist."""
    factory = _strategies.find(name)
    parameters = signature(factory).parameters
    if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        for option in options:
            if option not in parameters:
                known = name_alternatives(option, parameters, "its options are")
                msg = f"the strategy {name!r} has no option {option!r}; {known}"
                raise RouteError(msg)
    frozen = {option: tuple(value) if isinstance(value, list) else value for option, value in options.items()}
    try:
        return factory(**frozen)
    except TypeError as error:
        msg = f"the strategy {name!r} can't be made with options {options}: {error}"
        raise RouteError(msg) from error


def check_named(named: NamedStrategy) -> None:
    """Raise ``RouteError`` unless there is such a strategy, and its options and powers fit one another."""
    if named.name == AUTO:
        if named.options:
            msg = f"{AUTO} takes powers and no other option, found {', '.join(named.options)}"
            raise RouteError(msg)
        return
    make_strategy(named.name, **named.options)
    weights = named.options.get("weights")
    if weights is not None and not all(weight > 0 for weight in weights):
        msg = f"weights are {list(weights)}; a slot of weight 0 would only be idle: run the flow with fewer slots"
        raise RouteError(msg)
    if weights is not None and named.powers is not None and len(weights) != len(named.powers):
        msg = f"there are {len(weights)} weights and {len(named.powers)} powers; give one of each a slot"
        raise RouteError(msg)


def is_sticky(strategy: Strategy) -> bool:
    """Say whether a strategy decides once for each key, when it comes."""
    return bool(getattr(strategy, "sticky", False))


def looks_at_keys(strategy: Strategy) -> bool:
    """Say whether a strategy must have seen keys before it can decide where they go."""
    return bool(getattr(strategy, "looks_at_keys", True))


def places_rows(strategy: Strategy | Callable[..., Strategy]) -> bool:
    """Say whether a strategy places rows, not keys, which joins alone can do with."""
    return bool(getattr(strategy, "places_rows", False))


def goes_by_keys(strategy: Strategy) -> bool:
    """Say whether it matters to a strategy which rows have equal keys."""
    return not places_rows(strategy) or getattr(strategy, "groups", 1) > 1


def decide_named(routing: Routing, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
    """Return the routes that a flow's named strategy decides, for slots as strong as the flow says."""
    seen = sample.with_powers(routing.powers_over(current.slots))
    chosen = strategy_over(routing, current.slots).decide(seen, current, rng)
    return replace(chosen, by=str(routing.named))


def strategy_over(routing: Routing, slots: int) -> Strategy:
    """Return the strategy that a flow was told, for as many slots as there are now."""
    options = dict(routing.options)
    weights = options.get("weights")
    if weights is not None and len(weights) != slots:
        # Slots were added or removed since: a new one has the mean weight, as it has in the route.
        options["weights"] = WeightRoute(weights).resized(slots).weights
    return make_strategy(routing.strategy, **options)


def goes_by_history(chosen: Strategy) -> bool:
    """Return whether a strategy decides from earlier samples, too; one that leaves decided keys alone must get none."""
    return bool(getattr(chosen, "with_history", False))


def strategy_names(*, for_joins: bool = False) -> tuple[str, ...]:
    """Return the names of all strategies, the user's own included; those for joins only if they are asked for."""
    return tuple(name for name in _strategies.names() if for_joins or not places_rows(_strategies.find(name)))


@strategy("hash")
@dataclass(frozen=True, slots=True)
class Hash:
    """Buckets of hashes dealt to the slots in turn: what needs no knowledge, and helps against no skew."""

    splits_keys: ClassVar[bool] = False
    looks_at_keys: ClassVar[bool] = False

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return Routes(BucketRoute.even(current.slots, count_buckets(current.base)))


@strategy("consistent-hash")
@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Buckets on a ring: less even than hash, but a slot more or less moves only its own share of the keys."""

    points_a_slot: int = DEFAULT_POINTS_A_SLOT
    splits_keys: ClassVar[bool] = False
    looks_at_keys: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_option("points_a_slot", self.points_a_slot, int)

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return Routes(RingRoute.over(current.slots, count_buckets(current.base), self.points_a_slot))


@strategy("ranges")
@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of key values cut at the sample's quantiles: evens out rows as far as no single key is too hot."""

    splits_keys: ClassVar[bool] = False

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return Routes(RangeRoute.from_sample(sample, current.slots))


@strategy("modulo")
@dataclass(frozen=True, slots=True)
class Modulo:
    """Key modulo slots: for integer keys that are evenly spread and equally hot; others go by their hash."""

    splits_keys: ClassVar[bool] = False
    looks_at_keys: ClassVar[bool] = False

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        of_values = sample.values is not None and has_modulo(sample.values.dtype)
        return Routes(ModuloRoute(current.slots, of_values))


@strategy("weight-hash")
@dataclass(frozen=True, slots=True)
class WeightHash:
    """Keys by hash, as many a slot as its weight says; without weights given, those of the sample's powers."""

    weights: tuple[float, ...] | None = None
    splits_keys: ClassVar[bool] = False
    looks_at_keys: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.weights is not None:
            check_weights(self.weights)

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return Routes(WeightRoute(choose_weights(self.weights, sample, current.slots)))


def check_option(name: str, value: object, kind: type[bool] | type[int] | type[float]) -> None:
    """Refuse what a strategy's option cannot be: a flag is true or false, and numbers are above 0."""
    if kind is bool:
        fits = isinstance(value, bool)
    else:
        wanted = int if kind is int else (int, float)
        fits = isinstance(value, wanted) and not isinstance(value, bool) and value > 0
    if not fits:
        words = {bool: "true or false", int: "a whole number above 0", float: "a number above 0"}[kind]
        msg = f"the option {name} is {value!r}; give {words}"
        raise RouteError(msg)


def choose_weights(given: tuple[float, ...] | None, sample: KeySample, slots: int) -> tuple[float, ...]:
    """Return the given weights, or else those of the sample's powers, or else equal ones; one a slot."""
    if given is None:
        return weights_of(sample.slot_powers(slots).tolist())
    if len(given) != slots:
        msg = f"{len(given)} weights for {slots} slots; give one a slot, in the order of the slots"
        raise RouteError(msg)
    return tuple(given)


def count_buckets(base: BaseRoute) -> int:
    """Return the number of buckets to go on with: it is fixed for a flow's life."""
    if isinstance(base, BucketRoute | RingRoute):
        return base.bucket_map.buckets
    return max(DEFAULT_BUCKETS, base.slots)
