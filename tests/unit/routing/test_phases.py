"""Routes that change with event time: who holds what, who shares it, and the way to the manifest and back."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import BucketMap, RoutingTable
from anabranch.routing import BucketRoute, ChoiceSplitter, KeyBatch, Routes
from anabranch.routing.phases import Earlier, PhasedRoutes, SlotStanding, find_new_slots
from unit.routing.builders import bases, batch_of, hashes_of, key_hash, routes, tables

SWITCH_US = 1_000


def placed(placements: dict[int, list[int]], slots: int = 4) -> Routes:
    """Return routes under which everything is on slot 0 but the given keys."""
    table = {key_hash(key): {slot: 1 / len(owners) for slot in owners} for key, owners in placements.items()}
    return Routes(BucketRoute(BucketMap(slots, (0,) * 8)), RoutingTable.of(table))


def keys(*values: int) -> KeyBatch:
    return batch_of(list(values))


def hash_series(*values: int) -> pl.Series:
    return pl.Series(hashes_of(list(values)))


def windows(*starts: int) -> pl.Series:
    return pl.Series(starts, dtype=pl.Int64)


def test_state_stays_on_a_slot_that_still_has_a_part_of_its_key() -> None:
    split = placed({1: [1, 2, 3]})
    assert find_new_slots(split, keys(1), 2).tolist() == [2]


def test_state_of_a_key_that_left_goes_to_the_first_of_its_slots() -> None:
    split = placed({1: [1, 2, 3], 2: [3]})
    assert find_new_slots(split, keys(1, 2, 5), 0).tolist() == [1, 3, 0]


def test_slots_that_are_no_more_hand_everything_on() -> None:
    assert find_new_slots(placed({1: [1]}, slots=2), keys(1, 2, 3), 7).tolist() == [1, 0, 0]


def test_state_under_a_row_splitter_stays_with_either_choice() -> None:
    pkg = Routes(BucketRoute.even(4, 16), splitter=ChoiceSplitter(4))
    some = keys(*range(50))
    rows, slots = pkg.operation_slots(some)
    for slot in range(4):
        stays = np.zeros(50, np.bool_)
        stays[rows[slots == slot]] = True
        assert ((find_new_slots(pkg, some, slot) == slot) == stays).all()


@given(routes(), st.lists(st.integers(-20, 60), max_size=60), st.integers(0, 9))
def test_state_always_ends_up_on_a_slot_of_its_key(chosen: Routes, values: list[int], slot: int) -> None:
    some = batch_of(values)
    targets = find_new_slots(chosen, some, slot)
    rows, slots = chosen.operation_slots(some)
    owners: dict[int, list[int]] = {row: [] for row in range(len(values))}
    for row, owner in zip(rows.tolist(), slots.tolist(), strict=True):
        owners[row].append(owner)
    for row, target in enumerate(targets.tolist()):
        assert target == (slot if slot in owners[row] else min(owners[row]))
    # Handing over what is where it belongs moves nothing.
    for target in set(targets.tolist()):
        assert (find_new_slots(chosen, some, target)[targets == target] == target).all()


@given(routes(), st.lists(st.integers(-20, 60), max_size=60))
def test_every_row_is_stored_where_its_state_would_stay(chosen: Routes, values: list[int]) -> None:
    some = batch_of(values)
    stored = chosen.storage_slots(some, seed=3)
    for slot in set(stored.tolist()):
        assert (find_new_slots(chosen, some, slot)[stored == slot] == slot).all()


def test_plain_routes_ask_nothing_of_the_slots() -> None:
    phases = PhasedRoutes(placed({1: [2]}))
    assert (phases.slots, phases.splits, phases.needs_standing) == (4, False, False)
    assert SlotStanding(phases, 0).lacks(hash_series(1), windows(0)) is None
    assert not SlotStanding(phases, 0).shares(hash_series(1), windows(0)).any()


def test_the_slots_of_both_phases_must_run() -> None:
    fewer = PhasedRoutes(placed({}, slots=2), Earlier(placed({}, slots=5), SWITCH_US))
    assert (fewer.slots, fewer.splits, fewer.needs_standing) == (5, False, True)
    assert PhasedRoutes(placed({}, slots=5), Earlier(placed({}, slots=2), SWITCH_US)).slots == 5


def test_split_keys_of_either_phase_must_meet() -> None:
    split, whole = placed({1: [0, 1]}), placed({1: [1]})
    assert PhasedRoutes(split).splits
    assert PhasedRoutes(whole, Earlier(split, SWITCH_US)).splits
    assert PhasedRoutes(split, Earlier(whole, SWITCH_US)).splits
    assert PhasedRoutes(Routes(BucketRoute.even(2, 4), splitter=ChoiceSplitter(2))).splits


def test_a_key_is_shared_in_the_windows_of_the_phase_that_splits_it() -> None:
    phases = PhasedRoutes(placed({1: [1], 2: [0, 1]}), Earlier(placed({1: [0, 1], 2: [1]}), SWITCH_US))
    shares = SlotStanding(phases, 1).shares(hash_series(1, 1, 2, 2), windows(999, 1000, 999, 1000))
    assert shares.to_list() == [True, False, False, True]


def test_a_window_belongs_to_the_owner_of_its_phase() -> None:
    phases = PhasedRoutes(placed({1: [2]}), Earlier(placed({1: [1]}), SWITCH_US))
    rows = hash_series(1, 1, 5, 5), windows(999, 1000, 999, 1000)
    lacks = {slot: SlotStanding(phases, slot).lacks(*rows) for slot in range(3)}
    assert {slot: found.to_list() for slot, found in lacks.items() if found is not None} == {
        0: [True, True, False, False],
        1: [False, True, True, True],
        2: [True, False, True, True],
    }


def test_a_slot_beyond_a_phase_owns_none_of_its_windows() -> None:
    phases = PhasedRoutes(placed({}, slots=1), Earlier(placed({1: [3]}, slots=4), SWITCH_US))
    lacks = SlotStanding(phases, 3).lacks(hash_series(1, 1), windows(0, 2000))
    assert lacks is not None
    assert lacks.to_list() == [False, True]


def test_split_keys_are_listed_sorted_and_whole_ones_are_not() -> None:
    standing = SlotStanding(PhasedRoutes(placed({1: [1], 2: [0, 1], 3: [2, 3]})), 0)
    listed = standing.split_hashes
    assert listed is not None
    assert listed.dtype == pl.UInt64
    assert listed.to_list() == sorted([key_hash(2), key_hash(3)])


def test_under_a_row_splitter_split_keys_cannot_be_listed() -> None:
    phases = PhasedRoutes(Routes(BucketRoute.even(2, 4), splitter=ChoiceSplitter(2)))
    assert SlotStanding(phases, 0).split_hashes is None
    assert SlotStanding(phases, 0).shares(hash_series(1, 2), None).all()


@given(st.data())
def test_each_window_of_a_key_has_an_owner_in_its_phase_and_only_there(data: st.DataObject) -> None:
    chosen = []
    for _ in range(2):
        base = data.draw(bases().filter(lambda found: not found.needs_values))
        chosen.append(Routes(base, data.draw(tables(base.slots))))
    phases = PhasedRoutes(chosen[0], Earlier(chosen[1], SWITCH_US))
    values = data.draw(st.lists(st.integers(-20, 60), min_size=1, max_size=20))
    for start in (0, 2000):
        owners: dict[int, set[int]] = {row: set() for row in range(len(values))}
        for slot in range(phases.slots):
            lacks = SlotStanding(phases, slot).lacks(hash_series(*values), windows(*[start] * len(values)))
            assert lacks is not None
            for row in np.flatnonzero(~lacks.to_numpy()).tolist():
                owners[row].add(slot)
        rows, slots = chosen[int(start < SWITCH_US)].operation_slots(batch_of(values))
        for row, found in owners.items():
            assert found == set(slots[rows == row].tolist())


@given(st.data(), st.booleans())
def test_phases_survive_the_manifest(data: st.DataObject, has_earlier: bool) -> None:
    new = data.draw(routes())
    phases = PhasedRoutes(new, Earlier(data.draw(routes()), -(2**60)) if has_earlier else None)
    assert PhasedRoutes.from_json(json.loads(json.dumps(phases.to_json()))) == phases


@pytest.mark.parametrize("head", [(), (1, 2**63 + 1)])
def test_row_splitters_survive_the_manifest(head: tuple[int, ...]) -> None:
    phases = PhasedRoutes(Routes(BucketRoute.even(5, 16), splitter=ChoiceSplitter(5, head, 3)))
    assert PhasedRoutes.from_json(json.loads(json.dumps(phases.to_json()))) == phases


@pytest.mark.parametrize(("choices", "slots", "then"), [(2, 1, 2), (5, 3, 3), (5, 8, 8), (3, 8, 3), (3, 2, 2)])
def test_a_row_splitter_over_other_slots_keeps_as_many_choices_as_there_can_be(
    choices: int, slots: int, then: int
) -> None:
    resized = ChoiceSplitter(5, (7,), choices).resized(slots)
    assert (resized.slots, resized.head, resized.head_choices) == (slots, (7,), then)
