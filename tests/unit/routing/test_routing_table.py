"""The routing table: keys that are not where their base route puts them."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import RouteError, RoutingTable, Share
from unit.routing.builders import tables

MOVED, SPLIT = 2**64 - 1, 7


def table() -> RoutingTable:
    return RoutingTable.of({MOVED: {3: 1.0}, SPLIT: {2: 0.25, 0: 0.75}})


def test_rows_are_sorted_by_key_and_slot() -> None:
    assert table().keys.tolist() == [SPLIT, SPLIT, MOVED]
    assert table().slots.tolist() == [0, 2, 3]
    assert table().shares.tolist() == [0.75, 0.25, 1.0]


def test_columns_have_the_types_that_hashes_and_slots_need() -> None:
    made = table()
    assert (made.keys.dtype, made.slots.dtype, made.shares.dtype) == (np.uint64, np.int32, np.float64)


def test_length_counts_keys_not_parts() -> None:
    assert len(table()) == 2
    assert len(RoutingTable.empty()) == 0


def test_owners_of_a_key_come_by_slot() -> None:
    assert table().owners(SPLIT) == (Share(0, 0.75), Share(2, 0.25))
    assert table().owners(MOVED) == (Share(3, 1.0),)


def test_key_at_home_has_no_owners() -> None:
    assert table().owners(8) == ()
    assert RoutingTable.empty().owners(8) == ()


def test_split_and_whole_keys_are_told_apart() -> None:
    assert table().split_keys().tolist() == [SPLIT]
    assert table().whole_keys().tolist() == [MOVED]


def test_equal_by_value_and_without_a_hash() -> None:
    assert table() == table()
    assert table() != RoutingTable.of({MOVED: {3: 1.0}, SPLIT: {2: 0.5, 0: 0.5}})
    assert table() != "table"
    with pytest.raises(TypeError, match="unhashable"):
        hash(table())


def test_columns_cannot_be_written_but_the_arrays_given_can() -> None:
    keys = np.array([1], np.uint64)
    made = RoutingTable(keys, np.array([0], np.int32), np.array([1.0]))
    with pytest.raises(ValueError, match="read-only"):
        made.keys[0] = 2
    keys[0] = 1


def test_assembled_from_rows_in_any_order() -> None:
    assert RoutingTable.assemble([MOVED, SPLIT, SPLIT], [3, 2, 0], [1.0, 0.25, 0.75]) == table()
    assert RoutingTable.assemble([9, 4], [1, 0]) == RoutingTable.of({4: {0: 1.0}, 9: {1: 1.0}})


def test_without_leaves_the_other_keys() -> None:
    assert table().without([SPLIT, 99]) == RoutingTable.of({MOVED: {3: 1.0}})


def test_overlaid_keys_are_placed_as_the_newer_table_says() -> None:
    newer = RoutingTable.of({SPLIT: {1: 1.0}, 5: {0: 1.0}})
    assert table().overlaid(newer) == RoutingTable.of({MOVED: {3: 1.0}, SPLIT: {1: 1.0}, 5: {0: 1.0}})


@pytest.mark.parametrize(
    ("keys", "slots", "shares", "complaint"),
    [
        ([1, 2], [0], [1.0, 1.0], "differ in length"),
        ([1], [-1], [1.0], "slots below 0"),
        ([2, 1], [0, 0], [1.0, 1.0], "not sorted"),
        ([1, 1], [1, 0], [0.5, 0.5], "not sorted"),
        ([1, 1], [0, 0], [0.5, 0.5], "name a slot twice"),
        ([1, 1], [0, 1], [0.5, 0.4], "sum to"),
        ([1, 1], [0, 1], [1.0, 0.0], "leave out slots that store nothing"),
        ([1], [0], [float("nan")], "above 0 and at most 1"),
        ([[1]], [0], [1.0], "2 dimensions"),
    ],
)
def test_wrong_tables_are_refused_with_the_reason(
    keys: list[int], slots: list[int], shares: list[float], complaint: str
) -> None:
    with pytest.raises(RouteError, match=complaint):
        RoutingTable(np.array(keys, np.uint64), np.array(slots, np.int32), np.array(shares))


def test_key_without_a_slot_is_refused() -> None:
    with pytest.raises(RouteError, match=r"0000000000000007.*no slot"):
        RoutingTable.of({7: {}})


def test_shares_may_miss_the_whole_by_a_rounding_error() -> None:
    assert len(RoutingTable.of({1: {slot: 0.1 for slot in range(10)}})) == 1


# The manifest holds these columns: an old checkpoint must be read.
def test_golden_columns() -> None:
    assert table().to_columns() == {
        "keys": ["0000000000000007", "0000000000000007", "ffffffffffffffff"],
        "slots": [0, 2, 3],
        "shares": [0.75, 0.25, 1.0],
    }


@given(st.integers(1, 9).flatmap(tables))
def test_columns_come_back_through_json_bit_by_bit(drawn: RoutingTable) -> None:
    assert RoutingTable.from_columns(json.loads(json.dumps(drawn.to_columns()))) == drawn


@given(st.integers(1, 9).flatmap(tables))
def test_table_survives_the_way_to_a_task(drawn: RoutingTable) -> None:
    assert pickle.loads(pickle.dumps(drawn)) == drawn


@given(st.integers(1, 9).flatmap(tables))
def test_every_key_is_whole_or_split(drawn: RoutingTable) -> None:
    assert len(drawn.whole_keys()) + len(drawn.split_keys()) == len(drawn)
    assert int(drawn.parts_a_key().sum()) == len(drawn.keys)
