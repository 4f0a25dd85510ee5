"""The simulated cluster: the same story by the same seed, state that outlives failures, policies that come to rest."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from anabranch.model.elasticity import Elasticity
from anabranch.model.energy import Energy
from anabranch.model.power import DEFAULT_POWER
from anabranch.placement.replicas import Replicas
from anabranch.sim import (
    BatchRecord,
    Costs,
    Host,
    HostEvent,
    LoadTrace,
    Scenario,
    SimulatedFlow,
    Simulation,
    SimulationError,
    Slot,
    Steering,
    draw_history,
    draw_waves,
    find_drawn,
)
from property_tests import tries

MEGABYTE = 1_000_000
QUICK = Energy(latency_seconds=6, window_seconds=3, windows_down=2, cool_down_seconds=4, restart_seconds=5)


def _hosts(count: int, bandwidth: float = 125e6) -> tuple[Host, ...]:
    return tuple(
        Host(f"h{place}", bandwidth_bytes_per_second=bandwidth, rack=str(place // 4)) for place in range(count)
    )


def _names(hosts: Iterable[Host]) -> list[str]:
    return [host.name for host in hosts]


def _chain(slots: int, state_bytes: int = MEGABYTE) -> SimulatedFlow:
    """Slots in a row, each of a level of its own, as in the paper on replicas."""
    return SimulatedFlow(
        tuple(Slot((level, 0), 1e-5, state_bytes, 10.0) for level in range(1, slots + 1)),
        {((level, 0), (level + 1, 0)): 200.0 for level in range(1, slots)},
    )


def _level(slots: int, cpu_seconds_a_row: float = 1e-4) -> SimulatedFlow:
    return SimulatedFlow(tuple(Slot((1, slot), cpu_seconds_a_row / slots, MEGABYTE, 1.0) for slot in range(slots)))


def _scenario(flow: SimulatedFlow, hosts: tuple[Host, ...], *events: HostEvent, rows: float = 1_000.0) -> Scenario:
    return Scenario(hosts, flow, LoadTrace.constant(rows), tuple(events))


# -- replicas --------------------------------------------------------------------------------------------------------


def test_a_lost_host_costs_one_batch_and_its_slots_go_on_from_replicas() -> None:
    simulation = Simulation(_scenario(_chain(4), _hosts(8), HostEvent(5.1, "h0", "fail")), Steering(Replicas()))
    records = simulation.run_until(12)
    (broken,) = [record for record in records if not record.is_committed]
    assert broken.began_seconds == pytest.approx(5)
    after = records[records.index(broken) + 1]
    assert after.recovered == {(1, 0): "replica"}
    assert after.stored_bytes == 0
    assert after.placed_replicas == 1
    assert [record.version for record in records if record.is_committed] == list(range(1, len(records)))
    assert sum(record.rows for record in records) + simulation.waiting_rows == pytest.approx(
        1_000 * (1 + records[-1].began_seconds)
    )


def test_without_replicas_state_comes_from_the_store_and_takes_its_time() -> None:
    flow = _chain(4, state_bytes=125 * MEGABYTE)
    simulation = Simulation(_scenario(flow, _hosts(8), HostEvent(5.1, "h0", "fail")), Steering())
    records = simulation.run_until(30)
    (slow,) = [record for record in records if record.recovered]
    assert slow.recovered == {(1, 0): "store"}
    assert slow.seconds == pytest.approx(10, abs=0.5)


def test_without_a_store_state_of_which_no_copy_is_left_stops_the_flow() -> None:
    homes = {(level, 0): f"h{level}" for level in range(1, 5)}
    steering = Steering(Replicas(degree=2), restores=False, has_store=False)
    lost = Simulation(
        _scenario(_chain(4), _hosts(8), HostEvent(5.1, "h1", "fail"), HostEvent(5.1, "h7", "fail")),
        steering,
        homes=homes,
        replicas={slot: ("h7",) for slot in homes},
    )
    records = lost.run_until(20)
    assert lost.lost_slots == {(1, 0)}
    assert records[-1].recovered == {(1, 0): "lost"}
    with pytest.raises(SimulationError, match=r"the flow has stopped: no copy of slots \[\(1, 0\)\] is left"):
        lost.run_batch()


def test_a_replica_that_the_wire_is_too_slow_for_lags_and_is_not_used_as_if_it_were_current() -> None:
    # 10 bytes a row and two replicas: a wire of 10 kB/s cannot carry what changes.
    simulation = Simulation(
        _scenario(_chain(1), _hosts(4, bandwidth=12_000.0), HostEvent(40.1, "h0", "fail")),
        Steering(Replicas(spare=0.0), restores=False),
        homes={(1, 0): "h0"},
        replicas={(1, 0): ("h1", "h2")},
    )
    records = simulation.run_until(43)
    assert max(record.lag_batches for record in records) > 3
    (recovery,) = [record for record in records if record.recovered]
    assert recovery.recovered == {(1, 0): "store"}
    # It reads what the replica lacks, not all.
    assert 0 < recovery.stored_bytes < MEGABYTE / 2


def test_a_host_that_was_cut_off_comes_back_as_a_replica_and_not_as_an_owner() -> None:
    events = (HostEvent(5.1, "h0", "cut"), HostEvent(9.1, "h0", "return"))
    simulation = Simulation(_scenario(_chain(2), _hosts(3), *events), Steering(Replicas(degree=3), evens_out=False))
    assert simulation.homes[1, 0] == "h0"
    simulation.run_until(8)
    heir = simulation.homes[1, 0]
    assert heir != "h0"
    assert simulation.copies.by_slot[1, 0]["h0"].version < simulation.copies.committed
    records = simulation.run_until(15)
    assert simulation.homes[1, 0] == heir
    assert simulation.copies.by_slot[1, 0]["h0"].version == simulation.copies.committed
    # Only what came meanwhile was sent: about 4 batches of 10 kB a slot, not a megabyte.
    assert sum(record.replicated_bytes for record in records) < MEGABYTE


@pytest.mark.parametrize("moment", [5.1, 5.8], ids=["in a batch", "between two"])
def test_a_host_that_fails_and_is_back_before_the_next_batch_has_lost_its_memory_all_the_same(moment: float) -> None:
    events = (HostEvent(moment, "h0", "fail"), HostEvent(moment + 0.1, "h0", "return"))
    simulation = Simulation(_scenario(_chain(2), _hosts(3), *events), Steering(Replicas(degree=2)))
    assert simulation.homes[1, 0] == "h0"
    records = simulation.run_until(12)
    assert [record.recovered for record in records if record.recovered] == [{(1, 0): "replica"}]
    assert simulation.homes[1, 0] != "h0"
    assert records[-1].lag_batches == 0


@pytest.mark.parametrize("moment", [5.1, 5.8], ids=["in a batch", "between two"])
def test_replicas_of_a_host_that_fails_and_is_back_at_once_are_copied_again_at_the_next_boundary(moment: float) -> None:
    events = (HostEvent(moment, "h2", "fail"), HostEvent(moment + 0.1, "h2", "return"))
    homes = {(1, 0): "h0", (2, 0): "h1"}
    simulation = Simulation(
        _scenario(_chain(2), _hosts(3), *events), Steering(Replicas(degree=3), evens_out=False), homes=homes
    )
    records = simulation.run_until(7)
    (copied,) = [record for record in records if record.placed_replicas and record.began_seconds > 1]
    assert (copied.began_seconds, copied.placed_replicas) == (pytest.approx(6), 2)
    assert simulation.homes == homes


def test_eight_hosts_in_four_waves_lose_nothing_if_replicas_are_placed_again_in_between() -> None:
    hosts = _hosts(20)
    for seed in range(20):
        waves = draw_waves(np.random.default_rng(seed), _names(hosts), [2, 2, 2, 2], 5.1, 10.0)
        simulation = Simulation(_scenario(_chain(10), hosts, *waves), Steering(Replicas(), has_store=False))
        simulation.run_until(45)
        assert not simulation.lost_slots


# -- random histories ------------------------------------------------------------------------------------------------


@st.composite
def _histories(draw: st.DrawFn) -> tuple[Scenario, Steering, int]:
    """Hosts that fail and are cut off while load changes, and hosts are added, released, put to sleep and woken."""
    hosts, slots = draw(st.integers(3, 9)), draw(st.integers(1, 8))
    degree, seed = draw(st.integers(2, 4)), draw(st.integers(0, 2**32))
    events = draw_history(
        np.random.default_rng(seed),
        _names(_hosts(hosts)),
        seconds=30,
        mean_seconds_between=draw(st.sampled_from([1.5, 5.0, 15.0])),
        mean_seconds_away=draw(st.sampled_from([1.0, 10.0, 40.0])),
        cut_share=draw(st.sampled_from([0.0, 0.3, 1.0])),
    )
    wire = draw(st.sampled_from([20_000.0, 1e6, 125e6]))
    flow = _chain(slots) if draw(st.booleans()) else _level(slots, cpu_seconds_a_row=5e-3)
    rates = draw(st.lists(st.sampled_from([20.0, 500.0, 2_000.0]), min_size=1, max_size=4))
    scenario = Scenario(_hosts(hosts, wire), flow, LoadTrace.steps(rates, 10.0), events)
    decides = draw(st.sampled_from(["nobody", "elasticity", "erdm", "consolidation"]))
    steering = Steering(Replicas(degree))
    if decides == "elasticity":
        elastic = Elasticity(
            min_executors=draw(st.integers(1, 2)), max_executors=hosts, cool_down_seconds=2, seconds_down=4
        )
        steering = replace(steering, elasticity=elastic)
    elif decides != "nobody":
        steering = replace(steering, energy=replace(QUICK, policy=decides))
    return scenario, steering, seed


_NOBODY_FOR_A_MINUTE = (
    HostEvent(0.7, "h0", "fail"),
    HostEvent(1.9, "h1", "fail"),
    HostEvent(2.98, "h2", "fail"),
    HostEvent(67.0, "h1", "return"),
    HostEvent(71.0, "h0", "return"),
    HostEvent(80.0, "h2", "return"),
)
"""All hosts are lost before the first batch, of ten seconds of a core, is over: for long, nothing is committed."""


@given(_histories())
@example((_scenario(_level(3, 5e-3), _hosts(3), *_NOBODY_FOR_A_MINUTE, rows=2_000.0), Steering(Replicas(2)), 0))
@tries(300)
def test_no_slot_reads_the_store_while_fewer_hosts_are_lost_than_copies_stand(
    given_: tuple[Scenario, Steering, int],
) -> None:
    scenario, steering, _ = given_
    simulation = Simulation(scenario, steering)
    slots = {slot.id for slot in scenario.flow.slots}
    committed = 0
    standing: dict[tuple[int, int], set[str]] = {}
    # Once the last host is back, a batch takes less than a minute, whoever has the slots.
    in_peace = max([0.0, *(event.at_seconds for event in scenario.events)]) + 120
    while simulation.now < 45 or (not committed and simulation.now < in_peace):
        record = simulation.run_batch()
        ran = record.snapshot
        if record.is_committed:
            # All slots have a home on a host that is reached, and of every version there is one writer: that home.
            assert set(ran.homes) == slots
            assert record.writers == {slot: (home,) for slot, home in ran.homes.items()}
        assert record.version - committed == int(record.is_committed)
        committed = record.version
        for slot, source in record.recovered.items():
            left = standing.get(slot, set()) & set(_names(ran.hosts))
            assert source == ("replica" if left else "store"), (slot, standing.get(slot))
        # Who holds the last commit as the batch ends, by the copies alone; hosts may go before the next boundary.
        standing = {
            slot: {host for host, copy in held.items() if copy.version == committed}
            for slot, held in simulation.copies.by_slot.items()
        }
    assert committed > 0


@given(_histories())
@tries(60)
def test_equal_histories_are_equal_in_every_record(given_: tuple[Scenario, Steering, int]) -> None:
    scenario, steering, seed = given_
    for placement in ("mrp", "random"):
        assert steering.replicas is not None
        placed = replace(steering, replicas=Replicas(steering.replicas.degree, placement))
        one, other = (Simulation(scenario, placed, rng=np.random.default_rng(seed)).run_until(25) for _ in range(2))
        assert one == other


def _find_patience(scenario: Scenario, replicas: Replicas, waiting_rows: float) -> float:
    """Return how long it may take until nothing has a reason to change, once hosts and load rest.

    At worst one home sends every copy over what replicas are to leave of its wire, and of rows that wait as many are
    worked off a second as the lowest load has. On top of that, policies take their time.
    """
    flow = scenario.flow.slots
    copied = sum(slot.state_bytes for slot in flow) * (replicas.degree - 1)
    copying = copied / (replicas.spare * min(host.bandwidth_bytes_per_second for host in scenario.hosts))
    return 600 + copying + waiting_rows / 20.0


def _run_until_rest(simulation: Simulation, until: float) -> None:
    """Go on until nothing changes, and what waits or is on its way gets no less: at most until a moment."""
    is_under_way = True
    while is_under_way and simulation.now < until:
        before = _measure_left(simulation)
        records = simulation.run_until(simulation.now + 60)
        gets_less = any(now < then for now, then in zip(_measure_left(simulation), before, strict=True))
        is_under_way = gets_less or any(map(_has_changed, records))


def _measure_left(simulation: Simulation) -> tuple[int, int]:
    """Return the rows that wait, and the bytes that copies lack: they may lack some for ever where wires are full."""
    lacking = (copy.outstanding_bytes for held in simulation.copies.by_slot.values() for copy in held.values())
    return round(simulation.waiting_rows), round(sum(lacking))


def _has_changed(record: BatchRecord) -> bool:
    return record.moved_slots + record.placed_replicas > 0 or record.action != "stay"


@given(_histories())
@tries(100)
def test_once_hosts_and_load_rest_so_do_homes_replicas_and_sizes(given_: tuple[Scenario, Steering, int]) -> None:
    scenario, steering, _ = given_
    assert steering.replicas is not None
    simulation = Simulation(scenario, steering)
    simulation.run_until(max([40.0, *(event.at_seconds for event in scenario.events)]))
    patience = _find_patience(scenario, steering.replicas, simulation.waiting_rows)
    _run_until_rest(simulation, simulation.now + patience)
    before, planned, there = dict(simulation.homes), dict(simulation.planned), simulation.reachable
    waiting = simulation.waiting_rows
    # Replicas are looked at again after ten batches, of hardly more than five seconds.
    records = simulation.run_until(simulation.now + 120)
    if steering.elasticity is not None and simulation.waiting_rows > waiting + 1:
        # What waits is load, too: it rests once so much waits that all hosts there are have been asked for, long since.
        a_row = sum(slot.cpu_seconds_a_row for slot in scenario.flow.slots)
        cores = sum(host.cores for host in scenario.hosts)
        assume(waiting * a_row > 2 * cores * steering.elasticity.catch_up_seconds)
    assert simulation.homes == before
    assert simulation.planned == planned
    assert simulation.reachable == there
    assert not any(map(_has_changed, records))


def test_what_a_host_hands_in_that_was_cut_off_is_refused() -> None:
    """It comes back in the middle of a batch, and still has what it did when nobody reached it."""
    events = (HostEvent(5.1, "h0", "cut"), HostEvent(7.7, "h0", "return"))
    records = Simulation(_scenario(_chain(2), _hosts(3), *events), Steering(Replicas(degree=3))).run_until(12)
    (refused,) = [record for record in records if record.refused_reports]
    assert refused.began_seconds <= 7.7 < refused.began_seconds + refused.seconds
    assert refused.refused_reports == 1
    assert all(len(hosts) == 1 for hosts in refused.writers.values())


@pytest.mark.parametrize(("count", "energy"), [(2_000, None), (200, QUICK)])
def test_many_hosts_fail_or_sleep_and_nothing_is_read_from_the_store(count: int, energy: Energy | None) -> None:
    hosts, slots = _hosts(count, bandwidth=125e9), count * 3 // 2
    flow = SimulatedFlow(tuple(Slot((1, slot), 1e-3 / slots, MEGABYTE, 0.001) for slot in range(slots)))
    # Two at a time, and replicas are placed again in between; an eighth of the processors is busy.
    waves = draw_waves(np.random.default_rng(7), _names(hosts), [2] * 4, 2.1, 2.0)
    costs = Costs(store_bytes_per_second=1e12)
    scenario = Scenario(hosts, flow, LoadTrace.constant(250.0 * count), waves, costs=costs)
    simulation = Simulation(scenario, Steering(Replicas(), energy=energy))
    records = simulation.run_until(10 if energy is None else 60)
    sources = Counter(source for record in records for source in record.recovered.values())
    assert sources.keys() == {"replica"}
    assert sources["replica"] >= 8
    assert len(simulation.reachable) < (count if energy is None else count // 2)
    assert all(len(writers) == 1 for record in records for writers in record.writers.values())


# -- energy ----------------------------------------------------------------------------------------------------------


def test_hosts_sleep_while_load_is_low_and_are_back_when_it_rises() -> None:
    load = LoadTrace.steps([1_000, 14_000], 60)
    awake = Steering(Replicas(degree=2))
    scenario = Scenario(_hosts(8), _level(16, cpu_seconds_a_row=1e-3), load)
    records = Simulation(scenario, replace(awake, energy=QUICK)).run_until(120)
    running = [len(record.snapshot.hosts) for record in records]
    assert min(running) <= 2
    assert running[-1] >= 7
    assert {"release", "wake"} <= {record.action for record in records}
    assert all(record.is_committed and not record.recovered for record in records)
    others = Simulation(scenario, awake).run_until(120)
    drawn, full = (find_drawn(one, scenario.hosts, DEFAULT_POWER) for one in (records, others))
    assert drawn.joules < 0.85 * full.joules
    assert drawn.basis == "modelled"
    assert drawn.low_joules < drawn.joules < drawn.high_joules


def test_a_host_that_fails_while_others_sleep_brings_one_of_them_back() -> None:
    load = LoadTrace.constant(3_000)
    sleeping = Steering(Replicas(degree=2), energy=QUICK)
    quiet = Simulation(Scenario(_hosts(6), _level(12, cpu_seconds_a_row=1e-3), load), sleeping)
    quiet.run_until(60)
    awake = quiet.reachable
    assert len(awake) <= 3
    failing = Scenario(_hosts(6), _level(12, cpu_seconds_a_row=1e-3), load, (HostEvent(60.1, awake[0], "fail"),))
    simulation = Simulation(failing, sleeping)
    records = simulation.run_until(120)
    assert {source for record in records for source in record.recovered.values()} == {"replica"}
    assert "wake" in [record.action for record in records if record.began_seconds > 60]
    assert len(set(simulation.reachable) - set(awake)) >= 1
    assert awake[0] not in simulation.reachable
    assert records[-1].waiting_rows < 6_000


def test_energy_and_elasticity_are_not_both_asked() -> None:
    with pytest.raises(SimulationError, match="would both decide which simulated hosts there are"):
        Steering(elasticity=Elasticity(), energy=QUICK)


# -- load ------------------------------------------------------------------------------------------------------------


def test_hosts_follow_the_load_of_a_day_and_none_takes_state_along() -> None:
    hosts = _hosts(20)
    scenario = Scenario(hosts, _level(40), LoadTrace.day(2_000, 150_000, seconds=1_200))
    elastic = Elasticity(min_executors=2, max_executors=20, cool_down_seconds=10, seconds_down=40)
    records = Simulation(scenario, Steering(Replicas(), elasticity=elastic)).run_until(1_200)
    running = [len(record.snapshot.hosts) for record in records]
    assert max(running) >= 10
    assert running[-1] <= 5
    assert all(record.is_committed and not record.recovered for record in records)
    assert records[-1].waiting_rows < 10_000
    actions = Counter(record.action for record in records)
    assert actions["grow"] + actions["offload"] <= 20


def test_hosts_that_are_needed_again_are_asked_for_and_take_their_time() -> None:
    scenario = Scenario(_hosts(6), _level(12), LoadTrace.steps([5_000, 60_000], 60), costs=Costs(starting_seconds=7.0))
    records = Simulation(scenario, Steering(elasticity=Elasticity(max_executors=6))).run_until(120)
    (asked, *_) = [record for record in records if record.action == "grow"]
    came = next(record for record in records if len(record.snapshot.hosts) > 1)
    assert came.began_seconds - (asked.began_seconds + asked.seconds) == pytest.approx(7, abs=4)


def test_uneven_slots_get_other_homes_once() -> None:
    flow = SimulatedFlow(tuple(Slot((1, slot), 2e-4 / 8, MEGABYTE) for slot in range(8)))
    homes = {(1, slot): "h0" if slot < 6 else "h1" for slot in range(8)}
    simulation = Simulation(_scenario(flow, _hosts(2), rows=8_000), Steering(), homes=homes)
    records = simulation.run_until(60)
    assert sorted(Counter(simulation.homes.values()).values()) == [4, 4]
    assert [record.action for record in records].count("balance") == 1


def test_where_wires_are_full_batches_stay_short_and_it_is_told_what_there_is_no_room_for() -> None:
    # In the middle of a chain, slots send and get 200 bytes a row: wires of 20 kB/s carry 50 of the 500 rows a second.
    simulation = Simulation(_scenario(_chain(3), _hosts(6, bandwidth=20_000.0), rows=500.0), Steering(Replicas()))
    records = simulation.run_until(200)
    done = sum(record.rows for record in records)
    assert max(record.seconds for record in records) < Costs().most_rows_seconds + 2 * Costs().fixed_seconds
    assert 45 < done / simulation.now < 50
    assert simulation.waiting_rows == pytest.approx(500 * (1 + records[-1].began_seconds) - done)
    assert {shortage.slot for shortage in simulation.missing} == set(simulation.homes)
    assert all(shortage.home_bandwidth is not None for shortage in simulation.missing)


def test_rows_that_wait_ever_more_bring_hosts_until_there_are_no_others_and_then_all_rests() -> None:
    # Its only slot takes 2.5 cores, and a host has two: however many hosts there are, they do not help.
    scenario = _scenario(_level(1, cpu_seconds_a_row=5e-3), _hosts(3), rows=500.0)
    elastic = Elasticity(max_executors=3, cool_down_seconds=2, seconds_down=4)
    simulation = Simulation(scenario, Steering(Replicas(degree=2), elasticity=elastic))
    records = simulation.run_until(1_000)
    changes = [record for record in records if record.action != "stay"]
    assert {record.action for record in changes} == {"grow"}
    assert len(simulation.reachable) == 3
    assert simulation.waiting_rows > 50_000
    before = dict(simulation.homes), dict(simulation.planned)
    assert not any(map(_has_changed, simulation.run_until(2_000)))
    assert (simulation.homes, simulation.planned) == before


# -- what is given ---------------------------------------------------------------------------------------------------


def test_loads_change_evenly_between_points_and_at_once_at_steps() -> None:
    load = LoadTrace(((0, 10), (10, 20), (10, 50), (20, 50)))
    assert [load.at(second) for second in (-1, 0, 5, 10, 15, 99)] == [10, 10, 15, 50, 50, 50]
    assert LoadTrace.steps([1, 2], 10).at(9.9) == 1
    assert LoadTrace.day(100, 300).at(43_200) == pytest.approx(300)
    with pytest.raises(SimulationError, match="in the order of time"):
        LoadTrace(((1, 1), (0, 1)))


def test_drawn_failures_are_those_of_their_seed_and_no_host_fails_twice_at_a_time() -> None:
    names = _names(_hosts(5))
    one, other = (
        draw_history(np.random.default_rng(3), names, seconds=500, mean_seconds_between=2, mean_seconds_away=9)
        for _ in range(2)
    )
    assert one == other
    for name in names:
        changes = [event.change for event in one if event.host == name]
        assert all((first == "return") != (second == "return") for first, second in itertools.pairwise(changes))
    waves = draw_waves(np.random.default_rng(3), names, [2, 1], 5, 10)
    assert [event.at_seconds for event in waves] == [5, 5, 15]
    with pytest.raises(SimulationError, match="6 of 5 hosts cannot fail"):
        draw_waves(np.random.default_rng(3), names, [6], 5, 10)


def test_events_of_hosts_that_are_not_there_and_homes_that_do_not_run_are_refused() -> None:
    with pytest.raises(SimulationError, match="something is to happen to h9, which are no hosts"):
        _scenario(_chain(2), _hosts(3), HostEvent(1, "h9", "fail"))
    with pytest.raises(SimulationError, match=r"slot \(1, 0\) is at home on 'h9', which does not run"):
        Simulation(_scenario(_chain(1), _hosts(3)), Steering(), homes={(1, 0): "h9"})


def test_while_nobody_is_there_the_flow_waits_and_goes_on_from_the_store() -> None:
    hosts = _hosts(2)
    away = [HostEvent(5.1, host.name, "fail") for host in hosts]
    simulation = Simulation(
        _scenario(_chain(2), hosts, *away, HostEvent(30.0, "h1", "return")), Steering(Replicas(degree=2))
    )
    records: tuple[BatchRecord, ...] = simulation.run_until(40)
    assert {record.began_seconds for record in records if record.recovered} == {30.0}
    assert set(simulation.homes.values()) == {"h1"}
    assert records[-1].missing
    assert records[-1].waiting_rows < 2_000
