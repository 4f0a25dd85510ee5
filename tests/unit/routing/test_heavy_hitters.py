"""Counting the keys that have most rows, against exact counts and a plain twin."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.routing import heavy_hitters
from anabranch.routing.hashing import mix
from anabranch.routing.heavy_hitters import MOST_KEYS, TABLE_SIZE, count_keys, may_be_hot
from property_tests import tries


def hashes_of(numbers: NDArray[np.int64] | list[int]) -> NDArray[np.uint64]:
    return mix(np.asarray(numbers, np.uint64), 3)


def count(hashes: NDArray[np.uint64], cuts: list[int] | None = None) -> heavy_hitters.KeyCounts:
    places = np.arange(len(hashes))
    edges = [0, *sorted(cuts or []), len(hashes)]
    chunks = [(hashes[a:b], places[a:b]) for a, b in pairwise(edges)]
    return count_keys(chunks, len(hashes))


def count_plainly(hashes: list[int], most: int) -> tuple[dict[int, int], int]:
    """Return counters and error of the same rule, as a person would write it down."""
    counters: Counter[int] = Counter()
    error = 0
    for key in hashes:
        if key not in counters and len(counters) == most:
            middle = sorted(counters.values())[most // 2]
            counters = Counter({held: rows - middle for held, rows in counters.items() if rows > middle})
            error += middle
        counters[key] += 1
    return dict(counters), error


@pytest.fixture(autouse=True)
def _compiled_however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_hitters, "WORTH_COMPILED_CODE_ROWS", 1)


STREAMS = st.builds(
    lambda seed, rows, keys, skew: (np.random.default_rng(seed).random(rows) ** skew * keys).astype(np.int64),
    st.integers(0, 2**32),
    st.integers(1, 20_000),
    st.sampled_from([5, 1_000, 4_000, 30_000]),
    st.sampled_from([1, 3, 8]),
)


@tries(40)
@given(stream=STREAMS, cuts=st.lists(st.integers(0, 1), max_size=3))
def test_the_counts_are_those_of_a_plain_twin(stream: NDArray[np.int64], cuts: list[int]) -> None:
    hashes = hashes_of(stream)
    counted = count(hashes, [cut * len(hashes) // 3 for cut in cuts])
    counters, error = count_plainly(hashes.tolist(), MOST_KEYS)
    assert dict(zip(counted.keys.tolist(), counted.counts.tolist(), strict=True)) == counters
    assert (counted.error, counted.rows) == (error, len(stream))


@tries(40)
@given(stream=STREAMS)
def test_no_count_is_further_from_the_truth_than_is_told(stream: NDArray[np.int64]) -> None:
    hashes = hashes_of(stream)
    counted = count(hashes)
    true = Counter(hashes.tolist())
    assert counted.error <= 2 * len(stream) / MOST_KEYS
    assert counted.error == 0 or len(true) > MOST_KEYS
    for key, low, high, place in zip(
        counted.keys.tolist(), counted.counts.tolist(), counted.estimates.tolist(), counted.places.tolist(), strict=True
    ):
        assert low <= true[key] <= high
        assert hashes[place] == key
    named = set(counted.keys.tolist())
    assert all(rows <= counted.error for key, rows in true.items() if key not in named)
    assert (np.diff(counted.counts) <= 0).all()


def test_keys_whose_hashes_are_alike_are_told_apart() -> None:
    """All of them begin their search at one place, and 0 is a hash as any other."""
    hashes = (np.arange(50, dtype=np.uint64) * np.uint64(TABLE_SIZE)).repeat(3)
    counted = count(hashes)
    assert counted.keys.tolist() == sorted(set(hashes.tolist()))
    assert set(counted.counts.tolist()) == {3}


def test_few_rows_are_counted_exactly_however_many_keys_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_hitters, "WORTH_COMPILED_CODE_ROWS", 1 << 16)
    hashes = hashes_of(np.arange(30_000) % 20_000)
    counted = count(hashes)
    assert (len(counted.keys), counted.error, counted.counts[0], counted.counts[-1]) == (20_000, 0, 2, 1)


@tries(40)
@given(stream=STREAMS, share=st.floats(0.001, 0.5))
def test_what_cannot_be_hot_is_not(stream: NDArray[np.int64], share: float) -> None:
    hashes = hashes_of(stream)
    hottest = max(Counter(hashes.tolist()).values())
    halves = [hashes[: len(hashes) // 2], hashes[len(hashes) // 2 :]]
    assert may_be_hot(halves, share * len(hashes)) or hottest < share * len(hashes)


def test_even_rows_of_very_many_keys_are_not_taken_for_hot() -> None:
    rng = np.random.default_rng(1)
    assert not may_be_hot([hashes_of(rng.integers(0, 10_000_000, 100_000))], 0.005 * 100_000)
