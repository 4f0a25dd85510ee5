"""A flow on a simulated cluster, batch by batch, steered by the policies that steer it on Spark.

A batch takes what its busiest hosts take, level by level, and what its wires carry. Between two batches, hosts come and
go, slots whose host is lost get a home where a current replica is, replicas are placed again, and the number of hosts
follows the load. No clock and no chance but what is passed in: equal arguments give equal histories.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from anabranch.model.cluster import Executor, Homes, SlotId, SlotLoad
from anabranch.model.elasticity import Elasticity
from anabranch.placement import ClusterReading, ElasticState, decide_size, plan_homes
from anabranch.placement.elasticity import find_deviation
from anabranch.placement.replicas import (
    Network,
    ReplicaHost,
    ReplicaProblem,
    Replicas,
    ReplicaSlot,
    Shortage,
    StandingReplicas,
    choose_heirs,
    restore_replicas,
)
from anabranch.sim.cluster import SimulationError, Snapshot
from anabranch.sim.copies import Copies
from anabranch.sim.scenario import Scenario, Steering

Source = Literal["replica", "store", "lost"]
"""Where the state of a slot came from whose home was lost; *lost* if it is nowhere."""
_NONE: Mapping[SlotId, tuple[str, ...]] = MappingProxyType({})
_FEWEST_ROWS = 1e-9


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What happened in one batch, and at the boundary before it."""

    began_seconds: float
    seconds: float
    is_committed: bool
    """Not if a host with slots failed meanwhile: then its rows come again."""
    version: int
    """The last committed batch afterwards."""
    rows: float
    waiting_rows: float
    snapshot: Snapshot
    """Hosts that were reachable, homes, and the rows a second that the batch stands for."""
    busy_seconds: Mapping[str, float]
    """Processor time by host."""
    sent_bytes: float
    """Between hosts, by slots."""
    replicated_bytes: float
    recovered: Mapping[SlotId, Source]
    """Slots whose home was lost before the batch, and where their state came from."""
    stored_bytes: float
    """Read from the checkpoint store for them, and for slots that moved."""
    moved_slots: int
    """That had a home, and got another one."""
    placed_replicas: int
    """That began to be copied."""
    missing: tuple[Shortage, ...]
    """Slots that lack replicas, and why."""
    lag_batches: int
    """Of the replica that is furthest behind."""
    action: str
    """What elasticity did; *stay* without it."""


@dataclass(slots=True)
class _Boundary:
    """What is done between two batches."""

    recovered: dict[SlotId, Source] = field(default_factory=dict)
    stored_bytes: float = 0.0
    moved_slots: int = 0
    placed_replicas: int = 0
    can_run: bool = True
    """Whether there are hosts, and all slots have their state."""


