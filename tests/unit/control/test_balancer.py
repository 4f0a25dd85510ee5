"""One operator's balance: when new routes are proposed, which, and the reason either way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.decide.balancer import Balancer
from anabranch.control.decisions import Proposal
from anabranch.control.observe.loads import OperatorLoads
from anabranch.model import RouteError, RoutingTable
from anabranch.model.balance import Balance, BalanceTrigger, NamedStrategy, Routing
from anabranch.model.loads import StateSizes
from anabranch.routing import BucketRoute, ChoiceSplitter, KeyBatch, KeySample, ModuloRoute, Routes, buckets_of
from anabranch.routing.strategies.by_name import decide_named
from anabranch.routing.strategies.scores import score_loads
from property_tests import tries

BUCKETS = 64
SLOTS = 4
ROWS = 100_000.0
EAGER = Balance(fewest_rows_a_slot=100)


def hash_of(key: int) -> int:
    """Return a hash that is spread over the buckets."""
    return key * 0x9E3779B97F4A7C15 % 2**64


def measure(
    routes: Routes, rows_of: Mapping[int, float], batch: int = 1, splittable: bool = True, state_bytes: float = 1e6
) -> OperatorLoads:
    """Return the loads of a batch that had these rows of each key, everything else spread evenly over the buckets."""
    keys = np.array(sorted(hash_of(key) for key in rows_of), np.uint64)
    rows_by_hash = {hash_of(key): rows for key, rows in rows_of.items()}
    rows = np.array([rows_by_hash[key] for key in keys.tolist()])
    rest = max(ROWS - rows.sum(), 0.0)
    tail = np.array(sorted(hash_of(10_000 + number) for number in range(64 * BUCKETS)), np.uint64)
    every = np.concatenate((keys, tail))
    counts = np.concatenate((rows, np.full(len(tail), rest / len(tail))))
    order = np.argsort(every)
    sample = KeySample(every[order], counts[order])
    return OperatorLoads(
        batch=batch,
        now_seconds=float(batch),
        rows_in_all=int(ROWS) * batch,
        slot_rows=routes.loads(sample),
        bucket_rows=np.bincount(buckets_of(every, BUCKETS), counts, minlength=BUCKETS),
        hot_rows=rows_by_hash,
        sample=sample,
        state_bytes=state_bytes,
        splittable=splittable,
    )


def imbalance(routes: Routes, rows_of: Mapping[int, float]) -> float:
    return score_loads(measure(routes, rows_of).slot_rows).max_over_mean


def balancer(balance: Balance | None = EAGER, strategy: str = "auto") -> Balancer:
    return Balancer(Routing(strategy, balance))


EVEN = Routes.even(SLOTS, BUCKETS)
HOT = {1: 40_000.0}
MANY = {number: 700.0 + number for number in range(1, 60)}
WARM = {number: 6_000.0 for number in range(1, 8)}


def test_a_batch_with_too_few_rows_says_nothing() -> None:
    balanced = balancer(Balance(fewest_rows_a_slot=int(ROWS)))
    assert balanced.consider(measure(EVEN, HOT), EVEN) is None
    assert balanced.last_reason == "batch 1 had too few rows to tell skew from chance"


def test_without_balance_nothing_is_considered() -> None:
    unbalanced = balancer(None)
    assert unbalanced.consider(measure(EVEN, HOT), EVEN) is None
    assert unbalanced.last_reason == "balancing is off"


def test_loads_within_the_tolerance_are_left_alone() -> None:
    balanced = balancer(Balance(tolerance=0.5, fewest_rows_a_slot=100))
    assert balanced.consider(measure(EVEN, {}), EVEN) is None
    assert "nothing is due" in balanced.last_reason


@pytest.mark.parametrize("rows_of", [HOT, WARM, HOT | {2: 20_000.0, 3: 5_000.0}], ids=["one", "several", "both"])
def test_skew_is_planned_away_with_the_reason(rows_of: Mapping[int, float]) -> None:
    balanced = balancer()
    loads = measure(EVEN, rows_of)
    proposal = balanced.consider(loads, EVEN)
    assert proposal is not None
    assert imbalance(proposal.routes, rows_of) <= 1.02 < imbalance(EVEN, rows_of)
    assert "the busiest slot has" in proposal.reason
    assert "mnrt moves" in proposal.reason
    assert proposal.reason == balanced.last_reason


@pytest.mark.parametrize("rows_of", [HOT, WARM], ids=["one", "several"])
def test_slots_that_become_uneven_are_planned_without_a_sample(rows_of: Mapping[int, float]) -> None:
    balanced = balancer()
    proposal = balanced.consider(replace(measure(EVEN, rows_of), sample=None), EVEN)
    assert proposal is not None
    assert imbalance(proposal.routes, rows_of) <= 1.02
    assert balanced.scores is None


def test_a_strategy_waits_for_a_sample() -> None:
    balanced = balancer(strategy="least-count")
    assert balanced.consider(replace(measure(EVEN, HOT), sample=None), EVEN) is None
    assert "waits for slots to send a sample" in balanced.last_reason
    decided = balanced.consider(measure(EVEN, HOT, batch=2), EVEN)
    assert decided is not None
    assert balanced.consider(replace(measure(decided.routes, HOT, batch=4), sample=None), decided.routes) is None
    assert "no sample yet" in balanced.last_reason


def test_even_slots_are_asked_for_a_sample_now_and_then() -> None:
    balanced = balancer(Balance(tolerance=0.5, fewest_rows_a_slot=100))
    asked = []
    for batch in range(1, 18):
        asked.append(balanced.wants_sample)
        loads = measure(EVEN, {}, batch)
        balanced.consider(loads if asked[-1] else replace(loads, sample=None), EVEN)
    assert [number for number, wanted in enumerate(asked) if wanted] == [0, 8, 16]


@pytest.mark.parametrize("fewest", [100, int(ROWS)], ids=["judged", "too small to be judged"])
def test_state_of_even_slots_is_measured_now_and_then(fewest: int) -> None:
    balanced = balancer(Balance(tolerance=0.5, fewest_rows_a_slot=fewest), strategy="least-count")
    asked = []
    for batch in range(1, 18):
        asked.append(balanced.wants_sizes)
        balanced.consider(measure(EVEN, {}, batch), EVEN)
    assert [number for number, wanted in enumerate(asked) if wanted] == [0, 8, 16]
    assert not balancer(None).wants_sizes


def test_state_of_uneven_slots_is_measured_in_every_batch() -> None:
    balanced = balancer()
    for batch in range(1, 4):
        assert balanced.wants_sizes
        balanced.consider(measure(EVEN, HOT, batch), EVEN)


@pytest.mark.parametrize(
    ("balance", "strategy"),
    [
        (replace(EAGER, trigger=BalanceTrigger(every_rows=1_000)), "auto"),
        (replace(EAGER, trigger=BalanceTrigger(every_seconds=1.0)), "auto"),
        (replace(EAGER, trigger=BalanceTrigger(balance_below=0.9)), "auto"),
        (EAGER, "least-count-history"),
    ],
)
def test_who_decides_from_samples_is_always_given_one(balance: Balance, strategy: str) -> None:
    balanced = balancer(balance, strategy)
    balanced.consider(measure(EVEN, {}), EVEN)
    assert balanced.wants_sample


def test_uneven_slots_are_asked_for_a_sample_and_unwatched_ones_never() -> None:
    balanced = balancer()
    balanced.consider(measure(EVEN, HOT), EVEN)
    assert balanced.wants_sample
    assert not balancer(None).wants_sample


@pytest.mark.parametrize("cheap", [0, 1])
def test_of_keys_with_as_many_rows_the_one_with_less_state_moves(cheap: int) -> None:
    """Slot 0 has two of them, slot 3 none."""
    homes = {key: int(EVEN.home_slots(KeyBatch(np.array([hash_of(key)], np.uint64)))[0]) for key in range(1, 60)}
    pair = sorted([key for key, home in homes.items() if home == 0][:2], key=hash_of)
    others = [next(key for key, home in homes.items() if home == slot) for slot in (1, 2)]
    rows_of = dict.fromkeys([*pair, *others], 15_000.0)
    loads = replace(measure(EVEN, rows_of, splittable=False), sample=None)
    bucket_bytes = np.full(BUCKETS, 1_000.0)
    key_bytes = {hash_of(key): 1e3 if number == cheap else 1e6 for number, key in enumerate(pair)}
    for key, size in key_bytes.items():
        bucket_bytes[buckets_of(np.array([key], np.uint64), BUCKETS)] += size
    proposal = balancer().consider(replace(loads, sizes=StateSizes(bucket_bytes, key_bytes)), EVEN)
    assert proposal is not None
    assert proposal.routes.table.keys.tolist() == [hash_of(pair[cheap])]
    assert proposal.moved_bytes < 1e4


def test_state_that_was_not_measured_is_shared_out_by_rows() -> None:
    loads = measure(EVEN, WARM, state_bytes=1e6)
    moved = balancer().consider(loads, EVEN)
    assert moved is not None
    stale = StateSizes(np.full(BUCKETS // 2, 1e9))
    assert balancer().consider(replace(loads, sizes=stale), EVEN).moved_bytes == moved.moved_bytes  # type: ignore[union-attr]
    known = StateSizes(loads.bucket_rows * (1e6 / ROWS))
    also = balancer().consider(replace(loads, sizes=known), EVEN)
    assert also is not None and also.routes == moved.routes
    assert also.moved_bytes == pytest.approx(moved.moved_bytes)


def test_equal_loads_give_equal_proposals() -> None:
    made = [balancer().consider(measure(EVEN, HOT | WARM), EVEN) for _ in range(2)]
    assert made[0] is not None and made[1] is not None
    assert made[0].routes == made[1].routes


@tries(40)
@given(st.dictionaries(st.integers(1, 60), st.floats(10, 60_000), min_size=1, max_size=12))
def test_a_proposal_never_makes_it_worse(rows_of: dict[int, float]) -> None:
    balanced = balancer()
    proposal = balanced.consider(measure(EVEN, rows_of), EVEN)
    if proposal is not None:
        assert imbalance(proposal.routes, rows_of) < imbalance(EVEN, rows_of)
        assert imbalance(proposal.routes, rows_of) <= 1.05


def test_after_a_plan_loads_must_be_seen_before_the_next() -> None:
    balanced = balancer()
    assert balanced.consider(measure(EVEN, HOT, batch=5), EVEN) is not None
    assert balanced.consider(measure(EVEN, HOT, batch=6), EVEN) is None
    assert "cooling down" in balanced.last_reason
    assert balanced.consider(measure(EVEN, HOT, batch=7), EVEN) is not None


def test_a_longer_cool_down_is_kept() -> None:
    trigger = BalanceTrigger(imbalance_above=1.05, cool_down_batches=4)
    balanced = balancer(Balance(fewest_rows_a_slot=100, trigger=trigger))
    found = [balanced.consider(measure(EVEN, HOT, batch=batch), EVEN) is not None for batch in range(1, 8)]
    assert found == [True, False, False, False, False, True, False]


def test_an_improvement_that_is_too_small_is_not_worth_it() -> None:
    trigger = BalanceTrigger(imbalance_above=1.05, smallest_improvement=5.0)
    balanced = balancer(Balance(fewest_rows_a_slot=100, trigger=trigger))
    assert balanced.consider(measure(EVEN, HOT), EVEN) is None
    assert "not worth it" in balanced.last_reason


def test_a_split_key_that_cooled_becomes_whole_again() -> None:
    balanced = balancer()
    proposal = balanced.consider(measure(EVEN, HOT, batch=1), EVEN)
    assert proposal is not None
    split = proposal.routes
    assert hash_of(1) in split.table.split_keys()
    cold = {1: 10.0}
    assert balanced.consider(measure(split, cold, batch=2), split) is None
    # Whatever is uneven then is planned first; the next look finds what is no longer needed.
    routes = split
    for batch in range(3, 9):
        found = balanced.consider(measure(routes, cold, batch=batch), routes)
        routes = routes if found is None else found.routes
    assert len(routes.table.split_keys()) == 0
    assert imbalance(routes, cold) <= 1.05


def test_a_key_that_stays_hot_stays_split() -> None:
    balanced = balancer()
    proposal = balanced.consider(measure(EVEN, HOT, batch=1), EVEN)
    assert proposal is not None
    for batch in range(2, 8):
        assert balanced.consider(measure(proposal.routes, HOT, batch=batch), proposal.routes) is None


def test_keys_that_must_stay_whole_are_never_split() -> None:
    balanced = balancer()
    looks = (balanced.consider(measure(EVEN, HOT | WARM, batch, splittable=False), EVEN) for batch in range(1, 20))
    # A twentieth less for the busiest slot is worth a change when it has lasted for some samples.
    proposal = next(found for found in looks if found is not None)
    assert len(proposal.routes.table.split_keys()) == 0
    assert proposal.routes.splitter is None
    assert imbalance(proposal.routes, HOT | WARM) < imbalance(EVEN, HOT | WARM)


def test_a_single_key_too_hot_for_a_slot_that_must_stay_whole_gets_one_to_itself() -> None:
    proposal = balancer().consider(measure(EVEN, {1: 60_000.0}, splittable=False), EVEN)
    assert proposal is not None
    after = measure(proposal.routes, {1: 60_000.0}).slot_rows
    assert after.max() == pytest.approx(60_000, rel=0.01)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("rows_of", [{}, HOT, WARM], ids=["even", "hot", "warm"])
def test_other_numbers_of_slots_are_even_where_loads_are_known(slots: int, rows_of: Mapping[int, float]) -> None:
    proposal = balancer().resize(measure(EVEN, rows_of), EVEN, slots)
    assert proposal.routes.slots == slots
    assert proposal.reason == f"4 slots become {slots}"
    assert imbalance(proposal.routes, rows_of) <= 1.06


AWAY = RoutingTable.of({hash_of(1): {0: 0.5, 3: 0.5}, hash_of(2): {3: 1.0}})


@pytest.mark.parametrize(("planner", "splits"), [("mnrt", True), ("qmmp", True), ("readj", False)])
def test_slots_change_by_the_planner_that_is_set(planner: str, splits: bool) -> None:
    planned = balancer(replace(EAGER, planner=planner)).resize(measure(EVEN, WARM | HOT), EVEN, 6)
    assert (hash_of(1) in planned.routes.table.split_keys()) == splits
    assert planned.moved_bytes > 0


@pytest.mark.parametrize(("slots", "kept"), [(6, {1, 2}), (2, set())])
def test_whole_buckets_change_slots_and_leave_keys_where_they_were_put(slots: int, kept: set[int]) -> None:
    routes = EVEN.with_table(AWAY)
    by_buckets = balancer(replace(EAGER, planner="balance-load"))
    resized = by_buckets.resize(measure(routes, WARM | HOT), routes, slots).routes
    assert set(resized.table.keys.tolist()) == {hash_of(key) for key in kept}
    assert resized.slots == slots


@pytest.mark.parametrize("slots", [1, 3, 9])
def test_without_loads_buckets_are_dealt_evenly_and_keys_of_slots_that_go_return_home(slots: int) -> None:
    table = RoutingTable.of({hash_of(1): {3: 1.0}, hash_of(2): {0: 0.5, 3: 0.5}, hash_of(3): {0: 1.0}})
    proposal = balancer().resize(None, EVEN.with_table(table), slots)
    assert proposal.routes.slots == slots
    kept = {1, 2, 3} if slots > 3 else {3}
    assert set(proposal.routes.table.keys.tolist()) == {hash_of(key) for key in kept}


def test_a_way_there_and_back_keeps_every_key_on_a_slot() -> None:
    grown = balancer().resize(measure(EVEN, HOT), EVEN, 7).routes
    shrunk = balancer().resize(measure(grown, HOT), grown, 2).routes
    keys = KeyBatch(np.array([hash_of(number) for number in range(500)], np.uint64))
    assert set(grown.storage_slots(keys).tolist()) == set(range(7))
    assert set(shrunk.storage_slots(keys).tolist()) == {0, 1}


@pytest.mark.parametrize("slots", [1, 2, 8])
@pytest.mark.parametrize("name", ["pkg", "w-choices", "modulo", "consistent-hash", "weight-hash", "least-count"])
def test_every_strategy_can_have_other_slots(name: str, slots: int) -> None:
    balanced = balancer()
    loads = measure(EVEN, HOT)
    switched = balanced.switch(name, loads, EVEN, np.random.default_rng(0)).routes
    assert balanced.resize(measure(switched, HOT), switched, slots).routes.slots == slots


def test_more_slots_than_buckets_are_refused_with_the_limit() -> None:
    with pytest.raises(RouteError, match="64 buckets"):
        balancer().resize(None, EVEN, 65)
    with pytest.raises(RouteError, match="64 buckets"):
        balancer().resize(measure(EVEN, HOT), EVEN, 65)


def test_a_switch_of_strategy_says_so_and_stays() -> None:
    balanced = balancer()
    proposal = balanced.switch("pkg", measure(EVEN, HOT), EVEN, np.random.default_rng(0))
    assert proposal.reason == "the strategy is pkg from now on"
    assert isinstance(proposal.routes.splitter, ChoiceSplitter)
    assert balanced.routing.strategy == "pkg"


def test_a_strategy_that_does_not_exist_is_not_remembered() -> None:
    balanced = balancer()
    with pytest.raises(RouteError, match="there is no strategy 'magic'"):
        balanced.switch("magic", None, EVEN, np.random.default_rng(0))
    assert balanced.routing.strategy == "auto"
    assert balanced.consider(measure(EVEN, HOT), EVEN) is not None


def test_a_strategy_that_cannot_decide_is_not_remembered() -> None:
    balanced = balancer()
    with pytest.raises(RouteError, match="ranges"):
        balanced.switch("ranges", measure(EVEN, HOT), EVEN, np.random.default_rng(0))
    assert balanced.routing.strategy == "auto"


def test_going_back_to_auto_plans_from_buckets_again() -> None:
    balanced = balancer(strategy="modulo")
    proposal = balanced.switch("auto", measure(EVEN, HOT), Routes(ModuloRoute(SLOTS, False)), np.random.default_rng(0))
    assert isinstance(proposal.routes.base, BucketRoute)
    assert balanced.routing.strategy == "auto"


def test_auto_on_routes_that_cannot_be_planned_plans_from_hashes() -> None:
    modulo = Routes(ModuloRoute(SLOTS, False))
    loads = replace(measure(modulo, HOT), bucket_rows=np.zeros(SLOTS))
    proposal = balancer().consider(loads, modulo)
    assert proposal is not None
    assert "plan leads modulo" in proposal.reason
    assert isinstance(proposal.routes.base, BucketRoute)
    assert imbalance(proposal.routes, HOT) <= 1.02


def test_a_named_strategy_decides_anew_and_is_not_overruled() -> None:
    balanced = balancer(strategy="w-choices")
    first = balanced.consider(measure(EVEN, {}), EVEN)
    assert first is not None and first.reason == "w-choices decides, now that keys are known"
    unaware = replace(first.routes, splitter=ChoiceSplitter(SLOTS))
    proposal = balanced.consider(measure(unaware, {1: 70_000.0}, batch=3), unaware)
    assert proposal is not None
    assert "w-choices decides anew" in proposal.reason
    assert proposal.routes.splitter == ChoiceSplitter(SLOTS, (hash_of(1),), SLOTS)


def test_every_strategy_that_can_be_tried_is_scored() -> None:
    balanced = balancer()
    balanced.consider(measure(EVEN, HOT), EVEN)
    assert balanced.scores is not None
    assert {"hash", "pkg", "d-choices", "w-choices", "least-count"} <= {s.strategy for s in balanced.scores.ranked}


def test_what_has_to_move_is_told_beforehand() -> None:
    def moved(proposal: Proposal | None) -> float:
        assert proposal is not None
        return proposal.moved_bytes

    few, many = (moved(balancer().consider(measure(EVEN, MANY, state_bytes=size), EVEN)) for size in (1e6, 1e9))
    assert 0 < few < 1e6
    assert many == pytest.approx(1000 * few)
    # A key that is split leaves what it has where it is.
    assert moved(balancer().consider(measure(EVEN, WARM), EVEN)) == 0


def test_every_plan_says_what_it_costs() -> None:
    ticks = iter(range(1000))
    balanced = Balancer(Routing("auto", EAGER), clock=lambda: float(next(ticks)))
    proposal = balanced.consider(measure(EVEN, WARM), EVEN)
    assert proposal is not None and proposal.costs is not None
    table = proposal.routes.table
    assert proposal.costs.planning_seconds is not None and proposal.costs.planning_seconds > 0
    assert proposal.costs.table_rows == len(table.keys) == 6
    assert proposal.costs.moved_bytes == proposal.moved_bytes
    assert proposal.costs.split_load == 6_000.0 * len(table.split_keys()) == 18_000.0
    assert balanced.last_costs == proposal.costs


def test_what_a_plan_costs_is_known_though_it_is_not_carried_out() -> None:
    hardly_better = Balance(
        fewest_rows_a_slot=100, trigger=BalanceTrigger(imbalance_above=1.0, smallest_improvement=3.0)
    )
    balanced = balancer(hardly_better)
    assert balanced.consider(measure(EVEN, HOT), EVEN) is None
    assert balanced.last_costs is not None and balanced.last_costs.split_load == 40_000.0


def test_a_key_too_hot_for_a_slot_has_slots_alone_if_that_is_set() -> None:
    def slots_of_the_rest(balance: Balance) -> set[int]:
        proposal = balancer(balance).consider(replace(measure(EVEN, {1: 60_000.0}), sample=None), EVEN)
        assert proposal is not None
        assert imbalance(proposal.routes, {1: 60_000.0}) <= 1.02
        assert isinstance(proposal.routes.base, BucketRoute)
        return set(proposal.routes.base.bucket_map.slot_of)

    assert slots_of_the_rest(EAGER) == {0, 1, 2, 3}
    assert len(slots_of_the_rest(replace(EAGER, oversized="alone"))) == 2


def test_least_count_with_history_evens_out_all_batches_so_far() -> None:
    first, second = {number: 10_000.0 for number in range(1, 9)}, {number: 10_000.0 for number in range(1, 5)}
    evenness = {}
    for strategy in ("least-count", "least-count-history"):
        balanced = balancer(strategy=strategy)
        balanced.consider(measure(EVEN, first, batch=1), EVEN)
        proposal = balanced.consider(measure(EVEN, second, batch=4), EVEN)
        assert proposal is not None
        both = measure(proposal.routes, first).slot_rows + measure(proposal.routes, second).slot_rows
        evenness[strategy] = score_loads(both).max_over_mean
    assert evenness["least-count-history"] < 1.03 < evenness["least-count"]


def test_keys_that_go_home_leave_as_much_room_as_a_plan_does() -> None:
    """Sent home into slots that are then full, keys would ask for the next plan by chance alone."""
    balanced = balancer()
    proposal = balanced.consider(measure(EVEN, WARM, batch=1), EVEN)
    assert proposal is not None
    routes = proposal.routes
    for batch in range(3, 9, 2):
        cooled = balanced.consider(measure(routes, WARM, batch=batch), routes)
        routes = routes if cooled is None else cooled.routes
    assert imbalance(routes, WARM) <= 1 + 0.3 * EAGER.tolerance + 1e-9


POWERS = (3.0, 2.0, 2.0, 1.0)


def stronger(strategy: str = "auto", **options: object) -> Balancer:
    return Balancer(Routing(strategy, EAGER, options=options, powers=POWERS))


@pytest.mark.parametrize("rows_of", [{}, HOT, WARM], ids=["even", "hot", "warm"])
@pytest.mark.parametrize("strategy", ["auto", "least-count"])
def test_slots_get_what_their_power_lets_them_bear(strategy: str, rows_of: Mapping[int, float]) -> None:
    balanced, routes = stronger(strategy), EVEN
    for batch in (1, 3, 5):
        proposal = balanced.consider(measure(routes, rows_of, batch), routes)
        routes = routes if proposal is None else proposal.routes
    loads = measure(routes, rows_of).slot_rows
    if rows_of != HOT or strategy == "auto":
        assert score_loads(loads, POWERS).max_over_mean <= 1.06
    assert score_loads(measure(EVEN, rows_of).slot_rows, POWERS).max_over_mean > 1.5


def test_even_rows_on_slots_of_different_power_are_uneven() -> None:
    alike = balancer()
    assert alike.consider(measure(EVEN, {}), EVEN) is None
    assert stronger().consider(measure(EVEN, {}), EVEN) is not None


def test_scores_of_strategies_are_weighed_by_power() -> None:
    balanced = stronger()
    balanced.consider(measure(EVEN, {}), EVEN)
    assert balanced.scores is not None
    assert balanced.scores.of("weight-hash").score.max_over_mean < 1.1
    assert balanced.scores.of("hash").score.max_over_mean > 1.8


@pytest.mark.parametrize("slots", [2, 6])
def test_other_numbers_of_slots_are_planned_by_power(slots: int) -> None:
    resized = stronger().resize(measure(EVEN, WARM), EVEN, slots).routes
    powers = Routing(powers=POWERS).powers_over(slots)
    assert score_loads(measure(resized, WARM).slot_rows, powers).max_over_mean <= 1.06


def test_a_switch_takes_options_and_says_them() -> None:
    balanced = balancer()
    named = NamedStrategy("weight-hash", weights=[40, 30, 20, 10])
    proposal = balanced.switch(named, measure(EVEN, {}), EVEN, np.random.default_rng(0))
    assert proposal.reason == "the strategy is weight-hash weights=40,30,20,10 from now on"
    shares = proposal.routes.loads(measure(EVEN, {}).sample) / ROWS  # type: ignore[arg-type]
    assert shares == pytest.approx([0.4, 0.3, 0.2, 0.1], abs=0.02)
    assert balanced.routing.powers_over(SLOTS) == (40, 30, 20, 10)


def test_weights_follow_slots_that_come_and_go() -> None:
    balanced = Balancer(Routing("weight-hash", EAGER, options={"weights": (60, 20, 10, 10)}))
    loads = measure(EVEN, {})
    routes = balanced.switch(balanced.routing.named, loads, EVEN, np.random.default_rng(0)).routes
    for slots, shares in ((5, [0.48, 0.16, 0.08, 0.08, 0.2]), (2, [0.75, 0.25])):
        resized = balanced.resize(measure(routes, {}), routes, slots).routes
        assert measure(resized, {}).slot_rows / ROWS == pytest.approx(shares, abs=0.02)
        assert balanced.consider(measure(resized, {}, batch=9), resized) is None


NAMED = ["modulo", "least-key", "least-count", "w-choices", "weight-random", "consistent-hash"]


@pytest.mark.parametrize("balance", [EAGER, None], ids=["balanced", "unbalanced"])
@pytest.mark.parametrize("name", NAMED)
def test_a_strategy_that_came_too_late_for_the_first_row_decides_by_the_first_sample(
    name: str, balance: Balance | None
) -> None:
    """Whatever triggers say, and however few rows there were; and once is enough."""
    named = Balancer(Routing(name, balance and replace(balance, fewest_rows_a_slot=10**9)))
    proposal = named.consider(measure(EVEN, {}), EVEN)
    assert proposal is not None
    assert proposal.routes.by == name
    assert not named.is_undecided(proposal.routes)
    assert named.consider(measure(proposal.routes, {}, batch=3), proposal.routes) is None


def test_a_strategy_that_cannot_decide_is_asked_once() -> None:
    named = Balancer(Routing("ranges", None))
    assert named.consider(measure(EVEN, {}), EVEN) is None
    assert "ranges are cut at the quantiles" in named.last_reason
    assert not named.is_undecided(EVEN)


def sample_loads(routes: Routes, rows_of: Mapping[int, float], batch: int) -> OperatorLoads:
    """Return the loads of a batch that had rows of these keys only."""
    keys = np.array(sorted(hash_of(key) for key in rows_of), np.uint64)
    counts = {hash_of(key): rows for key, rows in rows_of.items()}
    sample = KeySample(keys, np.array([counts[key] for key in keys.tolist()]))
    return replace(measure(routes, rows_of, batch), sample=sample, slot_rows=routes.loads(sample))


@pytest.mark.parametrize("strategy", ["least-key", "least-count", "least-count-history", "weight-random"])
def test_by_the_published_rule_new_keys_are_placed_as_they_come_and_decided_keys_stay(strategy: str) -> None:
    balanced = Balancer(Routing(strategy, EAGER, options={"sticky": True}))
    first = {key: 1_000.0 * key for key in range(1, 9)}
    both = {**dict.fromkeys(first, 1_000.0), **dict.fromkeys(range(9, 17), 4_000.0)}
    begun = balanced.consider(sample_loads(EVEN, first, 1), EVEN)
    assert begun is not None
    later = balanced.consider(sample_loads(begun.routes, both, 2), begun.routes)
    assert later is not None and later.reason.startswith("8 new keys are placed by ")
    known = KeyBatch(np.array([hash_of(key) for key in first], np.uint64))
    assert later.routes.storage_slots(known).tolist() == begun.routes.storage_slots(known).tolist()
    assert len(later.routes.table) == 16
    assert balanced.consider(sample_loads(later.routes, both, 3), later.routes) is None
    if strategy == "least-count":
        # Who looks at all keys again moves decided ones, too.
        sample = sample_loads(EVEN, both, 2).sample
        assert sample is not None
        free = decide_named(Routing(strategy), sample, begun.routes, np.random.default_rng(2))
        assert free.storage_slots(known).tolist() != begun.routes.storage_slots(known).tolist()


def test_the_published_rule_without_a_past_goes_by_this_sample_alone_and_with_one_by_all() -> None:
    first = {1: 9_000.0, 2: 1_000.0, 3: 1_000.0, 4: 1_000.0}
    second = {1: 10.0, 2: 1_000.0, 3: 1_000.0, 4: 1_000.0, 5: 500.0}
    slots = {}
    for strategy in ("least-count", "least-count-history"):
        balanced = Balancer(Routing(strategy, EAGER, options={"sticky": True}))
        begun = balanced.consider(sample_loads(EVEN, first, 1), EVEN)
        assert begun is not None
        later = balanced.consider(sample_loads(begun.routes, second, 2), begun.routes)
        assert later is not None
        slots[strategy] = begun.routes.table.owners(hash_of(1))[0].slot == later.routes.table.owners(hash_of(5))[0].slot
    # The key that was hot is silent now: only who remembers keeps away from its slot.
    assert slots == {"least-count": True, "least-count-history": False}


def test_strategies_that_know_keys_decide_anew_for_other_slots() -> None:
    balanced = balancer(strategy="least-key")
    begun = balanced.consider(measure(EVEN, {}), EVEN)
    assert begun is not None
    resized = balanced.resize(measure(begun.routes, {}), begun.routes, 6).routes
    sample = measure(EVEN, {}).sample
    assert sample is not None
    held = np.bincount(resized.storage_slots(sample.batch), minlength=6)
    assert held.max() - held.min() <= 1
    assert resized.by == "least-key"


def test_a_strategy_that_is_changed_to_knows_the_keys_of_the_sample_that_it_is_chosen_on() -> None:
    balanced, routes = balancer(), Routes.even(16, BUCKETS)
    for batch in range(1, 60):
        # Another key is hot every few batches, which plans learn too late each time.
        hot = {1 + batch // 5: 90_000.0}
        proposal = balanced.consider(measure(routes, hot, batch), routes)
        if proposal is not None and proposal.routes.splitter is not None:
            break
        routes = routes if proposal is None else proposal.routes
    assert proposal is not None and isinstance(proposal.routes.splitter, ChoiceSplitter)
    assert hash_of(next(iter(hot))) in proposal.routes.splitter.head
    assert imbalance(proposal.routes, hot) < 1.1
