"""Policies that let hosts sleep or run slower, and when they are followed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.cluster import SlotId
from anabranch.model.energy import Energy
from anabranch.model.loads import LoadError
from anabranch.model.power import DEFAULT_POWER
from anabranch.placement.energy import (
    POLICIES,
    Board,
    EnergyDecision,
    Erdm,
    FewestHosts,
    FlowLoad,
    FrequencyAware,
    GovernorState,
    Host,
    Limits,
    MemoryVoltage,
    PlacesForEnergy,
    RoundRobin,
    SlotUse,
    TrafficAware,
    WindowReading,
    decide_energy,
    draw_watts,
)
from property_tests import tries
from unit.placement.energy.flows import placed_loads

HOSTS = tuple(Host(f"h{number}", 4, 10_000, 1e6) for number in range(8))
EVERYONE = frozenset(host.id for host in HOSTS)
SETTINGS = Energy(latency_seconds=4.0)


def make_load(slots: int = 64, busy: float = 0.2) -> FlowLoad:
    """Return two levels of even slots that take a share of all hosts' cores, in a window of 15 batches."""
    seconds = busy * 30 * sum(host.cores for host in HOSTS) / (2 * slots)
    uses = {(level, number): SlotUse(seconds, 100, 50) for level in (0, 1) for number in range(slots)}
    pairs = {((0, one), (1, other)): 100.0 for one in range(slots) for other in range(slots)}
    return FlowLoad(30.0, 15, 30_000, uses, pairs, level_seconds=0.1)


def deal(load: FlowLoad) -> dict[SlotId, str]:
    return dict(RoundRobin().plan(HOSTS, load, {}, EVERYONE, SETTINGS).homes)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@given(placed_loads(), st.floats(0.3, 1.0), st.floats(0.5, 5.0))
@tries(40)
def test_every_policy_gives_every_slot_a_host_that_is_awake_and_the_same_again(
    policy: PlacesForEnergy,
    case: tuple[tuple[Host, ...], FlowLoad, dict[SlotId, str]],
    limit: float,
    bound: float,
) -> None:
    hosts, load, homes = case
    settings = Energy(bound, cpu_limit=limit, memory_limit=limit, network_limit=limit)
    awake = frozenset(host.id for host in hosts)
    plan = policy.plan(hosts, load, homes, awake, settings)
    assert plan.homes.keys() == load.slots.keys()
    assert set(plan.homes.values()) <= plan.awake <= awake
    assert plan == policy.plan(hosts, load, homes, awake, settings)
    assert {move.slot for move in plan.moves} == {slot for slot, home in plan.homes.items() if home != homes[slot]}
    if len(plan.awake) < len(hosts):
        board = Board(hosts, load, plan.homes)
        assert policy.releases_hosts
        assert board.is_within(Limits.of(settings))
        assert board.latency_seconds(plan.clock_rates) <= bound + 1e-9


@pytest.mark.parametrize("policy", [Erdm(), FewestHosts()], ids=lambda policy: policy.name)
def test_a_fifth_of_the_load_needs_about_a_quarter_of_the_hosts(policy: PlacesForEnergy) -> None:
    load = make_load(busy=0.2)
    plan = policy.plan(HOSTS, load, deal(load), EVERYONE, SETTINGS)
    assert len(plan.awake) == 2
    assert Board(HOSTS, load, plan.homes).crossing_bytes < Board(HOSTS, load, deal(load)).crossing_bytes


@pytest.mark.parametrize("policy", [Erdm(), FewestHosts()], ids=lambda policy: policy.name)
def test_a_tighter_bound_on_latency_keeps_more_hosts_awake(policy: PlacesForEnergy) -> None:
    load = make_load(busy=0.2)
    loose = policy.plan(HOSTS, load, deal(load), EVERYONE, SETTINGS)
    tight = policy.plan(HOSTS, load, deal(load), EVERYONE, replace(SETTINGS, latency_seconds=3.05))
    assert len(loose.awake) < len(tight.awake) < len(HOSTS)
    assert Board(HOSTS, load, tight.homes).latency_seconds() <= 3.05


def test_no_fewer_hosts_are_awake_than_settings_ask_for() -> None:
    load = make_load(busy=0.1)
    plan = Erdm().plan(HOSTS, load, deal(load), EVERYONE, replace(SETTINGS, min_hosts=5))
    assert len(plan.awake) == 5


def test_hosts_come_back_when_those_awake_are_not_enough() -> None:
    load = make_load(busy=0.1)
    few = Erdm().plan(HOSTS, load, deal(load), EVERYONE, SETTINGS)
    more = Erdm().plan(HOSTS, load.scale(5), few.homes, few.awake, SETTINGS)
    assert few.awake < more.awake
    assert Board(HOSTS, load.scale(5), more.homes).latency_seconds() <= SETTINGS.latency_seconds


def test_slots_go_where_their_traffic_is_when_traffic_counts() -> None:
    slots = {(level, number): SlotUse(10.0, 100) for level in (0, 1) for number in range(8)}
    pairs = {((0, number), (1, number)): 1_000.0 for number in range(8)}
    load = FlowLoad(30.0, 15, 1, slots, pairs)
    # Level 1 is dealt so that nobody is beside its sender.
    homes = {(level, number): HOSTS[(number + level) % 8].id for level, number in slots}
    plan = TrafficAware(tolerance=1.0).plan(HOSTS, load, homes, EVERYONE, SETTINGS)
    assert Board(HOSTS, load, plan.homes).crossing_bytes == 0
    assert plan.awake == EVERYONE


