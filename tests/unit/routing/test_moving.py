"""What a change of routes has to carry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import BucketMap, RoutingTable
from anabranch.routing import BucketRoute, ChoiceSplitter, ModuloRoute, Routes
from anabranch.routing.moving import moved_parts
from anabranch.routing.phases import find_new_slots
from unit.routing.builders import batch_of, key_hash, key_values, routes


def placed(placements: dict[int, dict[int, float]]) -> Routes:
    """Return routes under which everything is on slot 0 but the given keys."""
    table = RoutingTable.of({key_hash(key): shares for key, shares in placements.items()})
    return Routes(BucketRoute(BucketMap(4, (0,) * 8)), table)


def test_only_the_parts_that_may_not_stay_move() -> None:
    old = placed({1: {1: 0.75, 2: 0.25}, 2: {3: 1.0}})
    new = placed({1: {1: 1.0}, 2: {1: 0.5, 3: 0.5}, 3: {2: 1.0}})
    assert moved_parts(batch_of([1, 2, 3, 4]), old, new).tolist() == [0.25, 0.0, 1.0, 0.0]


def test_the_same_routes_move_nothing() -> None:
    old = placed({1: {1: 0.75, 2: 0.25}})
    assert moved_parts(batch_of([1, 2]), old, old).tolist() == [0.0, 0.0]


def test_rows_that_are_split_begin_where_keys_are_and_come_back_by_half() -> None:
    whole = Routes(ModuloRoute(4))
    split = Routes(ModuloRoute(4), splitter=ChoiceSplitter(4))
    some = batch_of(list(range(50)))
    assert moved_parts(some, whole, split).tolist() == [0.0] * 50
    assert moved_parts(some, split, whole).tolist() == [0.5] * 50


@given(routes(), routes(), key_values)
def test_what_moves_is_what_slots_hand_over(old: Routes, new: Routes, values: list[int]) -> None:
    keys = batch_of(sorted(set(values)))
    moved = np.zeros(len(keys))
    for row in range(len(keys)):
        one = keys.take(np.array([row]))
        owners = old.table.owners(int(one.hashes[0]))
        shares = {part.slot: part.share for part in owners} or {int(old.home_slots(one)[0]): 1.0}
        moved[row] = sum(share for slot, share in shares.items() if find_new_slots(new, one, slot)[0] != slot)
    assert moved_parts(keys, old, new) == pytest.approx(moved)


@given(st.integers(1, 6), st.integers(1, 6))
def test_slots_that_go_keep_nothing(slots: int, later: int) -> None:
    keys = batch_of(list(range(200)))
    moved = moved_parts(keys, Routes(ModuloRoute(slots)), Routes(ModuloRoute(later)))
    assert (moved == (np.arange(200) % slots != np.arange(200) % later)).all()
