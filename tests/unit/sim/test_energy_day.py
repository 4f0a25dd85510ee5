"""A simulated day: what comes is done, hosts sleep and come back, and all of it is counted."""

from __future__ import annotations

import math

import pytest

from anabranch.model.energy import Energy
from anabranch.model.power import DEFAULT_POWER, HostPower, PowerCurve
from anabranch.placement.energy import Erdm, RoundRobin
from anabranch.sim.cluster import Host, SimulatedFlow, Slot
from anabranch.sim.energy_day import BatchShape, SimulatedDay, make_load, simulate_day

HOSTS = tuple(Host(f"h{number}", cores=4, memory_bytes=8e9, bandwidth_bytes_per_second=25e6) for number in range(6))
FLOW = SimulatedFlow(
    tuple(Slot((level, number), 1e-3 / 48, 2_500_000 * level) for level in (0, 1) for number in range(48)),
    {((0, one), (1, other)): 100 / 48**2 for one in range(48) for other in range(48)},
)
"""2 ms a row: 24 cores do 12,000 rows a second."""
SETTINGS = Energy(latency_seconds=4.0)
SHAPE = BatchShape(interval_seconds=2.0)


def run(policy: Erdm | RoundRobin, rates: list[float], settings: Energy = SETTINGS) -> SimulatedDay:
    return simulate_day(policy, settings, HOSTS, make_load(FLOW, SHAPE, settings.window_seconds), rates)


def test_energy_is_power_by_time_and_its_interval_is_that_of_the_curve() -> None:
    day = run(RoundRobin(), [6_000.0] * 10)
    power = HostPower.from_curve(PowerCurve(100, 140, 200, 300), margin=0.1)
    figure = day.find_energy(power)
    # Half busy: 200 W on each of six hosts, for 300 s.
    assert figure.joules == pytest.approx(6 * 200 * 300)
    assert (figure.low_joules, figure.high_joules) == pytest.approx((0.9 * figure.joules, 1.1 * figure.joules))
    assert figure.basis == "modelled"
    assert day.rows == day.done_rows == pytest.approx(6_000 * 300)
    assert day.mean_utilisation == pytest.approx(0.5)


def test_latency_is_the_wait_for_a_batch_and_the_batch() -> None:
    day = run(RoundRobin(), [6_000.0] * 3)
    assert day.find_latency() == pytest.approx(0.95 * 2 + 2 * 0.1 + 0.5 * 2)


def test_rows_that_are_too_many_wait_and_are_done_later() -> None:
    day = run(RoundRobin(), [15_000.0] * 2 + [3_000.0] * 10)
    assert day.windows[1].waiting_rows > 0
    assert day.windows[1].latency_seconds > 10
    assert day.windows[-1].waiting_rows == 0
    assert day.done_rows == pytest.approx(day.rows)


def test_at_low_load_hosts_sleep_and_at_high_load_they_are_back() -> None:
    rates = [1_500.0] * 40 + [1_500.0 + 20 * step for step in range(240)] + [6_300.0] * 20
    day = run(Erdm(), rates)
    awake = [len(window.hosts) for window in day.windows]
    assert min(awake) == 1
    assert awake[-1] >= 4
    assert day.releases == 5
    assert day.restarts >= 3
    assert day.done_rows == pytest.approx(day.rows)
    assert day.find_latency() <= SETTINGS.latency_seconds
    still = run(RoundRobin(), rates)
    assert day.find_energy(DEFAULT_POWER).joules < still.find_energy(DEFAULT_POWER).joules
    assert day.crossing_bytes < still.crossing_bytes


def test_hosts_that_start_draw_full_power_and_run_nothing_until_they_are_ready() -> None:
    day = run(Erdm(), [1_500.0] * 40 + [3_000.0] * 20)
    woken = next(place for place, window in enumerate(day.windows) if window.action == "wake")
    starting = day.windows[woken + 1 : woken + 1 + math.floor(SETTINGS.restart_seconds / SETTINGS.window_seconds)]
    for window in starting:
        assert 1.0 in [host.utilisation for host in window.hosts]
    assert 1.0 not in [host.utilisation for host in day.windows[-1].hosts]


def test_state_is_copied_before_slots_switch_and_hosts_are_awake_until_then() -> None:
    heavy = SimulatedFlow(
        tuple(Slot(slot.id, slot.cpu_seconds_a_row, 75_000_000 * slot.id[0]) for slot in FLOW.slots),
        FLOW.sent_bytes_a_row,
    )
    day = simulate_day(Erdm(), SETTINGS, HOSTS, make_load(heavy, SHAPE, 30.0), [1_500.0] * 60)
    decided = next(place for place, window in enumerate(day.windows) if window.action == "release")
    switched = next(place for place, window in enumerate(day.windows) if window.moved_bytes)
    # Two hosts stay awake, each gets 16 slots of 75 MB, at 12.5 MB/s less what the flow takes: a minute and a half.
    assert (switched - decided) * 30 > 90
    assert all(len(window.hosts) == 6 for window in day.windows[:switched])
    assert len(day.windows[switched].hosts) < 6
    assert day.windows[switched].latency_seconds > day.windows[switched + 1].latency_seconds


def test_equal_days_are_equal() -> None:
    rates = [1_500.0, 4_000.0] * 30
    assert run(Erdm(), rates) == run(Erdm(), rates)
