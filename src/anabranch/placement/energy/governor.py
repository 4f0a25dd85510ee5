"""When hosts go to sleep and when they are woken: one decision a window at most, slowly down and at once up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from anabranch.model.energy import Energy
from anabranch.placement.energy.board import Board, Limits
from anabranch.placement.energy.loads import Host
from anabranch.placement.energy.policies import EnergyPlan, PlacesForEnergy
from anabranch.placement.energy.reallocation import count_needed

Action = Literal["stay", "release", "wake", "balance", "tune"]
"""*release*: slots leave hosts, which go to sleep. *wake*: hosts are started; slots come when they are there.
*balance*: slots move between hosts that are awake. *tune*: only clock rates or voltages change."""
_AGAIN = 0.95
"""Where no host could go, the load must have fallen to this share before it is worth another try."""


@dataclass(frozen=True, slots=True)
class WindowReading:
    """What a window showed."""

    now_seconds: float
    """The window's end."""
    board: Board
    """The window's load, on the hosts that are ready."""
    hosts: tuple[Host, ...]
    """All that there are, also those that sleep."""
    awake: frozenset[str]
    """Hosts that run, and those that are starting."""
    is_changing: bool = False
    """Whether hosts that were woken are not there yet, or state is still on its way."""


@dataclass(frozen=True, slots=True)
class GovernorState:
    """What is remembered from window to window."""

    low_windows: int = 0
    low_most_rows: float = 0.0
    """Of the windows since the load is low, the most that came in one: one window may be low by chance."""
    changed_at: float = -math.inf
    in_vain_at_rows: float = math.inf
    """Rows of a window for which it was tried to release a host, and none could go."""
    changes: int = 0


@dataclass(frozen=True, slots=True)
class EnergyDecision:
    """What happens after a window, and why."""

    action: Action
    plan: EnergyPlan
    reason: str
    state: GovernorState


def decide_energy(
    policy: PlacesForEnergy, settings: Energy, state: GovernorState, reading: WindowReading
) -> EnergyDecision:
    """Return what happens after a window.

    Hosts are woken as soon as half of the headroom is used up; they are released after several windows in which fewer
    would do for the load of the busiest of them and the whole headroom. What lies between keeps hosts from going and
    coming back.
    """
    board, limits = reading.board, Limits.of(settings)
    rates, low = policy.tune(board, settings)
    homes = board.homes
    as_it_is = EnergyPlan(homes, reading.awake, (), rates, low, "as it is")
    quiet: Action = "tune" if rates or low else "stay"
    if not policy.releases_hosts:
        return EnergyDecision(quiet, as_it_is, "hosts do not sleep", state)
    # Above the highest load that a release was planned for, and below that, nothing happens.
    soon = board.scaled(1 + settings.headroom / 2)
    later = board.scaled(1 + settings.headroom)
    cools = reading.now_seconds - state.changed_at < settings.cool_down_seconds
    if not soon.is_within(limits) or soon.latency_seconds() > settings.latency_seconds:
        calm = replace(state, low_windows=0, in_vain_at_rows=math.inf)
        if reading.is_changing:
            return EnergyDecision(quiet, as_it_is, "the last change is under way", calm)
        plan = policy.plan(reading.hosts, later.scaled_load, homes, reading.awake, settings)
        if len(plan.awake) > len(reading.awake):
            return EnergyDecision("wake", plan, plan.reason, _note_change(calm, reading))
        if plan.homes != homes and plan.awake == reading.awake and not cools:
            return EnergyDecision("balance", plan, plan.reason, _note_change(calm, reading))
        return EnergyDecision(quiet, as_it_is, "there is nothing better", calm)
    needed = count_needed(reading.hosts, board.load, limits, growth=later.factor)
    is_low = max(settings.min_hosts, needed) < len(reading.awake) and board.rows <= _AGAIN * state.in_vain_at_rows
    most_rows = max(board.rows, state.low_most_rows if state.low_windows else 0.0)
    state = replace(state, low_windows=state.low_windows + 1 if is_low else 0, low_most_rows=most_rows)
    if state.low_windows < settings.windows_down or cools or reading.is_changing:
        return EnergyDecision(quiet, as_it_is, "hosts suit the load", state)
    seen = later.scaled(most_rows / board.rows) if board.rows > 0 else later
    plan = policy.plan(reading.hosts, seen.scaled_load, homes, reading.awake, settings)
    if len(plan.awake) >= len(reading.awake):
        in_vain = replace(state, low_windows=0, in_vain_at_rows=board.rows)
        return EnergyDecision(quiet, as_it_is, "no host can go", in_vain)
    return EnergyDecision("release", plan, plan.reason, _note_change(state, reading))


def _note_change(state: GovernorState, reading: WindowReading) -> GovernorState:
    return replace(
        state,
        low_windows=0,
        changed_at=reading.now_seconds,
        in_vain_at_rows=math.inf,
        changes=state.changes + 1,
    )
