"""Hosts that a test plays in its process: slots run with the memory of the host where they are at home.

Each host has folders of its own where a real one has its memory; what is copied goes through the tasks of Spark's jobs.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anabranch.engine.ahead.level import AheadLevel
from anabranch.engine.batches.jobs import BatchInput
from anabranch.engine.batches.local_jobs import LocalJobs
from anabranch.engine.tasks.blocks import Block
from anabranch.engine.tasks.meet_task import MeetTask
from anabranch.engine.tasks.replica_task import Carried, CopyOrder, ReplicaTask, carry_here
from anabranch.engine.tasks.slot_task import SlotTask
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.model.cluster import Executor, Home, SlotId
from anabranch.state.copies.hot import HotCopies
from anabranch.state.copies.replicas import ReplicaCopies


class HostedJobs(LocalJobs):
    """Runs slots as if each were on its home, and carries replicas between hosts."""

    def __init__(self, program: FlowProgram, ahead: AheadLevel) -> None:
        super().__init__(program, ahead)
        self.programs: dict[str, FlowProgram] = {}
        self.homes: Mapping[SlotId, Home] = {}
        self.fallbacks: Mapping[SlotId, tuple[str, ...]] = {}
        self.orders: list[CopyOrder] = []
        self.is_cut = False
        """Nothing can be copied."""
        self.lost: set[str] = set()
        """Hosts that are gone though the batch does not know it: what was to run there, Spark runs on fallbacks."""
        self.fallbacks_taken = 1
        """The first of them come first; -1: the last."""
        self.executors: tuple[Executor, ...] = ()

    @property
    def carrier(self) -> HostedJobs:
        return self

    def on(self, host: str) -> FlowProgram:
        """Return the program as it is on a host."""
        return self.programs.setdefault(host, replace(self._program, memory=f"test {host}"))

    def hot(self, host: str, epoch: int = 1) -> HotCopies | None:
        return self.on(host).hot_copies(epoch)

    def replicas(self, host: str, epoch: int = 1) -> ReplicaCopies:
        copies = self.on(host).replica_copies(epoch)
        assert copies is not None
        return copies

    def lose_memory(self, host: str, epoch: int = 1) -> None:
        """Let a host's memory be gone, as it is with the host."""
        for copies in (self.hot(host, epoch), self.on(host).replica_copies(epoch)):
            if copies is not None:
                shutil.rmtree(copies.folder.parent, ignore_errors=True)
        del self.programs[host]

    def close(self, epoch: int = 1) -> None:
        for host in list(self.programs):
            self.lose_memory(host, epoch)

    def carry(self, order: CopyOrder) -> Carried:
        self.orders.append(order)
        if self.is_cut:
            return Carried(problem="the wire is cut")
        living = {host: executor for host, executor in order.where.items() if host not in self.lost}
        carried = carry_here(replace(order, where=living), {host: ReplicaTask(self.on(host), order) for host in living})
        missed = ", ".join(order.where.keys() - living.keys())
        return replace(carried, problem=f"Spark ran what was for {missed} elsewhere") if missed else carried

    def cancel(self) -> None:
        pass

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        self.homes, self.fallbacks, self.executors = spec.homes, spec.fallbacks, tuple(spec.executors)
        return super().run(given, spec)

    def _run_slot(self, task: SlotTask | MeetTask, slot: int, received: list[Block]) -> list[Block]:
        place = self._find_place((task.level, slot))
        there: Any = task if place is None else replace(task, program=self.on(place.host))
        sent = super()._run_slot(there, slot, received)
        told = self._measures.told
        if place is not None and told and told[-1].id == (task.level, slot):
            told[-1] = replace(told[-1], executor=place.executor, host=place.host)
        return sent

    def _find_place(self, slot: SlotId) -> Home | None:
        home = self.homes.get(slot)
        living = [Home(one.id, one.host) for one in self.executors if one.host not in self.lost and one.id != "driver"]
        if home is None:
            # Where there is but one executor, slots are not told to run there.
            return living[0] if living else None
        if home.host not in self.lost:
            return home
        for host in self.fallbacks.get(slot, ())[:: self.fallbacks_taken]:
            for executor in self.executors:
                if executor.host == host and host not in self.lost:
                    return Home(executor.id, host)
        return living[0] if living else None
