"""Partners of joined rows: the order in which they are sought, and their pairs, some at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS
from anabranch.compiled.partners import Partners, order_by_hash_and_time

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9) | st.integers(-(2**60), 2**60)), min_size=1)


def check_order(rows: list[tuple[int, int]]) -> None:
    hashes, times_us = (np.array(column, kind) for column, kind in zip(zip(*rows, strict=True), "Qq", strict=True))
    order, ordered, ordered_us = order_by_hash_and_time(hashes, times_us)
    assert order.tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    assert (ordered == hashes[order]).all() and (ordered_us == times_us[order]).all()


@given(rows=ROWS)
def test_rows_are_ordered_by_hash_then_time_then_as_they_came(rows: list[tuple[int, int]]) -> None:
    check_order(rows)


@pytest.mark.parametrize("spread", [1, 10**6, 2**60])
def test_many_rows_are_ordered_alike_however_their_times_are_spread(spread: int) -> None:
    chance = np.random.default_rng(spread)
    count = WORTH_COMPILED_CODE_ROWS + 5
    hashes = chance.integers(0, 2**64, 1_000, np.uint64)[chance.integers(0, 1_000, count)]
    times_us = chance.integers(-spread, spread, count)
    # One that is far away from all others makes them uneven.
    times_us[0] = 2**61
    check_order(list(zip(hashes.tolist(), times_us.tolist(), strict=True)))


@given(counts=st.lists(st.integers(0, 5), max_size=30), most=st.integers(1, 9))
def test_pairs_come_once_however_many_are_laid_out_at_a_time(counts: list[int], most: int) -> None:
    firsts = np.arange(len(counts)) * 7
    found = [
        pair
        for partners, seeking in Partners(firsts, np.array(counts, np.int64)).pairs(most)
        for pair in zip(partners.tolist(), seeking.tolist(), strict=True)
    ]
    assert found == [(7 * row + place, row) for row, count in enumerate(counts) for place in range(count)]
