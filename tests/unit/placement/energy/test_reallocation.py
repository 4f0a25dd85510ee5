"""The models of a path and of a host's limits, and where slots go so that hosts can sleep."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.cluster import SlotId
from anabranch.model.loads import LoadError
from anabranch.model.measures import OTHER_SLOTS, TaskMeasure
from anabranch.placement.energy import (
    Board,
    FlowLoad,
    Host,
    Limits,
    SlotUse,
    WindowLoad,
    choose_target,
    count_needed,
    plan_reallocation,
    reallocate,
    saved_by_hosts,
    saved_by_traffic,
)
from unit.placement.energy.flows import (
    D1,
    PAPER_EDGES,
    PAPER_HOMES,
    PAPER_HOSTS,
    PATH,
    A,
    B,
    C,
    E,
    G,
    H,
    I,
    paper_load,
    placed_loads,
)

PLENTY = Limits(1.0, 1.0, 1.0)


# -- the models, by the paper's figures -------------------------------------------------------------------------------


def test_the_critical_path_of_figure_4_is_found() -> None:
    paths = Board(PAPER_HOSTS, paper_load(), PAPER_HOMES).find_paths()
    assert paths.path == PATH
    # Four slots of 0.2 s; d1 → f2 goes from n1 to n2, which takes 10 bytes at 1,000 a second.
    assert paths.seconds == pytest.approx(4 * 0.2 + 0.01)
    assert paths.through[D1] == pytest.approx(paths.seconds)
    assert paths.through[E] < paths.seconds - 0.05


def test_what_is_sent_within_a_host_costs_nothing() -> None:
    together = dict.fromkeys(PAPER_HOMES, "n1")
    board = Board(PAPER_HOSTS, paper_load(), together)
    assert board.crossing_bytes == 0
    assert board.find_paths().seconds == pytest.approx(0.8)
    apart = Board(PAPER_HOSTS, paper_load(), PAPER_HOMES)
    crossing = sum(PAPER_HOMES[one] != PAPER_HOMES[other] for one, other in PAPER_EDGES)
    assert apart.crossing_bytes == pytest.approx(10 * crossing)


def test_of_figure_4_c_goes_to_its_parents_host_and_i_to_the_one_with_fewer_slots() -> None:
    board = Board(PAPER_HOSTS, paper_load(), PAPER_HOMES)
    critical = ("n1", "n2")
    assert choose_target(board, C, critical, PLENTY) == ("n1", "to a slot that sends to it")
    # n1 has three slots and n2 has four.
    assert choose_target(board, I, critical, PLENTY) == ("n1", "to a slot that sends to it")


def test_with_as_many_slots_on_both_the_less_busy_host_is_taken() -> None:
    homes = PAPER_HOMES | {B: "n1"}
    busier_n1 = Board(PAPER_HOSTS, paper_load(a=0.9), {**homes, G: "n2"} | {A: "n1"})
    counts = dict(zip(("n1", "n2", "n3"), busier_n1.count_slots().tolist(), strict=True))
    assert counts["n1"] == counts["n2"]
    assert choose_target(busier_n1, I, ("n1", "n2"), PLENTY) == ("n2", "to a slot that sends to it")


def test_a_slot_whose_senders_host_is_full_goes_to_another_critical_host() -> None:
    # A host at its limit is extreme: n1 takes 0.55 of 4 s.
    limits = Limits(cpu=0.5 / 4, memory=1, network=1)
    board = Board(PAPER_HOSTS, paper_load(b=0.01, d2=0.01, f2=0.01, h=0.01), PAPER_HOMES)
    assert board.find_extreme(limits).tolist() == [True, False, False]
    assert choose_target(board, C, ("n1", "n2"), limits) == ("n2", "its senders' hosts are full")
    assert choose_target(board, C, ("n1",), limits) is None


def test_slots_leave_the_host_off_the_path_and_it_is_released() -> None:
    found = plan_reallocation(PAPER_HOSTS, paper_load(), PAPER_HOMES, PLENTY, fewest=2)
    assert found is not None
    assert found.critical == ("n1", "n2")
    assert found.released == ("n3",)
    assert {move.slot for move in found.moves} == {C, E, G, I}
    assert found.homes[C] == "n1"
    assert found.homes[E] == "n2"
    before = Board(PAPER_HOSTS, paper_load(), PAPER_HOMES)
    after = Board(PAPER_HOSTS, paper_load(), found.homes)
    assert after.crossing_bytes < before.crossing_bytes
    assert after.find_paths().seconds <= before.find_paths().seconds


def test_a_slot_that_nobody_admits_stays_and_so_does_its_host() -> None:
    load = paper_load()
    large = replace(load, slots={**load.slots, G: SlotUse(0.1, 9_000)})
    board = Board(PAPER_HOSTS, large, PAPER_HOMES)
    moves, stranded = reallocate(board, ("n1", "n2"), PLENTY)
    assert stranded == [G]
    assert {move.slot for move in moves} == {C, E, I}
    assert board.home(G) == "n3"


def test_a_host_with_any_resource_at_its_limit_admits_nothing() -> None:
    load = FlowLoad(1.0, 1, 1, {(0, 0): SlotUse(0.0, 90), (0, 1): SlotUse(0.0, 0)})
    board = Board([Host("x", 1, 100), Host("y", 1, 100)], load, {(0, 0): "x", (0, 1): "y"})
    assert board.find_admitting((0, 1), Limits(0.9, 0.9, 0.9)).tolist() == [False, False]
    assert board.find_admitting((0, 1), Limits(0.9, 0.95, 0.9)).tolist() == [True, False]


def test_all_three_resources_are_looked_at() -> None:
    use = SlotUse(0.5, 50)
    slots: dict[SlotId, SlotUse] = {(0, 0): use, (1, 0): use}
    load = FlowLoad(1.0, 1, 1, slots, {((0, 0), (1, 0)): 50.0})
    homes = {(0, 0): "x", (1, 0): "y"}
    hosts = [Host("x", 1, 100, 100.0), Host("y", 1, 100, 100.0), Host("z", 1, 100, 100.0)]
    board = Board(hosts, load, homes)
    assert board.find_admitting((1, 0), Limits(1, 1, 1)).tolist() == [True, False, True]
    assert board.find_admitting((1, 0), Limits(0.9, 1, 1)).tolist() == [False, False, True]
    assert board.find_admitting((1, 0), Limits(1, 0.9, 1)).tolist() == [False, False, True]
    # Beside the slot that sends to it nothing crosses; elsewhere all of it does.
    assert board.find_admitting((1, 0), Limits(1, 1, 0.49)).tolist() == [False, False, False]
    together = Board(hosts, load, {(0, 0): "x", (1, 0): "x"})
    assert together.find_admitting((1, 0), Limits(1, 1, 0.49)).tolist() == [False, False, False]
    assert together.find_admitting((1, 0), Limits(1, 1, 0.5)).tolist() == [False, True, True]


def test_a_batch_takes_as_long_as_the_slowest_host_of_each_level() -> None:
    slots = {(0, 0): SlotUse(0.4), (0, 1): SlotUse(0.2), (1, 0): SlotUse(0.6), (1, 1): SlotUse(0.6)}
    sent = {((0, 0), (1, 1)): 100.0}
    hosts = [Host("x", 1, 0, 1_000.0), Host("y", 2, 0, 1_000.0)]
    load = FlowLoad(1.0, 1, 1, slots, sent, level_seconds=0.05)
    homes = {(0, 0): "x", (0, 1): "x", (1, 0): "y", (1, 1): "y"}
    # 0.6 s on the core of x, then 1.2 s on two cores of y or one slot that receives for 0.1 s first.
    assert Board(hosts, load, homes).batch_seconds() == pytest.approx(0.6 + 0.7 + 2 * 0.05)
    assert Board(hosts, load, homes).batch_seconds({"x": 0.5}) == pytest.approx(1.2 + 0.7 + 2 * 0.05)
    assert Board(hosts, load, homes).latency_seconds() == math.inf
    assert Board(hosts, load, homes).scaled(0.5).latency_seconds() == pytest.approx(1 + 0.3 + 0.35 + 0.1)


def test_a_slot_without_a_host_is_named() -> None:
    with pytest.raises(LoadError, match=r"on None, n9; the hosts are n1, n2, n3"):
        Board(PAPER_HOSTS, paper_load(), {slot: home for slot, home in PAPER_HOMES.items() if slot != A} | {H: "n9"})


def test_bytes_that_go_back_or_to_nobody_are_refused() -> None:
    slots = {(0, 0): SlotUse(1), (1, 0): SlotUse(1)}
    with pytest.raises(LoadError, match="from a level to a later one"):
        FlowLoad(1, 1, 1, slots, {((1, 0), (0, 0)): 1.0})
    with pytest.raises(LoadError, match="not both are slots"):
        FlowLoad(1, 1, 1, slots, {((0, 0), (1, 7)): 1.0})


def test_the_load_of_a_window_is_what_its_tasks_took() -> None:
    def task(level: int, slot: int, cpu: float, sent: dict[SlotId, int], received: int) -> TaskMeasure:
        own = {"sent_bytes": sent, "received_bytes": received, "state_bytes": 7}
        return TaskMeasure(level, slot, "1", "h", cpu, cpu, 99, **own)

    window = WindowLoad()
    batches = [
        [task(0, 0, 0.5, {(1, 0): 30, OTHER_SLOTS: 9}, 0), task(1, 0, 0.2, {}, 80)],
        [task(0, 0, 0.7, {(1, 0): 50}, 0), task(1, 0, 0.1, {}, 120)],
    ]
    for batch in batches:
        window.add(batch, rows=500, batch_seconds=2.0)
    load = window.finish(30)
    assert load.slots[0, 0] == SlotUse(pytest.approx(1.2), 7, 7)
    assert load.slots[1, 0] == SlotUse(pytest.approx(0.3), 247, 7)
    assert load.sent_bytes == {((0, 0), (1, 0)): 80}
    assert (load.rows, window.batch_seconds) == (1_000, 4.0)
    assert (load.batches, load.interval_seconds, load.levels) == (2, 15, 2)


# -- what holds for any load ------------------------------------------------------------------------------------------


@given(placed_loads(), st.floats(0.2, 1.0))
def test_no_limit_is_broken_by_a_reallocation_that_was_kept_before(
    case: tuple[tuple[Host, ...], FlowLoad, dict[SlotId, str]], limit: float
) -> None:
    hosts, load, homes = case
    limits = Limits(limit, limit, limit)
    board = Board(hosts, load, homes)
    for count in range(1, len(hosts)):
        moved = board.rehomed(homes)
        kept = moved.is_within(limits)
        critical = [host.id for host in hosts[:count]]
        moves, _ = reallocate(moved, critical, limits)
        # What was kept up to date move by move is what a fresh look says.
        fresh = Board(hosts, load, moved.homes)
        assert fresh.cpu_shares() == pytest.approx(moved.cpu_shares())
        assert fresh.network_shares() == pytest.approx(moved.network_shares(), abs=1e-9)
        assert {move.slot for move in moves}.isdisjoint(slot for slot, home in homes.items() if home in critical)
        if kept:
            assert fresh.is_within(limits)


@given(placed_loads(), st.floats(0.3, 1.0), st.floats(0.1, 4.0))
def test_a_planned_reallocation_keeps_limits_and_the_bound_on_latency(
    case: tuple[tuple[Host, ...], FlowLoad, dict[SlotId, str]], limit: float, bound: float
) -> None:
    hosts, load, homes = case
    limits = Limits(limit, limit, limit)
    found = plan_reallocation(hosts, load, homes, limits, latency_seconds=bound)
    if found is None:
        return
    after = Board(hosts, load, found.homes)
    assert after.is_within(limits)
    assert after.latency_seconds() <= bound + 1e-9
    assert set(after.used) <= set(found.critical)
    assert not set(found.released) & set(after.used)
    assert found == plan_reallocation(hosts, load, homes, limits, latency_seconds=bound)


@given(placed_loads(most_slots=2), st.floats(0.3, 1.0))
def test_no_placement_at_all_needs_fewer_hosts_than_are_counted(
    case: tuple[tuple[Host, ...], FlowLoad, dict[SlotId, str]], limit: float
) -> None:
    hosts, load, homes = case
    limits = Limits(limit, limit, limit)
    board = Board(hosts, load, homes)
    slots = sorted(load.slots)
    fewest = len(hosts) + 1
    for chosen in itertools.product([host.id for host in hosts], repeat=len(slots)):
        if len(set(chosen)) < fewest and board.rehomed(dict(zip(slots, chosen, strict=True))).is_within(limits):
            fewest = len(set(chosen))
    assert min(fewest, len(hosts)) >= count_needed(hosts, load, limits)
    found = plan_reallocation(hosts, load, homes, limits)
    if found is not None:
        # The oracle has looked at every placement.
        assert len(set(found.homes.values())) >= fewest


@given(placed_loads())
def test_the_longest_path_is_that_of_the_longest_way_through_all_slots(
    case: tuple[tuple[Host, ...], FlowLoad, dict[SlotId, str]],
) -> None:
    hosts, load, homes = case
    board = Board(hosts, load, homes)
    bandwidth = {host.id: host.bandwidth or math.inf for host in hosts}

    def ways(slot: SlotId) -> list[float]:
        own = load.slots[slot].cpu_seconds / load.batches
        found = [own]
        for (sender, receiver), sent in load.sent_bytes.items():
            if receiver == slot and sent > 0:
                ends = homes[sender], homes[receiver]
                slower = min(bandwidth[end] for end in ends)
                cost = sent / slower / load.batches if ends[0] != ends[1] else 0.0
                found += [way + cost + own for way in ways(sender)]
        return found

    longest = max(way for slot in load.slots for way in ways(slot))
    paths = board.find_paths()
    assert paths.seconds == pytest.approx(longest)
    assert max(paths.through.values()) == pytest.approx(longest)
    assert board.scaled(2).find_paths().seconds == pytest.approx(2 * longest)


# -- the paper's accounting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("localised", "each", "saved"), [(14, 0.008, 0.112), (18, 0.011, 0.198), (12, 0.015, 0.18), (11, 0.013, 0.143)]
)
def test_traffic_saved_is_what_the_paper_adds_up(localised: int, each: float, saved: float) -> None:
    # Each executor that no longer sends between hosts saves its part of what crosses.
    paths = round(1 / each)
    assert saved_by_traffic(localised, paths, 1.0, 1.0, 1.0) == pytest.approx(saved, rel=0.02)
    assert saved_by_traffic(localised, paths, 0.002, 1e6, 1_063.0) == pytest.approx(saved * 2_000 * 1_063, rel=0.02)


@pytest.mark.parametrize(
    ("released", "rate_change", "saved"),
    [(2, 0.137, 0.230), (3, 0.133, 0.283), (2, 0.182, 0.260), (2, 0.125, 0.222), (2, 0.0, 0.125)],
)
def test_energy_a_row_by_constant_power_and_the_papers_rates(released: int, rate_change: float, saved: float) -> None:
    assert saved_by_hosts(16, released, rate_change) == pytest.approx(saved, abs=0.0006)


def test_the_papers_energy_is_not_its_power_times_its_time() -> None:
    default, erdm = 1_063.15 * 300, 1_065.37 * 216
    assert 1 - erdm / default == pytest.approx(0.2785, abs=0.0005)
    told = 1 - 5_286.8 / 7_270.3
    assert told == pytest.approx(0.273, abs=0.0005)
    # Both energies are 23 times too high for the power and the time beside them.
    assert 7_270_300 / default == pytest.approx(22.8, abs=0.1)
    assert 5_286_800 / erdm == pytest.approx(23.0, abs=0.1)


def test_accounting_refuses_what_cannot_be() -> None:
    with pytest.raises(LoadError, match="somebody must do the work"):
        saved_by_hosts(16, 16, 0.1)
    with pytest.raises(LoadError, match="no more than there are"):
        saved_by_traffic(5, 4, 1, 1, 1)
