"""Strategies are chosen, kept while the data stays, and left when it does not."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from anabranch.control.decide.balancer import Balancer
from anabranch.model.balance import Balance, Routing
from anabranch.routing import ModuloRoute, RangeRoute, Routes, make_strategy
from benchmarks.skew.switching.lab import Lab
from benchmarks.skew.switching.table import make_lab
from unit.control.steady_flows import SteadyFlow, count_switches
from unit.control.test_balancer import EVEN, HOT, balancer, measure


@pytest.mark.parametrize("splittable", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("seed", range(3))
def test_on_a_steady_stream_the_strategy_changes_once_at_most(seed: int, splittable: bool) -> None:
    """Ten thousand batches, and more flows, are in the soak tests."""
    batches = SteadyFlow.draw(seed, splittable=splittable).run(100)
    assert count_switches(batches) <= 1


@pytest.mark.thorough
def test_random_flows_with_keys_that_cannot_be_split_never_go_back_and_forth() -> None:
    """Of sixty such flows, two went from ranges to hash and back for ever."""
    for seed in range(60):
        taken = [batch.strategy for batch in SteadyFlow.draw(seed, splittable=False).run(12, Balance())]
        changes = [now for before, now in pairwise(taken) if before != now]
        assert len(changes) == len(set(changes)), (seed, changes)


def test_ranges_once_chosen_stay_though_slots_are_uneven() -> None:
    """A key with half of the rows is too hot for one of three slots; the next trigger used to go back to hashes."""
    weights = np.concatenate((np.full(40, 1 / 40), np.full(360, 1 / 360), np.full(4_600, 1 / 4_600)))
    weights[0] = 3.0
    lab = Lab(pl.Series(np.arange(5_000)), 3, 2, 300_000, bytes_a_key=0.0)
    balanced = Balancer(Routing(balance=Balance()))
    batches = lab.run(balanced, Routes(RangeRoute("integer", (40, 400))), lambda _: weights, batches=40)
    assert min(batch.max_over_mean for batch in batches) > 1.05
    assert {batch.strategy for batch in batches[1:]} == {"ranges"}


def test_after_the_data_has_changed_another_strategy_is_taken() -> None:
    """Even ids suit modulo; when only every fourth of them comes, nothing is worse."""
    lab = Lab(pl.Series(np.arange(400)), 4, 3, 200_000, bytes_a_key=100.0)
    even, fourths = np.ones(400), np.where(np.arange(400) % 4 == 1, 1.0, 0.001)
    balanced = Balancer(Routing(balance=Balance()))
    changed = lab.run(balanced, Routes(ModuloRoute(4)), lambda now: even if now < 10 else fourths, seconds=40)
    before = [batch for batch in changed if batch.ended_seconds < 10]
    assert {batch.strategy for batch in before[1:]} == {"modulo"}
    assert changed[-1].strategy != "modulo"
    assert changed[-1].max_over_mean < 1.1 < max(batch.max_over_mean for batch in changed)


def test_even_flows_are_scored_on_every_sample_that_comes() -> None:
    balanced = balancer(Balance(tolerance=0.5, fewest_rows_a_slot=100))
    assert balanced.consider(measure(EVEN, {}), EVEN) is None
    assert "nothing is due" in balanced.last_reason
    assert balanced.scores is not None
    assert {"plan", "hash", "pkg", "least-count"} <= {scored.strategy for scored in balanced.scores.ranked}
    first = balanced.scores
    balanced.consider(measure(EVEN, HOT, batch=2), EVEN)
    assert balanced.scores is not first


def test_strategies_are_scored_on_rows_that_they_have_not_seen() -> None:
    """Placed for one batch, keys of the next are where chance has them."""
    balanced = balancer()
    balanced.consider(measure(EVEN, {1: 30_000.0}, splittable=False), EVEN)
    seen = balanced.scores
    balanced.consider(measure(EVEN, {2: 30_000.0, 5: 30_000.0}, batch=2, splittable=False), EVEN)
    assert seen is not None and balanced.scores is not None
    assert seen.of("least-count").score.max_over_mean < balanced.scores.of("least-count").score.max_over_mean


def test_keys_that_may_not_be_spread_leave_row_splitters_out_of_the_choice() -> None:
    for loads in (measure(EVEN, HOT, splittable=False), replace(measure(EVEN, HOT), spreadable=False)):
        balanced = balancer()
        balanced.consider(loads, EVEN)
        assert balanced.scores is not None
        assert {"pkg", "w-choices"} <= {scored.strategy for scored in balanced.scores.ranked}
        assert not {"pkg", "d-choices", "w-choices"} & set(balanced.choice.standings)


def test_a_change_that_moves_much_state_waits_until_it_is_paid_for() -> None:
    waits = []
    for state_bytes in (0.0, 5e7):
        modulo = Routes(ModuloRoute(4, False))
        balanced = balancer()
        looks = (
            balanced.consider(measure(modulo, {1: 9_000.0, 2: 9_000.0, 3: 9_000.0}, batch, False, state_bytes), modulo)
            for batch in range(1, 200)
        )
        waits.append(next(number for number, found in enumerate(looks) if found is not None))
    assert waits[0] < 5 < waits[1]


@pytest.mark.parametrize("strategy", ["pkg", "w-choices"])
def test_slots_that_share_all_keys_are_even_and_give_them_up_where_whole_keys_do_as_well(strategy: str) -> None:
    lab = make_lab(7, splittable=True)
    even = np.ones(len(lab.values))
    routes = make_strategy(strategy).decide(lab.look(0, even), Routes.even(lab.slots), np.random.default_rng(7))
    batches = lab.run(Balancer(Routing(balance=Balance())), routes, lambda _: even, batches=80)
    assert batches[-1].strategy not in ("pkg", "d-choices", "w-choices")
    assert batches[-1].seconds < 0.9 * batches[0].seconds


def test_a_strategy_that_is_named_shares_keys_for_as_long_as_it_is_named() -> None:
    lab = make_lab(7, splittable=True)
    even = np.ones(len(lab.values))
    routes = make_strategy("pkg").decide(lab.look(0, even), Routes.even(lab.slots), np.random.default_rng(7))
    batches = lab.run(Balancer(Routing("pkg", Balance())), replace(routes, by="pkg"), lambda _: even, batches=40)
    assert {batch.moved_bytes for batch in batches} == {0.0}
    assert {round(batch.seconds, 2) for batch in batches} == {0.5}
