"""BalanceLoad: whole buckets from the busiest slot to the idlest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.balancing import Goal, balance_buckets
from anabranch.model.loads import BucketLoads, LoadError
from anabranch.model.routes import BucketMap
from property_tests import tries


def _loads(slots: int, *buckets: tuple[float, int]) -> BucketLoads:
    amounts = np.array([load for load, _ in buckets])
    return BucketLoads(BucketMap(slots, tuple(slot for _, slot in buckets)), amounts, amounts * 100)


def test_hottest_bucket_that_fits_goes_from_the_busiest_to_the_idlest_slot() -> None:
    plan = balance_buckets(_loads(3, (5, 0), (4, 0), (3, 0), (6, 1), (1, 2)), Goal(3))
    # Half the gap between slots 0 and 2 is 5.5, so the bucket of 5 moves.
    assert plan.bucket_map == BucketMap(3, (2, 0, 0, 1, 2))
    assert plan.moves[0].reason == "slot 2 has less to do than slot 0"
    assert plan.costs.moved_bytes == 500
    assert plan.moves.of == "bucket"


def test_bucket_hotter_than_the_gap_stays_put() -> None:
    plan = balance_buckets(_loads(2, (100, 0), (1, 1)), Goal(2))
    assert not len(plan.moves)
    assert "split its hot keys with mnrt" in plan.shortfall


def test_a_slot_that_cannot_be_helped_does_not_keep_others_from_it() -> None:
    plan = balance_buckets(_loads(3, (100, 0), (10, 1), (10, 1), (1, 2)), Goal(3))
    assert plan.loads_after.tolist() == [100, 10, 11]


def test_moves_that_gain_too_little_are_not_made() -> None:
    loads = _loads(2, (10, 0), (0.2, 0), (10, 1))
    assert len(balance_buckets(loads, Goal(2), smallest_gain=0.0).moves) == 0
    loads = _loads(2, (10, 0), (0.3, 0), (0.1, 0), (10, 1))
    assert len(balance_buckets(loads, Goal(2), smallest_gain=0.0).moves) == 1
    assert len(balance_buckets(loads, Goal(2), smallest_gain=0.05).moves) == 0


def test_new_slots_get_buckets() -> None:
    plan = balance_buckets(_loads(2, *((1, bucket % 2) for bucket in range(32))), Goal(2, slots_after=4))
    assert plan.bucket_map is not None
    assert plan.bucket_map.slots == 4
    assert plan.loads_after.tolist() == [8, 8, 8, 8]


def test_removed_slots_lose_all_buckets_also_those_without_load() -> None:
    buckets = [(float(bucket % 5), bucket % 4) for bucket in range(32)]
    plan = balance_buckets(_loads(4, *buckets), Goal(4, slots_after=3))
    assert plan.bucket_map is not None
    assert max(plan.bucket_map.slot_of) == 2
    assert plan.loads_after[3] == 0
    assert any(move.reason == "slot 3 is removed" for move in plan.moves)


def test_removed_slots_are_emptied_where_nothing_has_load() -> None:
    plan = balance_buckets(_loads(3, (0, 0), (0, 1), (0, 2)), Goal(3, slots_after=2))
    assert plan.bucket_map is not None
    assert max(plan.bucket_map.slot_of) < 2


def test_stronger_slots_get_more_buckets() -> None:
    loads = _loads(2, *((1, bucket % 2) for bucket in range(40)))
    assert balance_buckets(loads, Goal(2, powers=(3, 1))).loads_after.tolist() == [30, 10]


def test_settled_load_counts_and_stays() -> None:
    loads = BucketLoads(BucketMap(2, (0, 0, 1, 1)), np.ones(4), settled=np.array([0.0, 2.0]))
    plan = balance_buckets(loads, Goal(2))
    assert plan.loads_before.tolist() == [2, 4]
    assert plan.loads_after.tolist() == [3, 3]


def test_settled_load_on_a_slot_that_goes_is_refused() -> None:
    loads = BucketLoads(BucketMap(2, (0, 1)), np.ones(2), settled=np.array([0.0, 2.0]))
    with pytest.raises(LoadError, match="plan where the routing table's keys go first"):
        balance_buckets(loads, Goal(2, slots_after=1))


def test_map_and_goal_must_agree_on_the_slots() -> None:
    with pytest.raises(LoadError, match="has 2 slots and the goal 3"):
        balance_buckets(_loads(2, (1, 0), (1, 1)), Goal(3))


@given(
    amounts=st.lists(st.floats(0, 1e3), min_size=1, max_size=60),
    slots=st.integers(1, 6),
    later=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
@tries(150)
def test_load_is_conserved_and_no_staying_slot_becomes_the_new_hot_spot(
    amounts: list[float], slots: int, later: int, seed: int
) -> None:
    owners = np.random.default_rng(seed).integers(0, slots, len(amounts))
    loads = BucketLoads(BucketMap(slots, tuple(owners.tolist())), np.array(amounts))
    plan = balance_buckets(loads, Goal(slots, slots_after=later))
    assert plan.bucket_map is not None
    sums = np.bincount(plan.bucket_map.slot_of, amounts, max(slots, later))
    assert plan.loads_after.tolist() == pytest.approx(sums.tolist())
    assert max(plan.bucket_map.slot_of) < later
    assert plan == balance_buckets(loads, Goal(slots, slots_after=later))
    if later >= slots:
        assert plan.imbalance_after <= plan.imbalance_before * (1 + 1e-9)
