"""Readings become moves of slots and hosts that go or come, one thing a boundary, and never thrash."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.control.energy_use import EnergyUse, calibrate, choose_executors
from anabranch.model.cluster import Executor, Home, KeptHomes, Pin, ReleaseWait, SlotId
from anabranch.model.energy import Energy
from anabranch.model.measures import TaskMeasure
from anabranch.placement.elasticity import ClusterReading
from anabranch.placement.energy import Board, FlowLoad, Host, SlotUse

ENERGY = Energy(20, windows_down=2, cool_down_seconds=60, restart_seconds=60)
SLOTS, HOSTS, SECONDS = 8, "abcd", 10.0
EVERYONE = tuple(Executor(str(place), host, 2) for place, host in enumerate(HOSTS))


class Play:
    """A cluster that does what is decided, at the pace of batches."""

    def __init__(self, energy: Energy = ENERGY, comes_after: int = 2) -> None:
        self.use = EnergyUse(energy, SECONDS)
        self.executors = list(EVERYONE)
        self.homes = {(1, slot): Home(str(slot % 4), HOSTS[slot % 4]) for slot in range(SLOTS)}
        self.pins: dict[SlotId, Pin] = {}
        self.coming: list[tuple[int, Executor]] = []
        self.comes_after, self.batch, self.ids = comes_after, 0, len(EVERYONE)
        self.told: list[str] = []
        self.wait = ReleaseWait()
        self.reasons: list[str] = []

    def step(self, cores: float) -> None:
        """Run a batch that takes so many cores; decisions of the batch before are carried out."""
        self.batch += 1
        change, homes = self.use.take_change(), self.use.take_homes()
        there = {one.id for one in self.executors if not one.is_leaving}
        self.use.see(self._read(cores), KeptHomes("app", dict(self.homes), dict(self.pins)))
        assert all(moved.executor in there for moved in homes.values()), "slots move to those that stay"
        for slot, moved in homes.items():
            assert moved.executor is not None and slot not in self.pins
            self.homes[slot] = Home(moved.executor, moved.host)
        if change is not None:
            gone = {*change.offload, *change.release}
            self.told += ["hold"] * bool(change.hold)
            self.reasons.append(change.reason)
            self.told += ["offload"] * bool(change.offload) + ["release"] * bool(change.release)
            self.told += ["keep"] * bool(change.keep) + ["wake"] * bool(change.provision)
            assert not {home.executor for home in self.homes.values()} & gone, "slots have left"
            leaving = {one.id for one in self.executors if one.is_leaving} | gone
            leaving -= set(change.keep)
            assert set(change.hold) <= leaving, "whoever is held has no slots meanwhile"
            self.executors = [
                replace(one, is_leaving=one.id in leaving) for one in self.executors if one.id not in change.release
            ]
            for _ in range(change.provision):
                hosts = [one.host for one in (*self.executors, *(executor for _, executor in self.coming))]
                host = min(HOSTS, key=hosts.count)
                self.coming.append((self.batch + self.comes_after, Executor(str(self.ids), host, 2)))
                self.ids += 1
        self.executors += [executor for batch, executor in self.coming if batch <= self.batch]
        self.coming = [one for one in self.coming if one[0] > self.batch]
        self._spread()

    @property
    def hosts(self) -> int:
        return len({one.host for one in self.executors if not one.is_leaving})

    def _spread(self) -> None:
        """Give slots to executors that have none, as the choice of homes does."""
        idle = [
            one
            for one in self.executors
            if not one.is_leaving and one.id not in {h.executor for h in self.homes.values()}
        ]
        for one in idle:
            counts = [home.executor for home in self.homes.values()]
            free = [slot for slot in self.homes if slot not in self.pins]
            if not free or max(map(counts.count, counts)) < 2:
                return
            busiest = max(free, key=lambda slot: (counts.count(self.homes[slot].executor), slot))
            self.homes[busiest] = Home(one.id, one.host)

    def _read(self, cores: float) -> ClusterReading:
        staying = [one for one in self.executors if not one.is_leaving]
        measures = [TaskMeasure(0, 0, staying[0].id, staying[0].host, 0.0, 0.0, 0, sent_bytes={(1, 0): 100})]
        measures += [
            TaskMeasure(*slot, home.executor, home.host, cores * SECONDS / SLOTS, 0.0, 0)
            for slot, home in self.homes.items()
        ]
        rows = int(1_000 * cores)
        return ClusterReading(
            now_seconds=self.batch * SECONDS,
            executors=tuple(self.executors),
            rows=rows,
            batch_seconds=1.0,
            cpu_seconds={},
            offered_rows_per_second=rows / SECONDS,
            measures=tuple(measures),
            wait=self.wait,
        )


def test_low_load_empties_hosts_at_one_boundary_and_releases_them_at_the_next() -> None:
    play = Play()
    for _ in range(12):
        play.step(1.0)
    assert play.told == ["offload", "release"] and play.hosts == 1
    for _ in range(12):
        play.step(5.0)
    assert play.told == ["offload", "release", "wake"] and play.hosts == 4


def test_hosts_that_somebody_waits_for_are_held_and_that_is_told_once() -> None:
    play = Play()
    play.wait = ReleaseWait(frozenset("23"), "copies are not elsewhere yet")
    for _ in range(14):
        play.step(1.0)
    assert play.told == ["offload", "hold"] and play.reasons[-1] == "copies are not elsewhere yet"
    assert sum(one.is_leaving for one in play.executors) == 3
    play.wait = ReleaseWait(reason="nobody waits longer")
    play.step(1.0)
    play.step(1.0)
    assert play.told == ["offload", "hold", "release"] and play.reasons[-1].endswith("; nobody waits longer")


def test_hosts_that_are_held_are_kept_if_load_comes_back() -> None:
    play = Play()
    play.wait = ReleaseWait(frozenset("123"), "copies are not elsewhere yet")
    for _ in range(14):
        play.step(1.0)
    for _ in range(7):
        play.step(5.0)
    assert play.told == ["offload", "hold", "keep"] and play.hosts == 4


def test_a_load_that_jumps_in_between_keeps_hosts_that_were_to_go() -> None:
    play = Play()
    while not play.use.is_changing:
        play.step(1.0)
    for _ in range(7):
        play.step(5.0)
    assert play.told == ["offload", "keep"] and play.hosts == 4


def test_hosts_that_do_not_come_are_asked_for_again_when_they_should_have() -> None:
    play = Play(comes_after=1_000)
    for _ in range(12):
        play.step(1.0)
    for _ in range(20):
        play.step(5.0)
    assert play.told[2:] and set(play.told[2:]) == {"wake"} and len(play.told[2:]) <= 1 + 20 * SECONDS // 60


def test_slots_that_people_pinned_stay_and_so_does_their_host() -> None:
    play = Play()
    play.pins[1, 3] = Pin(None, "d")
    for _ in range(12):
        play.step(1.0)
    assert play.homes[1, 3].host == "d" and play.hosts == 2
    # Nothing is tried again and again that pins do not allow.
    for _ in range(30):
        play.step(1.0)
    assert play.use.show()["changes"] == 1 and play.told == ["offload", "release"]


def test_without_a_host_to_spare_nothing_is_asked_for() -> None:
    play = Play(replace(ENERGY, min_hosts=4))
    for cores in [1.0] * 12 + [7.9] * 12:
        play.step(cores)
    assert play.told == [] and play.use.idle_seconds is None


def test_an_idle_flow_wants_a_batch_a_window_as_long_as_hosts_could_go() -> None:
    play = Play()
    play.step(0.0)
    assert play.use.idle_seconds == ENERGY.window_seconds
    for _ in range(12):
        play.step(0.0)
    assert play.hosts == 1 and play.use.idle_seconds is None


def test_a_refusal_lets_the_next_window_decide_anew() -> None:
    play = Play(comes_after=1_000)
    for _ in range(12):
        play.step(1.0)
    while "wake" not in play.told:
        play.step(5.0)
    assert play.use.is_changing
    play.use.refuse()
    assert not play.use.is_changing
    for _ in range(8):
        play.step(5.0)
    assert play.told[-2:] == ["wake", "wake"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 8.0), min_size=1, max_size=8),
    st.integers(1, 4),
    st.sampled_from(["erdm", "consolidation"]),
    st.floats(11.0, 40.0),
)
def test_whatever_comes_slots_have_homes_and_a_steady_load_is_left_alone(
    levels: list[float], comes_after: int, policy: str, bound: float
) -> None:
    play = Play(replace(ENERGY, policy=policy, latency_seconds=bound), comes_after)
    for cores in levels:
        for _ in range(9):
            play.step(cores)
            there = {one.id for one in play.executors}
            assert {home.executor for home in play.homes.values()} <= there
            assert play.hosts >= 1
    last = levels[-1]
    for _ in range(40):
        play.step(last)
    done, homes = len(play.told), dict(play.homes)
    for _ in range(60):
        play.step(last)
    assert play.told[done:] == [] and play.homes == homes, "a load that stays changes nothing any more"


def test_what_a_batch_takes_beside_its_slots_is_shared_out_to_levels() -> None:
    hosts = (Host("a", 2), Host("b", 2))
    load = FlowLoad(10, 1, 100, {(0, 0): SlotUse(2.0), (1, 0): SlotUse(4.0)}, trigger_seconds=10.0)
    homes = {(0, 0): "a", (1, 0): "b"}
    fitted = calibrate(load, 7.0, hosts, homes)
    assert fitted.level_seconds == pytest.approx(0.5)
    assert Board(hosts, fitted, homes).latency_seconds() == pytest.approx(10 + 7)


def test_batches_that_follow_one_another_are_as_long_as_what_comes_meanwhile_makes_them() -> None:
    hosts = (Host("a", 1),)
    # Half of the time is that of rows: 1 s of a batch is fixed, so batches take 2 s, and rows wait for one.
    load = FlowLoad(20, 10, 100, {(1, 0): SlotUse(10.0)}, trigger_seconds=0.0)
    homes = {(1, 0): "a"}
    board = Board(hosts, calibrate(load, 2.0, hosts, homes), homes)
    assert board.latency_seconds() == pytest.approx(4.0)
    assert board.scaled(1.5).latency_seconds() == pytest.approx(2 * 1 / (1 - 0.75))
    assert board.scaled(2.0).latency_seconds() == math.inf


def test_slots_go_to_the_executor_of_their_host_that_has_the_fewest_of_their_level() -> None:
    executors = [Executor("1", "a", 2), Executor("2", "a", 2)]
    before = {(1, 0): Home("1", "a"), (1, 1): Home("9", "b"), (1, 2): Home("9", "b"), (2, 0): Home("9", "b")}
    changes = choose_executors({(1, 1): "a", (1, 2): "a", (2, 0): "a"}, executors, before, "why")
    assert {slot: change.executor for slot, change in changes.items()} == {(1, 1): "2", (1, 2): "1", (2, 0): "1"}
    assert all(change.sender == "energy" and not change.is_pinned for change in changes.values())
