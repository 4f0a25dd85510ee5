"""What a task is told: the plan, which stays, and the batch, which changes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from anabranch.connectors.lookups import TableCache
from anabranch.control.observe.load_sampling import Watch
from anabranch.engine.batches.reading_levels import find_reading_levels
from anabranch.engine.tasks.exchange_meter import TellsCosts
from anabranch.eventtime.flow.in_batch_watermark import InBatchWatermark
from anabranch.model import JoinKernel, Kernel, OperatorTime, RunRef, Sink
from anabranch.model.cluster import Executor, Home, SlotId
from anabranch.model.exchanges import ExchangeWay, ReaderBuffer
from anabranch.model.replicas import Replicas
from anabranch.operators.kernels import make_kernel
from anabranch.query.lookups import Lookup
from anabranch.query.nodes import Readable, Stateful
from anabranch.query.plan import Plan
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.state.copies.hot import HotCopies, open_hot_copies
from anabranch.state.copies.mounts import lies_on_network
from anabranch.state.copies.replicas import ReplicaCopies, open_replica_copies
from anabranch.state.runs import RunFiles, WriteName
from anabranch.state.store import Store, open_store

DEAD_LETTER = -1
"""The sink index of rows that could not be used."""


@dataclass(frozen=True)
class FlowProgram:
    """All of a flow that tasks need; the same in every batch, so workers keep it."""

    plan: Plan
    sources: Mapping[int, Readable]
    """By their number in the checkpoint."""
    sinks: Mapping[int, Sink]
    """Likewise, in the order in which they publish; DEAD_LETTER has the dead-letter sink."""
    checkpoint: str
    local_merge: bool
    replicas: Replicas | None = None
    keeps_hot_copies: bool | None = None
    """Whether hosts keep copies in memory of the state that they wrote and read; None: where the store is far away."""
    memory: str = ""
    """Whose memory this process keeps copies of state in, where a host's is shared out; usually it is the host's."""

    def load(self) -> FlowProgram:
        """Return this program: in its own process, a task needs no other."""
        return self

    @cached_property
    def kernels(self) -> dict[int, Kernel | JoinKernel]:
        """Stateful node → its kernel."""
        return {
            node.id: make_kernel(node.operation.spec)
            for node in self.plan.nodes.values()
            if isinstance(node.operation, Stateful)
        }

    def kernel_of_rows(self, head: int) -> Kernel:
        """Return the kernel of an operator that has one input."""
        kernel = self.kernels[head]
        assert not isinstance(kernel, JoinKernel)
        return kernel

    @cached_property
    def without_meeting(self) -> frozenset[int]:
        """The stateful nodes whose slots emit whole results, though they may share keys."""
        return frozenset(head for head, kernel in self.kernels.items() if kernel.meeting is None)

    @cached_property
    def lookups(self) -> dict[int, TableCache]:
        """Lookup node → what this process knows of its table."""
        found = {}
        for node in self.plan.nodes.values():
            if isinstance(node.operation, Lookup):
                asked = node.operation
                expires_seconds = None if asked.expires_us is None else asked.expires_us / 1e6
                found[node.id] = TableCache(asked.table, asked.keys, asked.columns, asked.cache_rows, expires_seconds)
        return found

    @cached_property
    def reading_levels(self) -> dict[int, int]:
        """The sources that are read behind a level, and which."""
        return find_reading_levels(self.plan)

    @cached_property
    def store(self) -> Store:
        return open_store(self.checkpoint)

    def merges(self, head: int) -> bool:
        """Say whether rows of an operator are merged before they leave their task."""
        if self.plan.exchanges[head].kind == "global":
            return True
        return self.local_merge and self.kernels[head].mergeable and self.plan.exchanges[head].kind != "routed"

    def weighs(self, head: int) -> bool:
        """Say whether it is weighed, from batch to batch, how rows of an operator leave their task."""
        operation = self.plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        decided = self.plan.exchanges[head].kind
        return operation.routing.exchange.choice == "auto" and decided == "local" and self.merges(head)

    def ways(self, head: int) -> tuple[ExchangeWay, ...]:
        """Return how rows of an operator may leave their task, the one that it begins with last."""
        operation = self.plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        if not self.merges(head):
            return ("plain",)
        merged: ExchangeWay = "merged" if operation.routing.exchange.hold is None else "held"
        if not self.weighs(head):
            return (merged,)
        return ("plain", "merged") if merged == "merged" else ("plain", "merged", "held")

    def open_runs(self, folder: str, name: WriteName) -> RunFiles:
        """Return what reads and writes runs, with the copies of them in this host's memory."""
        return RunFiles(self.store, folder, name, self.hot_copies(name.epoch), self.replica_copies(name.epoch))

    def hot_copies(self, epoch: int) -> HotCopies | None:
        """Return this host's copies of runs; a store on a disk of its own needs none, its files are mapped."""
        if not self._has_hot_copies:
            return None
        found = self._hot.get(epoch)
        if found is None:
            self._hot.clear()
            found = self._hot[epoch] = open_hot_copies(self._owner, epoch, time.time())
        return found

    def replica_copies(self, epoch: int) -> ReplicaCopies | None:
        """Return the copies of runs that other hosts sent to this one, if the flow has any."""
        if self.replicas is None:
            return None
        found = self._sent.get(epoch)
        if found is None:
            self._sent.clear()
            found = self._sent[epoch] = open_replica_copies(self._owner, epoch, time.time())
        return found

    @cached_property
    def _has_hot_copies(self) -> bool:
        # Of a directory that hosts share, each finds out for itself: the one that serves it has it on a disk.
        if self.keeps_hot_copies is not None:
            return self.keeps_hot_copies
        folder = self.store.local_path("state")
        return folder is None or lies_on_network(folder)

    @property
    def _owner(self) -> str:
        # Two checkpoints of one flow on one host are two flows: each would sweep what the other has.
        return " ".join(filter(None, (self.plan.flow, self.checkpoint, self.memory)))

    @cached_property
    def _hot(self) -> dict[int, HotCopies | None]:
        return {}

    @cached_property
    def _sent(self) -> dict[int, ReplicaCopies | None]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        # What can be derived is derived again where it is used.
        derived: tuple[str, ...] = (
            "kernels",
            "without_meeting",
            "lookups",
            "reading_levels",
            "store",
            "_has_hot_copies",
        )
        derived += ("_hot", "_sent")
        return {key: value for key, value in self.__dict__.items() if key not in derived}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


