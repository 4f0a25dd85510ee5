"""Homes of a batch: those of the last one, unless executors went, came back as others, or people want it otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.control.decisions import HomeChange
from anabranch.control.homes import change_homes, count_moved_bytes, find_home_change, name_homes, settle_homes
from anabranch.control.manual_overrides import CommandRefused
from anabranch.model.cluster import Executor, Home, KeptHomes, Pin, SettledHomes, SlotLoad, SlotLoads
from anabranch.placement.homes import choose_homes

SLOTS = [(1, 0), (1, 1), (1, 2)]
FIRST = (Executor("0", "a", 1), Executor("1", "a", 1), Executor("2", "b", 1))


def settle(before: KeptHomes, executors: tuple[Executor, ...] = FIRST, application: str = "app-1") -> SettledHomes:
    return settle_homes(SLOTS, executors, before, application, SlotLoads(), choose_homes)


def one_reason(settled: SettledHomes) -> str:
    ((_, why),) = settled.changes
    return why


@pytest.fixture
def before() -> KeptHomes:
    return settle(KeptHomes()).kept


def test_homes_that_can_stay_are_no_change(before: KeptHomes) -> None:
    assert set(before.executors.values()) == {"0", "1", "2"}
    assert settle(before) == SettledHomes(before, {})


@pytest.mark.parametrize(
    ("now", "why"),
    [(None, "executor 2 on b is gone"), (Executor("2", "b", 1, is_leaving=True), "executor 2 on b is leaving")],
)
def test_slots_of_an_executor_that_goes_get_other_homes_and_the_reason_is_told(
    before: KeptHomes, now: Executor | None, why: str
) -> None:
    (moved,) = (slot for slot, id in before.executors.items() if id == "2")
    settled = settle(before, FIRST[:2] if now is None else (*FIRST[:2], now))
    ((told,),) = (homes for homes in settled.changes.values())
    assert told == moved
    assert one_reason(settled).startswith(why)
    assert settled.kept.homes[moved].executor != "2"
    assert {slot: home for slot, home in settled.kept.homes.items() if slot != moved} == {
        slot: home for slot, home in before.homes.items() if slot != moved
    }


def test_the_state_of_slots_that_had_another_home_is_what_a_change_costs(before: KeptHomes) -> None:
    loads = SlotLoads({slot: SlotLoad(1.0, state_bytes=10 ** (slot[1] + 1)) for slot in SLOTS})
    (moved,) = (slot for slot, id in before.executors.items() if id == "2")
    settled = settle_homes(SLOTS, FIRST[:2], before, "app-1", loads, choose_homes)
    assert sum(settled.moved_bytes.values()) == 10 ** (moved[1] + 1)
    first = settle_homes(SLOTS, FIRST, KeptHomes(), "app-1", loads, choose_homes)
    assert sum(first.moved_bytes.values()) == 0
    there = before.homes[moved]
    wishes = {moved: HomeChange("0", "a"), SLOTS[0]: HomeChange(None, "b")}
    assert count_moved_bytes(wishes, before, loads) == {moved: 10 ** (moved[1] + 1)}
    assert count_moved_bytes({moved: HomeChange(there.executor, there.host)}, before, loads) == {moved: 0}


def test_an_executor_gets_slots_once_it_is_warm(before: KeptHomes) -> None:
    two = settle(before, FIRST[:2]).kept
    cold = Executor("3", "b", 1, is_warm=False)
    assert settle(two, (*FIRST[:2], cold)).kept == two
    warm = settle(two, (*FIRST[:2], Executor("3", "b", 1)))
    assert "3" in warm.kept.executors.values()


def test_where_none_is_warm_all_are_used() -> None:
    cold = tuple(Executor(str(id), "a", 1, is_warm=False) for id in range(2))
    assert set(settle(KeptHomes(), cold).kept.executors.values()) == {"0", "1"}


def test_without_executors_nobody_has_a_home(before: KeptHomes) -> None:
    assert settle(before, ()).kept == KeptHomes("app-1")


def test_in_another_application_slots_stay_on_their_hosts_for_ids_mean_others_there(before: KeptHomes) -> None:
    # The same ids, on other hosts.
    others = (Executor("0", "b", 1), Executor("1", "a", 1), Executor("2", "a", 1))
    after = settle(before, others, "app-2").kept
    assert {slot: home.host for slot, home in after.homes.items()} == {
        slot: home.host for slot, home in before.homes.items()
    }
    assert set(after.executors.values()) == {"0", "1", "2"}


def test_what_people_want_stays_whatever_is_even(before: KeptHomes) -> None:
    change = find_home_change("2", FIRST)
    kept = change_homes(before, dict.fromkeys(SLOTS, change))
    settled = settle(kept)
    assert set(settled.kept.executors.values()) == {"2"}
    assert settled.kept.pins == dict.fromkeys(SLOTS, Pin("2", "b"))


def test_a_host_means_its_emptiest_executor(before: KeptHomes) -> None:
    (moved,) = (slot for slot, id in before.executors.items() if id == "2")
    kept = change_homes(before, {moved: find_home_change("a", FIRST)})
    settled = settle(kept)
    assert settled.kept.homes[moved].host == "a"
    # The slot that was there makes room, and both are told.
    assert {why for _, why in settled.changes} == {
        "people put it on host a",
        "executor 2 has no slots; spread by what slots cost over 3 executors on 2 hosts",
    }
    # It stays on that executor as long as it is there.
    assert settle(settled.kept).changes == {}


def test_what_people_wanted_is_over_when_the_executor_goes_and_cleared_when_they_say_so(before: KeptHomes) -> None:
    kept = change_homes(before, {(1, 0): find_home_change("2", FIRST)})
    lost = settle(kept, FIRST[:2])
    assert lost.kept.pins == {}
    assert any("where people put it" in why for _, why in lost.changes)
    cleared = change_homes(kept, {(1, 0): find_home_change(None, FIRST)})
    assert cleared.pins == {}


def test_an_executor_that_people_chose_is_its_host_in_another_application(before: KeptHomes) -> None:
    kept = change_homes(before, {(1, 0): find_home_change("2", FIRST)})
    after = settle(kept, (Executor("0", "b", 1), Executor("1", "a", 1)), "app-2").kept
    assert after.pins == {(1, 0): Pin(None, "b")}
    assert after.homes[1, 0] == Home("0", "b")


def test_a_home_that_a_policy_decides_is_no_word_of_people(before: KeptHomes) -> None:
    kept = change_homes(before, {(1, 0): HomeChange("2", "b", "it is near")})
    assert kept.homes[1, 0] == Home("2", "b")
    assert kept.pins == {}


@pytest.mark.parametrize(
    ("place", "executors", "words"),
    [
        ("9", FIRST, "no executor and no host '9'; the executors are 0 on a, 1 on a, 2 on b"),
        ("2", (Executor("2", "b", 1, is_leaving=True),), "executor 2 on b is leaving"),
        ("b", (Executor("2", "b", 1, is_leaving=True),), "executor 2 on b is leaving"),
        ("2", (Executor("2", "b", 1, is_warm=False),), "is warming up; try again"),
    ],
)
def test_a_home_that_cannot_be_is_refused(place: str, executors: Any, words: str) -> None:
    with pytest.raises(CommandRefused, match=words):
        find_home_change(place, executors)


def test_many_homes_are_told_in_few_words() -> None:
    told = name_homes({(1, slot): Home("0", "a") for slot in range(20)})
    assert told.startswith("slot 0 → executor 0 on a, slot 1") and told.endswith(" and 12 more")
