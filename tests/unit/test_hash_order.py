"""Compiled sorting and searching of hashes does what NumPy does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.compiled.hash_order import (
    WORTH_COMPILED_CODE_ROWS,
    find_wanted,
    merge_hashes,
    order_by_hash,
    order_by_number,
    take_in_order,
    unite_hashes,
)
from property_tests import tries
from unit.compiled_loops import check_numbers, check_orders, check_searches
from unit.compiled_loops import hashes as ugly_hashes

MANY = 2 * WORTH_COMPILED_CODE_ROWS
LARGEST = 2**64 - 1


def make_hashes(count: int, distinct: int, lowest: int = 0, highest: int = LARGEST) -> NDArray[np.uint64]:
    rng = np.random.default_rng([count, distinct])
    values = rng.integers(lowest, highest, distinct, dtype=np.uint64, endpoint=True)
    return values[rng.integers(0, distinct, count)]


@pytest.mark.parametrize(
    "hashes",
    [
        make_hashes(0, 1),
        make_hashes(100, 50),
        make_hashes(MANY, MANY),
        make_hashes(MANY, 5),
        make_hashes(MANY, MANY, 2**63, 2**63 + 1000),
        np.array([LARGEST, 0] * MANY, np.uint64),
        # Most begin alike, and one is far away: as unlike hashes as numbers can be.
        np.append(make_hashes(MANY, MANY, 0, 2**30), np.uint64(LARGEST)),
    ],
    ids=["none", "few", "many", "few distinct", "close together", "the ends", "uneven"],
)
def test_order_is_the_stable_one(hashes: NDArray[np.uint64]) -> None:
    order, ordered = order_by_hash(hashes)
    expected = np.argsort(hashes, kind="stable")
    assert np.array_equal(order, expected)
    assert np.array_equal(ordered, hashes[expected])
    assert np.array_equal(take_in_order(hashes.astype(np.float64), order), hashes[expected].astype(np.float64))


@pytest.mark.parametrize("count", [50, MANY])
def test_numbers_are_put_together_in_their_old_order(count: int) -> None:
    numbers = np.random.default_rng(count).integers(0, 6, count).astype(np.int32)
    order, edges = order_by_number(numbers, 8)
    assert np.array_equal(order, np.argsort(numbers, kind="stable"))
    assert edges.tolist() == [0, *np.cumsum(np.bincount(numbers, minlength=8)).tolist()]


@pytest.mark.parametrize("count", [40, MANY])
@pytest.mark.parametrize("wanted_count", [1, 30, MANY])
def test_wanted_hashes_are_found_wherever_they_are(count: int, wanted_count: int) -> None:
    hashes = np.sort(make_hashes(count, count // 2))
    wanted = np.unique(np.concatenate((make_hashes(wanted_count, wanted_count), hashes[::3])))
    positions, found = find_wanted(hashes, wanted)
    assert np.array_equal(positions, np.flatnonzero(np.isin(hashes, wanted)))
    assert np.array_equal(found, np.isin(wanted, hashes))


def test_nothing_is_found_where_there_is_nothing() -> None:
    nothing = np.empty(0, np.uint64)
    assert find_wanted(nothing, make_hashes(3, 3))[0].size == 0
    positions, found = find_wanted(make_hashes(3, 3), nothing)
    assert positions.size == found.size == 0


@pytest.mark.parametrize("count", [40, MANY])
def test_sorted_hashes_are_merged_each_once(count: int) -> None:
    some, others = np.sort(make_hashes(count, count)), np.sort(make_hashes(count + 1, count // 3))
    assert np.array_equal(merge_hashes(some, others), np.union1d(some, others))
    assert np.array_equal(unite_hashes([some, others[::2], others]), np.union1d(some, others))
    assert unite_hashes([]).size == 0


@tries(60)
@given(hashes=ugly_hashes(), dtype=st.sampled_from(["i8", "u4", "f8", "?"]))
def test_few_hashes_and_ugly_ones_are_put_in_order_too(hashes: NDArray[np.uint64], dtype: str) -> None:
    check_orders(hashes, np.arange(len(hashes)).astype(dtype))


@tries(60)
@given(hashes=ugly_hashes(), wanted=ugly_hashes())
def test_few_hashes_and_ugly_ones_are_found_too(hashes: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> None:
    check_searches(hashes, wanted)
    check_searches(hashes, hashes[::2])


@tries(30)
@given(numbers=st.lists(st.integers(0, 5), max_size=50), count=st.integers(6, 9))
def test_few_numbers_are_put_together_too(numbers: list[int], count: int) -> None:
    check_numbers(numbers, count)
