"""Readj: whole keys, swapped or moved."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.balancing import Goal, plan_readj
from anabranch.model.loads import KeyLoads
from anabranch.model.routes import RoutingTable
from unit.balancing.cases import make_loads

NO_TABLE = RoutingTable.empty()


def test_a_key_is_moved_where_that_evens_two_slots_out() -> None:
    plan = plan_readj(make_loads({1: (10.0, 0), 2: (30.0, 0), 3: (20.0, 1)}), NO_TABLE, Goal(2, tolerance=0.0))
    assert plan.loads_after.tolist() == [30, 30]
    assert plan.table == RoutingTable.of({1: {1: 1.0}})


def test_two_keys_are_swapped_where_no_single_move_helps() -> None:
    plan = plan_readj(
        make_loads({1: (30.0, 0), 2: (30.0, 0), 3: (20.0, 1), 4: (20.0, 1)}), NO_TABLE, Goal(2, tolerance=0.0)
    )
    assert plan.loads_after.tolist() == [50, 50]
    assert sorted(zip(plan.moves.sources.tolist(), plan.moves.targets.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_small_keys_return_home() -> None:
    loads = make_loads({1: (100.0, 0), 2: (100.0, 1), 3: (0.1, 0)})
    plan = plan_readj(loads, RoutingTable.of({3: {1: 1.0}}), Goal(2))
    assert not len(plan.table)
    assert "small ones at home" in plan.moves[0].reason


def test_small_keys_stay_away_where_they_keep_the_balance() -> None:
    small = {key: (0.4, 0) for key in range(10, 60)}
    loads = make_loads({1: (100.0, 0), 2: (80.0, 1)} | small)
    table = RoutingTable.of({key: {1: 1.0} for key in small})
    plan = plan_readj(loads, table, Goal(2))
    assert plan.imbalance_after <= plan.imbalance_before


def test_split_keys_are_gathered_where_most_of_them_is() -> None:
    loads = make_loads({1: (10.0, 0), 2: (5.0, 0), 3: (9.0, 1)})
    table = RoutingTable.of({1: {0: 0.3, 1: 0.7}})
    assert plan_readj(loads, table, Goal(2, tolerance=0.6)).table == RoutingTable.of({1: {1: 1.0}})


def test_a_key_above_the_limit_cannot_be_helped_and_the_plan_says_so() -> None:
    plan = plan_readj(make_loads({1: (100.0, 0), 2: (10.0, 0), 3: (5.0, 1)}), NO_TABLE, Goal(2))
    assert plan.loads_after.tolist() == [100, 15]
    assert "take mnrt or qmmp" in plan.shortfall


def test_the_search_ends_after_its_steps() -> None:
    rng = np.random.default_rng(2)
    loads = KeyLoads.of(np.arange(2000), rng.random(2000), rng.integers(0, 2, 2000))
    plan = plan_readj(loads, NO_TABLE, Goal(8), steps_at_most=3)
    assert len(plan.moves) <= 6
    assert plan.imbalance_after < plan.imbalance_before


def test_zipf_keys_below_the_limit_are_balanced() -> None:
    rng = np.random.default_rng(2)
    loads = KeyLoads.of(np.arange(3000), np.arange(1, 3001) ** -0.8, rng.integers(0, 8, 3000))
    plan = plan_readj(loads, NO_TABLE, Goal(8))
    assert plan.imbalance_after == pytest.approx(1.05, abs=0.01) or plan.imbalance_after < 1.05
