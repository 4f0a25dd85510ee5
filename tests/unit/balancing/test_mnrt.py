"""MNRT: the paper's examples, its priorities, and keys that no slot can hold."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.balancing import Goal, plan_mnrt, plan_qmmp
from anabranch.model.loads import KeyLoads
from anabranch.model.moves import Move, MoveEffect, MoveKind, MovePlan
from anabranch.model.routes import RoutingTable
from unit.balancing.cases import make_loads

NO_TABLE = RoutingTable.empty()

# Nine keys of 3,000 rows, dealt to three nodes so that the second has far more than its 1,000.
SKEWED = {
    1: (100.0, 0),
    2: (300.0, 0),
    3: (150.0, 0),
    4: (300.0, 1),
    5: (500.0, 1),
    8: (700.0, 1),
    6: (250.0, 2),
    7: (200.0, 2),
    9: (500.0, 2),
}


def _only(plan: MovePlan) -> Move:
    (move,) = plan.moves
    return move


def test_a_skewed_deal_is_brought_within_the_tolerance() -> None:
    plan = plan_mnrt(make_loads(SKEWED), NO_TABLE, Goal(3, tolerance=0.1))
    assert plan.loads_before.tolist() == [550, 1500, 950]
    assert plan.loads_after.max() <= 1100
    # Key 5 alone is what the second node has too much: it moves whole, and nothing is split.
    move = _only(plan)
    assert (move.subject, move.source, move.target) == (5, 1, 0)
    assert (move.kind, move.effect) == (MoveKind.MOVE_OUT, MoveEffect.WHOLE)
    assert plan.table == RoutingTable.of({5: {0: 1.0}})
    assert plan.costs.split_load == 0


def test_a_large_branch_is_split_on_demand_between_its_node_and_the_idle_one() -> None:
    # Three keys on three nodes, the first too large and the last small.
    loads = make_loads({10: (200.0, 0), 11: (100.0, 1), 12: (20.0, 2)})
    plan = plan_mnrt(loads, NO_TABLE, Goal(3, tolerance=0.0))
    assert plan.loads_after.tolist() == pytest.approx([320 / 3] * 3)
    assert {share.slot for share in plan.table.owners(10)} >= {0, 2}
    assert plan.table.split_keys().tolist() == [10]
    assert plan.costs.split_load == 200


def test_balanced_slots_are_left_alone() -> None:
    plan = plan_mnrt(make_loads({1: (10.0, 0), 2: (10.3, 1)}), NO_TABLE, Goal(2, tolerance=0.05))
    assert not len(plan.moves)
    assert not len(plan.table)


def test_merging_comes_before_moving_a_whole_key() -> None:
    loads = make_loads({1: (40.0, 1), 2: (40.0, 0), 3: (60.0, 1)})
    # Key 1 is split, with its smaller part at home, where there is room; key 2 could move as well.
    table = RoutingTable.of({1: {0: 0.75, 1: 0.25}, 3: {0: 1.0}})
    plan = plan_mnrt(loads, table, Goal(2, tolerance=0.5))
    move = _only(plan)
    assert (move.subject, move.kind, move.effect) == (1, MoveKind.RETURN_HOME, MoveEffect.MERGE)
    assert 1 not in plan.table.keys


def test_merging_at_home_comes_before_merging_elsewhere() -> None:
    loads = make_loads({1: (30.0, 1), 2: (30.0, 0), 3: (100.0, 0), 4: (10.0, 1), 5: (10.0, 2)})
    table = RoutingTable.of({1: {0: 0.5, 1: 0.5}, 2: {0: 0.5, 2: 0.5}})
    plan = plan_mnrt(loads, table, Goal(3, tolerance=0.98))
    move = _only(plan)
    assert (move.subject, move.kind, move.effect) == (1, MoveKind.RETURN_HOME, MoveEffect.MERGE)


def test_a_part_at_home_merges_with_the_part_elsewhere_when_home_is_full() -> None:
    loads = make_loads({1: (30.0, 0), 2: (100.0, 0), 3: (10.0, 1)})
    table = RoutingTable.of({1: {0: 0.5, 1: 0.5}})
    plan = plan_mnrt(loads, table, Goal(2, tolerance=0.45))
    move = _only(plan)
    assert (move.subject, move.kind, move.effect) == (1, MoveKind.MOVE_OUT, MoveEffect.MERGE)
    assert plan.table == RoutingTable.of({1: {1: 1.0}})


def test_returning_home_comes_before_moving_out() -> None:
    loads = make_loads({1: (30.0, 1), 2: (30.0, 0), 3: (60.0, 0), 4: (20.0, 1)})
    plan = plan_mnrt(loads, RoutingTable.of({1: {0: 1.0}}), Goal(2, tolerance=0.3))
    move = _only(plan)
    assert (move.subject, move.kind, move.effect) == (1, MoveKind.RETURN_HOME, MoveEffect.WHOLE)
    assert not len(plan.table)


def test_shifting_a_key_that_is_away_comes_before_moving_out_another() -> None:
    # Key 1's home is full, too, so it goes on to the third slot; the table grows by nothing.
    loads = make_loads({1: (30.0, 1), 2: (30.0, 0), 3: (60.0, 0), 4: (90.0, 1), 5: (30.0, 2)})
    plan = plan_mnrt(loads, RoutingTable.of({1: {0: 1.0}}), Goal(3, tolerance=0.2))
    move = _only(plan)
    assert (move.subject, move.target, move.kind) == (1, 2, MoveKind.SHIFT)
    assert plan.costs.table_rows == 1


def test_of_keys_alike_the_one_with_the_least_state_a_load_moves() -> None:
    loads = KeyLoads.of([1, 2, 3, 4], [10, 10, 10, 10], [0, 0, 0, 1], [9000.0, 100.0, 9000.0, 100.0])
    plan = plan_mnrt(loads, NO_TABLE, Goal(2, tolerance=0.05))
    assert _only(plan).subject == 2
    assert plan.costs.moved_bytes == 100


def test_a_few_whole_keys_move_instead_of_splitting_one() -> None:
    keys = {1: (50.0, 0), 2: (6.0, 0), 3: (5.0, 0), 4: (5.0, 0), 5: (40.0, 1)}
    plan = plan_mnrt(make_loads(keys), NO_TABLE, Goal(2, tolerance=0.05))
    assert not len(plan.table.split_keys())
    assert plan.meets_limits
    one_by_one = plan_mnrt(make_loads(keys), NO_TABLE, Goal(2, tolerance=0.05), whole_keys_a_split=0)
    assert one_by_one.table.split_keys().tolist() == [1]


def test_a_key_above_a_slots_limit_fills_the_gaps_and_no_other_key_moves() -> None:
    keys = {1: (1000.0, 0)} | {key: (10.0, key % 4) for key in range(2, 42)}
    plan = plan_mnrt(make_loads(keys), NO_TABLE, Goal(4))
    assert set(plan.moves.subjects.tolist()) == {1}
    assert plan.meets_limits


def test_a_key_above_a_slots_limit_can_have_slots_of_its_own() -> None:
    keys = {1: (1000.0, 0)} | {key: (10.0, key % 4) for key in range(2, 42)}
    loads = make_loads(keys)
    plan = plan_mnrt(loads, NO_TABLE, Goal(4, oversized="alone"))
    owners = {share.slot: share.share for share in plan.table.owners(1)}
    limit = 1400 / 4 * 1.05
    alone = [slot for slot, share in owners.items() if share * 1000 == pytest.approx(limit)]
    assert len(alone) == 2
    others = {slot for key in keys if key != 1 for slot in _slots_of(plan, loads, key)}
    assert not others & set(alone)
    assert plan.meets_limits


def _slots_of(plan: MovePlan, loads: KeyLoads, key: int) -> set[int]:
    owners = plan.table.owners(key)
    home = int(loads.homes[np.searchsorted(loads.keys, np.uint64(key))])
    return {share.slot for share in owners} or {home}


def test_a_key_that_may_not_be_split_moves_whole_and_the_plan_says_what_it_costs() -> None:
    loads = make_loads({1: (100.0, 0), 2: (10.0, 0), 3: (10.0, 1)}, splittable=[False, True, True])
    plan = plan_mnrt(loads, NO_TABLE, Goal(2))
    assert not len(plan.table.split_keys())
    assert _only(plan).subject == 2
    assert "1 key may not be split" in plan.shortfall
    assert not plan.meets_limits


def test_unlisted_load_above_the_limit_is_said_to_need_bucket_moves() -> None:
    loads = make_loads({1: (10.0, 0), 2: (10.0, 1)}, unlisted=[100.0, 0.0])
    plan = plan_mnrt(loads, NO_TABLE, Goal(2))
    assert _only(plan).subject == 1
    assert "move buckets" in plan.shortfall


def test_stronger_slots_carry_more() -> None:
    loads = make_loads({key: (1.0, 0) for key in range(1, 41)})
    plan = plan_mnrt(loads, NO_TABLE, Goal(2, tolerance=0.0, powers=(1.0, 3.0)))
    assert plan.loads_after.tolist() == pytest.approx([10, 30])


def test_a_new_slot_is_an_empty_one() -> None:
    loads = make_loads({key: (1.0, key % 2) for key in range(1, 61)})
    plan = plan_mnrt(loads, NO_TABLE, Goal(2, slots_after=3))
    assert plan.loads_before.tolist() == [30, 30, 0]
    assert plan.loads_after.max() <= 21
    assert set(plan.moves.targets.tolist()) == {2}


def test_keys_follow_the_new_base_route_and_the_rest_is_balanced() -> None:
    keys = {key: (1.0, key % 2) for key in range(60)}
    loads = make_loads(keys, next_homes=[key % 3 for key in keys])
    plan = plan_mnrt(loads, NO_TABLE, Goal(2, slots_after=3))
    assert not len(plan.table)
    assert plan.loads_after.tolist() == [20, 20, 20]
    assert plan.moves[0].reason == "the base route now leads to slot 2"


def test_a_removed_slot_is_emptied() -> None:
    keys = {key: (1.0, key % 3) for key in range(60)}
    loads = make_loads(keys, next_homes=[key % 2 for key in keys])
    # Two keys live on the slot that goes by the table's word, one of them in parts.
    table = RoutingTable.of({3: {2: 1.0}, 4: {1: 0.5, 2: 0.5}})
    plan = plan_mnrt(loads, table, Goal(3, slots_after=2))
    assert plan.loads_after[2] == 0
    assert plan.loads_after.max() <= 31.5
    assert any(move.reason == "slot 2 is removed" for move in plan.moves)


def test_a_removed_slot_gives_up_keys_without_load() -> None:
    loads = make_loads({1: (0.0, 0), 2: (10.0, 1)})
    plan = plan_mnrt(loads, RoutingTable.of({1: {2: 1.0}}), Goal(3, slots_after=2))
    assert 1 not in plan.table.keys


def test_planning_again_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    weights = np.arange(1, 5001) ** -1.3 * 1e6
    loads = KeyLoads.of(rng.permutation(5000), weights, rng.integers(0, 16, 5000), np.full(5000, 50.0))
    first = plan_mnrt(loads, NO_TABLE, Goal(16))
    again = plan_mnrt(loads, first.table, Goal(16))
    assert first.meets_limits
    assert not len(again.moves)
    assert again.table == first.table


def test_the_table_is_far_smaller_than_that_of_qmmp() -> None:
    rng = np.random.default_rng(3)
    weights = np.arange(1, 20_001) ** -1.0 * 1e6
    loads = KeyLoads.of(rng.permutation(20_000), weights, rng.integers(0, 20, 20_000), np.full(20_000, 50.0))
    careful, quick = plan_mnrt(loads, NO_TABLE, Goal(20)), plan_qmmp(loads, NO_TABLE, Goal(20))
    assert careful.costs.table_rows * 5 < quick.costs.table_rows
    assert careful.costs.moved_bytes * 5 < quick.costs.moved_bytes
    assert len(careful.table.split_keys()) <= len(quick.table.split_keys())


def test_the_clock_that_is_passed_in_measures_the_planning() -> None:
    ticks = iter([10.0, 10.25])
    plan = plan_mnrt(make_loads(SKEWED), NO_TABLE, Goal(3), clock=lambda: next(ticks))
    assert plan.costs.planning_seconds == 0.25
    assert plan_mnrt(make_loads(SKEWED), NO_TABLE, Goal(3)).costs.planning_seconds is None


def test_a_tolerance_of_nothing_with_many_keys_is_met() -> None:
    rng = np.random.default_rng(5)
    loads = KeyLoads.of(np.arange(30_000), rng.random(30_000), rng.integers(0, 4, 30_000) // 2)
    plan = plan_mnrt(loads, NO_TABLE, Goal(4, tolerance=0.0))
    assert plan.meets_limits
    assert plan.imbalance_after == pytest.approx(1.0)
