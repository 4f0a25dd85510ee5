"""Base routes that place rows of joins by a draw: every pair meets once, and slots are even whatever the keys."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.compiled.key_hashes import hash_numbers
from anabranch.model import RouteError, RoutingTable
from anabranch.model.joins import LEFT, PROBE, RIGHT, STORE
from anabranch.routing import BipartiteRoute, GridRoute, KeyBatch, Routes, base_from_json, base_to_json
from anabranch.routing.bases.drawn import DrawnRoute, draw_rows
from anabranch.routing.hashing import mix

grids = st.integers(1, 12).flatmap(
    lambda slots: st.integers(1, slots).flatmap(
        lambda rows: st.integers(1, slots // rows).map(lambda columns: GridRoute(slots, rows, columns))
    )
)
bipartite = st.builds(BipartiteRoute, st.integers(1, 13), st.integers(1, 7))


def make_rows(count: int, keys: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    hashes = mix(np.arange(count, dtype=np.uint64) % np.uint64(keys), 0)
    return hashes, draw_rows(count, 0, seed)


@given(st.one_of(grids, bipartite), st.integers(1, 9), st.integers(0, 2**40))
def test_each_pair_of_equal_keys_meets_once_whoever_comes_first(route: DrawnRoute, keys: int, seed: int) -> None:
    sides = [make_rows(40, keys, seed + number) for number in (LEFT, RIGHT)]
    stored, probing = [], []
    for number in (LEFT, RIGHT):
        places = route.places_of(number, *sides[number])
        uses = np.full(len(places.rows), STORE | PROBE) if places.uses is None else places.uses
        assert ((places.slots >= 0) & (places.slots < route.slots)).all()
        pairs = list(zip(places.rows.tolist(), places.slots.tolist(), uses.tolist(), strict=True))
        assert pairs == sorted(pairs)
        stored.append({(row, slot) for row, slot, use in pairs if use & STORE})
        probing.append({(row, slot) for row, slot, use in pairs if use & PROBE})
    for first, second in ((LEFT, RIGHT), (RIGHT, LEFT)):
        for row, own_hash in enumerate(sides[first][0]):
            for other, other_hash in enumerate(sides[second][0]):
                if own_hash == other_hash:
                    met = [slot for slot in range(route.slots) if (row, slot) in stored[first]]
                    assert sum((other, slot) in probing[second] for slot in met) == 1


@given(bipartite, st.integers(0, 2**40))
def test_each_pair_of_near_keys_meets_once_though_groups_go_by_key(route: BipartiteRoute, seed: int) -> None:
    numbers = np.arange(40) % 9
    partners = np.stack([hash_numbers(numbers + step) for step in (-1, 0, 1)], axis=1)
    stored, probing = [], []
    for number in (LEFT, RIGHT):
        places = route.places_of(number, hash_numbers(numbers), draw_rows(40, 0, seed + number), partners)
        uses = np.full(len(places.rows), STORE | PROBE) if places.uses is None else places.uses
        pairs = list(zip(places.rows.tolist(), places.slots.tolist(), uses.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        stored.append({(row, slot) for row, slot, use in pairs if use & STORE})
        probing.append({(row, slot) for row, slot, use in pairs if use & PROBE})
    for first, second in ((LEFT, RIGHT), (RIGHT, LEFT)):
        for row, slot in stored[first]:
            near = np.flatnonzero(abs(numbers - numbers[row]) <= 1)
            assert all((other, slot) in probing[second] for other in near.tolist())
        assert len(stored[first]) == 40


@given(st.one_of(grids, bipartite), st.integers(0, 2**40))
def test_slots_get_what_is_foretold(route: DrawnRoute, seed: int) -> None:
    counts = np.zeros(route.slots)
    rows = 4_000
    for number in (LEFT, RIGHT):
        places = route.places_of(number, *make_rows(rows, rows, seed + number))
        counts += np.bincount(places.slots, minlength=route.slots)
        assert len(places.rows) / rows == pytest.approx(route.copies[number], rel=0.1)
    np.testing.assert_allclose(counts, route.slot_rows((rows, rows)), rtol=0.12, atol=2)


@given(st.one_of(grids, bipartite))
def test_route_comes_back_through_json_also_within_routes(route: DrawnRoute) -> None:
    assert base_from_json(json.loads(json.dumps(base_to_json(route)))) == route
    assert Routes.from_json(json.loads(json.dumps(Routes(route).to_json()))) == Routes(route)
    assert Routes(route).may_split


@pytest.mark.parametrize(
    ("slots", "sides", "doubles", "shape"),
    [
        (16, (1, 1), True, (4, 4)),
        (8, (1, 1), True, (2, 4)),
        (8, (4, 1), True, (4, 2)),
        (8, (1, 100), True, (1, 8)),
        (7, (1, 1), True, (2, 2)),
        (12, (1, 1), False, (3, 4)),
        (12, (3, 1), False, (6, 2)),
        (7, (1, 1), False, (2, 3)),
        (1, (0, 0), True, (1, 1)),
    ],
)
def test_a_grid_has_the_shape_in_which_cells_get_the_fewest_rows(
    slots: int, sides: tuple[float, float], doubles: bool, shape: tuple[int, int]
) -> None:
    grid = GridRoute.over(slots, sides, doubles)
    assert {(grid.rows, grid.columns), shape} == {shape} or (
        sides[0] == sides[1] and shape == (grid.columns, grid.rows)
    )


def test_a_grid_that_gets_slots_keeps_its_proportions() -> None:
    assert GridRoute(4, 4, 1, doubles=True).resized(16) == GridRoute(16, 8, 2, doubles=True)
    assert GridRoute(6, 2, 3).resized(1) == GridRoute(1, 1, 1)
    assert BipartiteRoute(4, 6).resized(12).groups == 6


def test_draws_are_even_and_the_same_again() -> None:
    draws = draw_rows(1_000, 0, 77)
    assert np.array_equal(np.concatenate((draw_rows(300, 0, 77), draw_rows(700, 300, 77))), draws)
    assert not np.array_equal(draw_rows(1_000, 0, 78), draws)
    cells = np.bincount((draws.astype(np.int64) * 7) >> 32, minlength=7)
    assert cells.max() - cells.min() <= 4


def test_keys_have_no_place_and_cannot_be_moved() -> None:
    routes = Routes(GridRoute(4, 2, 2))
    with pytest.raises(RouteError, match="in a grid of 2 × 2 slots rows have places, and keys have none"):
        routes.storage_slots(KeyBatch(np.array([1], np.uint64)))
    with pytest.raises(RouteError, match="rows have places, and no key is moved or split"):
        routes.with_table(RoutingTable.of({1: {0: 1.0}}))


def test_a_grid_that_does_not_fit_is_refused() -> None:
    with pytest.raises(RouteError, match="a grid of 2 × 3 cells does not fit 5 slots"):
        GridRoute(5, 2, 3)
    with pytest.raises(RouteError, match="0 slots in 1 groups lead nowhere"):
        BipartiteRoute(0)
