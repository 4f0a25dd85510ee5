"""Replicas of a run's state: placed and copied beside the batches, and gone on from when a host is lost."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from anabranch.engine.batches.jobs import CarriesReplicas, HasCarrier
from anabranch.engine.batches.replicas.heirs import find_heirs
from anabranch.engine.batches.replicas.losses import LossBook
from anabranch.engine.batches.replicas.problem import (
    Known,
    Pace,
    find_places,
    find_unbroken,
    follow_places,
    list_runs,
    name_problem,
    pose_problem,
)
from anabranch.engine.batches.replicas.release import AwaitedCopies
from anabranch.engine.tasks.replica_task import CopyOrder
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import BatchProgress
from anabranch.model.cluster import (
    ChoosesHomes,
    Cluster,
    Executor,
    HomeChoice,
    Homes,
    ReleaseWait,
    SlotId,
    SlotLoads,
)
from anabranch.model.events import DecisionEvent, RecoveryEvent
from anabranch.model.replicas import ReplicaProgress, Replicas
from anabranch.placement.homes import choose_homes
from anabranch.placement.replicas import (
    Holdings,
    ReplicaPlan,
    StandingReplicas,
    find_current,
    measure_lag,
    plan_round,
    restore_replicas,
)
from anabranch.query.plan import Plan
from anabranch.state.manifest import Manifest

MOST_BYTES_A_ROUND = 64 * 2**20
"""What a host sends or gets in one go: its worker holds it in memory."""
BATCHES_BETWEEN_LOOKS = 16
"""After so many batches it is seen whether replicas still fit where they are: state grows."""
RETRY_SECONDS = 10.0
"""So long after something went wrong it is tried again, if no batch is over before."""
STOP_SECONDS = 10.0

logger = logging.getLogger("anabranch")


class TellsReplicas(Protocol):
    """Tells the history of a run what becomes of replicas."""

    def decide(self, decisions: Iterable[DecisionEvent]) -> None:
        """Tell where replicas stand from now on, from any thread."""
        ...

    def tell_recovery(self, recovery: RecoveryEvent) -> None:
        """Tell what became of slots whose homes were lost."""
        ...


class WithoutReplicas:
    """A run that has no replicas."""

    def choose_homes(
        self, slots: Sequence[SlotId], executors: Sequence[Executor], loads: SlotLoads, before: Homes
    ) -> HomeChoice:
        """Return homes as the policy has them."""
        return choose_homes(slots, executors, loads, before)

    def list_fallbacks(self) -> StandingReplicas:
        """Return nothing."""
        return {}

    def tell_wait(self) -> ReleaseWait:
        """Return nobody: there is nothing to wait for."""
        return ReleaseWait()

    def end_batch(self, manifest: Manifest, progress: BatchProgress, executors: Sequence[Executor]) -> BatchProgress:
        """Return the progress as it is."""
        return progress

    def show(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def stop(self) -> None:
        """Nothing is going on."""


def open_replicas(
    program: FlowProgram,
    cluster: Cluster,
    epoch: int,
    jobs: object,
    events: TellsReplicas,
    clock: Callable[[], float],
) -> ReplicaTier | WithoutReplicas:
    """Return what keeps the replicas of a run, if it is to have any."""
    if program.replicas is None or not program.replicas.replicas_a_slot:
        return WithoutReplicas()
    carrier = jobs.carrier if isinstance(jobs, HasCarrier) and cluster.pins_slots else None
    return ReplicaTier(program.replicas, program.plan, cluster, epoch, carrier, events, clock=clock)


class ReplicaTier:
    """Keeps the replicas of one run.

    The thread that runs the batches asks for homes and says when a batch is over; a thread of its own does the rest.
    """

    def __init__(
        self,
        settings: Replicas,
        plan: Plan,
        cluster: Cluster,
        epoch: int,
        carrier: CarriesReplicas | None,
        events: TellsReplicas,
        *,
        choose: ChoosesHomes = choose_homes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without a ``carrier`` there are no other hosts."""
        self._settings = settings
        self._plan = plan
        self._cluster = cluster
        self._epoch = epoch
        self._carrier = carrier
        self._events = events
        self._choose = choose
        self._clock = clock
        self._lock = threading.Lock()
        """On all that follows: both threads read and write it, and neither waits for the other's work."""
        self._known: Known | None = None
        self._holdings: dict[str, Holdings] = {}
        self._plan_made: ReplicaPlan | None = None
        self._planned_for: object = None
        self._settled: tuple[object, int] | None = None
        """What the plan was made for all of whose replicas were there, and in which batch that was."""
        self._awaited = AwaitedCopies()
        self._planned_at = 0
        self._pace = Pace()
        self._whole_at: int | None = None
        self._copied_bytes = 0
        self._copying_seconds = 0.0
        self._problem = "" if carrier is not None else "driver and executor are one process: there is no other host"
        self._losses = LossBook()
        self._ended_at: float | None = None
        self._chance = np.random.default_rng(epoch)
        self._news = threading.Event()
        self._stopped = False
        self._is_copying = False
        self._thread: threading.Thread | None = None

    # -- homes -------------------------------------------------------------------------------------------------------

    def choose_homes(
        self, slots: Sequence[SlotId], executors: Sequence[Executor], loads: SlotLoads, before: Homes
    ) -> HomeChoice:
        """Return homes as the policy has them, but for slots that lost theirs and have replicas: they go there."""
        heirs = self._find_heirs(slots, executors, loads, before)
        rest = [slot for slot in slots if slot not in heirs]
        choice = self._choose(rest, executors, loads, {**before, **heirs})
        if not heirs:
            return choice
        return HomeChoice({**choice.homes, **heirs}, f"on from replicas where there are any; {choice.reason}")

    def list_fallbacks(self) -> StandingReplicas:
        """Return the hosts on which slots may go on if their homes are lost in the middle of a batch."""
        # Where executors stand for hosts there is only one, and to prefer that says nothing.
        return {} if self._cluster.shares_host_out else self._placed

    def _find_heirs(
        self, slots: Sequence[SlotId], executors: Sequence[Executor], loads: SlotLoads, before: Homes
    ) -> Homes:
        """Return executors of hosts that hold state of slots whose homes are gone: all of it, or else the most."""
        with self._lock:
            known, placed = self._known, self._placed
            holdings = dict(self._holdings)
        if known is None:
            return {}
        homeless = {slot: known.homes[slot] for slot in slots if slot not in before and slot in known.homes}
        if not homeless:
            return {}
        heirs = find_heirs(known, homeless, holdings, placed, executors, self._cluster, loads, before)
        lost = {slot: home for slot, home in homeless.items() if home.executor not in known.leaving}
        if lost and self._carrier is not None and self._is_copying:
            # Whoever waits for a host that is gone keeps a core from those who go on without it.
            self._carrier.cancel()
        self._losses.note(lost, heirs, self._clock())
        return heirs.executors

    # -- batches -----------------------------------------------------------------------------------------------------

    def end_batch(self, manifest: Manifest, progress: BatchProgress, executors: Sequence[Executor]) -> BatchProgress:
        """Take in that a batch is over, and tell what became of slots that lost their homes; return its progress with
        how replicas stand."""
        now_seconds = self._clock()
        recovered = self._losses.settle(progress, now_seconds, self._ended_at)
        if recovered is not None:
            self._events.tell_recovery(recovered)
        runs = list_runs(self._plan, manifest)
        seconds = None if self._ended_at is None else max(1e-3, now_seconds - self._ended_at)
        self._ended_at = now_seconds
        hosts = {one.id: self._cluster.name_memory(one) for one in executors}
        ran = find_places(progress.measures, hosts)
        self._pace = self._pace.follow(runs, manifest.batch, progress.measures, seconds)
        with self._lock:
            if self._known is not None:
                self._holdings = self._keep_unbroken(self._known, self._holdings, hosts)
            self._known = Known(
                batch=manifest.batch,
                runs=runs,
                homes=manifest.engine.homes.homes,
                executors=tuple(executors),
                pace=self._pace,
                ran=ran,
                since=follow_places(self._known, ran, manifest.batch, hosts),
            )
            progress = replace(progress, replicas=self._tell_progress())
            self._copied_bytes, self._copying_seconds = 0, 0.0
        self._wake()
        return progress

    def tell_wait(self) -> ReleaseWait:
        """Return executors that are to go with their host, and must not yet: copies that stand there are not elsewhere.

        They are elsewhere once all replicas that hosts which stay have room for held all state, but for what the last
        batch wrote: they are always behind by that.
        """
        with self._lock:
            known, holdings, settled, problem = self._known, self._holdings, self._settled, self._problem
        if known is None or self._carrier is None or not self._settings.replicas_a_slot:
            return ReleaseWait()
        host_of = self._name_hosts(known)
        follows = settled is not None and settled[0] == name_problem(known, holdings, host_of)
        return self._awaited.find_wait(
            known,
            host_of,
            are_elsewhere=settled is not None and follows and known.batch - settled[1] <= 1,
            problem=problem,
            now_seconds=self._clock(),
        )

    def show(self) -> dict[str, Any]:
        """Return how replicas stand now as plain JSON data, for any thread."""
        with self._lock:
            return {"replicas": self._tell_progress().to_json()}

    def stop(self) -> None:
        """Copy nothing more."""
        self._stopped = True
        self._news.set()
        if self._thread is not None and self._carrier is not None:
            # Spark may be gone by now.
            with contextlib.suppress(Exception):
                self._carrier.cancel()
            self._thread.join(STOP_SECONDS)

    def _keep_unbroken(
        self, known: Known, holdings: Mapping[str, Holdings], host_of: Mapping[str, str]
    ) -> dict[str, Holdings]:
        """Return what hosts hold that did not go meanwhile; one that came again is asked anew."""
        unbroken = find_unbroken(known, host_of)
        return {host: held for host, held in holdings.items() if host in unbroken}

    def _name_hosts(self, known: Known) -> dict[str, str]:
        return {executor.id: self._cluster.name_memory(executor) for executor in known.executors}

    @property
    def _placed(self) -> StandingReplicas:
        return {} if self._plan_made is None else self._plan_made.replicas

    def _tell_progress(self) -> ReplicaProgress:
        known = self._known
        if known is None:
            return ReplicaProgress(problem=self._problem)
        slots = [slot for slot in known.runs if slot in known.homes]
        placed = {slot: self._placed.get(slot, ()) for slot in slots}
        current, lag_bytes = measure_lag(known.runs, placed, self._holdings)
        missing = () if self._plan_made is None else self._plan_made.missing
        return ReplicaProgress(
            wanted=len(slots) * self._settings.replicas_a_slot,
            placed=sum(map(len, placed.values())),
            current=current,
            hosts=len({host for hosts in placed.values() for host in hosts}),
            lag_batches=0 if not lag_bytes else known.batch - (-1 if self._whole_at is None else self._whole_at),
            lag_bytes=lag_bytes,
            held_bytes=sum(known.bytes for known in self._holdings.values()),
            copied_bytes=self._copied_bytes,
            copying_seconds=self._copying_seconds,
            problem=self._problem or (f"resources insufficient: {missing[0]}" if missing else ""),
        )

    # -- the thread beside the batches -------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._carrier is None or self._stopped:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="anabranch-replicas")
            self._thread.start()
        self._news.set()

    def _work(self) -> None:
        while not self._stopped:
            self._news.wait(RETRY_SECONDS if self._problem else None)
            self._news.clear()
            try:
                while not self._stopped and self.copy_once():
                    pass
            except Exception as error:
                # Whatever it is, the flow goes on without replicas, and the next batch tries again.
                self._note_problem(f"{type(error).__name__}: {error}")

    def copy_once(self) -> bool:
        """Place what has to be placed, carry out one round, and say whether there is more to do that can be done."""
        with self._lock:
            known, holdings = self._known, dict(self._holdings)
        if known is None or self._carrier is None:
            return False
        host_of = self._name_hosts(known)
        where: dict[str, Executor] = {}
        for executor in known.executors:
            if executor.is_usable:
                where.setdefault(host_of[executor.id], executor)
        holdings = {host: held for host, held in holdings.items() if host in host_of.values()}
        self._place(known, holdings, host_of)
        homes = {slot: host_of[home.executor] for slot, home in known.homes.items() if home.executor in host_of}
        found = plan_round(known.runs, homes, self._placed, holdings, sorted(where), MOST_BYTES_A_ROUND, known.ran)
        if found.is_empty:
            self._note_problem("")
            self._note_holdings(known, holdings)
            return False
        ends = {host for one in found.stretches for host in (one.source, one.target)} | {*found.drops, *found.asks}
        order = CopyOrder(found, self._epoch, {host: where[host] for host in sorted(ends)}, host_of)
        self._is_copying = True
        try:
            carried = self._carrier.carry(order)
        finally:
            self._is_copying = False
        problem = carried.problem or next((why for one in carried.reports for why in one.problems), "")
        after = holdings | {report.host: report.holdings for report in carried.reports}
        if problem:
            # What hosts say now may be why: then replicas are to stand elsewhere.
            self._planned_for = None
        with self._lock:
            self._copied_bytes += found.copied_bytes if carried.reports else 0
            self._copying_seconds += carried.seconds
        if not self._stopped:
            self._note_problem(problem)
        self._note_holdings(known, after)
        # What went wrong is tried again after the next batch, not at once: it would go wrong again.
        return not problem and after != holdings

    def _place(self, known: Known, holdings: Mapping[str, Holdings], host_of: Mapping[str, str]) -> None:
        """Say where replicas stand from now on, if hosts, homes or what they hold make it necessary."""
        if not holdings:
            return
        posed_for = name_problem(known, holdings, host_of)
        is_due = known.batch - self._planned_at >= BATCHES_BETWEEN_LOOKS
        if posed_for == self._planned_for and not is_due:
            return
        problem = pose_problem(known, holdings, host_of, self._settings)
        if problem is None:
            return
        # A former home holds what it was sent before.
        before = find_current({slot: runs for slot, runs in known.runs.items() if runs}, holdings, self._placed)
        standing = {slot: (*self._placed.get(slot, ()), *before.get(slot, ())) for slot in known.runs}
        plan = restore_replicas(
            problem,
            {slot: tuple(dict.fromkeys(hosts)) for slot, hosts in standing.items()},
            self._settings.placement,
            spare=self._settings.spare,
            rng=self._chance,
        )
        changed = self._plan_made is None or plan.replicas != self._plan_made.replicas
        with self._lock:
            self._plan_made, self._planned_for, self._planned_at = plan, posed_for, known.batch
        if plan.missing and holdings.keys() >= set(host_of.values()):
            logger.warning("replicas: resources insufficient: %s", plan.missing[0])
        if changed:
            reason = f"{plan.reason} ({self._settings.placement})"
            self._events.decide([DecisionEvent(known.batch, "replicas", "replicate", "placement", reason)])

    def _note_holdings(self, known: Known, holdings: Mapping[str, Holdings]) -> None:
        with self._lock:
            # A batch may have ended meanwhile.
            now = known if self._known is None else self._known
            self._holdings = holdings = self._keep_unbroken(known, holdings, self._name_hosts(now))
            _, lag_bytes = measure_lag(known.runs, self._placed, holdings)
            if self._plan_made is not None and not lag_bytes:
                self._whole_at = known.batch
                if self._planned_for is not None:
                    self._settled = self._planned_for, known.batch

    def _note_problem(self, problem: str) -> None:
        with self._lock:
            is_new, self._problem = bool(problem) and problem != self._problem, problem
        if is_new:
            logger.warning("replicas: %s; the flow goes on, and the store has all of its state", problem)
