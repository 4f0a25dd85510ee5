"""Operators, their state and their compiled loops without Spark, on many random inputs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.model import WindowSpec
from soak.amounts import STATE_EXAMPLES
from unit.compiled_loops import (
    check_added,
    check_best,
    check_codes,
    check_counts,
    check_grouped_texts,
    check_hashing,
    check_numbers,
    check_orders,
    check_searches,
    columns_of_texts,
    hashes,
    lists_to_cut,
    rows_to_group,
    whole_numbers,
)
from unit.operators.cut_streams import CUT_SPECS, Cut, check_cut, cuts, streams
from unit.operators.streams import Batch, Row, batches_strategy
from unit.operators.test_open_windows import check_both_ways
from unit.operators.test_state_in_place import (
    Typed,
    check_against_plain_objects,
    check_that_it_reads_as_stored,
    rows_of_changes,
    types,
)
from unit.operators.test_windows_by_key import windows

LONG = settings(deadline=None, max_examples=STATE_EXAMPLES, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", CUT_SPECS)
@LONG
@given(rows=streams(120), cut=cuts(120))
def test_results_do_not_depend_on_where_a_stream_is_cut(name: str, rows: list[Row], cut: Cut) -> None:
    check_cut(CUT_SPECS[name], rows, cut)


@LONG
@given(rows=rows_of_changes, ends=st.lists(st.integers(0, 40), max_size=12))
def test_state_changed_in_place_is_as_that_of_plain_objects(rows: list[Row], ends: list[int]) -> None:
    check_against_plain_objects(rows, ends)


@LONG
@given(typed=types, data=st.data())
def test_a_value_of_any_type_reads_at_once_as_it_will_after_it_was_stored(typed: Typed, data: st.DataObject) -> None:
    check_that_it_reads_as_stored(typed, data)


@LONG
@given(given_hashes=hashes(3000), dtype=st.sampled_from(["i8", "u4", "f8", "?"]))
def test_hashes_are_put_in_their_stable_order(given_hashes: NDArray[np.uint64], dtype: str) -> None:
    check_orders(given_hashes, np.arange(len(given_hashes)).astype(dtype))


@LONG
@given(given_hashes=hashes(1000), wanted=hashes(1000))
def test_hashes_are_found_and_merged(given_hashes: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> None:
    check_searches(given_hashes, wanted)


@LONG
@given(numbers=st.lists(st.integers(0, 60), max_size=1000), count=st.integers(61, 70))
def test_numbers_are_put_together(numbers: list[int], count: int) -> None:
    check_numbers(numbers, count)


@LONG
@given(numbers=whole_numbers(1000))
def test_whole_numbers_hash_as_their_texts(numbers: pl.Series) -> None:
    check_hashing(numbers)


@LONG
@given(given_rows=rows_to_group(400))
def test_rows_are_counted_and_added_as_plain_python_does(given_rows: tuple[pl.DataFrame, int]) -> None:
    check_counts(*given_rows)
    check_added(*given_rows)


@LONG
@given(column=columns_of_texts(400))
def test_texts_are_numbered_and_grouped_as_they_come(column: pl.Series) -> None:
    check_codes(column)
    check_grouped_texts(column)


@LONG
@given(lists=lists_to_cut(), k=st.integers(1, 6), descending=st.booleans())
def test_the_best_rows_are_found_with_and_without_sorting_all(lists: pl.Series, k: int, descending: bool) -> None:
    check_best(lists, k, descending)


@LONG
@given(window=windows, batches=batches_strategy, data=st.data())
def test_windows_that_stay_open_are_the_same_both_ways(
    window: WindowSpec, batches: list[Batch], data: st.DataObject
) -> None:
    check_both_ways(window, batches, data)
