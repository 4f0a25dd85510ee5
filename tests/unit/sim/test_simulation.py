"""The simulated cluster: the same story by the same seed, state that outlives failures, policies that come to rest."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.elasticity import Elasticity
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
)
from property_tests import tries

MEGABYTE = 1_000_000


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


def test_eight_hosts_in_four_waves_lose_nothing_if_replicas_are_placed_again_in_between() -> None:
    hosts = _hosts(20)
    for seed in range(20):
        waves = draw_waves(np.random.default_rng(seed), _names(hosts), [2, 2, 2, 2], 5.1, 10.0)
        simulation = Simulation(_scenario(_chain(10), hosts, *waves), Steering(Replicas(), has_store=False))
        simulation.run_until(45)
        assert not simulation.lost_slots


# -- random histories ------------------------------------------------------------------------------------------------


@st.composite
def _histories(draw: st.DrawFn) -> tuple[Scenario, Replicas, int]:
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
    flow = _chain(slots) if draw(st.booleans()) else _level(slots)
    return Scenario(_hosts(hosts, wire), flow, LoadTrace.constant(500.0), events), Replicas(degree), seed


@given(_histories())
@tries(200)
def test_no_slot_reads_the_store_while_fewer_hosts_are_lost_than_copies_stand(
    given_: tuple[Scenario, Replicas, int],
) -> None:
    scenario, replicas, _ = given_
    simulation = Simulation(scenario, Steering(replicas))
    committed = 0
    standing: dict[tuple[int, int], set[str]] = {}
    while simulation.now < 40:
        there = set(simulation.reachable)
        record = simulation.run_batch()
        ran = record.snapshot
        if record.is_committed:
            # One owner a slot, on a host that is reached, with the version that was committed before.
            assert set(ran.homes) == {slot.id for slot in scenario.flow.slots}
            assert set(ran.homes.values()) <= set(_names(ran.hosts))
            assert record.version == committed + 1
        assert record.version - committed == int(record.is_committed)
        committed = record.version
        for slot, source in record.recovered.items():
            left = standing.get(slot, set()) & set(_names(ran.hosts))
            assert source == ("replica" if left else "store"), (slot, standing.get(slot), there)
        # Who holds the last commit as the batch ends, by the copies alone; hosts may go before the next boundary.
        standing = {
            slot: {host for host, copy in held.items() if copy.version == committed}
            for slot, held in simulation.copies.by_slot.items()
        }
    assert committed > 0


@given(_histories())
@tries(60)
def test_equal_histories_are_equal_in_every_record(given_: tuple[Scenario, Replicas, int]) -> None:
    scenario, replicas, seed = given_
    for placement in ("mrp", "random"):
        steering = Steering(Replicas(replicas.degree, placement))
        one, other = (Simulation(scenario, steering, rng=np.random.default_rng(seed)).run_until(25) for _ in range(2))
        assert one == other


@given(_histories())
@tries(60)
def test_once_hosts_rest_so_do_homes_and_replicas(given_: tuple[Scenario, Replicas, int]) -> None:
    scenario, replicas, _ = given_
    simulation = Simulation(scenario, Steering(replicas))
    simulation.run_until(max([event.at_seconds for event in scenario.events], default=0.0) + 60)
    before, planned = dict(simulation.homes), dict(simulation.planned)
    records = simulation.run_until(simulation.now + 25)
    assert simulation.homes == before
    assert simulation.planned == planned
    assert sum(record.moved_slots + record.placed_replicas for record in records) == 0


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
