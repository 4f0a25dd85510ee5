"""Strategies that place keys one by one: LeastKey, LeastCount and random Weight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import RoutingTable
from anabranch.routing import (
    KeyBatch,
    KeySample,
    LeastCount,
    LeastKey,
    ModuloRoute,
    Routes,
    Strategy,
    WeightRandom,
    make_strategy,
    score_loads,
)
from anabranch.routing.strategies import coordinated
from anabranch.routing.strategies.coordinated import fit_sample, place_on_least
from unit.routing.builders import hashes_of, key_hash, routes, with_powers


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def sample_of(counts: dict[int, float], history: dict[int, float] | None = None) -> KeySample:
    """Return a sample of integer keys with these counts."""
    values = list(counts)
    sample = KeySample.gather(hashes_of(values), list(counts.values()), pl.Series(values, dtype=pl.Int64))
    if history is None:
        return sample
    assert sample.values is not None
    return replace(sample, history=np.array([history.get(value, 0.0) for value in sample.values.to_list()]))


samples = st.dictionaries(st.integers(-20, 60), st.integers(1, 1000), min_size=1).map(
    lambda counts: sample_of({value: float(count) for value, count in counts.items()})
)
strategies = st.sampled_from(
    [
        LeastKey(),
        LeastKey(sticky=True),
        LeastCount(),
        LeastCount(sticky=True),
        WeightRandom(),
        WeightRandom(sticky=False),
    ]
)


def keys_by_slot(decided: Routes, sample: KeySample) -> list[int]:
    return np.bincount(decided.storage_slots(sample.batch), minlength=decided.slots).tolist()


# What holds for all of them.


@given(strategies, samples, routes())
def test_entries_exist_for_sampled_keys_away_from_home_or_decided_for_good(
    strategy: Strategy, sample: KeySample, current: Routes
) -> None:
    decided = strategy.decide(sample, current, rng())
    places, homes = decided.storage_slots(sample.batch), decided.home_slots(sample.batch)
    entries = np.isin(sample.keys, decided.table.keys)
    assert entries.tolist() == ((places != homes) | getattr(strategy, "sticky", False)).tolist()
    assert not np.isin(sample.keys, decided.table.split_keys()).any()


@given(strategies, samples, routes())
def test_keys_that_the_sample_missed_stay_where_they_are(
    strategy: Strategy, sample: KeySample, current: Routes
) -> None:
    decided = strategy.decide(sample, current, rng())
    assert decided.table.without(sample.keys) == current.table.without(sample.keys)
    assert decided.base == current.base


@given(strategies, samples, routes())
def test_equal_inputs_give_equal_decisions(strategy: Strategy, sample: KeySample, current: Routes) -> None:
    assert strategy.decide(sample, current, rng()) == strategy.decide(sample, current, rng())


STICKY = st.sampled_from([LeastKey(sticky=True), LeastCount(sticky=True), WeightRandom()])


@given(STICKY, samples, samples, routes())
def test_what_was_decided_stays_if_sticky_whatever_comes(
    strategy: Strategy, sample: KeySample, later: KeySample, current: Routes
) -> None:
    once = strategy.decide(sample, current, rng())
    again = strategy.decide(later, once, np.random.default_rng(99))
    assert again.storage_slots(sample.batch).tolist() == once.storage_slots(sample.batch).tolist()
    assert strategy.decide(sample, once, np.random.default_rng(99)).table == once.table


@given(samples, samples, st.integers(1, 5))
def test_sticky_least_key_is_the_published_rule(first: KeySample, second: KeySample, slots: int) -> None:
    """Algorithm 1 of the load distribution paper, key by key: known keys stay, others go where the fewest keys are."""
    routes = Routes(ModuloRoute(slots))
    assigned: dict[int, int] = {}
    for sample in (first, second):
        routes = LeastKey(sticky=True).decide(sample, routes, rng())
        for key in sample.keys.tolist():
            held = [list(assigned.values()).count(slot) for slot in range(slots)]
            assigned.setdefault(key, held.index(min(held)))
    assert {key: routes.table.owners(key)[0].slot for key in assigned} == assigned


@given(samples, st.integers(0, 40))
def test_a_full_table_takes_the_hottest_of_new_keys_and_keeps_the_others(sample: KeySample, known: int) -> None:
    table = RoutingTable.of({key: {0: 1.0} for key in sample.keys.tolist()[:known]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinated, "MOST_DECIDED_KEYS", 5)
        fitted = fit_sample(sample, table)
    old = np.isin(sample.keys, table.keys)
    room = max(5 - len(table), 0)
    hottest = sorted(zip(-sample.counts[~old], sample.keys[~old].tolist(), strict=True))[:room]
    assert set(fitted.keys.tolist()) == {*sample.keys[old].tolist(), *(key for _, key in hottest)}


def test_keys_that_nobody_decided_on_go_by_power_too() -> None:
    sample = replace(sample_of({1: 1.0}), powers=np.array([3.0, 1.0]))
    unseen = KeyBatch(np.random.default_rng(1).integers(0, 2**64, 10_000, np.uint64))
    for strategy in (LeastKey(), LeastCount(sticky=True), WeightRandom(), WeightRandom(weights=(75, 25))):
        decided = strategy.decide(sample, Routes.even(2), rng())
        assert (decided.storage_slots(unseen) == 0).mean() == pytest.approx(0.75, abs=0.02)


# LeastKey.


@given(samples, st.integers(1, 9))
def test_least_key_gives_every_slot_equally_many_keys(sample: KeySample, slots: int) -> None:
    counts = keys_by_slot(LeastKey().decide(sample, Routes(ModuloRoute(slots)), rng()), sample)
    assert max(counts) - min(counts) <= 1


def test_least_key_moves_only_what_is_too_much() -> None:
    # Slot 0 has six keys at home, slots 1 and 2 none: two stay.
    sample = sample_of({value: 1.0 for value in (0, 3, 6, 9, 12, 15)})
    decided = LeastKey().decide(sample, Routes(ModuloRoute(3)), rng())
    assert len(decided.table) == 4


def test_sticky_least_key_counts_keys_that_are_silent_now() -> None:
    # Two keys were moved to slot 1 and are silent: the new one at home there goes to the emptier slot 0.
    table = RoutingTable.of({key_hash(0): {1: 1.0}, key_hash(2): {1: 1.0}})
    decided = LeastKey(sticky=True).decide(sample_of({5: 1.0}), Routes(ModuloRoute(2), table), rng())
    assert decided.table.owners(key_hash(5))[0].slot == 0


# LeastCount.

# The example of the routing paper, figure 1: nine keys with these many rows, three nodes, 1000 rows each at best.
FIGURE_1 = dict(enumerate([100.0, 300.0, 150.0, 300.0, 500.0, 250.0, 200.0, 700.0, 500.0], start=1))


def test_least_count_relieves_the_overloaded_node_of_figure_1_by_one_move() -> None:
    sample = sample_of(FIGURE_1)
    current = Routes(ModuloRoute(3))
    assert current.loads(sample).tolist() == [900.0, 600.0, 1500.0]
    decided = LeastCount().decide(sample, current, rng())
    assert decided.loads(sample).tolist() == [900.0, 1100.0, 1000.0]
    assert decided.table == RoutingTable.of({key_hash(5): {1: 1.0}})


def test_least_count_balances_the_nine_keys_also_from_one_slot() -> None:
    sample = sample_of(FIGURE_1)
    everything_on_0 = Routes(ModuloRoute(3), RoutingTable.assemble(hashes_of(list(FIGURE_1)), [0] * 9))
    loads = LeastCount().decide(sample, everything_on_0, rng()).loads(sample)
    assert loads.sum() == 3000
    assert score_loads(loads).extra_time <= 0.05


@given(samples, st.integers(1, 9))
def test_least_count_leaves_no_slot_above_fair_by_more_than_its_last_key(sample: KeySample, slots: int) -> None:
    loads = LeastCount().decide(sample, Routes(ModuloRoute(slots)), rng()).loads(sample)
    assert loads.sum() == pytest.approx(sample.counts.sum())
    assert loads.max() <= sample.counts.sum() / slots + sample.counts.max() + 1e-6


def test_key_too_hot_for_any_slot_stays_and_is_left_alone() -> None:
    sample = sample_of({0: 1000.0, 3: 10.0, 6: 10.0, 1: 10.0})
    decided = LeastCount().decide(sample, Routes(ModuloRoute(3)), rng())
    assert decided.loads(sample).tolist()[0] == 1000.0
    assert decided.table.owners(key_hash(0)) == ()


def test_split_key_is_put_together_where_its_largest_part_is() -> None:
    table = RoutingTable.of({key_hash(0): {0: 0.2, 1: 0.3, 2: 0.5}})
    decided = LeastCount().decide(sample_of({0: 5.0}), Routes(ModuloRoute(3), table), rng())
    assert [share.slot for share in decided.table.owners(key_hash(0))] == [2]


def test_history_counts_only_if_asked_for() -> None:
    # In the sample all are equal; before it, keys 0 and 3 were hot, and both are at home on slot 0.
    sample = sample_of({0: 1.0, 3: 1.0, 1: 1.0, 4: 1.0, 2: 1.0, 5: 1.0}, history={0: 100.0, 3: 100.0})
    current = Routes(ModuloRoute(3))
    forgetful = LeastCount().decide(sample, current, rng())
    remembering = make_strategy("least-count-history").decide(sample, current, rng())
    hot = KeySample.gather(hashes_of([0, 3]), [100.0, 100.0], pl.Series([0, 3]))
    assert len(forgetful.table) == 0
    assert forgetful.loads(hot).max() == 200.0
    assert remembering.loads(hot).max() == 100.0


def test_least_count_follows_the_powers_of_the_slots() -> None:
    sample = with_powers(sample_of({value: 1.0 for value in range(300)}), 1, 2, 3)
    loads = LeastCount().decide(sample, Routes(ModuloRoute(3)), rng()).loads(sample)
    assert loads.tolist() == [50.0, 100.0, 150.0]


def test_slot_without_power_gets_nothing() -> None:
    sample = with_powers(sample_of({value: 1.0 for value in range(30)}), 1, 0, 1)
    loads = LeastCount().decide(sample, Routes(ModuloRoute(3)), rng()).loads(sample)
    assert loads.tolist() == [15.0, 0.0, 15.0]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 4)), max_size=60),
    st.lists(st.integers(0, 100), min_size=5, max_size=5),
)
def test_movers_go_to_the_least_loaded_slot_hottest_first(keys: list[tuple[int, int]], fixed: list[int]) -> None:
    loads = np.array([load for load, _ in keys], np.float64)
    places = np.array([place for _, place in keys], np.int32)
    after = place_on_least(loads, places, np.array(fixed, np.float64), np.ones(5))
    moved = np.flatnonzero(after != places)
    levels = np.array(fixed, np.float64)
    stayed = np.setdiff1d(np.arange(len(keys)), moved)
    levels += np.bincount(after[stayed], loads[stayed], minlength=5)
    if len(moved):
        # A key is moved to where it leaves the level lowest at its turn: the last mover sees all others.
        last = moved[np.lexsort((moved, -loads[moved]))][-1]
        levels += np.bincount(after[moved], loads[moved], minlength=5)
        assert levels[after[last]] - loads[last] <= levels.min() + 1e-6 or loads[last] == 0


# Random Weight.


def test_keys_are_drawn_by_weight() -> None:
    sample = sample_of({value: 1.0 for value in range(20_000)})
    decided = WeightRandom(weights=(20, 50, 30)).decide(sample, Routes(ModuloRoute(3)), rng())
    assert np.allclose(np.array(keys_by_slot(decided, sample)) / 200, [20, 50, 30], atol=1.5)


def test_only_new_keys_are_drawn() -> None:
    current = Routes(ModuloRoute(3), RoutingTable.of({key_hash(0): {2: 1.0}}))
    sample = sample_of({0: 1.0, 1: 1.0, 2: 1.0}, history={1: 5.0})
    decided = WeightRandom(weights=(100, 0, 0)).decide(sample, current, rng())
    # Key 0 has an entry and key 1 a past; key 2 is new, and only slot 0 has weight.
    assert decided.storage_slots(sample.batch.take(np.argsort(sample.values.to_numpy()))).tolist() == [2, 1, 0]


def test_powers_are_the_weights_if_none_are_given() -> None:
    sample = with_powers(sample_of({value: 1.0 for value in range(100)}), 0, 1, 0)
    assert keys_by_slot(WeightRandom().decide(sample, Routes(ModuloRoute(3)), rng()), sample) == [0, 100, 0]


# The memory of samples.


def test_samples_remember_the_counts_of_earlier_ones() -> None:
    first, second, third = sample_of({1: 4.0, 2: 6.0}), sample_of({2: 1.0}), sample_of({3: 5.0})
    seen = third.remembering(second.remembering(first, fade=0.5), fade=0.5)
    assert seen.values is not None and seen.history is not None
    by_value = {
        value: (count, past)
        for value, count, past in zip(seen.values.to_list(), seen.counts.tolist(), seen.history.tolist(), strict=True)
    }
    assert by_value == {1: (0.0, 1.0), 2: (0.0, 2.0), 3: (5.0, 0.0)}


def test_the_hottest_keys_of_a_sample_are_those_with_most_rows_past_ones_included() -> None:
    sample = sample_of({0: 1.0, 1: 5.0, 2: 2.0}, history={0: 9.0, 1: 0.0, 2: 1.0})
    kept = sample.hottest(2)
    assert kept.values is not None and kept.history is not None
    assert set(kept.values.to_list()) == {0, 1}
    assert dict(zip(kept.values.to_list(), kept.history.tolist(), strict=True)) == {0: 9.0, 1: 0.0}
    assert sample.hottest(3) is sample
