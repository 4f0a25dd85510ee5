"""Algorithm 1: a row is stored at one slot of its key, and probes all of them."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import BucketMap, RouteError, RoutingTable
from anabranch.routing import (
    BaseRoute,
    BucketRoute,
    ChoiceSplitter,
    KeyBatch,
    KeySample,
    ModuloRoute,
    RangeRoute,
    Routes,
    slots_of,
)
from anabranch.routing.lookup import find_keys
from unit.routing.builders import batch_of, hashes_of, key_hash, key_values, routes

# The example of the routing paper, figure 2: three keys on three nodes, kᵢ at home on dᵢ; k₀ is hot and d₂ idle,
# so k₀ is split between d₀ and d₂.
FIGURE_2 = Routes(ModuloRoute(3), RoutingTable.of({key_hash(0): {0: 0.5, 2: 0.5}}))


def pairs(row_slots: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, int]]:
    return list(zip(row_slots[0].tolist(), row_slots[1].tolist(), strict=True))


def test_rows_of_the_split_key_are_stored_half_here_half_there() -> None:
    slots = FIGURE_2.storage_slots(batch_of([0] * 100))
    assert np.bincount(slots, minlength=3).tolist() == [50, 0, 50]


def test_rows_of_other_keys_are_stored_at_home() -> None:
    assert FIGURE_2.storage_slots(batch_of([1, 2, 1, 4])).tolist() == [1, 2, 1, 1]


def test_row_of_the_split_key_probes_every_part() -> None:
    assert pairs(FIGURE_2.operation_slots(batch_of([0, 1, 0, 2]))) == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2), (3, 2)]


def test_moved_key_is_stored_and_probed_at_its_new_slot_only() -> None:
    moved = FIGURE_2.with_table(RoutingTable.of({key_hash(1): {2: 1.0}}))
    assert moved.storage_slots(batch_of([1, 0])).tolist() == [2, 0]
    assert pairs(moved.operation_slots(batch_of([1, 0]))) == [(0, 2), (1, 0)]


def test_without_a_table_rows_go_where_the_bucket_map_says() -> None:
    keys = batch_of(list(range(1000)))
    bucket_map = BucketMap.even(5, 64)
    assert Routes(BucketRoute(bucket_map)).storage_slots(keys).tolist() == slots_of(keys.hashes, bucket_map).tolist()


# Theta joins.


def test_band_join_probes_the_ranges_that_it_meets() -> None:
    ranges = Routes(RangeRoute("integer", (10, 20, 30)))
    keys = pl.Series([9, 15, 35])
    assert pairs(ranges.operation_slots_between(keys - 1, keys + 1)) == [(0, 0), (0, 1), (1, 1), (2, 3)]


def test_one_sided_join_probes_all_ranges_on_that_side() -> None:
    ranges = Routes(RangeRoute("integer", (10, 20)))
    assert pairs(ranges.operation_slots_between(pl.Series([15]), None)) == [(0, 1), (0, 2)]
    assert pairs(ranges.operation_slots_between(None, pl.Series([15, 3]))) == [(0, 0), (0, 1), (1, 0)]


def test_theta_join_probes_wherever_keys_were_moved_to() -> None:
    ranges = Routes(RangeRoute("integer", (10, 20)), RoutingTable.of({key_hash(5): {2: 1.0}}))
    assert pairs(ranges.operation_slots_between(pl.Series([4]), pl.Series([6]))) == [(0, 0), (0, 2)]


def test_empty_interval_probes_nothing() -> None:
    ranges = Routes(RangeRoute("integer", (10, 20)), RoutingTable.of({key_hash(5): {2: 1.0}}))
    assert pairs(ranges.operation_slots_between(pl.Series([25]), pl.Series([5]))) == []


def test_theta_join_without_ranges_probes_every_slot() -> None:
    assert pairs(FIGURE_2.operation_slots_between(pl.Series([4.0]), pl.Series([6.0]))) == [(0, 0), (0, 1), (0, 2)]
    assert pairs(FIGURE_2.operation_slots_between(pl.Series([4]), pl.Series([60]))) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("base", [ModuloRoute(5), BucketRoute.even(5, 64), RangeRoute("integer", (3, 6, 9, 12))])
def test_integers_of_a_narrow_band_are_probed_at_the_home_of_each(base: BaseRoute) -> None:
    lows, highs = pl.Series([4, 11, 8]), pl.Series([6, 11, 7])
    homes = base.slots_of(batch_of(list(range(20)))).tolist()
    expected = {(0, homes[value]) for value in (4, 5, 6)} | {(1, homes[11])}
    assert pairs(Routes(base).operation_slots_between(lows, highs)) == sorted(expected)


def test_a_moved_and_a_split_neighbour_are_probed_where_they_are() -> None:
    moved = Routes(ModuloRoute(4), RoutingTable.of({key_hash(5): {2: 0.5, 3: 0.5}}))
    assert pairs(moved.operation_slots_between(pl.Series([4]), pl.Series([5]))) == [(0, 0), (0, 2), (0, 3)]


def test_theta_join_without_any_bound_is_refused() -> None:
    with pytest.raises(RouteError, match="give lows, highs or both"):
        FIGURE_2.operation_slots_between(None, None)


@given(routes(), key_values, st.integers(-25, 65), st.integers(0, 20))
def test_theta_join_finds_every_stored_match(drawn: Routes, values: list[int], low: int, width: int) -> None:
    high = low + width
    stored = drawn.storage_slots(batch_of(values)).tolist()
    needed = {slot for value, slot in zip(values, stored, strict=True) if low <= value <= high}
    probed = drawn.operation_slots_between(pl.Series([low]), pl.Series([high]))
    assert needed <= set(probed[1].tolist())


# What holds for all routes.


@given(routes(), key_values)
def test_every_row_is_stored_at_a_slot_that_exists(drawn: Routes, values: list[int]) -> None:
    slots = drawn.storage_slots(batch_of(values))
    assert slots.dtype == np.int32
    assert all(0 <= slot < drawn.slots for slot in slots.tolist())


@given(routes(), key_values)
def test_table_overrides_the_base_route(drawn: Routes, values: list[int]) -> None:
    keys = batch_of(values)
    homes, stored = drawn.home_slots(keys).tolist(), drawn.storage_slots(keys).tolist()
    for key, home, slot in zip(keys.hashes.tolist(), homes, stored, strict=True):
        owners = {owner.slot for owner in drawn.table.owners(key)} or {home}
        assert slot in owners


@given(routes(), key_values)
def test_rows_probe_all_owners_of_their_key_and_no_other_slot(drawn: Routes, values: list[int]) -> None:
    keys = batch_of(values)
    expected = []
    for row, (key, home) in enumerate(zip(keys.hashes.tolist(), drawn.home_slots(keys).tolist(), strict=True)):
        owners = [owner.slot for owner in drawn.table.owners(key)] or [home]
        expected += [(row, slot) for slot in owners]
    assert pairs(drawn.operation_slots(keys)) == expected


@given(routes(), key_values, st.booleans())
def test_as_many_slots_are_counted_as_a_row_probes_whatever_its_home_goes_by(
    drawn: Routes, values: list[int], splits: bool
) -> None:
    drawn = replace(drawn, splitter=ChoiceSplitter(drawn.slots) if splits else None)
    keys = batch_of(values)
    probing, _ = drawn.operation_slots(keys)
    assert drawn.count_slots(keys).tolist() == np.bincount(probing, minlength=len(keys)).tolist()


@given(routes(), key_values, st.integers(0, 2**40), st.integers(0, 2**70))
def test_shares_are_respected_within_a_few_rows_a_call(drawn: Routes, values: list[int], seed: int, first: int) -> None:
    keys = batch_of(values)
    slots = drawn.storage_slots(keys, first_ordinal=first, seed=seed)
    for key in drawn.table.split_keys().tolist():
        stored = np.bincount(slots[keys.hashes == np.uint64(key)], minlength=drawn.slots)
        rows = int(stored.sum())
        for owner in drawn.table.owners(key):
            assert abs(stored[owner.slot] - rows * owner.share) <= 2 + math.log10(max(rows, 1))


@pytest.mark.parametrize("rows", [10_000, 317_810, 1_000_000])
def test_shares_are_respected_within_a_few_rows_of_very_many(rows: int) -> None:
    shares = {0: 0.381966, 1: 0.2, 2: 0.118034, 3: 0.3}
    drawn = Routes(ModuloRoute(4), RoutingTable.of({key_hash(0): shares}))
    keys = KeyBatch(np.full(rows, key_hash(0), np.uint64), pl.Series(np.zeros(rows, np.int64)))
    stored = np.bincount(drawn.storage_slots(keys, seed=3), minlength=4)
    assert np.abs(stored - rows * np.array(list(shares.values()))).max() <= 2 + math.log10(rows)


def test_many_small_calls_favour_no_slot() -> None:
    keys = batch_of([0, 0])
    stored = sum(
        np.bincount(FIGURE_2.storage_slots(keys, first_ordinal=2 * call, seed=9), minlength=3) for call in range(2000)
    )
    assert abs(int(stored[0]) - 2000) < 200


@given(routes(), key_values, st.integers(0, 300))
def test_only_rows_of_split_keys_depend_on_how_rows_are_cut(drawn: Routes, values: list[int], cut: int) -> None:
    whole = drawn.storage_slots(batch_of(values))
    parts = np.concatenate((drawn.storage_slots(batch_of(values[:cut])), drawn.storage_slots(batch_of(values[cut:]))))
    split = drawn.split_keys(hashes_of(values))
    assert whole[~split].tolist() == parts[~split].tolist()


@given(routes(), key_values, st.integers(0, 2**63), st.integers(0, 2**63))
def test_equal_arguments_give_equal_slots(drawn: Routes, values: list[int], first: int, seed: int) -> None:
    keys = batch_of(values)
    assert drawn.storage_slots(keys, first, seed).tolist() == drawn.storage_slots(keys, first, seed).tolist()


# Task retries and resumed flows must store rows where the first attempt did.
def test_golden_turns_of_a_split_key() -> None:
    drawn = Routes(ModuloRoute(4), RoutingTable.of({key_hash(0): {0: 0.5, 1: 0.25, 3: 0.25}}))
    keys = batch_of([0] * 16)
    first_call, later_call = (drawn.storage_slots(keys, first_ordinal=first, seed=1) for first in (0, 1000))
    assert first_call.tolist() == [0, 1, 0, 3, 0, 0, 1, 0, 3, 1, 0, 3, 0, 0, 1, 0]
    assert later_call.tolist() == [0, 3, 0, 3, 1, 0, 3, 0, 0, 1, 0, 3, 1, 0, 3, 0]


@given(routes(), key_values)
def test_loads_of_a_sample_are_those_of_its_rows(drawn: Routes, values: list[int]) -> None:
    keys = batch_of(values)
    sample = KeySample.gather(keys.hashes, values=keys.values)
    loads = drawn.loads(sample)
    assert loads.sum() == pytest.approx(len(values))
    stored = np.bincount(drawn.storage_slots(keys), minlength=drawn.slots)
    slack = sum(2 + math.log10(count) for count in sample.counts[drawn.split_keys(sample.keys)].tolist())
    assert np.all(np.abs(loads - stored) <= slack + 1e-9)


@given(routes())
def test_routes_come_back_through_json_and_pickle(drawn: Routes) -> None:
    assert Routes.from_json(json.loads(json.dumps(drawn.to_json()))) == drawn
    assert pickle.loads(pickle.dumps(drawn)) == drawn


def test_split_keys_are_those_with_several_owners() -> None:
    table = RoutingTable.of({key_hash(0): {0: 0.5, 2: 0.5}, key_hash(1): {2: 1.0}})
    hashes = hashes_of([0, 1, 2])
    assert Routes(ModuloRoute(3), table).split_keys(hashes).tolist() == [True, False, False]
    assert Routes(ModuloRoute(3), table, ChoiceSplitter(3)).split_keys(hashes).tolist() == [True, False, True]


def test_table_that_names_a_slot_too_many_is_refused() -> None:
    with pytest.raises(RouteError, match=r"names slots \[3\]; there are 3"):
        Routes(ModuloRoute(3), RoutingTable.of({1: {3: 1.0}}))


def test_splitter_over_other_slots_is_refused() -> None:
    with pytest.raises(RouteError, match="row splitter has 4 slots, the base route 3"):
        Routes(ModuloRoute(3), splitter=ChoiceSplitter(4))


# Under a row splitter.


def test_table_overrides_the_row_splitter() -> None:
    drawn = Routes(ModuloRoute(4), RoutingTable.of({key_hash(0): {3: 1.0}}), ChoiceSplitter(4))
    keys = batch_of([0] * 50)
    assert set(drawn.storage_slots(keys).tolist()) == {3}
    assert pairs(drawn.operation_slots(keys.take(np.array([0])))) == [(0, 3)]


def test_splitter_makes_up_for_what_the_table_places() -> None:
    drawn = Routes(ModuloRoute(4), RoutingTable.of({key_hash(0): {3: 1.0}}), ChoiceSplitter(4))
    keys = batch_of([0] * 100 + list(range(1, 301)))
    assert np.bincount(drawn.storage_slots(keys), minlength=4).tolist() == [100, 100, 100, 100]


def test_splitter_starts_from_the_rows_that_slots_got_before() -> None:
    drawn = Routes(ModuloRoute(4), splitter=ChoiceSplitter(4))
    keys = batch_of(list(range(1000)))
    stored = np.bincount(drawn.storage_slots(keys, slot_rows=np.array([0, 200, 0, 200])), minlength=4)
    assert stored.tolist() == [350, 150, 350, 150]


def test_row_under_a_splitter_probes_its_choices() -> None:
    drawn = Routes(ModuloRoute(5), splitter=ChoiceSplitter(5))
    keys = batch_of(list(range(200)))
    rows, slots = drawn.operation_slots(keys)
    assert np.bincount(rows).tolist() == [2] * 200
    probed = set(zip(rows.tolist(), slots.tolist(), strict=True))
    assert set(enumerate(drawn.storage_slots(keys).tolist())) <= probed


# The lookup that all of this rests on.


@given(st.lists(st.integers(0, 2**64 - 1), max_size=60), st.integers(0, 63), st.data())
def test_known_hashes_are_found_also_where_they_begin_alike(known: list[int], shift: int, data: st.DataObject) -> None:
    # Shifted to the right, all begin with the same bits.
    table = np.unique(np.array([key >> shift for key in known], np.uint64))
    strangers = data.draw(st.lists(st.integers(0, 2**64 - 1), max_size=30))
    hashes = np.array([*table.tolist(), *[key >> shift for key in strangers], *table.tolist()[::-1]], np.uint64)
    rows, positions = find_keys(hashes, table)
    assert rows.tolist() == np.flatnonzero(np.isin(hashes, table)).tolist()
    assert table[positions].tolist() == hashes[rows].tolist()
