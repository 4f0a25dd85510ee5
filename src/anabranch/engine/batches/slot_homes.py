"""The executors of a run, looked at once a batch, and where its slots are at home."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.control.decisions import Decision, HomeChange
from anabranch.control.homes import change_homes, count_moved_bytes, find_usable, settle_homes
from anabranch.errors import AnabranchError, EngineError
from anabranch.model.cluster import (
    ChoosesHomes,
    Cluster,
    Executor,
    Executors,
    Home,
    KeptHomes,
    SettledHomes,
    SlotId,
    SlotLoad,
    SlotLoads,
)
from anabranch.model.elasticity import Elasticity
from anabranch.model.measures import TaskMeasure
from anabranch.placement.homes import UNEVEN_BATCHES, choose_homes, follow_loads, measure_slots, tell_uneven

logger = logging.getLogger("anabranch")


class OneProcess:
    """The only executor of a flow whose tasks run in the process of its driver, as in Spark's local mode."""

    def __init__(self, cores: int) -> None:
        self._executor = Executor("driver", "localhost", cores)

    def describe(self) -> Cluster:
        """Return what this is: nothing can be asked of it."""
        why = "driver and executor are one process; run the flow on a cluster: standalone, YARN or Kubernetes"
        return Cluster("one process", pins_slots=False, obstacles=(why,))

    def list(self) -> tuple[Executor, ...]:
        """Return the driver."""
        return (self._executor,)

    def request(self, total: int) -> None:
        """Refuse."""
        refuse_obstacles(self.describe())

    def decommission(self, ids: Sequence[str]) -> None:
        """Refuse."""
        refuse_obstacles(self.describe())

    def kill(self, ids: Sequence[str]) -> None:
        """Refuse."""
        refuse_obstacles(self.describe())


def refuse_obstacles(cluster: Cluster) -> None:
    """Raise ``EngineError`` if executors can be neither added nor released, with every reason and what to change."""
    if cluster.obstacles:
        msg = f"executors can be neither added nor released: {'; '.join(cluster.obstacles)}"
        raise EngineError(msg)


