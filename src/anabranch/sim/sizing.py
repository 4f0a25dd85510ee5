"""How many hosts a simulated flow has: what elasticity or energy makes of its batches, one change at a boundary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from anabranch.model.cluster import Executor, Homes, SlotId
from anabranch.model.elasticity import Elasticity
from anabranch.model.energy import Energy
from anabranch.placement import ClusterReading, ElasticState, decide_size
from anabranch.placement.energy import (
    Board,
    FlowLoad,
    GovernorState,
    SlotUse,
    WindowReading,
    decide_energy,
    find_policy,
)
from anabranch.placement.energy import Host as EnergyHost
from anabranch.sim.cluster import Host, SimulatedFlow
from anabranch.sim.scenario import Costs, Steering

STAY = "stay"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a committed batch showed."""

    now_seconds: float
    rows: float
    seconds: float
    offered_rows_per_second: float
    waiting_rows: float
    busy_seconds: Mapping[str, float]
    homes: Homes
    executors: Sequence[Executor]
    """That are reached; those that are to go and have no slots any more are not among them."""
    staying: Sequence[str]
    spare: Sequence[str]
    """Hosts that could be asked for."""
    coming: Sequence[str]
    leaving: Sequence[str]
    can_move: bool
    """Whether all homes are reached: who is lost is given a home first."""


@dataclass(frozen=True, slots=True)
class SizeChange:
    """What is to change."""

    action: str = STAY
    leaving: tuple[str, ...] = ()
    """Hosts that slots are to leave."""
    kept: tuple[str, ...] = ()
    """Hosts that were to go and stay."""
    going: tuple[str, ...] = ()
    """Hosts that go, now that slots have left them."""
    homes: Homes | None = None
    """Other homes for some slots; None: slots of hosts that are to go are spread over those that stay."""
    asked: tuple[str, ...] = ()
    ready_seconds: float = 0.0
    """How long hosts take that are asked for."""


class DecidesSize(Protocol):
    """Says how many hosts there are to be."""

    fewest: int
    """Hosts that it keeps at least."""
    begins_with: int | None
    """Hosts that the flow begins with; None: all."""
    imbalance: float
    """From how uneven hosts on slots move for the sake of balance."""

    def decide(self, seen: Seen) -> SizeChange:
        """Return what changes after a batch."""
        ...


class AllHosts:
    """All hosts run all the time."""

    def __init__(self, hosts: int) -> None:
        """There are so many."""
        self.fewest = hosts
        self.begins_with: int | None = None
        self.imbalance = Elasticity().imbalance

    def decide(self, seen: Seen) -> SizeChange:
        """Return that nothing changes."""
        return SizeChange()


class ElasticHosts:
    """As many hosts as the load needs, in the order in which they are named."""

    def __init__(self, settings: Elasticity, flow: SimulatedFlow, costs: Costs) -> None:
        """Begin with as few as there may be."""
        self._settings = settings
        self._held_bytes = sum(slot.state_bytes for slot in flow.slots)
        self._costs = costs
        self._state = ElasticState()
        self.fewest = settings.min_executors
        self.begins_with: int | None = settings.min_executors
        self.imbalance = settings.imbalance

    def decide(self, seen: Seen) -> SizeChange:
        """Return what elasticity decides."""
        reading = ClusterReading(
            now_seconds=seen.now_seconds,
            executors=tuple(seen.executors),
            rows=int(seen.rows),
            batch_seconds=seen.seconds,
            cpu_seconds=seen.busy_seconds,
            offered_rows_per_second=seen.offered_rows_per_second,
            waiting_rows=int(seen.waiting_rows),
            held_bytes=self._held_bytes,
        )
        decision = decide_size(self._settings, self._state, reading)
        self._state = decision.state
        leaving = decision.leaving if decision.action == "offload" and seen.can_move else ()
        kept = decision.leaving if decision.action == "keep" else ()
        remaining = {*seen.leaving, *leaving} - set(kept)
        staying = [name for name in seen.staying if name not in leaving] + [
            name for name in kept if name in seen.leaving
        ]
        missing = decision.executors - len(staying) - len(seen.coming)
        return SizeChange(
            decision.action,
            leaving,
            kept,
            # Their slots are elsewhere.
            tuple(sorted(remaining - set(decision.state.leaving))),
            asked=tuple(seen.spare[: max(0, missing)]),
            ready_seconds=self._costs.starting_seconds,
        )


