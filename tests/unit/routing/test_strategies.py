"""Strategies by name, and one's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from anabranch import routing
from anabranch.model import BucketMap, RouteError
from anabranch.routing import BucketRoute, KeyBatch, KeySample, ModuloRoute, RingRoute, Routes
from anabranch.routing.bases import base_routes as bases
from anabranch.routing.strategies import by_name as strategies
from unit.routing.builders import batch_of, hashes_of, with_powers

NAMES = (
    "hash",
    "consistent-hash",
    "ranges",
    "modulo",
    "weight-hash",
    "pkg",
    "d-choices",
    "w-choices",
    "least-key",
    "least-count",
    "least-count-history",
    "weight-random",
)
FOR_JOINS = ("grid", "matrix", "bi", "bi6")


@pytest.fixture(autouse=True)
def forget_own_strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (strategies._strategies, bases._bases):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def sample() -> KeySample:
    return KeySample.gather(hashes_of(list(range(50))), values=pl.Series(range(50)))


def decide(name: str, current: Routes, of: KeySample | None = None, **options: Any) -> Routes:
    return routing.make_strategy(name, **options).decide(of or sample(), current, np.random.default_rng(0))


def test_all_strategies_have_names() -> None:
    assert sorted(routing.strategy_names()) == sorted(NAMES)
    assert sorted(routing.strategy_names(for_joins=True)) == sorted((*NAMES, *FOR_JOINS))


@pytest.mark.parametrize("name", (*NAMES, *FOR_JOINS))
def test_decision_keeps_the_slots_and_comes_back_through_json(name: str) -> None:
    decided = decide(name, Routes.even(6))
    assert decided.slots == 6
    assert Routes.from_json(json.loads(json.dumps(decided.to_json()))) == decided


@pytest.mark.parametrize("name", NAMES)
def test_only_strategies_that_say_so_split_keys(name: str) -> None:
    decided = decide(name, Routes.even(6))
    assert decided.split_keys(sample().keys).any() == routing.make_strategy(name).splits_keys


@pytest.mark.parametrize("name", NAMES)
def test_one_slot_gets_everything(name: str) -> None:
    assert decide(name, Routes.even(1)).storage_slots(sample().batch).tolist() == [0] * 50


@pytest.mark.parametrize("name", ["hash", "consistent-hash"])
def test_number_of_buckets_stays(name: str) -> None:
    decided = decide(name, Routes(BucketRoute(BucketMap(3, (0, 1, 2, 2)))))
    assert isinstance(decided.base, BucketRoute | RingRoute)
    assert decided.base.bucket_map.buckets == 4


def test_modulo_goes_by_the_hash_where_keys_are_not_integers() -> None:
    assert decide("modulo", Routes.even(6)).base == ModuloRoute(6, of_values=True)
    words = KeySample.gather([1, 2], values=pl.Series(["a", "b"]))
    assert decide("modulo", Routes.even(6), words).base == ModuloRoute(6, of_values=False)
    assert decide("modulo", Routes.even(6), KeySample.gather([1, 2])).base == ModuloRoute(6, of_values=False)


def test_unknown_strategy_is_refused_with_those_that_exist() -> None:
    with pytest.raises(RouteError, match=r"no strategy 'least-keys' \(did you mean 'least-key'\?\).*pkg.*w-choices"):
        routing.make_strategy("least-keys")


def test_unknown_option_is_refused() -> None:
    with pytest.raises(RouteError, match=r"'hash' has no option 'speed'; its options are none"):
        routing.make_strategy("hash", speed=3)


def test_wrong_number_of_weights_is_refused() -> None:
    with pytest.raises(RouteError, match="2 weights for 6 slots"):
        decide("weight-hash", Routes.even(6), weights=(50, 50))


def test_powers_of_other_slots_are_refused() -> None:
    for name in ("ranges", "weight-hash", "least-key", "least-count", "weight-random"):
        with pytest.raises(RouteError, match="powers of 2 slots, there are 6"):
            decide(name, Routes.even(6), with_powers(sample(), 1, 2))


def test_own_strategy_is_one_among_the_others() -> None:
    @routing.strategy("odd-and-even")
    @dataclass(frozen=True)
    class OddAndEven:
        splits_keys: ClassVar[bool] = False

        def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
            return Routes(ModuloRoute(2))

    assert decide("odd-and-even", Routes.even(2)).storage_slots(batch_of([3, 4])).tolist() == [1, 0]
    scores = routing.score_all(sample(), Routes.even(2), np.random.default_rng(0))
    assert scores.of("odd-and-even").score.balance == 1.0


def test_name_that_is_taken_is_refused() -> None:
    with pytest.raises(RouteError, match=r"'hash' is taken by anabranch\.routing\.strategies\.by_name\.Hash"):

        @routing.strategy("hash")
        class Another:
            pass


def test_own_base_route_can_be_stored_in_a_checkpoint() -> None:
    @routing.base_route("all-to-one")
    @dataclass(frozen=True)
    class AllToOne:
        slots: int
        slot: int
        needs_values: ClassVar[bool] = False

        def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
            return np.full(len(keys), self.slot, np.int32)

        def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> None:
            return None

        def resized(self, slots: int) -> Self:
            return type(self)(slots, min(self.slot, slots - 1))

        def to_json(self) -> dict[str, Any]:
            return {"slots": self.slots, "slot": self.slot}

        @classmethod
        def from_json(cls, data: Mapping[str, Any]) -> Self:
            return cls(data["slots"], data["slot"])

    own = Routes(AllToOne(4, 2))
    assert isinstance(own.base, routing.BaseRoute)
    again = Routes.from_json(json.loads(json.dumps(own.to_json())))
    assert again == own
    assert again.storage_slots(batch_of([1, 2])).tolist() == [2, 2]


def test_base_route_without_a_name_cannot_be_stored() -> None:
    class Nameless(ModuloRoute):
        pass

    with pytest.raises(RouteError, match="is not registered as a base route"):
        Routes(Nameless(3)).to_json()
