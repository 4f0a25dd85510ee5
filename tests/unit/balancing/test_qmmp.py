"""QMMP: fast, even, and careless about what it splits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.balancing import Goal, plan_qmmp
from anabranch.balancing.planners.layout import lay_out, lay_out_whole
from anabranch.model.loads import KeyLoads
from anabranch.model.routes import RoutingTable
from unit.balancing.cases import make_loads

NO_TABLE = RoutingTable.empty()


def test_a_slot_above_the_limit_keeps_exactly_the_limit() -> None:
    loads = make_loads({1: (100.0, 0), 2: (50.0, 0), 3: (30.0, 1), 4: (0.0, 2)})
    plan = plan_qmmp(loads, NO_TABLE, Goal(3, tolerance=0.1))
    assert plan.loads_after[0] == pytest.approx(66)


def test_idle_slots_are_filled_to_the_mean_in_turn() -> None:
    loads = make_loads({1: (100.0, 0), 2: (50.0, 0), 3: (30.0, 1), 4: (0.0, 2)})
    plan = plan_qmmp(loads, NO_TABLE, Goal(3, tolerance=0.1))
    # 84 leave: 30 fill the second slot to the mean of 60, and 54 go to the third.
    assert plan.loads_after.tolist() == pytest.approx([66, 60, 54])
    assert plan.table.owners(1)[0].share == pytest.approx(0.16)


def test_keys_without_load_leave_slots_that_go() -> None:
    table = RoutingTable.of({2: {1: 1.0}})
    loads = replace(make_loads({1: (0.0, 0), 2: (0.0, 0)}), next_homes=np.zeros(2, np.int32))
    assert not len(plan_qmmp(loads, table, Goal(2, slots_after=1)).table.keys)


def test_keys_leave_as_they_come_and_the_last_is_cut() -> None:
    loads = make_loads({1: (10.0, 0), 2: (10.0, 0), 3: (100.0, 0)})
    plan = plan_qmmp(loads, NO_TABLE, Goal(2, tolerance=0.0))
    assert {move.subject: move.load for move in plan.moves} == pytest.approx({1: 10, 2: 10, 3: 40})


def test_a_key_that_exceeds_several_slots_is_spread_over_them() -> None:
    loads = make_loads({1: (900.0, 0), 2: (100.0, 1)})
    plan = plan_qmmp(loads, NO_TABLE, Goal(10, tolerance=0.0))
    assert plan.loads_after.tolist() == pytest.approx([100.0] * 10)


def test_keys_that_may_not_be_split_leave_whole() -> None:
    loads = make_loads({1: (40.0, 0), 2: (40.0, 0), 3: (30.0, 0)}, splittable=[False, False, True])
    plan = plan_qmmp(loads, NO_TABLE, Goal(2))
    assert plan.meets_limits
    assert not {1, 2} & set(plan.table.split_keys().tolist())


def test_no_load_at_all_is_balanced() -> None:
    plan = plan_qmmp(make_loads({1: (0.0, 0), 2: (0.0, 0)}), NO_TABLE, Goal(2))
    assert not len(plan.moves)
    assert plan.imbalance_after == 1


def test_no_keys_at_all_are_balanced() -> None:
    nobody = KeyLoads.of([], [], [])
    assert not len(plan_qmmp(nobody, NO_TABLE, Goal(2, slots_after=1)).moves)


def test_whole_items_keep_an_exact_share() -> None:
    rng = np.random.default_rng(1)
    amounts = rng.random(10_000)
    pieces = lay_out(amounts, np.full(7, amounts.sum() / 7), crumb=1e-9)
    cut = np.bincount(pieces.items) > 1
    assert cut.sum() <= 6
    assert (pieces.shares[~cut[pieces.items]] == 1.0).all()


def test_pieces_of_an_item_make_a_whole() -> None:
    pieces = lay_out(np.array([1.0, 10.0, 1.0]), np.array([2.0, 3.0, 0.0, 7.0]), crumb=1e-9)
    assert np.bincount(pieces.items, pieces.shares).tolist() == pytest.approx([1, 1, 1])
    filled = np.bincount(pieces.gaps, pieces.shares * np.array([1.0, 10.0, 1.0])[pieces.items], 4)
    assert filled.tolist() == pytest.approx([2, 3, 0, 7])


def test_whole_items_overflow_a_gap_by_less_than_one_of_them() -> None:
    amounts = np.full(100, 0.3)
    gaps = np.array([7.0, 8.0, 15.0])
    filled = np.bincount(lay_out_whole(amounts, gaps), amounts)
    assert (filled < gaps + 0.3).all()
