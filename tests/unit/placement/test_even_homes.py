"""Slots spread evenly over executors, and otherwise left where they are."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.cluster import Executor, Homes, SlotId
from anabranch.placement.even_homes import spread_evenly


def executors(*places: str) -> list[Executor]:
    """Return executors written as id@host."""
    return [Executor(*place.split("@"), cores=1) for place in places]


def slots_of(*counts: int) -> list[SlotId]:
    return [(level, slot) for level, count in enumerate(counts, start=1) for slot in range(count)]


def spread(slots: list[SlotId], among: list[Executor], before: Homes | None = None) -> Homes:
    return spread_evenly(slots, among, {}, before or {}).homes


def test_few_slots_go_to_different_hosts_first() -> None:
    homes = spread(slots_of(2), executors("0@a", "1@a", "2@b"))
    assert homes == {(1, 0): "0", (1, 1): "2"}


def test_a_later_level_begins_where_the_one_before_left_room() -> None:
    homes = spread(slots_of(1, 1, 1), executors("0@a", "1@a", "2@a"))
    assert sorted(homes.values()) == ["0", "1", "2"]


def test_homes_stay_when_an_executor_comes_that_evenness_does_not_ask_for() -> None:
    before = {(1, 0): "0", (1, 1): "1", (1, 2): "0"}
    assert spread(slots_of(3), executors("0@a", "1@b", "2@c"), before) == {**before, (1, 2): "2"}
    assert spread(slots_of(2), executors("0@a", "1@b", "2@c"), {(1, 0): "0", (1, 1): "1"}) == {
        (1, 0): "0",
        (1, 1): "1",
    }


def test_slots_that_may_not_move_take_room() -> None:
    held = {(1, 2): "0", (1, 3): "0"}
    homes = spread(slots_of(2), executors("0@a", "1@a"), {(1, 0): "0", (1, 1): "0", **held})
    assert homes == {(1, 0): "1", (1, 1): "1"}


@given(st.data())
def test_every_level_is_even_and_what_is_even_stays(data: st.DataObject) -> None:
    among = executors(*(f"{id}@{data.draw(st.sampled_from('abc'))}" for id in range(data.draw(st.integers(1, 6)))))
    slots = slots_of(*data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    ids = [executor.id for executor in among]
    before = {slot: data.draw(st.sampled_from(ids)) for slot in slots if data.draw(st.booleans())}
    homes = spread(slots, among, before)
    assert homes.keys() == set(slots)
    for level in {level for level, _ in slots}:
        counts = Counter({id: 0 for id in ids})
        counts.update(home for slot, home in homes.items() if slot[0] == level)
        assert max(counts.values()) - min(counts.values()) <= 1
    assert spread(slots, among, homes) == homes
