"""The control loop of a running flow: behind a lock, with a log and a clock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from anabranch.control.commands import Command, Reply
from anabranch.control.decisions import Decision
from anabranch.control.energy_use import EnergyUse
from anabranch.control.facts import find_operators
from anabranch.control.loop import ControlLoop
from anabranch.control.observe.load_sampling import Watch
from anabranch.control.observe.loads import see_batch
from anabranch.control.reported import BatchReport
from anabranch.model import KeepsState
from anabranch.model.cluster import Executor, KeptHomes
from anabranch.model.elasticity import Elasticity
from anabranch.placement.elasticity import ClusterReading
from anabranch.query.plan import Plan, name_of
from anabranch.routing.phases import FlowRoutes
from anabranch.state.manifest import Manifest

logger = logging.getLogger("anabranch")


class FlowParts(Protocol):
    """What is known of a flow before it runs."""

    @property
    def plan(self) -> Plan: ...

    @property
    def kernels(self) -> Mapping[int, KeepsState]:
        """By stateful node."""
        ...


class Rebalancer:
    """Looks at what every batch did, and changes routes at the next boundary when that is worth it.

    ``submit`` may be called from any thread; everything else belongs to the thread that runs the batches.
    """

    def __init__(
        self,
        program: FlowParts,
        clock: Callable[[], float],
        resizes: bool = False,
        elasticity: Elasticity | None = None,
        energy: EnergyUse | None = None,
    ) -> None:
        """``clock`` says what time it is, in seconds from any moment on, never going back.

        ``resizes``: the plan's slots were asked for, and a checkpoint that has others follows. With ``elasticity``,
        executors and slots follow the load; with ``energy``, hosts that are not needed are let go.
        """
        self._plan = program.plan
        self._clock = clock
        self._lock = threading.Lock()
        self._loop = ControlLoop(find_operators(program.plan, program.kernels), clock, resizes, elasticity, energy)

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        """Return what slots should look at in the next batch."""
        with self._lock:
            return self._loop.watches(routes)

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        """Learn what a batch did under its routes."""
        seen = see_batch(self._plan, manifest, report, routes, self._clock())
        with self._lock:
            self._loop.observe(seen)

    def see_homes(self, executors: Sequence[Executor], kept: KeptHomes) -> None:
        """Learn which executors there are, and where the slots of the batch that begins are at home."""
        with self._lock:
            self._loop.see_homes(executors, kept)

    def see_cluster(self, reading: ClusterReading) -> None:
        """Learn what a batch says of the cluster's load."""
        with self._lock:
            self._loop.see_cluster(reading)

    def see_refusal(self) -> None:
        """Learn that executors could not be had, or be let go."""
        with self._lock:
            self._loop.see_refusal()

    @property
    def idle_seconds(self) -> float | None:
        """After so long without rows a batch is wanted all the same, for executors may be too many; None if not."""
        with self._lock:
            return self._loop.idle_seconds

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        """Return what changes at the end of this batch."""
        with self._lock:
            decision = self._loop.decide(batch, routes)
        for head, change in decision.routes.items():
            logger.info("batch %d, %s: %s (by %s)", batch, name_of(self._plan, head), change.reason, change.protocol)
        return decision

    def submit(self, command: Command) -> Reply:
        """Answer a command: what will happen, or why not."""
        with self._lock:
            return self._loop.submit(command)

    def strategies(self) -> dict[str, str]:
        """Return the strategy that keys go by, by operator."""
        with self._lock:
            return self._loop.strategies()

    def scores(self) -> dict[str, dict[str, float]]:
        """Return the busiest slot's load over the mean on the last sample, by operator and strategy."""
        with self._lock:
            return self._loop.scores()
