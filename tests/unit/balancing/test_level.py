"""Buckets and hot keys together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.balancing import BUCKETS_ONLY, Goal, LevelLoads, LevelPlan, plan_level
from anabranch.model.loads import BucketLoads, KeyLoads, LoadError
from anabranch.model.routes import BucketMap, RoutingTable
from property_tests import tries

NO_TABLE = RoutingTable.empty()


def _level(
    slots: int, bucket_rest: list[float], hot: dict[int, tuple[float, int]], owners: list[int] | None = None
) -> LevelLoads:
    """Return buckets with a rest each, and hot keys of key → (load, bucket)."""
    bucket_map = BucketMap(slots, tuple(owners or [bucket % slots for bucket in range(len(bucket_rest))]))
    keys = sorted(hot)
    key_buckets = np.array([hot[key][1] for key in keys], np.int32)
    amounts = np.array([hot[key][0] for key in keys])
    homes = np.asarray(bucket_map.slot_of, np.int32)[key_buckets]
    loads = np.array(bucket_rest) + np.bincount(key_buckets, amounts, len(bucket_rest))
    return LevelLoads(BucketLoads(bucket_map, loads, loads), KeyLoads.of(keys, amounts, homes, amounts), key_buckets)


def test_hot_keys_are_split_around_the_rest_and_buckets_stay() -> None:
    level = _level(4, [10.0] * 16, {7: (100.0, 3)})
    plan = plan_level("mnrt", level, NO_TABLE, Goal(4))
    assert plan.bucket_plan is None
    assert plan.bucket_map == level.buckets.buckets
    assert plan.table.split_keys().tolist() == [7]
    assert plan.imbalance_after <= 1.05 + 1e-9
    assert plan.changes


def test_buckets_move_where_keys_alone_do_not_help() -> None:
    level = _level(2, [10.0] * 8, {7: (10.0, 0)}, owners=[0, 0, 0, 0, 0, 0, 1, 1])
    plan = plan_level("mnrt", level, NO_TABLE, Goal(2))
    assert plan.bucket_plan is not None
    assert len(plan.bucket_plan.moves) == 2
    assert plan.imbalance_after <= 1.05 + 1e-9
    assert not plan.shortfall


def test_a_level_in_balance_does_not_change() -> None:
    plan = plan_level("mnrt", _level(2, [10.0] * 8, {}), NO_TABLE, Goal(2))
    assert not plan.changes
    assert plan.imbalance_before == plan.imbalance_after == 1


def test_buckets_only_leaves_the_table_alone() -> None:
    level = _level(2, [10.0] * 8, {7: (10.0, 0), 9: (5.0, 1)}, owners=[0, 0, 0, 0, 0, 0, 1, 1])
    table = RoutingTable.of({9: {1: 1.0}})
    plan = plan_level(BUCKETS_ONLY, level, table, Goal(2))
    assert plan.bucket_plan is not None
    assert plan.imbalance_after < plan.imbalance_before
    assert not len(plan.key_plan.moves)


def test_a_key_whose_bucket_comes_to_it_leaves_the_table() -> None:
    level = _level(2, [30.0, 10.0, 10.0], {9: (30.0, 0)}, owners=[0, 0, 0])
    plan = plan_level(BUCKETS_ONLY, level, RoutingTable.of({9: {1: 1.0}}), Goal(2))
    # The table follows the bucket map: key 9 is at home if bucket 0 moved, and away if not.
    assert (9 in plan.table.keys) == (plan.bucket_map.slot_of[0] == 0)


def test_growing_fills_the_new_slots_with_buckets_and_keys() -> None:
    level = _level(2, [1.0] * 64, {7: (30.0, 3)})
    plan = plan_level("mnrt", level, NO_TABLE, Goal(2, slots_after=4))
    assert plan.bucket_map.slots == 4
    assert plan.loads_after.max() <= 94 / 4 * 1.05 + 1e-6


def test_shrinking_empties_the_slots_that_go() -> None:
    level = _level(4, [1.0] * 64, {7: (30.0, 3), 8: (9.0, 1)})
    table = RoutingTable.of({7: {0: 0.3, 3: 0.7}, 8: {2: 1.0}})
    plan = plan_level("mnrt", level, table, Goal(4, slots_after=2))
    assert max(plan.bucket_map.slot_of) == 1
    assert not len(plan.table.slots) or plan.table.slots.max() <= 1
    assert plan.loads_after[2:].tolist() == [0, 0]
    assert plan.imbalance_after <= 1.05 + 1e-9


def test_buckets_only_cannot_empty_a_slot_that_the_table_uses() -> None:
    level = _level(2, [1.0] * 8, {7: (3.0, 0)})
    with pytest.raises(LoadError, match="take mnrt"):
        plan_level(BUCKETS_ONLY, level, RoutingTable.of({7: {1: 1.0}}), Goal(2, slots_after=1))


def test_keys_counted_above_their_bucket_leave_nothing_of_it() -> None:
    level = _level(2, [0.0] * 4, {7: (10.0, 0)})
    shrunk = LevelLoads(BucketLoads(level.buckets.buckets, level.buckets.loads * 0.9), level.keys, level.key_buckets)
    assert shrunk.find_rest().loads.tolist() == [0, 0, 0, 0]


def test_homes_must_be_those_of_the_bucket_map() -> None:
    level = _level(2, [1.0] * 4, {7: (10.0, 0)})
    with pytest.raises(LoadError, match="take the homes from the bucket map"):
        LevelLoads(level.buckets, level.keys, np.array([1], np.int32))


def test_an_unknown_planner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LoadError, match="did you mean 'mnrt'"):
        plan_level("mnrtt", _level(2, [1.0] * 4, {}), NO_TABLE, Goal(2))
    with pytest.raises(LoadError, match="mnrt, qmmp, readj"):
        plan_level("storm", _level(2, [1.0] * 4, {}), NO_TABLE, Goal(2))


@given(
    rest=st.lists(st.integers(0, 50), min_size=4, max_size=24),
    hot=st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 3)), max_size=6),
    slots=st.integers(1, 5),
    later=st.integers(1, 5),
    planner=st.sampled_from(["mnrt", "qmmp", "readj"]),
)
@tries(150)
def test_load_is_conserved_and_the_plan_is_no_worse(
    rest: list[int], hot: list[tuple[int, int]], slots: int, later: int, planner: str
) -> None:
    level = _level(slots, [float(load) for load in rest], {key: (float(a), b) for key, (a, b) in enumerate(hot)})
    plan = plan_level(planner, level, NO_TABLE, Goal(slots, slots_after=later))
    owners = np.asarray(plan.bucket_map.slot_of)
    sums = np.bincount(owners, rest, max(slots, later))
    for key, (load, bucket) in enumerate(hot):
        shares = plan.table.owners(key)
        for slot, share in [(s.slot, s.share) for s in shares] or [(int(owners[bucket]), 1.0)]:
            sums[slot] += share * load
    assert plan.loads_after.tolist() == pytest.approx(sums.tolist(), abs=1e-6)
    assert max(plan.bucket_map.slot_of) < later
    if slots == later:
        assert plan.imbalance_after <= max(plan.imbalance_before, 1.05) * (1 + 1e-7)


def _normal(mean: float, deviation: float) -> np.ndarray:
    return np.exp(-((np.arange(10_000) - mean) ** 2) / (2 * deviation**2)) * 1e5 / deviation


def _zipf(exponent: float) -> np.ndarray:
    return np.arange(1, 10_001) ** -exponent * 1e5


def test_each_change_of_the_distribution_is_made_up_for_by_one_plan() -> None:
    slots, buckets = 16, 512
    rng = np.random.default_rng(4)
    keys = np.sort(rng.integers(0, 2**62, 10_000).astype(np.uint64))
    key_buckets = rng.integers(0, buckets, 10_000).astype(np.int32)
    number_of = rng.permutation(10_000)
    bucket_map, table = BucketMap.even(slots, buckets), NO_TABLE
    # A mean that moves, then a deviation that narrows, then one key that exceeds a slot's share.
    changes = [_normal(mean, 100) for mean in (2000, 4000, 6000, 8000)]
    changes += [_normal(5000, deviation) for deviation in (100, 75, 50, 25)] + [_zipf(1.5), _zipf(2.0), np.ones(10_000)]
    for shape in changes:
        loads = shape[number_of]
        watched = np.flatnonzero((loads > 0.002 * loads.sum() / slots) | np.isin(keys, table.keys))
        homes = np.asarray(bucket_map.slot_of, np.int32)[key_buckets[watched]]
        level = LevelLoads(
            BucketLoads(bucket_map, np.bincount(key_buckets, loads, buckets)),
            KeyLoads(keys[watched], loads[watched], loads[watched], homes),
            key_buckets[watched],
        )
        plan = plan_level("mnrt", level, table, Goal(slots, tolerance=0.02))
        assert plan.imbalance_after <= 1.02 + 1e-9
        bucket_map, table = plan.bucket_map, plan.table


def _buckets_of_slots(plan: LevelPlan, slots: set[int]) -> list[int]:
    return [bucket for bucket, slot in enumerate(plan.bucket_map.slot_of) if slot in slots]


def test_a_key_that_no_slot_can_hold_fills_the_gaps_of_all_or_has_slots_alone() -> None:
    """A tenth of the load is in each bucket of five slots, and half of all in one key."""
    level = _level(5, [10.0] * 10, {7: (100.0, 3), 8: (5.0, 4)})
    fills = plan_level("mnrt", level, NO_TABLE, Goal(5))
    assert fills.bucket_plan is None
    assert len(fills.table.owners(7)) == 5
    alone = plan_level("mnrt", level, NO_TABLE, Goal(5, oversized="alone"))
    own = {share.slot for share in alone.table.owners(7) if share.share * 100 == pytest.approx(205 / 5 * 1.05)}
    assert len(own) == 2 and 3 in own
    assert _buckets_of_slots(alone, own) == []
    assert not own & {share.slot for share in alone.table.owners(8)}
    assert alone.imbalance_after <= 1.05 + 1e-9
    # What has slots to itself stays there.
    again = replace_map(level, alone)
    assert not plan_level("mnrt", again, alone.table, Goal(5, oversized="alone")).changes


def replace_map(level: LevelLoads, plan: LevelPlan) -> LevelLoads:
    """Return the same loads once a plan is carried out."""
    homes = np.asarray(plan.bucket_map.slot_of, np.int32)[level.key_buckets]
    buckets = BucketLoads(plan.bucket_map, level.buckets.loads, level.buckets.state_bytes)
    return LevelLoads(buckets, replace(level.keys, homes=homes), level.key_buckets)


@pytest.mark.parametrize("planner", ["mnrt", "qmmp", "readj"])
def test_a_key_that_stays_whole_and_fills_its_slot_has_it_to_itself(planner: str) -> None:
    level = _level(4, [10.0] * 16, {7: (120.0, 3), 9: (8.0, 3)})
    whole = replace(level, keys=replace(level.keys, splittable=np.zeros(2, np.bool_)))
    plan = plan_level(planner, whole, NO_TABLE, Goal(4))
    assert plan.loads_after[3] == pytest.approx(120.0)
    assert max(plan.loads_after[:3]) <= 288 / 4 * 1.05
    assert _buckets_of_slots(plan, {3}) == []
    # Its state stays where it was; what was beside it goes.
    assert plan.costs.moved_bytes == pytest.approx(4 * 10.0 + 8.0)
    again = plan_level(planner, replace_map(whole, plan), plan.table, Goal(4))
    assert not again.changes


def test_slots_of_its_own_are_those_with_least_state_to_clear_away() -> None:
    level = _level(4, [10.0] * 8, {7: (200.0, 1)})
    state = np.array([50.0, 200.0, 30.0, 40.0, 50.0, 0.0, 30.0, 40.0])
    costly = replace(level, buckets=BucketLoads(level.buckets.buckets, level.buckets.loads, state))
    plan = plan_level("mnrt", costly, NO_TABLE, Goal(4, oversized="alone"))
    assert sorted(set(plan.bucket_map.slot_of)) == [0, 3]


@tries(100)
@given(
    rest=st.lists(st.floats(0, 20), min_size=6, max_size=12),
    hot=st.dictionaries(st.integers(1, 9), st.tuples(st.floats(0, 300), st.integers(0, 5)), max_size=4),
    slots=st.integers(1, 5),
    splittable=st.booleans(),
)
def test_slots_to_themselves_never_make_the_busiest_slot_busier_and_cost_what_moves(
    rest: list[float], hot: dict[int, tuple[float, int]], slots: int, splittable: bool
) -> None:
    level = _level(slots, rest, hot)
    level = replace(level, keys=replace(level.keys, splittable=np.full(len(hot), splittable)))
    plan = plan_level("mnrt", level, NO_TABLE, Goal(slots, oversized="alone"))
    assert plan.imbalance_after <= max(plan.imbalance_before, 1.05) + 1e-6
    assert plan.loads_after.sum() == pytest.approx(sum(rest) + sum(load for load, _ in hot.values()))
    moved = sum(
        size
        for bucket, size in enumerate(rest)
        if level.buckets.buckets.slot_of[bucket] != plan.bucket_map.slot_of[bucket]
    )
    for key, (load, bucket) in hot.items():
        before = level.buckets.buckets.slot_of[bucket]
        after = {share.slot for share in plan.table.owners(key)} or {plan.bucket_map.slot_of[bucket]}
        moved += 0.0 if before in after else load
    assert plan.costs.moved_bytes == pytest.approx(moved, abs=1e-6)
