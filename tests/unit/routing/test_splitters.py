"""Row splitters: PKG, D-Choices and W-Choices."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.model import RouteError
from anabranch.routing import (
    ChoiceSplitter,
    KeySample,
    ModuloRoute,
    Routes,
    make_strategy,
    score_loads,
)
from anabranch.routing.strategies.choices import find_head, needed_choices
from anabranch.routing.strategies.sharing import fill, interleave, share_out
from anabranch.routing.strategies.splitters import splitter_from_json, splitter_to_json
from unit.routing.builders import batch_of, hashes_of, key_values

RNG = np.random.default_rng(0)


@st.composite
def splitters(draw: st.DrawFn) -> ChoiceSplitter:
    slots = draw(st.integers(1, 9))
    head = draw(st.sets(st.integers(-20, 60), max_size=5))
    choices = draw(st.integers(2, max(slots, 2)))
    return ChoiceSplitter(slots, tuple(sorted(hashes_of(sorted(head)).tolist())), choices)


def homes_of(hashes: NDArray[np.uint64], slots: int) -> NDArray[np.int32]:
    return (hashes % np.uint64(slots)).astype(np.int32)


def zipf_rows(exponent: float, rows: int, keys: int = 10_000) -> NDArray[np.uint64]:
    frequencies = np.arange(1, keys + 1, dtype=float) ** -exponent
    return hashes_of(np.random.default_rng(7).choice(keys, rows, p=frequencies / frequencies.sum()))


# What holds for all of them.


@given(splitters(), key_values, st.data())
def test_every_row_goes_to_one_of_its_keys_choices(
    splitter: ChoiceSplitter, values: list[int], data: st.DataObject
) -> None:
    hashes = hashes_of(values)
    homes = homes_of(hashes, splitter.slots)
    before = np.array(data.draw(st.lists(st.integers(0, 50), min_size=splitter.slots, max_size=splitter.slots)))
    slots = splitter.slots_of(hashes, homes, before)
    rows, choices = splitter.choices_of(hashes, homes)
    assert set(enumerate(slots.tolist())) <= set(zip(rows.tolist(), choices.tolist(), strict=True))


@given(splitters(), key_values)
def test_tail_key_has_two_choices_and_home_is_one(splitter: ChoiceSplitter, values: list[int]) -> None:
    hashes = hashes_of(values)
    homes = homes_of(hashes, splitter.slots)
    rows, choices = splitter.choices_of(hashes, homes)
    by_row = [choices[rows == row].tolist() for row in range(len(hashes))]
    for key, home, own in zip(hashes.tolist(), homes.tolist(), by_row, strict=True):
        assert home in own
        assert len(set(own)) == len(own) == min(splitter.slots, splitter.head_choices if key in splitter.head else 2)


@given(splitters(), key_values)
def test_expected_rows_are_the_rows_placed(splitter: ChoiceSplitter, values: list[int]) -> None:
    hashes = hashes_of(values)
    nothing = np.zeros(splitter.slots, np.int64)
    placed = splitter.slots_of(hashes, homes_of(hashes, splitter.slots), nothing)
    keys, counts = np.unique(hashes, return_counts=True)
    expected = splitter.rows_by_slot(keys, homes_of(keys, splitter.slots), counts, nothing)
    assert np.bincount(placed, minlength=splitter.slots).tolist() == expected.tolist()


@given(splitters())
def test_splitter_comes_back_through_json(splitter: ChoiceSplitter) -> None:
    assert splitter_from_json(json.loads(json.dumps(splitter_to_json(splitter)))) == splitter


@given(splitters(), key_values)
def test_every_key_may_be_in_two_slots_if_there_are_two(splitter: ChoiceSplitter, values: list[int]) -> None:
    assert splitter.can_split(hashes_of(values)).tolist() == [splitter.slots > 1] * len(values)


# Task retries and resumed flows must choose again what was chosen before.
def test_golden_choices() -> None:
    hashes, homes = hashes_of([0, 1, -1]), np.full(3, 3, np.int32)
    rows, slots = ChoiceSplitter(7).choices_of(hashes, homes)
    assert list(zip(rows.tolist(), slots.tolist(), strict=True)) == [(0, 2), (0, 3), (1, 3), (1, 6), (2, 0), (2, 3)]
    rows, slots = ChoiceSplitter(7, tuple(sorted(hashes.tolist())), 4).choices_of(hashes, homes)
    assert slots.reshape(3, 4).tolist() == [[2, 3, 5, 6], [1, 2, 3, 6], [0, 2, 3, 4]]


def test_golden_json() -> None:
    splitter = ChoiceSplitter(5, (7, 2**64 - 1), 4)
    assert splitter_to_json(splitter) == {
        "kind": "choices",
        "slots": 5,
        "head": ["0000000000000007", "ffffffffffffffff"],
        "head_choices": 4,
    }


def test_golden_places_under_pkg() -> None:
    hashes = hashes_of([0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0, 0])
    slots = ChoiceSplitter(4).slots_of(hashes, homes_of(hashes, 4), np.zeros(4, np.int64))
    assert slots.tolist() == [3, 0, 2, 2, 3, 0, 3, 1, 1, 0, 3, 0]


def test_second_choices_are_spread_evenly() -> None:
    hashes = hashes_of(np.arange(40_000))
    _, slots = ChoiceSplitter(9).choices_of(hashes, np.zeros(len(hashes), np.int32))
    others = np.bincount(slots[slots > 0], minlength=9)[1:]
    assert np.abs(others - 5000).max() < 400


def test_choices_of_head_keys_are_spread_evenly() -> None:
    hashes = np.sort(hashes_of(np.arange(4_000)))
    _, slots = ChoiceSplitter(8, tuple(hashes.tolist()), 4).choices_of(hashes, np.zeros(len(hashes), np.int32))
    others = np.bincount(slots, minlength=8)[1:]
    assert np.abs(others - 4000 * 3 / 7).max() < 200


@pytest.mark.parametrize("head", [(2, 1), (1, 1)])
def test_unsorted_head_is_refused(head: tuple[int, ...]) -> None:
    with pytest.raises(RouteError, match="not sorted or not unique"):
        ChoiceSplitter(4, head)


@pytest.mark.parametrize("choices", [1, 5])
def test_impossible_number_of_choices_is_refused(choices: int) -> None:
    with pytest.raises(RouteError, match=f"{choices} choices among 4 slots"):
        ChoiceSplitter(4, (), choices)


# How even they are.


def test_pkg_is_even_while_no_key_outweighs_two_slots() -> None:
    hashes = zipf_rows(0.8, 50_000)
    slots = ChoiceSplitter(16).slots_of(hashes, homes_of(hashes, 16), np.zeros(16, np.int64))
    assert score_loads(np.bincount(slots, minlength=16)).max_over_mean < 1.001


def test_two_choices_are_not_enough_for_a_very_hot_key_and_all_are() -> None:
    hashes = zipf_rows(2.0, 50_000)
    sample = KeySample.gather(hashes)
    current = Routes(ModuloRoute(16, of_values=False))
    hottest = sample.counts.max() / len(hashes)
    scores = {
        name: score_loads(make_strategy(name).decide(sample, current, RNG).loads(sample)).max_over_mean
        for name in ("pkg", "d-choices", "w-choices")
    }
    assert scores["pkg"] == pytest.approx(hottest / 2 * 16, rel=0.01)
    assert scores["d-choices"] < 1.02
    assert scores["w-choices"] < 1.001


def test_rows_placed_by_calls_stay_as_even_as_rows_placed_at_once() -> None:
    hashes = zipf_rows(0.8, 50_000)
    splitter, carried = ChoiceSplitter(8), np.zeros(8, np.int64)
    for call in np.array_split(hashes, 37):
        carried += np.bincount(splitter.slots_of(call, homes_of(call, 8), carried), minlength=8)
    assert carried.max() - carried.min() <= 2


def test_rows_of_a_hot_key_alternate_between_its_slots() -> None:
    hashes = hashes_of([0] * 1000)
    slots = ChoiceSplitter(4).slots_of(hashes, homes_of(hashes, 4), np.zeros(4, np.int64))
    assert np.all(slots[1:] != slots[:-1])


def test_odd_row_goes_to_the_lower_slot() -> None:
    hashes = hashes_of([0])
    _, choices = ChoiceSplitter(4).choices_of(hashes, homes_of(hashes, 4))
    placed = ChoiceSplitter(4).slots_of(hashes, homes_of(hashes, 4), np.zeros(4, np.int64))
    assert placed.tolist() == [choices.min()]


# Head and number of choices.


def test_head_is_what_exceeds_a_fifth_of_a_fair_share() -> None:
    sample = KeySample.gather([1, 2, 3], [900.0, 21.0, 19.0])
    head, frequencies = find_head(sample, slots=9)
    assert head.tolist() == [1, 2]
    assert frequencies.tolist() == pytest.approx([900 / 940, 21 / 940])


@pytest.mark.parametrize("hottest", [0.1, 0.3, 0.55])
def test_hot_key_needs_at_least_its_part_of_the_slots(hottest: float) -> None:
    assert needed_choices(np.array([hottest]), 50) >= hottest * 50


def test_key_of_nearly_all_rows_needs_all_slots() -> None:
    assert needed_choices(np.array([0.999]), 20) == 20


def test_cool_head_needs_two_choices() -> None:
    assert needed_choices(np.array([0.004]), 50) == 2
    assert needed_choices(np.empty(0), 50) == 2


def test_hotter_heads_need_more_choices() -> None:
    needed = [needed_choices(np.array([hottest, 0.05, 0.02]), 50) for hottest in (0.05, 0.1, 0.2, 0.4)]
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]


# The arithmetic below.


@given(st.lists(st.integers(0, 100), min_size=1, max_size=9), st.integers(0, 300))
def test_fill_raises_the_lowest_and_ties_go_to_the_first(levels: list[int], rows: int) -> None:
    expected = list(levels)
    for _ in range(rows):
        expected[expected.index(min(expected))] += 1
    assert (np.array(levels) + fill(np.array(levels), rows)).tolist() == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9))
def test_interleaved_parts_are_complete_and_spread_out(parts: list[int]) -> None:
    sequence = interleave(np.array(parts))
    assert np.bincount(sequence, minlength=len(parts)).tolist() == parts
    for index, part in enumerate(parts):
        seen = np.cumsum(sequence == index)
        fair = np.arange(1, len(sequence) + 1) * part / max(len(sequence), 1)
        assert np.all(np.abs(seen - fair) <= len(parts))


@given(st.integers(2, 8), st.data())
def test_shared_rows_are_all_rows_and_no_pair_could_be_more_even(slots: int, data: st.DataObject) -> None:
    upper = np.triu(
        np.array(data.draw(st.lists(st.integers(0, 30), min_size=slots**2, max_size=slots**2))).reshape(slots, slots), 1
    )
    before = np.array(data.draw(st.lists(st.integers(0, 50), min_size=slots, max_size=slots)))
    shared = share_out(upper, [], [], before)
    assert shared.slot_rows.sum() == before.sum() + upper.sum()
    assert np.all((shared.to_low >= 0) & (shared.to_low <= upper))
    placed = before + shared.to_low.sum(axis=1) + (upper - shared.to_low).sum(axis=0)
    assert placed.tolist() == shared.slot_rows.tolist()


def test_batch_of_no_rows_goes_nowhere() -> None:
    nothing = batch_of([])
    for slots in (1, 4):
        routes = Routes(ModuloRoute(slots), splitter=ChoiceSplitter(slots))
        assert routes.storage_slots(nothing).tolist() == []
        assert routes.operation_slots(nothing)[0].tolist() == []