class EnergyHosts:
    """Which hosts may sleep, window by window; slots go to where they let them."""

    def __init__(self, settings: Energy, hosts: Sequence[Host], flow: SimulatedFlow, costs: Costs) -> None:
        """All are awake at first."""
        self._settings = settings
        self._policy = find_policy(settings.policy)
        self._everyone = {host.name: host.as_energy_host() for host in hosts}
        self._flow = flow
        self._costs = costs
        self._state = GovernorState()
        self._window: tuple[object, float, float, int] | None = None
        """Who was where, when it began, and the rows and batches since."""
        self._awaited: Homes | None = None
        """Homes for when hosts that were woken have come."""
        self.fewest = settings.min_hosts
        self.begins_with: int | None = None
        # Slots that go together so that hosts may sleep are not spread again.
        self.imbalance = float("inf") if settings.releases_hosts else Elasticity().imbalance

    def decide(self, seen: Seen) -> SizeChange:
        """Return what energy decides as a window ends: a window has the same homes and hosts from begin to end."""
        if self._awaited is not None and not seen.coming:
            homes, self._awaited = self._awaited, None
            # Who was lost meanwhile gets no slots, and what it was to have stays where it is.
            return self._move("wake", {slot: host for slot, host in homes.items() if host in seen.staying}, seen)
        placed = (tuple(seen.staying), tuple(sorted(seen.homes.items())))
        if self._window is None or self._window[0] != placed or not seen.can_move:
            self._window = (placed, seen.now_seconds, 0.0, 0)
            return SizeChange()
        _, began, rows, batches = self._window
        rows, batches, seconds = rows + seen.rows, batches + 1, seen.now_seconds - began
        self._window = (placed, began, rows, batches)
        if seconds < self._settings.window_seconds:
            return SizeChange()
        self._window = (placed, seen.now_seconds, 0.0, 0)
        return self._decide(self._make_load(seconds, rows, batches), seen)

    def _decide(self, load: FlowLoad, seen: Seen) -> SizeChange:
        ready = [self._everyone[name] for name in seen.staying]
        if not set(seen.homes.values()) <= set(seen.staying):
            return SizeChange()
        everyone: tuple[EnergyHost, ...] = (*ready, *(self._everyone[name] for name in (*seen.coming, *seen.spare)))
        awake = frozenset({*seen.staying, *seen.coming})
        board = Board(ready, load, seen.homes)
        reading = WindowReading(seen.now_seconds, board, everyone, awake, is_changing=bool(seen.coming or seen.leaving))
        decision = decide_energy(self._policy, self._settings, self._state, reading)
        self._state = decision.state
        if decision.action == "wake":
            woken = tuple(sorted(decision.plan.awake - awake))
            self._awaited = decision.plan.homes
            return SizeChange("wake", asked=woken, ready_seconds=self._settings.restart_seconds)
        if decision.action in ("release", "balance"):
            going = tuple(sorted(set(seen.staying) - decision.plan.awake))
            return replace(self._move(decision.action, decision.plan.homes, seen), leaving=going, going=going)
        return SizeChange()

    def _move(self, action: str, homes: Homes, seen: Seen) -> SizeChange:
        moved = {slot: host for slot, host in homes.items() if seen.homes[slot] != host}
        return SizeChange(action, homes=moved if seen.can_move else {})

    def _make_load(self, seconds: float, rows: float, batches: int) -> FlowLoad:
        slots: dict[SlotId, SlotUse] = {
            slot.id: SlotUse(slot.cpu_seconds_a_row * rows, slot.state_bytes, slot.state_bytes)
            for slot in self._flow.slots
        }
        levels = len({level for level, _ in slots})
        return FlowLoad(
            seconds=seconds,
            batches=batches,
            rows=rows,
            slots=slots,
            sent_bytes={pair: sent * rows for pair, sent in self._flow.sent_bytes_a_row.items()},
            level_seconds=self._costs.fixed_seconds / levels,
            trigger_seconds=self._costs.batch_seconds,
        )


def open_sizing(steering: Steering, hosts: Sequence[Host], flow: SimulatedFlow, costs: Costs) -> DecidesSize:
    """Return what decides about hosts under these policies."""
    if steering.energy is not None and steering.energy.releases_hosts:
        return EnergyHosts(steering.energy, hosts, flow, costs)
    if steering.elasticity is not None:
        return ElasticHosts(steering.elasticity, flow, costs)
    return AllHosts(len(hosts))