class Simulation:
    """A flow that runs on simulated hosts."""

    def __init__(
        self,
        scenario: Scenario,
        steering: Steering,
        *,
        homes: Homes = MappingProxyType({}),
        replicas: StandingReplicas = _NONE,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Begin with these homes and replicas; what they leave open, policies choose. ``rng`` is for random placement.

        With elasticity, the flow begins on as many of the hosts as it may have at least, in their order.
        """
        hosts, flow = scenario.hosts, scenario.flow
        self.now = 0.0
        self.waiting_rows = 0.0
        self.copies = Copies(by_slot={slot.id: {} for slot in flow.slots})
        self.lost_slots: frozenset[SlotId] = frozenset()
        """Slots whose state is nowhere: the flow has stopped."""
        self._all = {host.name: host for host in hosts}
        self._flow = flow
        self._slots = {slot.id: slot for slot in flow.slots}
        self._load = scenario.load
        self._steering = steering
        self._links = scenario.links
        self._latency = scenario.links.make_matrix(hosts)
        self._places = {host.name: place for place, host in enumerate(hosts)}
        self._costs = scenario.costs
        self._rng = rng
        self._events = sorted(scenario.events)
        least = steering.elasticity.min_executors if steering.elasticity else len(hosts)
        self._running = [host.name for host in hosts[:least]]
        self._away: set[str] = set()
        self._coming: list[tuple[float, str]] = []
        self._leaving: tuple[str, ...] = ()
        self._going: set[str] = set()
        self._elastic = ElasticState()
        self.homes: dict[SlotId, str] = dict(homes)
        self.planned: StandingReplicas = dict(replicas)
        """Slot → the hosts that are to hold its replicas."""
        self.missing: tuple[Shortage, ...] = ()
        self._looked_at: tuple[object, ...] | None = None
        self._batches_since_look = 0
        self._last_seconds = self._costs.batch_seconds
        self._begin(homes, replicas)

    # -- what can be seen from outside -------------------------------------------------------------------------------

    @property
    def reachable(self) -> tuple[str, ...]:
        """The hosts that run and can be reached."""
        return tuple(name for name in self._running if name not in self._away)

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now."""
        hosts = tuple(self._all[name] for name in self.reachable)
        names = {host.name for host in hosts}
        homes = {slot: home for slot, home in self.homes.items() if home in names}
        return Snapshot(hosts, self._flow, homes, self._load.at(self.now), self._links)

    def run_until(self, seconds: float) -> tuple[BatchRecord, ...]:
        """Run batches until this moment, or until the flow stops because state is lost."""
        records = []
        while self.now < seconds and not self.lost_slots:
            records.append(self.run_batch())
        return tuple(records)

    # -- a batch -----------------------------------------------------------------------------------------------------

    def run_batch(self) -> BatchRecord:
        """Do what is due at the boundary, run a batch, and commit it unless a host with slots fails meanwhile."""
        if self.lost_slots:
            msg = f"the flow has stopped: no copy of slots {sorted(self.lost_slots)[:5]} is left; look at its records"
            raise SimulationError(msg)
        boundary = self._settle()
        began, shot = self.now, self.snapshot()
        rows = self._take_rows(shot) if boundary.can_run else 0.0
        busy, levels = self._add_up({slot.id: slot.cpu_seconds_a_row * rows for slot in self._flow.slots})
        wires, sent = self._find_wires(rows)
        seconds = self._costs.fixed_seconds + levels + wires
        seconds += boundary.stored_bytes / self._costs.store_bytes_per_second
        failing = self._find_next_loss(began + seconds)
        is_committed = boundary.can_run and failing is None
        replicated = 0.0
        if is_committed:
            replicated = self._transfer(began, seconds)
            self.copies.commit(self.homes, {slot.id: slot.changed_bytes_a_row * rows for slot in self._flow.slots})
            self._last_seconds = max(seconds, self._costs.batch_seconds)
            replicated += self._transfer(began + seconds, self._last_seconds - seconds)
        else:
            self.waiting_rows += rows
            self._last_seconds = seconds = self._lose_batch(began, failing)
        self.now = began + self._last_seconds
        self._apply_events(self.now)
        action = self._decide(busy, rows, seconds, shot) if is_committed else "stay"
        return BatchRecord(
            began_seconds=began,
            seconds=seconds,
            is_committed=is_committed,
            version=self.copies.committed,
            rows=rows if is_committed else 0.0,
            waiting_rows=self.waiting_rows,
            snapshot=shot,
            busy_seconds=busy,
            sent_bytes=sent,
            replicated_bytes=replicated,
            recovered=boundary.recovered,
            stored_bytes=boundary.stored_bytes,
            moved_slots=boundary.moved_slots,
            placed_replicas=boundary.placed_replicas,
            missing=self.missing,
            lag_batches=self.copies.find_lag(self.planned, self.reachable),
            action=action,
        )

    def _lose_batch(self, began: float, failing: float | None) -> float:
        """Return how long a batch takes that nobody commits: until its loss is known, or a host is there again."""
        if self.lost_slots:
            return 0.0
        if failing is not None:
            self._transfer(began, failing - began)
            self._apply_events(failing)
            return failing - began + self._costs.detection_seconds
        moments = [event.at_seconds for event in self._events] + [moment for moment, _ in self._coming]
        if not moments:
            self.lost_slots = frozenset(self._slots)
            return 0.0
        return max(0.0, min(moments) - began)

    def _take_rows(self, shot: Snapshot) -> float:
        arrived = shot.rows_per_second * self._last_seconds
        a_row = sum(slot.cpu_seconds_a_row for slot in self._flow.slots)
        cores = sum(host.cores for host in shot.hosts)
        most = self._costs.most_rows_seconds * cores / a_row if a_row > 0 else math.inf
        rows = min(self.waiting_rows + arrived, most)
        self.waiting_rows += arrived - rows
        return rows

    def _add_up(self, cpu_seconds: Mapping[SlotId, float]) -> tuple[dict[str, float], float]:
        """Return the processor time by host, and how long levels take, one after the other."""
        busy = dict.fromkeys(self.reachable, 0.0)
        by_level: dict[int, dict[str, float]] = {}
        for slot, cpu in cpu_seconds.items():
            home = self.homes.get(slot)
            if home is not None and home in busy:
                busy[home] += cpu
                level = by_level.setdefault(slot[0], {})
                level[home] = level.get(home, 0.0) + cpu
        seconds = sum(
            max(cpu / max(1, self._all[home].cores) for home, cpu in level.items()) for level in by_level.values()
        )
        return busy, seconds

    def _find_wires(self, rows: float) -> tuple[float, float]:
        """Return how long what slots send takes on the wires, and its bytes."""
        through: dict[str, float] = {}
        sent = delay = 0.0
        for (sender, receiver), a_row in self._flow.sent_bytes_a_row.items():
            source, target = self.homes.get(sender), self.homes.get(receiver)
            if source is None or target is None or source == target:
                continue
            sent += a_row * rows
            delay = max(delay, float(self._latency[self._places[source], self._places[target]]))
            for host in (source, target):
                through[host] = through.get(host, 0.0) + a_row * rows
        slowest = max(
            (sum_ / self._all[host].bandwidth_bytes_per_second for host, sum_ in through.items()), default=0.0
        )
        return slowest + delay, sent

    def _transfer(self, began: float, seconds: float) -> float:
        """Let replicas be sent what they lack, for so long; who fails meanwhile sends and gets until then."""
        if seconds <= 0 or self._steering.replicas is None:
            return 0.0
        until = dict.fromkeys(self.reachable, began + seconds)
        for event in self._events:
            if event.at_seconds < began + seconds and event.change != "return" and event.host in until:
                until[event.host] = min(until[event.host], event.at_seconds)
        # No time is no room, however wide the wire is.
        room = {
            name: self._all[name].bandwidth_bytes_per_second * (end - began)
            for name, end in until.items()
            if end > began
        }
        return self.copies.transfer(self.homes, room)

    # -- what happens to hosts ---------------------------------------------------------------------------------------

    def _find_next_loss(self, until: float) -> float | None:
        """Return when the first host with slots fails or is cut off before a moment."""
        serving = set(self.homes.values())
        return next(
            (
                event.at_seconds
                for event in self._events
                if event.at_seconds <= until
                and event.change != "return"
                and event.host in serving
                and event.host not in self._away
            ),
            None,
        )

    def _apply_events(self, until: float) -> None:
        while self._events and self._events[0].at_seconds <= until:
            event = self._events.pop(0)
            if event.change == "return":
                self._away.discard(event.host)
            else:
                self._away.add(event.host)
                if event.change == "fail":
                    self.copies.forget(event.host)
        for moment, name in [one for one in self._coming if one[0] <= until]:
            self._coming.remove((moment, name))
            self._running.append(name)

    # -- what policies do at a boundary ------------------------------------------------------------------------------

    def _begin(self, homes: Homes, replicas: StandingReplicas) -> None:
        """Give every slot a home, and let those that were given stand."""
        if missing := [slot for slot in self._slots if slot not in self.homes]:
            self._plan_homes({slot: self.homes[slot] for slot in self._slots if slot not in missing}, evens_out=False)
        for slot in self._slots:
            if self.homes.get(slot) not in self._running:
                msg = (
                    f"slot {slot} is at home on {homes.get(slot)!r}, which does not run; there are {self._running[:20]}"
                )
                raise SimulationError(msg)
            for host in (self.homes[slot], *replicas.get(slot, ())):
                self.copies.seed(slot, host)

    def _settle(self) -> _Boundary:
        done = _Boundary()
        self._apply_events(self.now)
        reachable = set(self.reachable)
        if reachable and reachable <= {*self._leaving, *self._going}:
            # Who was to go is all that is left.
            self._leaving, self._going = (), set()
        lost = [slot for slot in self._slots if self.homes[slot] not in reachable]
        if lost:
            self._recover(lost, done)
        if done.can_run:
            self._release()
            self._restore_replicas(done)
        return done

    def _recover(self, lost: Sequence[SlotId], done: _Boundary) -> None:
        """Give slots whose home is lost another: where a current replica is, else anywhere, and they read the store."""
        loads = self._find_loads()
        standing = {slot: home for slot, home in self.homes.items() if slot not in lost}
        staying = {name: self._all[name].cores for name in self.reachable if name not in self._leaving}
        busy: dict[str, float] = {}
        for slot, home in standing.items():
            busy[home] = busy.get(home, 0.0) + loads[slot].cpu_seconds
        current = {slot: self.copies.list_current(slot, staying) for slot in lost}
        heirs = choose_heirs({slot: loads[slot] for slot in lost}, current, busy, staying)
        others = {slot: loads[slot] for slot in lost if slot not in heirs}
        if others and not self._steering.has_store:
            self.lost_slots = frozenset(others)
            done.recovered, done.can_run = dict.fromkeys(others, "lost"), False
            return
        if others and not staying:
            done.can_run = False
            return
        # Who has an old version reads only what came since.
        behind = {slot: self.copies.list_whole(slot, staying) for slot in others}
        self.homes = {**standing, **heirs, **choose_heirs(others, behind, busy, staying)}
        self._plan_homes(self.homes, evens_out=False)
        done.moved_slots += len(lost)
        done.recovered |= dict.fromkeys(heirs, "replica")
        for slot in others:
            done.recovered[slot] = "store"
            done.stored_bytes += self._load_from_store(slot)

    def _load_from_store(self, slot: SlotId) -> float:
        """Let a slot's home read what it lacks; an old replica lacks only the runs since."""
        home = self.homes[slot]
        held = self.copies.by_slot[slot].get(home)
        stored = float(self._slots[slot].state_bytes)
        if held is not None and held.version is not None:
            stored = min(stored, held.outstanding_bytes)
        self.copies.seed(slot, home)
        return stored

    def _plan_homes(self, homes: Homes, *, evens_out: bool) -> None:
        loads: dict[SlotId, SlotLoad | None] = dict(self._find_loads())
        plan = plan_homes(self._list_executors(), loads, homes, evens_out=evens_out)
        self.homes = dict(plan.homes)

    def _list_executors(self) -> list[Executor]:
        return [self._all[name].as_executor(is_leaving=name in self._leaving) for name in self.reachable]

    def _find_loads(self) -> dict[SlotId, SlotLoad]:
        rows = max(self._load.at(self.now) * self._costs.batch_seconds, _FEWEST_ROWS)
        return {
            slot.id: SlotLoad(slot.cpu_seconds_a_row * rows, slot.state_bytes, slot.state_bytes)
            for slot in self._flow.slots
        }

    def _move_slots(self) -> int:
        """Even homes out; who moves leaves a copy behind, and reads one from its old home."""
        before = dict(self.homes)
        self._plan_homes(before, evens_out=True)
        moved = [slot for slot, home in self.homes.items() if before[slot] != home]
        for slot in moved:
            self.copies.seed(slot, self.homes[slot])
        return len(moved)

    def _restore_replicas(self, done: _Boundary) -> None:
        settings = self._steering.replicas
        if settings is None or not self._steering.restores:
            return
        self._drop_what_stands_elsewhere()
        looked_at = (self.reachable, self._leaving, tuple(self.homes.items()))
        self._batches_since_look += 1
        due = self._batches_since_look >= self._steering.look_again_batches
        if looked_at == self._looked_at and not self.missing and not due:
            return
        self._looked_at, self._batches_since_look = looked_at, 0
        reachable = set(self.reachable)
        before = {
            slot: (
                *(host for host in self.planned.get(slot, ()) if host in held),
                *(host for host in held if host not in self.planned.get(slot, ()) and host in reachable),
            )
            for slot, held in self.copies.by_slot.items()
        }
        plan = restore_replicas(
            self._pose_problem(settings), before, settings.placement, spare=settings.spare, rng=self._rng
        )
        self.planned, self.missing = plan.replicas, plan.missing
        done.placed_replicas = len(plan.moves)
        for move in plan.moves:
            self.copies.begin(move.slot, move.target, move.state_bytes)

    def _drop_what_stands_elsewhere(self) -> None:
        """Forget copies that no plan wants once those that it wants are there: new ones first, then none of the old."""
        reachable = set(self.reachable)
        short = {shortage.slot for shortage in self.missing}
        for slot, held in self.copies.by_slot.items():
            if slot in short:
                # A host that comes back may bring just the copy that is missing.
                continue
            wanted = {self.homes[slot], *self.planned.get(slot, ())}
            if len(held) > len(wanted) and all(
                host in held and held[host].version == self.copies.committed for host in wanted
            ):
                for host in [host for host in held if host not in wanted and host in reachable]:
                    self.copies.drop(slot, host)

    def _pose_problem(self, settings: Replicas) -> ReplicaProblem:
        names = self.reachable
        places = np.array([self._places[name] for name in names])
        leaving = {*self._leaving, *self._going}
        hosts = tuple(
            ReplicaHost(name, self._all[name].bandwidth_bytes_per_second, self._all[name].memory_bytes, name in leaving)
            for name in names
        )
        rate = self._load.at(self.now)
        slots = tuple(
            ReplicaSlot(
                slot.id, self.homes[slot.id], settings.degree, slot.state_bytes, slot.changed_bytes_a_row * rate
            )
            for slot in self._flow.slots
        )
        sent = np.zeros((len(names), len(names)))
        at = {name: place for place, name in enumerate(names)}
        for (source, target), traffic in self.snapshot().find_host_traffic().items():
            sent[at[source], at[target]] = traffic
        return ReplicaProblem(hosts, slots, Network(self._latency[np.ix_(places, places)], sent))

    # -- how many hosts ----------------------------------------------------------------------------------------------

    def _decide(self, busy: Mapping[str, float], rows: float, seconds: float, shot: Snapshot) -> str:
        """Let elasticity decide, and homes follow: one thing at a boundary."""
        settings = self._steering.elasticity
        executors = self._list_executors()
        deviation = find_deviation(busy, executors, seconds)
        if settings is None:
            return self._even_out(deviation, Elasticity().imbalance)
        reading = ClusterReading(
            now_seconds=self.now,
            executors=tuple(executor for executor in executors if executor.id not in self._going),
            rows=int(rows),
            batch_seconds=seconds,
            cpu_seconds=busy,
            offered_rows_per_second=shot.rows_per_second,
            waiting_rows=int(self.waiting_rows),
            held_bytes=sum(slot.state_bytes for slot in self._flow.slots),
        )
        decision = decide_size(settings, self._elastic, reading)
        self._elastic = decision.state
        match decision.action:
            case "offload" if self._can_move():
                self._leaving = (*self._leaving, *decision.leaving)
                self._move_slots()
            case "keep":
                self._leaving = tuple(name for name in self._leaving if name not in decision.leaving)
        # Their slots are elsewhere; they go once the copies that they hold are elsewhere, too.
        self._going |= set(self._leaving) - set(decision.state.leaving)
        self._ask_for(decision.executors)
        return decision.action if decision.action != "stay" else self._even_out(deviation, settings.imbalance)

    def _even_out(self, deviation: float, imbalance: float) -> str:
        """Give slots other homes if executors differ too much in what they are busy with; say what was done."""
        too_much = self._steering.evens_out and deviation > imbalance and self._can_move()
        return "balance" if too_much and self._move_slots() else "stay"

    def _can_move(self) -> bool:
        """Say whether all homes are reachable: who is lost is given a home first."""
        reachable = set(self.reachable)
        return all(home in reachable for home in self.homes.values())

    def _ask_for(self, wanted: int) -> None:
        staying = [name for name in self.reachable if name not in self._leaving and name not in self._going]
        missing = wanted - len(staying) - len(self._coming)
        spare = [
            name
            for name in self._all
            if name not in self._running and name not in self._away and name not in {one for _, one in self._coming}
        ]
        for name in spare[: max(0, missing)]:
            self._coming.append((self.now + self._costs.starting_seconds, name))

    def _release(self) -> None:
        """Let hosts go that hold nothing which is not elsewhere."""
        for name in sorted(self._going):
            if name in self.homes.values():
                continue
            needed = [
                slot
                for slot, held in self.copies.by_slot.items()
                if name in held and self._count_current_elsewhere(slot, name) < self._count_wanted(slot)
            ]
            if not needed:
                self._going.discard(name)
                self._leaving = tuple(one for one in self._leaving if one != name)
                self._running.remove(name)
                self.copies.forget(name)

    def _count_current_elsewhere(self, slot: SlotId, host: str) -> int:
        return sum(other != host for other in self.copies.list_current(slot, self.reachable))

    def _count_wanted(self, slot: SlotId) -> int:
        """Return the copies that a slot is to have, as far as hosts can hold them."""
        return 1 + len(self.planned.get(slot, ()))