class LoadsProgram(Protocol):
    """What a task is given of its flow: the program itself, or whatever becomes it where the task runs."""

    def load(self) -> FlowProgram: ...


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """One attempt at one batch."""

    batch: int
    epoch: int
    attempt: int
    job: str
    """A random id of this attempt: it makes file names unlike those of any other, yet equal for retried tasks,
    because what a task sends on must not depend on how often it was tried."""
    times: Mapping[int, OperatorTime]
    slots: tuple[int, ...]
    """By level, from level 1."""
    routes: Mapping[int, PhasedRoutes]
    """Stateful node → its routes."""
    runs: Mapping[int, tuple[tuple[RunRef, ...], ...]]
    """Stateful node → runs by slot."""
    handoffs: Mapping[int, tuple[tuple[RunRef, ...], ...]] = field(default_factory=dict)
    """Stateful node → by slot, runs that others wrote for it."""
    next_routes: Mapping[int, Routes] = field(default_factory=dict)
    """Stateful node → its routes from the next batch on, for nodes whose state moves at the end of this one."""

    without_meeting: frozenset[int] = frozenset()
    """Stateful nodes whose slots emit whole results, though they may share keys."""
    watches: Mapping[int, Watch] = field(default_factory=dict)
    """Stateful node → what its slots look at."""
    held: Mapping[int, Mapping[int, ReaderBuffer]] = field(default_factory=dict)
    """Stateful node → read task → what it takes over of what was held back after the last batch."""
    chosen: Mapping[int, ExchangeWay] = field(default_factory=dict)
    """Stateful node → how its rows leave their tasks in this batch, where that is weighed."""
    costs: TellsCosts | None = None
    """What hears of the time that exchanges take; None: nobody does."""
    homes: Mapping[SlotId, Home] = field(default_factory=dict)
    """Slot → where it is asked to run; none: wherever. For whoever runs the job, and not for tasks."""
    fallbacks: Mapping[SlotId, tuple[str, ...]] = field(default_factory=dict)
    """Slot → hosts to run on if its home is lost while the batch runs, likewise."""
    executors: tuple[Executor, ...] = ()
    """Who may run it, likewise."""
    now_us: int | None = None
    """The wall clock at the start of the batch; None if it is not known."""
    in_batch: InBatchWatermark | None = None
    """Set where windows fire in the batch that brings their watermark; None: in the next one."""

    def way_of(self, head: int, program: FlowProgram) -> ExchangeWay:
        """Return how rows of a stateful node leave their tasks."""
        return self.chosen.get(head) or program.ways(head)[-1]

    def meets(self, heads: tuple[int, ...]) -> bool:
        """Say whether slots of a level share keys, so that what they fire must meet."""
        meeting = (head for head in heads if head in self.routes and head not in self.without_meeting)
        return any(self.routes[head].splits for head in meeting)

    def receivers_behind(self, level: int, heads: tuple[int, ...] = ()) -> int:
        """Return how many tasks get what a level sends on: where keys of its heads meet, the next level, the driver."""
        if self.meets(heads):
            return self.slots[level - 1]
        return self.slots[level] if level < len(self.slots) else 1

    def runs_of(self, head: int, slot: int) -> tuple[RunRef, ...]:
        """Return the runs of a slot; one that is new has none."""
        return self.runs[head][slot] if slot < len(self.runs[head]) else ()

    def handoffs_of(self, head: int, slot: int) -> tuple[RunRef, ...]:
        """Return what a slot must take in first."""
        handed = self.handoffs.get(head, ())
        return handed[slot] if slot < len(handed) else ()
