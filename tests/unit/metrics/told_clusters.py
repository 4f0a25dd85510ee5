"""What a driver keeps of a run on a cluster, fed without jobs: events, progress, loads, homes, how many executors."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.control.cluster_size import ClusterSize
from anabranch.control.effects import ExecutorsSeen
from anabranch.engine.batches.slot_homes import SlotHomes
from anabranch.metrics.cluster_load import LoadBook
from anabranch.model.cluster import Cluster, Executor
from anabranch.model.elasticity import Elasticity
from anabranch.model.events import DecisionEvent
from anabranch.model.measures import ExecutorSample, TaskMeasure
from anabranch.placement.elasticity import read_cluster
from anabranch.state import Store
from unit.cli.builders import batch
from unit.engine.test_run_progress import Run
from unit.metrics.measured import EXECUTORS, reader, slot

HOSTS, SLOTS = 4, 8
REPLACED_EVERY = 25
"""So many batches after the last one, an executor goes and another comes, with an id that nobody had."""
LOAD_HOLDS = 200
LIMITS = Elasticity(max_executors=HOSTS, seconds_down=20.0, cool_down_seconds=10.0)


def make_tasks(number: int) -> list[TaskMeasure]:
    """Return measures of a batch, unlike those of all others."""
    sample = ExecutorSample(number / 7, number, 11 * number, 13 * number)
    return [reader(cpu=number / 9), slot(0, "1", sample=sample, cpu=number / 11), slot(1, "2", cpu=number / 13)]


class ChurningCluster:
    """Executors of which one is replaced now and then, for ever."""

    def __init__(self) -> None:
        self.replaced = 0

    def describe(self) -> Cluster:
        return Cluster("churning", "app-1")

    def list(self) -> tuple[Executor, ...]:
        ids = range(self.replaced, self.replaced + HOSTS)
        return tuple(Executor(str(id), f"10.0.0.{id % HOSTS}", 2, memory_bytes=10**9) for id in ids)

    def request(self, total: int) -> None: ...

    def decommission(self, ids: Sequence[str]) -> None: ...

    def kill(self, ids: Sequence[str]) -> None: ...


class KeptOfCluster:
    """All of that, batch by batch."""

    def __init__(self, store: Store) -> None:
        self.cluster = ChurningCluster()
        self.run, self.book = Run(store), LoadBook()
        self.homes, self.size = SlotHomes(self.cluster, None, LIMITS), ClusterSize(LIMITS)
        self.moved, self.changed = 0, 0

    @property
    def parts(self) -> tuple[object, ...]:
        return self.run.progress, self.run.events, self.book, self.homes, self.size

    def add(self, number: int) -> None:
        """Take in a batch, on executors that are not all the ones of the batch before, under a load that changes."""
        self.cluster.replaced = number // REPLACED_EVERY
        self._settle(number)
        measures = self.book.add(make_tasks(number), EXECUTORS, 0.5)
        self.run.add(batch(number, phase_seconds={"job": number / 7}, measures=measures))

    def _settle(self, number: int) -> None:
        self.homes.look()
        self.homes.begin([SLOTS], self.homes.kept)
        self.moved += bool(self.homes.settled.changes)
        self.homes.end({})
        homes = self.homes.settled.kept.executors
        # One slot has more to do than the others, and not always the same.
        tasks = [
            TaskMeasure(1, place, homes[1, place], "a", 0.02 * (1 + (place == number // 50 % SLOTS)), 0.0, 0)
            for place in range(SLOTS)
        ]
        self.homes.learn(tasks, 0.5)
        busy = 4.0 if number // LOAD_HOLDS % 2 else 0.5
        reading = read_cluster(
            tasks,
            self.homes.executors,
            now_seconds=float(number),
            rows=1_000,
            batch_seconds=0.5,
            offered_rows_per_second=1_000 * busy / 0.18,
            waiting_rows=number % 7,
            held_bytes=self.homes.held_bytes,
        )
        self.size.see(reading)
        self.size.take_slots()
        change = self.size.take_change()
        if change is not None:
            self.changed += 1
            wanted = self.size.wanted
            decided = DecisionEvent(number, "executors", "provision", "elasticity", change.reason, executors=wanted)
            self.run.events.decide([decided])
        self.run.events.see_executors(number, ExecutorsSeen(len(self.homes.serving), busy))
