"""Homes by what slots cost, and slots that stay where they are unless there is a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.cluster import Executor, Homes, SlotId, SlotLoad, SlotLoads
from anabranch.placement.homes import choose_homes

UNEVEN = "executors differ"


def executors(*places: str) -> list[Executor]:
    """Return executors written as id@host."""
    return [Executor(*place.split("@"), cores=1) for place in places]


def slots_of(*counts: int) -> list[SlotId]:
    return [(level, slot) for level, count in enumerate(counts, start=1) for slot in range(count)]


def costing(*seconds: float, uneven: str = "") -> SlotLoads:
    return SlotLoads({(1, slot): SlotLoad(cost) for slot, cost in enumerate(seconds)}, uneven)


def spread(
    slots: list[SlotId], among: list[Executor], before: Homes | None = None, loads: SlotLoads | None = None
) -> Homes:
    return choose_homes(slots, among, loads or SlotLoads(), before or {}).homes


def test_few_slots_go_to_different_hosts_first() -> None:
    homes = spread(slots_of(2), executors("0@a", "1@a", "2@b"))
    assert homes == {(1, 0): "0", (1, 1): "2"}


def test_a_later_level_begins_where_the_one_before_left_room() -> None:
    homes = spread(slots_of(1, 1, 1), executors("0@a", "1@a", "2@a"))
    assert sorted(homes.values()) == ["0", "1", "2"]


def test_homes_stay_when_an_executor_comes_that_nobody_has_a_second_slot_for() -> None:
    before = {(1, 0): "0", (1, 1): "1", (1, 2): "0"}
    homes = spread(slots_of(3), executors("0@a", "1@b", "2@c"), before)
    assert sorted(homes.values()) == ["0", "1", "2"] and homes[1, 1] == "1"
    before = {(1, 0): "0", (1, 1): "1", (2, 0): "0", (2, 1): "1"}
    assert spread(slots_of(2, 2), executors("0@a", "1@b", "2@c"), before) == before


def test_slots_that_may_not_move_take_room() -> None:
    held = {(1, 2): "0", (1, 3): "0"}
    homes = spread(slots_of(2), executors("0@a", "1@a"), {(1, 0): "0", (1, 1): "0", **held})
    assert homes == {(1, 0): "1", (1, 1): "1"}


def test_new_slots_go_where_little_is_done() -> None:
    before = {(1, 0): "0", (1, 1): "1"}
    assert spread(slots_of(3), executors("0@a", "1@b"), before, costing(5.0, 1.0, 1.0)) == {**before, (1, 2): "1"}


def test_slots_that_cost_more_than_others_stay_until_executors_differ_too_much() -> None:
    before = {(1, 0): "0", (1, 1): "0", (1, 2): "1", (1, 3): "1"}
    among, costs = executors("0@a", "1@b"), (3.0, 3.0, 1.0, 1.0)
    assert spread(slots_of(4), among, before, costing(*costs)) == before
    choice = choose_homes(slots_of(4), among, costing(*costs, uneven=UNEVEN), before)
    assert choice.homes[1, 0] != choice.homes[1, 1] and choice.homes[1, 2] != choice.homes[1, 3]
    assert choice.reason == "executors differ; spread by what slots cost over 2 executors on 2 hosts"


def test_an_executor_without_slots_gets_some_by_what_they_cost() -> None:
    before = {(1, 0): "0", (1, 1): "0", (1, 2): "0"}
    homes = spread(slots_of(3), executors("0@a", "1@b"), before, costing(4.0, 2.0, 2.0))
    assert homes[1, 0] not in (homes[1, 1], homes[1, 2])


def test_a_flow_without_slots_needs_no_homes() -> None:
    assert spread([], executors("0@a", "1@b")) == {}


@given(st.data())
def test_every_level_is_even_at_first_and_homes_stay_however_loads_differ(data: st.DataObject) -> None:
    among = executors(*(f"{id}@{data.draw(st.sampled_from('abc'))}" for id in range(data.draw(st.integers(1, 6)))))
    slots = slots_of(*data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    homes = spread(slots, among)
    assert homes.keys() == set(slots)
    for level in {level for level, _ in slots}:
        counts = Counter({executor.id: 0 for executor in among})
        counts.update(home for slot, home in homes.items() if slot[0] == level)
        assert max(counts.values()) - min(counts.values()) <= 1
    measured = {slot: SlotLoad(data.draw(st.floats(0, 10))) for slot in slots}
    assert spread(slots, among, homes, SlotLoads(measured)) == homes
    assert spread(slots[::-1], among[::-1], homes, SlotLoads(measured)) == homes


@given(st.data())
def test_equal_inputs_give_equal_homes_and_what_was_evened_out_stays(data: st.DataObject) -> None:
    among = executors(*(f"{id}@{data.draw(st.sampled_from('abc'))}" for id in range(data.draw(st.integers(1, 5)))))
    slots = slots_of(*data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    ids = [executor.id for executor in among]
    before = {slot: data.draw(st.sampled_from(ids)) for slot in slots if data.draw(st.booleans())}
    loads = SlotLoads({slot: SlotLoad(data.draw(st.floats(0.1, 10))) for slot in slots}, UNEVEN)
    homes = spread(slots, among, before, loads)
    assert spread(slots, among, dict(reversed(before.items())), loads) == homes
    assert spread(slots, among, homes, loads) == homes


def test_slots_stay_if_what_their_moves_are_worth_is_too_little() -> None:
    slots, among = slots_of(4), [Executor(id, f"host-{id}", 1) for id in "ab"]
    crowded = {(1, 0): "a", (1, 1): "a", (1, 2): "a", (1, 3): "b"}
    loads = costing(1.0, 1.0, 1.0, 1.0, uneven=UNEVEN)
    assert sorted(spread(slots, among, crowded, loads).values()) == ["a", "a", "b", "b"]
    # The busier one goes from three slots to two, and an executor has two in the mean.
    assert sorted(spread(slots, among, crowded, replace(loads, smallest_improvement=0.5)).values()) == list("aabb")
    assert spread(slots, among, crowded, replace(loads, smallest_improvement=0.51)) == crowded


def test_what_a_move_is_worth_is_a_part_of_the_mean_however_large_loads_and_clusters_are() -> None:
    for times, others in ((1e-3, 0), (1e3, 0), (1.0, 8)):
        among = [Executor(id, f"host-{id}", 1) for id in "abcdefghij"[: 2 + others]]
        slots = slots_of(4 + 2 * others)
        before = {(1, slot): "a" if slot < 3 else "b" if slot == 3 else among[slot // 2].id for _, slot in slots}
        loads = costing(*[times] * len(slots), uneven=UNEVEN)
        assert spread(slots, among, before, replace(loads, smallest_improvement=0.5)) != before
        assert spread(slots, among, before, replace(loads, smallest_improvement=0.51)) == before


def test_swaps_that_even_out_levels_are_worth_what_levels_gain_together() -> None:
    slots, among = slots_of(2, 2), [Executor(id, f"host-{id}", 1) for id in "ab"]
    before = {(1, 0): "a", (1, 1): "a", (2, 0): "b", (2, 1): "b"}
    loads = SlotLoads({slot: SlotLoad(1.0) for slot in slots}, UNEVEN, 1.0)
    homes = spread(slots, among, before, loads)
    assert {homes[1, 0], homes[1, 1]} == {homes[2, 0], homes[2, 1]} == {"a", "b"}
    assert spread(slots, among, before, replace(loads, smallest_improvement=1.01)) == before
