"""Where replicas stand in a simulation: placed and placed again by the policies, copied over the wires, and dropped."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from anabranch.model.cluster import SlotId
from anabranch.placement.replicas import (
    Network,
    ReplicaHost,
    ReplicaProblem,
    Replicas,
    ReplicaSlot,
    Shortage,
    StandingReplicas,
    restore_replicas,
)
from anabranch.sim.cluster import Snapshot
from anabranch.sim.copies import Copies
from anabranch.sim.roster import Roster
from anabranch.sim.scenario import Scenario, Steering

NO_REPLICAS: Mapping[SlotId, tuple[str, ...]] = MappingProxyType({})


class Replication:
    """The replicas of a flow, and who holds what."""

    def __init__(
        self, scenario: Scenario, steering: Steering, planned: StandingReplicas, rng: np.random.Generator | None
    ) -> None:
        """``planned`` are those that stand at first; ``rng`` is for random placement."""
        self.copies = Copies(by_slot={slot.id: {} for slot in scenario.flow.slots})
        self.planned: StandingReplicas = dict(planned)
        """Slot → the hosts that are to hold its replicas."""
        self.missing: tuple[Shortage, ...] = ()
        self._steering = steering
        self._slots = scenario.flow.slots
        self._latency = scenario.links.make_matrix(scenario.hosts)
        self._places = {host.name: place for place, host in enumerate(scenario.hosts)}
        self._rng = rng
        self._looked_at: tuple[object, ...] | None = None
        self._batches_since_look = 0

    def latency(self, source: str, target: str) -> float:
        """Return how long a message takes between two hosts."""
        return float(self._latency[self._places[source], self._places[target]])

    def transfer(self, roster: Roster, homes: Mapping[SlotId, str], began: float, seconds: float) -> float:
        """Send replicas what they lack, for so long; return the bytes. Who fails meanwhile sends until then."""
        if seconds <= 0 or self._steering.replicas is None:
            return 0.0
        until = dict.fromkeys(roster.reachable, began + seconds)
        for event in roster.list_losses(began + seconds):
            if event.host in until:
                until[event.host] = min(until[event.host], event.at_seconds)
        # No time is no room, however wide the wire is.
        room = {
            name: roster.all[name].bandwidth_bytes_per_second * (end - began)
            for name, end in until.items()
            if end > began
        }
        return self.copies.transfer(homes, room)

    def restore(self, roster: Roster, homes: Mapping[SlotId, str], shot: Snapshot) -> int:
        """Place again what was lost, if hosts, homes or time make it necessary; return how many begin to be copied."""
        settings = self._steering.replicas
        if settings is None or not self._steering.restores:
            return 0
        self._drop_what_stands_elsewhere(roster, homes)
        reachable = roster.reachable
        looked_at = (reachable, roster.leaving, tuple(homes.items()))
        self._batches_since_look += 1
        due = self._batches_since_look >= self._steering.look_again_batches
        if looked_at == self._looked_at and not self.missing and not due and self._stands_as_planned():
            return 0
        self._looked_at, self._batches_since_look = looked_at, 0
        there = set(reachable)
        before = {
            slot: (
                *(host for host in self.planned.get(slot, ()) if host in held),
                *(host for host in held if host not in self.planned.get(slot, ()) and host in there),
            )
            for slot, held in self.copies.by_slot.items()
        }
        problem = self._pose_problem(settings, roster, homes, shot)
        plan = restore_replicas(problem, before, settings.placement, spare=settings.spare, rng=self._rng)
        self.planned, self.missing = plan.replicas, plan.missing
        for move in plan.moves:
            self.copies.begin(move.slot, move.target, move.state_bytes)
        return len(plan.moves)

    def _stands_as_planned(self) -> bool:
        """Say whether every replica has at least begun: a host that failed and is there again has none left."""
        held = self.copies.by_slot
        return all(host in held[slot] for slot, hosts in self.planned.items() for host in hosts)

    def is_needed(self, host: str, roster: Roster) -> bool:
        """Say whether a host holds a copy that is not elsewhere as often as it is to be."""
        reachable = set(roster.reachable)
        return any(
            host in held
            and sum(other != host for other in self.copies.list_current(slot, reachable))
            < 1 + len(self.planned.get(slot, ()))
            for slot, held in self.copies.by_slot.items()
        )

    def _drop_what_stands_elsewhere(self, roster: Roster, homes: Mapping[SlotId, str]) -> None:
        """Forget copies that no plan wants once those that it wants are there: new ones first, then none of the old."""
        reachable = set(roster.reachable)
        short = {shortage.slot for shortage in self.missing}
        for slot, held in self.copies.by_slot.items():
            if slot in short:
                # A host that comes back may bring just the copy that is missing.
                continue
            wanted = {homes[slot], *self.planned.get(slot, ())}
            if len(held) > len(wanted) and all(
                host in held and held[host].version == self.copies.committed for host in wanted
            ):
                for host in [host for host in held if host not in wanted and host in reachable]:
                    self.copies.drop(slot, host)

    def _pose_problem(
        self, settings: Replicas, roster: Roster, homes: Mapping[SlotId, str], shot: Snapshot
    ) -> ReplicaProblem:
        names = roster.reachable
        places = np.array([self._places[name] for name in names])
        leaving = {*roster.leaving, *roster.going}
        hosts = tuple(
            ReplicaHost(
                name, roster.all[name].bandwidth_bytes_per_second, roster.all[name].memory_bytes, name in leaving
            )
            for name in names
        )
        slots = tuple(
            ReplicaSlot(
                slot.id,
                homes[slot.id],
                settings.degree,
                slot.state_bytes,
                slot.changed_bytes_a_row * shot.rows_per_second,
            )
            for slot in self._slots
        )
        sent = np.zeros((len(names), len(names)))
        at = {name: place for place, name in enumerate(names)}
        for (source, target), traffic in shot.find_host_traffic().items():
            sent[at[source], at[target]] = traffic
        return ReplicaProblem(hosts, slots, Network(self._latency[np.ix_(places, places)], sent))