class SlotHomes:
    """Where the slots of a run are at home: settled as a batch begins, kept in its manifest."""

    def __init__(
        self,
        executors: Executors,
        anchors: bool | None,
        limits: Elasticity | None = None,
        choose: ChoosesHomes = choose_homes,
    ) -> None:
        """``anchors`` says whether slots are pinned at all; None: where there are several executors.

        ``limits`` are those of a flow that grows and shrinks. They say when slots move for the sake of balance, too.
        """
        self._cluster = executors
        described = executors.describe()
        self._application = described.application
        self._pins_slots = described.pins_slots and anchors is not False
        # Executors that were asked for may come in the middle of a batch, and tasks without homes would run there.
        self._pins_to_one = anchors is True or limits is not None
        self._choose = choose
        self._list_fallbacks: Callable[[], Mapping[SlotId, tuple[str, ...]]] = dict
        self._limits = limits or Elasticity()
        self._loads: Mapping[SlotId, SlotLoad] = {}
        self._batch_seconds = 0.0
        self._uneven_batches = 0
        self._offloaded: frozenset[str] = frozenset()
        self.executors: tuple[Executor, ...] = ()
        """As they were when somebody last looked."""
        self.measures: tuple[TaskMeasure, ...] = ()
        """Of the tasks of the last batch, every pair of slots included."""
        self.settled = SettledHomes()
        """Of the batch that runs."""
        self.kept = KeptHomes()
        """Of the next one, for the manifest."""

    def choose_by(self, choose: ChoosesHomes, list_fallbacks: Callable[[], Mapping[SlotId, tuple[str, ...]]]) -> None:
        """Let another policy choose homes from now on, and say on which hosts slots may go on without theirs."""
        self._choose = choose
        self._list_fallbacks = list_fallbacks

    @property
    def fallbacks(self) -> Mapping[SlotId, tuple[str, ...]]:
        """What the batch's job is told besides: hosts where slots may go on if their homes are lost meanwhile."""
        return self._list_fallbacks()

    def look(self) -> None:
        """See which executors there are; those that slots are to leave are as good as leaving."""
        told_mb = self._limits.memory_mb_per_executor
        self.executors = tuple(
            executor if told_mb is None else replace(executor, memory_bytes=int(told_mb * 2**20))
            for executor in self._cluster.list()
        )
        self.executors = self.expected

    @property
    def expected(self) -> tuple[Executor, ...]:
        """The executors as they were, those that slots leave with the next batch among those that are leaving."""
        return tuple(
            replace(executor, is_leaving=True) if executor.id in self._offloaded else executor
            for executor in self.executors
        )

    @property
    def cores(self) -> int:
        """Of all executors that tasks should go to; 0 if none has come yet."""
        return sum(executor.cores for executor in find_usable(self.executors))

    def count_tasks(self, per_executor: int | None) -> int:
        """Return how many tasks suit those executors: as many for each as are told, or else as it has cores."""
        return self.cores if per_executor is None else per_executor * len(find_usable(self.executors))

    def begin(self, slots: Sequence[int], before: KeptHomes) -> None:
        """Settle where the slots of a batch run; given is how many each level has, and what the last manifest says."""
        if not self._pins_slots:
            return
        every = [(level, slot) for level, count in enumerate(slots, start=1) for slot in range(count)]
        uneven = self._tell_uneven() if self._uneven_batches >= UNEVEN_BATCHES else ""
        loads = SlotLoads(self._loads, uneven, self._limits.smallest_improvement)
        self.settled = settle_homes(every, self.executors, before, self._application, loads, self._choose)

    @property
    def homes(self) -> Mapping[SlotId, Home]:
        """What the batch's job is told: nothing if there is but one executor."""
        kept = self.settled.kept
        # Without homes, tasks may run on those that slots are to leave, and on those that have just come.
        return kept.homes if self._pins_to_one or len(self.executors) > 1 else {}

    @property
    def spread(self) -> int:
        """On how many executors the batch's slots are at home; 1 if they have no homes."""
        return max(1, len(self.serving))

    @property
    def serving(self) -> frozenset[str]:
        """The executors on which the batch's slots are at home."""
        return frozenset(home.executor for home in self.settled.kept.homes.values())

    def count_moved(self, changes: Mapping[SlotId, HomeChange]) -> dict[SlotId, int]:
        """Return by slot the state that changes let go to another executor, as it was measured last."""
        return count_moved_bytes(changes, self.settled.kept, SlotLoads(self._loads))

    def end(self, changes: Mapping[SlotId, HomeChange]) -> None:
        """Find out what the manifest says for the next batch; given is what changes."""
        self.kept = change_homes(self.settled.kept, changes)

    def learn(self, tasks: Iterable[TaskMeasure], batch_seconds: float) -> None:
        """Learn what slots took in a batch."""
        self.measures = tasks = tuple(tasks)
        state_bytes = {task.id: task.state_bytes for task in tasks}
        self._loads = follow_loads(self._loads, measure_slots(tasks, state_bytes))
        self._batch_seconds = batch_seconds
        self._uneven_batches = self._uneven_batches + 1 if self._tell_uneven() else 0

    @property
    def held_bytes(self) -> int:
        """What slots hold in memory, on all executors together."""
        return sum(load.memory_bytes for load in self._loads.values())

    def _tell_uneven(self) -> str:
        """Return by how much executors differ, if it is too much: by slots alone, for reading has no home."""
        busy: defaultdict[str, float] = defaultdict(float)
        for slot, home in self.settled.kept.homes.items():
            if slot in self._loads:
                busy[home.executor] += self._loads[slot].cpu_seconds
        return tell_uneven(busy, find_usable(self.executors), self._batch_seconds, self._limits)

    def carry_out(self, decision: Decision) -> str | None:
        """Ask for executors, or let some go, once the batch is committed; return why that cannot be."""
        change = decision.executors
        if change is None:
            return None
        self._offloaded = frozenset((*change.offload, *change.hold))
        try:
            if change.provision or change.total is not None:
                staying = [executor for executor in self.executors if not executor.is_leaving]
                self._cluster.request(len(staying) + change.provision if change.total is None else change.total)
            if change.release:
                self._cluster.decommission(change.release)
        except AnabranchError as error:
            # The flow goes on as it is: whoever decided finds the same executors in the next batch.
            logger.warning("batch %d: %s", decision.batch, error)
            return str(error)
        return None