def test_a_lower_clock_rate_is_taken_where_latency_allows_it() -> None:
    load = make_load(busy=0.2)
    board = Board(HOSTS, load, deal(load))
    rates, _ = FrequencyAware().tune(board, SETTINGS)
    assert set(rates.values()) == {0.5}
    assert FrequencyAware().tune(board, replace(SETTINGS, latency_seconds=2.61))[0] == {}
    assert draw_watts(DEFAULT_POWER.expected, 0.3, 0.5) < draw_watts(DEFAULT_POWER.expected, 0.3)


def test_memory_runs_at_a_lower_voltage_off_the_critical_path_and_on_it_while_there_is_little_data() -> None:
    slots = {(0, 0): SlotUse(30.0), (0, 1): SlotUse(5.0), (0, 2): SlotUse(100.0)}
    hosts = HOSTS[:3]
    board = Board(hosts, FlowLoad(30.0, 15, 1, slots), {(0, 0): "h0", (0, 1): "h1", (0, 2): "h2"})
    assert MemoryVoltage(on_critical_path=False).tune(board, SETTINGS)[1] == {"h0", "h1"}
    assert MemoryVoltage().tune(board, SETTINGS)[1] == {"h0", "h1"}
    assert MemoryVoltage().tune(board.scaled(0.5), SETTINGS)[1] == {"h0", "h1", "h2"}
    saved = 1 - draw_watts(DEFAULT_POWER.expected, 0.5, low_voltage=True) / draw_watts(DEFAULT_POWER.expected, 0.5)
    assert saved == pytest.approx(0.18 * 0.19)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("latency_seconds", 0), ("cpu_limit", 1.5), ("headroom", -1), ("windows_down", 0), ("window_seconds", math.inf)],
)
def test_settings_that_mean_nothing_are_refused(setting: str, value: float) -> None:
    with pytest.raises(LoadError, match=setting):
        replace(SETTINGS, **{setting: value})


# -- windows after one another ----------------------------------------------------------------------------------------


def watch(
    policy: PlacesForEnergy, load: FlowLoad, factors: Sequence[float], settings: Energy = SETTINGS
) -> list[EnergyDecision]:
    """Return what is decided window by window, if every change is done by the next one."""
    homes, awake, state, decisions = deal(load), EVERYONE, GovernorState(), []
    for place, factor in enumerate(factors):
        running = tuple(host for host in HOSTS if host.id in awake)
        board = Board(running, load, homes).scaled(factor)
        reading = WindowReading((place + 1) * settings.window_seconds, board, HOSTS, awake)
        decision = decide_energy(policy, settings, state, reading)
        decisions.append(decision)
        state, homes, awake = decision.state, dict(decision.plan.homes), decision.plan.awake
    return decisions


def changes(decisions: Sequence[EnergyDecision]) -> list[tuple[int, str]]:
    return [(place, one.action) for place, one in enumerate(decisions) if one.action in ("release", "wake", "balance")]


def test_hosts_are_released_once_the_load_was_low_for_long_and_then_all_is_quiet() -> None:
    decisions = watch(Erdm(), make_load(busy=0.2), [1.0] * 200)
    assert changes(decisions) == [(SETTINGS.windows_down - 1, "release")]


def test_hosts_are_woken_in_the_first_window_that_needs_them() -> None:
    decisions = watch(Erdm(), make_load(busy=0.15), [1.0] * 30 + [4.0] * 5)
    assert changes(decisions)[-1] == (30, "wake")


def test_while_a_change_is_under_way_there_is_no_other() -> None:
    load = make_load(busy=0.95)
    board = Board(HOSTS[:2], load.scale(0.3), dict.fromkeys(load.slots, "h0"))
    reading = WindowReading(30.0, board, HOSTS, frozenset({"h0", "h1", "h2"}), is_changing=True)
    assert decide_energy(Erdm(), SETTINGS, GovernorState(), reading).action == "stay"
    again = replace(reading, awake=frozenset({"h0", "h1"}), is_changing=False)
    assert decide_energy(Erdm(), SETTINGS, GovernorState(), again).action == "wake"


def test_policies_without_sleep_only_tune() -> None:
    decisions = watch(MemoryVoltage(), make_load(busy=0.2), [1.0] * 3)
    assert [one.action for one in decisions] == ["tune"] * 3
    assert [one.action for one in watch(RoundRobin(), make_load(), [1.0] * 3)] == ["stay"] * 3


@pytest.mark.parametrize("policy", [Erdm(), FewestHosts()], ids=lambda policy: policy.name)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.6))
@tries(15)
def test_chance_alone_never_makes_hosts_go_and_come_back(policy: PlacesForEnergy, seed: int, busy: float) -> None:
    noise = 1 + np.clip(0.03 * np.random.default_rng(seed).standard_normal(120), -0.07, 0.07)
    found = changes(watch(policy, make_load(busy=busy), noise.tolist()))
    assert "wake" not in [action for _, action in found]
    assert len(found) <= 3


@given(st.lists(st.floats(0.2, 3.0), min_size=2, max_size=6))
@tries(15)
def test_in_any_history_the_bound_holds_whenever_hosts_are_released(levels: list[float]) -> None:
    factors = [level for level in levels for _ in range(25)]
    load = make_load(busy=0.2)
    decisions = watch(Erdm(), load, factors)
    last = -math.inf
    for place, action in changes(decisions):
        plan = decisions[place].plan
        board = Board(HOSTS, load, plan.homes).scaled(factors[place])
        assert board.latency_seconds() <= SETTINGS.latency_seconds
        assert board.is_within(Limits.of(SETTINGS))
        if action == "release":
            assert (place - last) * SETTINGS.window_seconds >= SETTINGS.cool_down_seconds
        last = place
