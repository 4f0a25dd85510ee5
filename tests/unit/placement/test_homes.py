"""Homes of slots: even, level by level; stable when executors come and go; nothing moves without need."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.cluster import Executor, Homes, SlotId, SlotLoad
from anabranch.model.elasticity import Elasticity
from anabranch.model.measures import TaskMeasure
from anabranch.placement.homes import HomePlan, follow_loads, measure_slots, plan_homes, tell_uneven
from property_tests import tries


def _executors(*ids: str, cores: int = 1, memory_bytes: int = 0) -> list[Executor]:
    return [Executor(id, f"host-{id}", cores, memory_bytes) for id in ids]


def _slots(*seconds: float, level: int = 1, state_bytes: int = 100) -> dict[SlotId, SlotLoad | None]:
    return {(level, slot): SlotLoad(cpu, state_bytes) for slot, cpu in enumerate(seconds)}


def _skewed(count: int, skew: float, level: int = 1) -> dict[SlotId, SlotLoad | None]:
    return _slots(*[1 / (1 + slot) ** skew for slot in range(count)], level=level)


def _moved(plan: HomePlan) -> set[SlotId]:
    return {move.slot for move in plan.moves}


@pytest.mark.parametrize(("count", "skew"), [(16, 0.8), (24, 1.0), (32, 1.0), (64, 1.1)])
def test_skewed_slots_are_even_over_four_executors_where_they_allow_it(count: int, skew: float) -> None:
    slots = _skewed(count, skew)
    loads = [load.cpu_seconds for load in slots.values() if load is not None]
    best = max(1.0, 4 * max(loads) / sum(loads))
    assert plan_homes(_executors(*"abcd"), slots, {}).max_over_mean <= max(1.15, 1.01 * best)


def test_each_level_is_even_as_well_as_the_sum() -> None:
    # Homes by the sum alone would put level 1 on two executors, and level 2 on the others.
    slots = _slots(1, 1, 1, 1) | _slots(1, 1, 1, 1, level=2)
    by_sum = {slot: "ab"[slot[1] % 2] if slot[0] == 1 else "cd"[slot[1] % 2] for slot in slots}
    plan = plan_homes(_executors(*"abcd"), slots, by_sum)
    assert plan.level_max_over_mean == {1: 1.0, 2: 1.0}
    assert plan.max_over_mean == 1.0


def test_levels_with_fewer_slots_than_executors_share_them_all() -> None:
    slots = _slots(1, 1) | _slots(1, 1, level=2)
    plan = plan_homes(_executors(*"abcd"), slots, {})
    assert plan.max_over_mean == 1.0


def test_even_slots_stay_where_they_are() -> None:
    slots = _slots(1, 1.1, 0.95, 1)
    homes = {(1, 0): "c", (1, 1): "a", (1, 2): "d", (1, 3): "b"}
    plan = plan_homes(_executors(*"abcd"), slots, homes)
    assert plan.moves == ()
    assert plan.homes == homes
    assert plan.reason == "slots stay: a, the busiest, has 1.09 × its share"


def test_of_a_lost_executor_only_its_slots_move() -> None:
    slots = _slots(*[1.0] * 12)
    homes = plan_homes(_executors(*"abcd"), slots, {}).homes
    lost = {slot for slot, home in homes.items() if home == "c"}
    plan = plan_homes(_executors(*"abd"), slots, homes)
    assert _moved(plan) == lost
    assert {move.reason for move in plan.moves} == {"c is gone"}
    assert plan.moved_bytes == 100 * len(lost)
    assert plan.max_over_mean == 1.0


def test_an_executor_that_is_leaving_loses_its_slots_and_gets_none() -> None:
    slots = _slots(*[1.0] * 8)
    homes = plan_homes(_executors(*"abcd"), slots, {}).homes
    leaving = [replace(one, is_leaving=one.id == "b") for one in _executors(*"abcd")]
    plan = plan_homes(leaving, slots, homes)
    assert "b" not in plan.homes.values()
    assert {move.reason for move in plan.moves} == {"b is leaving"}
    assert all(move.source == "b" for move in plan.moves)


def test_a_new_executor_gets_slots_once_it_is_warm_and_only_it_does() -> None:
    slots = _slots(*[1.0] * 20)
    homes = plan_homes(_executors(*"abcd"), slots, {}).homes
    cold = [replace(one, is_warm=one.id != "e") for one in _executors(*"abcde")]
    assert plan_homes(cold, slots, homes).moves == ()
    plan = plan_homes(_executors(*"abcde"), slots, homes)
    assert {move.target for move in plan.moves} == {"e"}
    assert len(plan.moves) == 4
    assert plan.max_over_mean == 1.0


def test_an_executor_of_many_does_not_stay_idle_because_others_are_within_the_tolerance() -> None:
    ids = [f"{number:02}" for number in range(12)]
    slots = _slots(*[1.0] * 44)
    homes = plan_homes(_executors(*ids[:11]), slots, {}).homes
    plan = plan_homes(_executors(*ids), slots, homes)
    assert {move.target for move in plan.moves} == {"11"}
    # One is enough: the busiest has 4 of 44 / 12.
    assert len(plan.moves) == 1


def test_cold_executors_are_used_where_there_are_no_others() -> None:
    cold = [replace(one, is_warm=False) for one in _executors("a", "b")]
    assert set(plan_homes(cold, _slots(1, 1), {}).homes.values()) == {"a", "b"}


def test_slots_stay_with_those_that_leave_while_nobody_stays() -> None:
    leaving = [replace(one, is_leaving=True) for one in _executors("a", "b")]
    plan = plan_homes(leaving, _slots(1, 1), {(1, 0): "a", (1, 1): "gone"})
    assert plan.homes == {(1, 0): "a"}
    assert plan_homes([], _slots(1, 1), {(1, 0): "a"}).homes == {}


def test_of_two_slots_that_would_do_the_one_with_less_state_moves() -> None:
    slots = {
        (1, 0): SlotLoad(1.0, 5_000_000),
        (1, 1): SlotLoad(1.0, 10),
        (1, 2): SlotLoad(1.0, 5_000_000),
        (1, 3): SlotLoad(0.9, 10),
    }
    homes = {(1, 0): "a", (1, 1): "a", (1, 2): "a", (1, 3): "b"}
    assert _moved(plan_homes(_executors("a", "b"), slots, homes)) == {(1, 1)}


def test_executors_with_more_cores_get_more() -> None:
    executors = [Executor("big", "h", 3), Executor("small", "h", 1)]
    plan = plan_homes(executors, _slots(*[1.0] * 16), {})
    assert plan.cpu_seconds == {"big": 12.0, "small": 4.0}


def test_memory_is_respected_before_evenness() -> None:
    slots = {(1, slot): SlotLoad(1.0, 100, memory_bytes=100) for slot in range(6)}
    executors = [Executor("a", "h", 1, memory_bytes=200), Executor("b", "h", 1, memory_bytes=1_000)]
    plan = plan_homes(executors, slots, dict.fromkeys(slots, "a"))
    assert sorted(plan.homes.values()).count("a") == 2


def test_where_memory_is_not_enough_slots_have_homes_all_the_same() -> None:
    slots = {(1, slot): SlotLoad(1.0, 100, memory_bytes=100) for slot in range(6)}
    plan = plan_homes(_executors("a", "b", memory_bytes=200), slots, {})
    assert len(plan.homes) == 6


def test_homes_given_by_hand_hold_until_their_executor_goes() -> None:
    slots = _slots(*[1.0] * 6)
    pinned = dict.fromkeys(slots, "a")
    plan = plan_homes(_executors("a", "b", "c"), slots, {(1, 0): "b"}, pinned=pinned)
    assert set(plan.homes.values()) == {"a"}
    assert plan.released == ()
    assert {move.reason for move in plan.moves} == {"it was given this home by hand"}
    gone = plan_homes(_executors("b", "c"), slots, plan.homes, pinned=pinned)
    assert gone.released == tuple(sorted(slots))
    assert gone.max_over_mean == 1.0


def test_a_slot_of_which_nothing_is_known_counts_like_others_of_its_level() -> None:
    slots = _slots(2, 2, 2) | {(1, 3): None}
    assert plan_homes(_executors("a", "b"), slots, {}).cpu_seconds == {"a": 4.0, "b": 4.0}
    unknown: dict[SlotId, SlotLoad | None] = {(1, slot): None for slot in range(4)}
    assert plan_homes(_executors("a", "b"), unknown, {}).max_over_mean == 1.0
    idle = _slots(0.0, 0.0, 0.0, 0.0)
    assert sorted(plan_homes(_executors("a", "b"), idle, {}).homes.values()) == ["a", "a", "b", "b"]


def test_loads_follow_slowly_and_readers_and_meetings_are_no_slots() -> None:
    measures = [
        TaskMeasure(1, 5, "a", "h", 9.0, 9.0, 0, meets=True),
        TaskMeasure(0, 0, "a", "h", 9.0, 9.0, 0),
        TaskMeasure(1, 0, "a", "h", 2.0, 2.0, 0, received_bytes=50),
        TaskMeasure(2, 0, "b", "h", 1.0, 2.0, 0),
    ]
    seen = measure_slots(measures, {(1, 0): 1_000})
    assert seen == {(1, 0): SlotLoad(2.0, 1_000, 1_100), (2, 0): SlotLoad(1.0)}
    known = {(1, 0): SlotLoad(1.0, batches=4), (9, 9): SlotLoad(1.0)}
    followed = follow_loads(known, seen)
    assert followed[1, 0] == SlotLoad(1.3, 1_000, 1_100, 5)
    assert followed[2, 0] == seen[2, 0]
    assert (9, 9) not in followed


def test_a_first_batch_in_which_processes_start_is_forgotten() -> None:
    loads = {(1, 0): SlotLoad(9.0)}
    means = []
    for seconds in (1.0, 2.0, 3.0):
        loads = follow_loads(loads, {(1, 0): SlotLoad(seconds)})
        means.append(loads[1, 0].cpu_seconds)
    assert means == pytest.approx([1.0, 1.5, 2.0])


@pytest.mark.parametrize(
    ("cpu_seconds", "batch_seconds", "is_told"),
    [
        ({"a": 1.0, "b": 0.5}, 2.0, True),
        ({"a": 1.0, "b": 0.95}, 2.0, False),
        # A fifth of what they have, and three thousandths of a second.
        ({"a": 0.007, "b": 0.001}, 0.015, False),
        ({}, 2.0, False),
    ],
)
def test_executors_are_uneven_if_moving_slots_could_save_something(
    cpu_seconds: dict[str, float], batch_seconds: float, is_told: bool
) -> None:
    assert bool(tell_uneven(cpu_seconds, _executors("a", "b"), batch_seconds, Elasticity())) == is_told


LOADS = st.builds(SlotLoad, st.floats(0, 100), st.integers(0, 10**9), st.integers(0, 10**6))
SLOTS = st.dictionaries(st.tuples(st.integers(1, 3), st.integers(0, 11)), st.none() | LOADS, max_size=20)
EXECUTORS = st.lists(
    st.builds(
        Executor,
        st.sampled_from("abcdef"),
        st.just("h"),
        st.integers(1, 4),
        st.sampled_from([0, 10**6, 10**7]),
        st.booleans(),
        st.booleans(),
    ),
    unique_by=lambda one: one.id,
    max_size=6,
)


def _run(
    history: list[list[Executor]], slots: dict[SlotId, SlotLoad | None], pinned: Homes
) -> list[tuple[Homes, HomePlan]]:
    homes: Homes = {}
    found = []
    for executors in history:
        plan = plan_homes(executors, slots, homes, pinned=pinned)
        found.append((homes, plan))
        homes = plan.homes
    return found


@tries(150)
@given(st.lists(EXECUTORS, min_size=1, max_size=6), SLOTS, st.randoms(use_true_random=False))
def test_in_any_history_slots_have_homes_and_move_only_if_need_be(
    history: list[list[Executor]], slots: dict[SlotId, SlotLoad | None], chance: random.Random
) -> None:
    pinned = {slot: chance.choice("abcdef") for slot in slots if chance.random() < 0.2}
    for executors, (before, plan) in zip(history, _run(history, slots, pinned), strict=True):
        staying = {one.id for one in executors if not one.is_leaving}
        if staying:
            assert set(plan.homes) == set(slots)
            assert set(plan.homes.values()) <= staying
        for slot, home in pinned.items():
            assert home not in staying or plan.homes[slot] == home
        assert {move.slot: (move.source, move.target) for move in plan.moves} == {
            slot: (before.get(slot), home) for slot, home in plan.homes.items() if before.get(slot) != home
        }
        # What was just planned needs no other plan.
        assert plan_homes(executors, slots, plan.homes, pinned=pinned).moves == ()
        shuffled, turned = (
            list(executors),
            dict(chance.sample(sorted(slots.items(), key=lambda one: one[0]), len(slots))),
        )
        chance.shuffle(shuffled)
        assert plan_homes(shuffled, turned, dict(reversed(before.items())), pinned=pinned) == plan


@tries(100)
@given(
    st.lists(st.floats(0.1, 2.0), min_size=4, max_size=24),
    st.sampled_from(["bcd", "bd", "abcd", "abcde", "bcdef", "abcdefgh"]),
)
def test_each_slot_that_moves_for_balance_is_needed_for_it(seconds: list[float], after: str) -> None:
    slots = _slots(*seconds)
    first = plan_homes(_executors(*"abcd"), slots, {})
    plan = plan_homes(_executors(*after), slots, first.homes)
    lost = {slot for slot, home in first.homes.items() if home not in after}
    assert lost <= _moved(plan)
    limit = 1.15 * max(sum(seconds) / len(after), *seconds)
    for move in plan.moves:
        if move.slot not in lost and max(plan.cpu_seconds.values()) <= limit:
            back = {**plan.homes, move.slot: first.homes[move.slot]}
            cpu = {id: sum(seconds[slot[1]] for slot, home in back.items() if home == id) for id in after}
            assert max(cpu.values()) > limit - 1e-9 or not all(cpu.values())


@tries(60)
@given(st.lists(st.floats(0.1, 3.0), min_size=3, max_size=7), st.lists(st.floats(0.1, 3.0), max_size=3))
def test_a_batch_takes_hardly_longer_than_with_any_other_homes(first: list[float], second: list[float]) -> None:
    slots = _slots(*first) | _slots(*second, level=2)
    loads = {slot: load.cpu_seconds for slot, load in slots.items() if load is not None}

    def seconds_with(homes: tuple[str, ...]) -> float:
        placed = list(zip(loads, homes, strict=True))
        return sum(
            max(sum(loads[slot] for slot, home in placed if home == id and slot[0] == level) for id in "abc")
            for level in (1, 2)
        )

    if len(loads) <= 7:
        plan = plan_homes(_executors("a", "b", "c"), slots, {})
        best = min(seconds_with(homes) for homes in itertools.product("abc", repeat=len(loads)))
        assert seconds_with(tuple(plan.homes[slot] for slot in loads)) <= 1.25 * best
