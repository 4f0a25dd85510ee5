"""Compiled loops over columns do what their plain twins do, whatever the columns hold."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.compiled import (
    distinct_sketch_loops,
    grouping_loops,
    hash_order_loops,
    heavy_hitter_loops,
    key_hash_loops,
    open_window_loops,
    partner_loops,
    text_code_loops,
    top_k_loops,
)
from anabranch.compiled.plain import distinct_sketch_loops as plain_sketches
from anabranch.compiled.plain import grouping_loops as plain_grouping
from anabranch.compiled.plain import hash_order_loops as plain_order
from anabranch.compiled.plain import heavy_hitter_loops as plain_hitters
from anabranch.compiled.plain import key_hash_loops as plain_hashes
from anabranch.compiled.plain import open_window_loops as plain_windows
from anabranch.compiled.plain import partner_loops as plain_partners
from anabranch.compiled.plain import text_code_loops as plain_codes
from anabranch.compiled.plain import top_k_loops as plain_top_k
from anabranch.model.times import NO_PANE
from property_tests import tries
from unit.compiled.twins import INT64, LARGEST, SMALLEST, UINT64, check_same, several

HASHES = several(UINT64 | st.integers(0, 3), np.uint64, max_size=200)


# -- order ------------------------------------------------------------------------------------------------------------


@given(hashes=HASHES.filter(len))
def test_hashes_are_put_in_order(hashes: NDArray[np.uint64]) -> None:
    order, ordered, is_done = hash_order_loops.order_hashes(hashes)
    if is_done:
        expected, expected_hashes, _ = plain_order.order_hashes(hashes)
        assert np.array_equal(order, expected)
        assert np.array_equal(ordered, expected_hashes)


@given(hashes=HASHES, wanted=HASHES)
def test_hashes_are_found(hashes: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> None:
    for some in (np.unique(wanted), np.unique(hashes[::2])):
        check_same(
            hash_order_loops.find_hashes, plain_order.find_hashes, np.sort(hashes), some, np.zeros(len(some), bool)
        )


@given(some=HASHES, others=HASHES)
def test_hashes_are_merged(some: NDArray[np.uint64], others: NDArray[np.uint64]) -> None:
    check_same(hash_order_loops.merge_two, plain_order.merge_two, np.sort(some), np.sort(others))


@given(numbers=several(st.integers(0, 6), np.int32), count=st.integers(7, 9))
def test_numbers_are_put_in_order(numbers: NDArray[np.int32], count: int) -> None:
    edges = np.zeros(count + 1, np.int64)
    check_same(hash_order_loops.order_numbers, plain_order.order_numbers, numbers, edges)


@given(
    values=several(INT64, np.int64) | several(st.floats(), np.float64) | several(st.booleans(), np.bool_),
    data=st.data(),
)
def test_values_are_taken_in_an_order(values: NDArray[Any], data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(values)))), np.uint32)
    taken = np.zeros(len(order), values.dtype)
    check_same(hash_order_loops.take_values, plain_order.take_values, values, order, taken)


@given(numbers=several(INT64 | st.integers(-1000, 1000), np.int64))
def test_whole_numbers_are_hashed(numbers: NDArray[np.int64]) -> None:
    check_same(key_hash_loops.hash_integers, plain_hashes.hash_integers, numbers, np.zeros(len(numbers), np.uint64))


_TIMES = st.integers(-30, 30) | st.integers(-(2**60), 2**60)
_ROWS = st.lists(st.tuples(st.integers(0, 5) | UINT64, _TIMES), min_size=1, max_size=60)


@given(rows=_ROWS, others=_ROWS, ends=st.tuples(_TIMES | st.sampled_from([-(2**62), 2**62]), _TIMES))
def test_partners_are_found(rows: list[tuple[int, int]], others: list[tuple[int, int]], ends: tuple[int, int]) -> None:
    columns = []
    for some in (sorted(rows), sorted(others)):
        columns += [np.array([h for h, _ in some], np.uint64), np.array([t for _, t in some], np.int64)]
    found = []
    for find in (partner_loops.find_partners, plain_partners.find_partners):
        firsts, counts = np.zeros(len(others), np.int64), np.zeros(len(others), np.int64)
        find(*columns, *sorted(ends), firsts, counts)
        # Where nobody is found, it does not matter where.
        found.append((counts.tolist(), np.where(counts > 0, firsts, 0).tolist()))
    assert found[0] == found[1]
    wanted = [sum(h == hash and min(ends) <= t - at <= max(ends) for h, t in rows) for hash, at in sorted(others)]
    assert found[0][0] == wanted


@given(stretches=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 4)), max_size=40), start=st.integers(0, 9))
def test_pairs_are_laid_out(stretches: list[tuple[int, int]], start: int) -> None:
    firsts, counts = (np.array(column, np.int64).reshape(-1) for column in ([s[i] for s in stretches] for i in (0, 1)))
    partners, seeking = np.zeros(counts.sum(), np.uint32), np.zeros(counts.sum(), np.uint32)
    check_same(partner_loops.lay_pairs, plain_partners.lay_pairs, firsts, counts, start, partners, seeking)
    plain_partners.lay_pairs(firsts, counts, start, partners, seeking)
    wanted = [(first + i, start + j) for j, (first, count) in enumerate(stretches) for i in range(count)]
    assert list(zip(partners.tolist(), seeking.tolist(), strict=True)) == wanted


# -- groups -----------------------------------------------------------------------------------------------------------


@given(
    lowest=INT64,
    stride=st.sampled_from([1, 7, 10_000_000, 86_400_000_000, 2**40]),
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=60),
)
def test_digits_are_appended(lowest: int, stride: int, rows: list[tuple[int, int]]) -> None:
    rows = [(steps, before) for steps, before in rows if lowest + steps * stride <= LARGEST]
    packed = np.array([before for _, before in rows], np.int32)
    column = np.array([lowest + steps * stride for steps, _ in rows], np.int64)
    check_same(grouping_loops.add_digit, plain_grouping.add_digit, packed, column, lowest, stride, 41)


@given(packed=several(st.integers(0, 5), np.int32))
def test_rows_are_counted(packed: NDArray[np.int32]) -> None:
    check_same(grouping_loops.count_places, plain_grouping.count_places, packed, np.zeros(6, np.int64))


@given(rows=st.lists(st.tuples(st.integers(0, 5), st.floats()), max_size=60))
def test_floats_are_added_up_in_their_order(rows: list[tuple[int, float]]) -> None:
    packed, values = np.array([place for place, _ in rows], np.int32), np.array([value for _, value in rows])
    check_same(grouping_loops.add_to_places, plain_grouping.add_to_places, packed, values, np.zeros(6))


@given(rows=st.lists(st.tuples(st.integers(0, 5), INT64), max_size=60))
def test_the_largest_is_kept(rows: list[tuple[int, int]]) -> None:
    packed = np.array([place for place, _ in rows], np.int32)
    values = np.array([value for _, value in rows], np.int64)
    check_same(grouping_loops.raise_places, plain_grouping.raise_places, packed, values, np.full(6, SMALLEST))


@given(
    groups=st.lists(st.lists(st.integers(-3, 3) | INT64, max_size=12), min_size=1, max_size=8)
    | st.lists(st.lists(st.floats(allow_nan=False), max_size=12), min_size=1, max_size=8),
    k=st.integers(1, 5),
)
def test_the_best_of_each_group_are_marked(groups: list[list[Any]], k: int) -> None:
    values = np.array(
        list(chain(*groups)), np.float64 if any(isinstance(v, float) for g in groups for v in g) else np.int64
    )
    ends = np.cumsum([len(group) for group in groups], dtype=np.int64)
    check_same(top_k_loops.mark_best, plain_top_k.mark_best, values, ends, k, np.zeros(len(values), bool))


@given(rows=st.lists(st.tuples(UINT64 | st.integers(0, 2), st.integers(0, 2)), max_size=60), bits=st.integers(1, 4))
def test_pairs_of_words_are_numbered_also_if_the_table_grows(rows: list[tuple[int, int]], bits: int) -> None:
    pairs = np.array(rows, np.uint64).reshape(-1)
    known, firsts = np.zeros(2 * len(rows) + 2, np.uint64), np.zeros(len(rows) + 1, np.int32)
    codes, table, start, found = np.zeros(len(rows), np.int32), np.zeros(1 << bits, np.uint32), 0, 0
    while start < len(rows):
        arguments = (pairs, start, table, known, found, codes, firsts)
        check_same(text_code_loops.code_pairs, plain_codes.code_pairs, *arguments)
        start, found = plain_codes.code_pairs(*arguments)
        table = np.zeros(2 * len(table), np.uint32)
        check_same(text_code_loops.fill_table, plain_codes.fill_table, table, known, found)
        plain_codes.fill_table(table, known, found)
    assert codes.tolist() == [list(dict.fromkeys(rows)).index(row) for row in rows]


# -- sketches ---------------------------------------------------------------------------------------------------------


@given(values=st.lists(st.binary(max_size=70), max_size=20))
def test_octets_are_hashed(values: list[bytes]) -> None:
    offsets = np.array([0, *np.cumsum([len(value) for value in values])], np.int64)
    content, coupons = np.frombuffer(b"".join(values), np.uint8), np.zeros(len(values), np.uint32)
    check_same(distinct_sketch_loops.hash_octets, plain_sketches.hash_octets, offsets, content, coupons)


COUPONS = st.integers(0, 3) | st.integers(0, 2**32 - 1)


@given(groups=st.lists(st.lists(COUPONS, max_size=40), max_size=8))
def test_different_coupons_are_kept(groups: list[list[int]]) -> None:
    coupons = np.array(list(chain(*groups)), np.uint32)
    ends = np.cumsum([len(group) for group in groups]).astype(np.int64)
    kept, kept_ends = np.zeros(len(coupons), np.uint32), np.zeros(len(ends), np.int64)
    check_same(distinct_sketch_loops.keep_different, plain_sketches.keep_different, coupons, ends, kept, kept_ends)


@given(coupons=several(COUPONS, np.uint32), bits=st.integers(0, 6))
def test_registers_are_raised(coupons: NDArray[np.uint32], bits: int) -> None:
    check_same(
        distinct_sketch_loops.raise_registers, plain_sketches.raise_registers, coupons, np.zeros(1 << bits, np.uint8)
    )


@given(chunks=st.lists(several(UINT64 | st.integers(0, 12), np.uint64), max_size=4), bits=st.integers(2, 5))
def test_hot_keys_are_counted(chunks: list[NDArray[np.uint64]], bits: int) -> None:
    tables = [[np.zeros(1 << bits, kind) for kind in (np.uint64, np.int64, np.int64)] for _ in range(2)]
    counted = [(0, 0), (0, 0)]
    for chunk in chunks:
        places = np.arange(len(chunk))
        for which, module in enumerate((heavy_hitter_loops, plain_hitters)):
            counted[which] = module.count_hashes(chunk, places, *tables[which], *counted[which])
        assert counted[0] == counted[1]
        assert plain_hitters.read_table(*tables[0]) == plain_hitters.read_table(*tables[1])


@given(hashes=several(UINT64 | st.integers(0, 9), np.uint64, min_size=1, max_size=24))
def test_the_middle_count_is_taken_from_all(hashes: NDArray[np.uint64]) -> None:
    keys, counts, places = np.zeros(64, np.uint64), np.zeros(64, np.int64), np.zeros(64, np.int64)
    active, _ = heavy_hitter_loops.count_hashes(hashes, np.arange(len(hashes)), keys, counts, places, 0, 0)
    tables = [[column.copy() for column in (keys, counts, places)] for _ in range(2)]
    left = [
        module.purge(*table, active) for module, table in zip((heavy_hitter_loops, plain_hitters), tables, strict=True)
    ]
    assert left[0] == left[1]
    assert plain_hitters.read_table(*tables[0]) == plain_hitters.read_table(*tables[1])


# -- open windows -----------------------------------------------------------------------------------------------------

PANE_US = 10
WHOLES = st.integers(-(2**50), 2**50)
"""Sums that might not fit are left to others."""


@st.composite
def open_windows(draw: st.DrawFn) -> list[Any]:
    """Return rows that came and known ones, by hash, of which some windows end; some keys have very many panes."""
    many = draw(st.sampled_from([1, 1, 1, 70]))
    came = [
        (key, PANE_US * (pane + more), draw(st.integers(-20, 60)), draw(WHOLES), draw(st.floats()))
        for key in draw(st.lists(st.integers(0, 5), max_size=12))
        for pane in [draw(st.integers(-3, 6))]
        for more in range(draw(st.sampled_from([1, many])))
    ]
    came.sort(key=lambda row: row[0])
    keys = sorted({row[0] for row in came})
    known = [
        (key, draw(st.sampled_from([NO_PANE, *range(-30, 60, PANE_US)])), draw(st.integers(-30, 60)), draw(WHOLES), 0.5)
        for key in keys
        for _ in range(draw(st.integers(0, 3)))
    ]
    made = len(came) + len(known)
    arrays: list[Any] = []
    for rows in (came, known):
        columns = list(zip(*rows, strict=True)) if rows else [()] * 5
        arrays += [np.array(columns[0], np.uint64), np.array(columns[1], np.int64), np.array(columns[2], np.int64)]
        arrays += [np.array([columns[3], columns[3]], np.int64), np.array([columns[4]], np.float64)]
    lateness_us = draw(st.sampled_from([0, 5, 25]))
    arrays += [draw(st.integers(0, 20)), draw(st.integers(-30, 30)), PANE_US, lateness_us, draw(st.booleans())]
    arrays += [np.zeros(made, np.uint32), np.zeros(made, np.int64), np.zeros(made, np.int64)]
    arrays += [np.zeros((2, made), np.int64), np.zeros((1, made))]
    arrays += [np.zeros(len(came), np.uint32), np.zeros(len(known), np.uint32)]
    return [*arrays, np.zeros(len(came), bool), np.zeros(len(known), bool)]


def check_merged(arguments: list[Any]) -> int:
    """Fail unless both ways make the same rows; what lies behind them is left over."""
    ways = []
    for merge in (open_window_loops.merge_open, plain_windows.merge_open):
        given_arrays = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
        made = merge(*given_arrays)
        rows = [array[..., :made] for array in given_arrays[15:20]] if made >= 0 else []
        ways.append((made, rows, given_arrays[20:] if made >= 0 else []))
    (made, rows, marks), (expected_made, expected_rows, expected_marks) = ways
    assert made == expected_made
    for one, other in zip([*rows, *marks], [*expected_rows, *expected_marks], strict=True):
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return int(made)


@tries(300)
@given(arguments=open_windows())
def test_rows_are_merged_into_open_windows(arguments: list[Any]) -> None:
    check_merged(arguments)


@pytest.mark.parametrize("ends", [True, False])
def test_merging_stops_early_where_most_windows_end(ends: bool) -> None:
    keys = 9_000
    columns = [np.arange(keys, dtype=np.uint64), np.zeros(keys, np.int64), np.full(keys, 50 if ends else 5)]
    known = [np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64)]
    arguments: list[Any] = [*columns, np.ones((1, keys), np.int64), np.empty((0, keys))]
    arguments += [*known, np.empty((1, 0), np.int64), np.empty((0, 0)), 0, -100, PANE_US, 0, True]
    arguments += [np.zeros(keys, np.uint32), np.zeros(keys, np.int64), np.zeros(keys, np.int64)]
    arguments += [np.zeros((1, keys), np.int64), np.zeros((0, keys)), np.zeros(keys, np.uint32), np.zeros(0, np.uint32)]
    arguments += [np.zeros(keys, bool), np.zeros(0, bool)]
    assert check_merged(arguments) == (-1 if ends else keys)
