"""A flow on a simulated cluster, batch by batch, steered by the policies that steer it on Spark.

A batch takes what its busiest hosts take, level by level, and what its wires carry. Between two batches, hosts come and
go, slots whose host is lost get a home where a current replica is, replicas are placed again, and the number of hosts
follows the load, or what may sleep. No clock and no chance but what is passed in: equal arguments give equal histories.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from anabranch.model.cluster import Homes, SlotId, SlotLoad
from anabranch.placement import plan_homes
from anabranch.placement.elasticity import find_deviation
from anabranch.placement.replicas import Shortage, StandingReplicas, choose_heirs
from anabranch.sim.cluster import SimulationError, Snapshot
from anabranch.sim.copies import Copies
from anabranch.sim.records import BatchRecord, Boundary
from anabranch.sim.replication import NO_REPLICAS, Replication
from anabranch.sim.roster import Owners, Roster
from anabranch.sim.scenario import Scenario, Steering
from anabranch.sim.sizing import STAY, Seen, SizeChange, open_sizing

_FEWEST_ROWS = 1e-9
_MOMENT = 1e-9
"""Sums of seconds are not exact."""


class Simulation:
    """A flow that runs on simulated hosts."""

    def __init__(
        self,
        scenario: Scenario,
        steering: Steering,
        *,
        homes: Homes = MappingProxyType({}),
        replicas: StandingReplicas = NO_REPLICAS,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Begin with these homes and replicas; what they leave open, policies choose. ``rng`` is for random placement.

        With elasticity, the flow begins on as many of the hosts as it may have at least, in their order; with energy,
        on all of them.
        """
        hosts, flow = scenario.hosts, scenario.flow
        self.now = 0.0
        self.waiting_rows = 0.0
        self.lost_slots: frozenset[SlotId] = frozenset()
        """Slots whose state is nowhere: the flow has stopped."""
        self._flow = flow
        self._slots = {slot.id: slot for slot in flow.slots}
        self._load = scenario.load
        self._steering = steering
        self._links = scenario.links
        self._costs = scenario.costs
        self._sizing = open_sizing(steering, hosts, flow, scenario.costs)
        begins_with = self._sizing.begins_with
        self._roster = Roster(hosts, len(hosts) if begins_with is None else begins_with, scenario.events)
        self._replication = Replication(scenario, steering, replicas, rng)
        self._owners = Owners()
        self._attempt = 0
        self.homes: dict[SlotId, str] = dict(homes)
        self._last_seconds = self._costs.batch_seconds
        self._moved: list[SlotId] = []
        """Slots that were given other homes behind the last batch: they load their state as the next one begins."""
        self._begin(homes, replicas)

    # -- what can be seen from outside -------------------------------------------------------------------------------

    @property
    def copies(self) -> Copies:
        """Who holds what."""
        return self._replication.copies

    @property
    def planned(self) -> StandingReplicas:
        """Slot → the hosts that are to hold its replicas."""
        return self._replication.planned

    @property
    def missing(self) -> tuple[Shortage, ...]:
        """Slots that lack replicas, and why."""
        return self._replication.missing

    @property
    def reachable(self) -> tuple[str, ...]:
        """The hosts that run and can be reached."""
        return self._roster.reachable

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now."""
        hosts = tuple(self._roster.all[name] for name in self.reachable)
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
        self._apply_events(self.now)
        unknown = self._find_unknown_loss()
        boundary = Boundary(can_run=False) if unknown is not None else self._settle()
        self._attempt += 1
        self._owners.tell(self._attempt, self.homes, self.reachable)
        began, shot = self.now, self.snapshot()
        wire_seconds_a_row, delay, sent_a_row = self._find_wires()
        rows = self._take_rows(shot, wire_seconds_a_row) if boundary.can_run else 0.0
        busy, levels = self._add_up({slot.id: slot.cpu_seconds_a_row * rows for slot in self._flow.slots})
        seconds = self._costs.fixed_seconds + levels + rows * wire_seconds_a_row + delay
        seconds += boundary.stored_bytes / self._costs.store_bytes_per_second
        failing = unknown or self._roster.find_next_loss(began + seconds, set(self.homes.values()))
        is_committed = boundary.can_run and failing is None
        replicated, refused = 0.0, 0
        writers: Mapping[SlotId, tuple[str, ...]] = {}
        if is_committed:
            replicated = self._transfer(began, seconds)
            self._apply_events(began + seconds)
            writers, refused = self._owners.collect(self._attempt, self.reachable)
            self.copies.commit(self.homes, {slot.id: slot.changed_bytes_a_row * rows for slot in self._flow.slots})
            self._last_seconds = max(seconds, self._costs.batch_seconds)
            replicated += self._transfer(began + seconds, self._last_seconds - seconds)
        else:
            self.waiting_rows += rows
            self._last_seconds = seconds = self._lose_batch(began, failing)
        self.now = began + self._last_seconds
        self._apply_events(self.now)
        action = self._decide(busy, rows, seconds, shot) if is_committed else STAY
        return BatchRecord(
            began_seconds=began,
            seconds=seconds,
            is_committed=is_committed,
            version=self.copies.committed,
            rows=rows if is_committed else 0.0,
            waiting_rows=self.waiting_rows,
            snapshot=shot,
            busy_seconds=busy,
            sent_bytes=sent_a_row * rows,
            replicated_bytes=replicated,
            recovered=boundary.recovered,
            stored_bytes=boundary.stored_bytes,
            moved_slots=boundary.moved_slots,
            placed_replicas=boundary.placed_replicas,
            missing=self.missing,
            lag_batches=self.copies.find_lag(self.planned, self.reachable),
            action=action,
            writers=writers,
            refused_reports=refused,
            lasted_seconds=self._last_seconds,
            starting_hosts=len(self._roster.coming),
            idle_hosts=len(self._roster.spare),
        )

    def _find_unknown_loss(self) -> float | None:
        """Return when a host with slots was lost, if nobody knows it yet: a batch that begins will wait for it."""
        lost_at = self._roster.find_last_loss(set(self.homes.values()))
        if lost_at is None or lost_at + self._costs.detection_seconds <= self.now + _MOMENT:
            return None
        return lost_at

    def _lose_batch(self, began: float, failing: float | None) -> float:
        """Return how long a batch takes that nobody commits: until its loss is known, or a host is there again."""
        if self.lost_slots:
            return 0.0
        if failing is not None:
            self._transfer(began, failing - began)
            self._apply_events(failing)
            return failing - began + self._costs.detection_seconds
        news = self._roster.find_next_news()
        if news is None:
            self.lost_slots = frozenset(self._slots)
            return 0.0
        return max(0.0, news - began)

    def _take_rows(self, shot: Snapshot, wire_seconds_a_row: float) -> float:
        arrived = shot.rows_per_second * self._last_seconds
        cores = max(1, sum(host.cores for host in shot.hosts))
        # Without the wires, a flow whose cores are idle and whose wires are full would have a batch that takes hours.
        a_row = max(sum(slot.cpu_seconds_a_row for slot in self._flow.slots) / cores, wire_seconds_a_row)
        most = self._costs.most_rows_seconds / a_row if a_row > 0 else math.inf
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
            max(cpu / max(1, self._roster.all[home].cores) for home, cpu in level.items())
            for level in by_level.values()
        )
        return busy, seconds

    def _find_wires(self) -> tuple[float, float, float]:
        """Return for each row how long the busiest wire takes, for each batch the longest way, and a row's bytes."""
        through: dict[str, float] = {}
        sent = delay = 0.0
        for (sender, receiver), a_row in self._flow.sent_bytes_a_row.items():
            source, target = self.homes.get(sender), self.homes.get(receiver)
            if source is None or target is None or source == target:
                continue
            sent += a_row
            delay = max(delay, self._replication.latency(source, target))
            for host in (source, target):
                through[host] = through.get(host, 0.0) + a_row
        busiest = max(
            (sum_ / self._roster.all[host].bandwidth_bytes_per_second for host, sum_ in through.items()), default=0.0
        )
        return busiest, delay, sent

    def _transfer(self, began: float, seconds: float) -> float:
        return self._replication.transfer(self._roster, self.homes, began, seconds)

    def _apply_events(self, until: float) -> None:
        for host in self._roster.apply_events(until):
            self.copies.forget(host)
            self._owners.forget(host)

    # -- what policies do at a boundary ------------------------------------------------------------------------------

    def _begin(self, homes: Homes, replicas: StandingReplicas) -> None:
        """Give every slot a home, and let those that were given stand."""
        if missing := [slot for slot in self._slots if slot not in self.homes]:
            self._plan_homes({slot: self.homes[slot] for slot in self._slots if slot not in missing}, evens_out=False)
        for slot in self._slots:
            if self.homes.get(slot) not in self._roster.running:
                running = self._roster.running[:20]
                msg = f"slot {slot} is at home on {homes.get(slot)!r}, which does not run; there are {running}"
                raise SimulationError(msg)
            for host in (self.homes[slot], *replicas.get(slot, ())):
                self.copies.seed(slot, host)

    def _settle(self) -> Boundary:
        done = Boundary()
        if self.reachable and not self._roster.staying:
            # Who was to go is all that is left.
            self._roster.keep(self.reachable)
        if not self.reachable and not self._roster.coming:
            # Whoever gives out hosts puts others in the place of those that are lost.
            self._ask_for(self._roster.spare[: self._sizing.fewest], self._costs.starting_seconds)
        self._load_moved(done)
        if lost := self._find_lost():
            self._recover(lost, done)
        if done.can_run:
            self._release()
            done.placed_replicas = self._replication.restore(self._roster, self.homes, self.snapshot())
        return done

    def _find_lost(self) -> list[SlotId]:
        """Return slots whose home cannot be reached, or failed and is there again without their state."""
        reachable = set(self.reachable)
        return [
            slot
            for slot in self._slots
            if (home := self.homes[slot]) not in reachable or not self.copies.is_current(slot, home)
        ]

    def _recover(self, lost: Sequence[SlotId], done: Boundary) -> None:
        """Give slots whose home is lost another: where a current replica is, else anywhere, and they read the store."""
        loads = self._find_loads()
        before = self.homes
        standing = {slot: home for slot, home in before.items() if slot not in lost}
        self._keep_last_copies(lost)
        staying = self._roster.cores_of(self._roster.staying)
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
        done.moved_slots += sum(self.homes[slot] != before[slot] for slot in lost)
        done.recovered |= dict.fromkeys(heirs, "replica")
        for slot in others:
            done.recovered[slot] = "store"
            done.stored_bytes += self._load_from_store(slot)

    def _keep_last_copies(self, lost: Sequence[SlotId]) -> None:
        """Let hosts stay that were to go, where nobody else holds the state of a slot that is lost."""
        for slot in lost:
            current = self.copies.list_current(slot, set(self.reachable))
            if current and not set(current) & set(self._roster.staying):
                self._roster.keep(current[:1])

    def _load_from_store(self, slot: SlotId) -> float:
        """Let a slot's home read what it lacks; an old replica lacks only the runs since."""
        home = self.homes[slot]
        held = self.copies.by_slot[slot].get(home)
        stored = float(self._slots[slot].state_bytes)
        if held is not None and held.version is not None:
            stored = min(stored, held.outstanding_bytes)
        self.copies.seed(slot, home)
        return stored

    def _load_moved(self, done: Boundary) -> None:
        """Let slots that moved behind the last batch load their state, as on Spark: from the store, or a replica."""
        for slot in self._moved:
            done.moved_slots += 1
            if self.homes[slot] in self.reachable:
                stored = self._load_from_store(slot)
                # Without a store, they have it from where they were.
                done.stored_bytes += stored if self._steering.has_store else 0.0
        self._moved = []

    def _plan_homes(self, homes: Homes, *, evens_out: bool) -> None:
        loads: dict[SlotId, SlotLoad | None] = dict(self._find_loads())
        plan = plan_homes(self._roster.list_executors(), loads, homes, evens_out=evens_out)
        self.homes = dict(plan.homes)

    def _find_loads(self) -> dict[SlotId, SlotLoad]:
        rows = max(self._load.at(self.now) * self._costs.batch_seconds, _FEWEST_ROWS)
        return {
            slot.id: SlotLoad(slot.cpu_seconds_a_row * rows, slot.state_bytes, slot.state_bytes)
            for slot in self._flow.slots
        }

    def _release(self) -> None:
        """Let hosts go that hold nothing which is not elsewhere."""
        for name in sorted(self._roster.going):
            is_empty = name in self._roster.running and name not in self.homes.values()
            if is_empty and not self._replication.is_needed(name, self._roster):
                self._roster.release(name)
                self.copies.forget(name)
                self._owners.forget(name)

    # -- how many hosts ----------------------------------------------------------------------------------------------

    def _decide(self, busy: Mapping[str, float], rows: float, seconds: float, shot: Snapshot) -> str:
        """Let elasticity or energy decide, and homes follow: one thing at a boundary."""
        roster = self._roster
        executors = roster.list_executors()
        deviation = find_deviation(busy, executors, seconds)
        change = self._sizing.decide(
            Seen(
                now_seconds=self.now,
                rows=rows,
                seconds=seconds,
                offered_rows_per_second=shot.rows_per_second,
                waiting_rows=self.waiting_rows,
                busy_seconds=busy,
                homes=self.homes,
                executors=[executor for executor in executors if executor.id not in roster.going],
                staying=roster.staying,
                spare=roster.spare,
                coming=roster.coming,
                leaving=roster.leaving,
                can_move=self._can_move(),
            )
        )
        self._apply(change)
        if change.action != STAY:
            return change.action
        too_much = self._steering.evens_out and deviation > self._sizing.imbalance and self._can_move()
        return "balance" if too_much and self._move_slots() else STAY

    def _apply(self, change: SizeChange) -> None:
        roster = self._roster
        roster.leaving = (*roster.leaving, *change.leaving)
        roster.keep(change.kept)
        if change.homes is not None:
            self._move_slots({**self.homes, **change.homes})
        elif change.leaving:
            self._move_slots()
        roster.going |= set(change.going)
        self._ask_for(change.asked, change.ready_seconds)

    def _can_move(self) -> bool:
        """Say whether all homes are there with their state: what is lost is given a home first."""
        return not self._find_lost()

    def _move_slots(self, homes: Homes | None = None) -> int:
        """Give slots these homes, or even them out; who moves leaves a copy behind. Return how many moved."""
        before = dict(self.homes)
        if homes is None:
            self._plan_homes(before, evens_out=True)
        else:
            self.homes = dict(homes)
        moved = [slot for slot, home in self.homes.items() if before[slot] != home]
        self._moved += moved
        return len(moved)

    def _ask_for(self, names: Sequence[str], seconds: float) -> None:
        self._roster.ask_for(names, self.now + seconds)
