"""A cluster that a test plays: executors come a few looks after they were asked for, and go as they do on Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import EngineError
from anabranch.model.cluster import Cluster, Executor, sort_ids
from anabranch.model.measures import TaskMeasure

LOOKS_TO_COME = 2
LOOKS_TO_WARM_UP = 1
LOOKS_TO_GO = 2


@dataclass
class PlayedExecutors:
    """Executors on hosts, where there are the fewest; a look is a call of ``list``."""

    count: int = 3
    hosts: Sequence[str] = ("a", "b")
    application: str = "played-1"
    cores: int = 2
    looks: int = 0
    asked: list[str] = field(default_factory=list)
    """What was asked for, in words."""
    _there: list[tuple[Executor, int, int | None]] = field(default_factory=list)
    """With the look from which it is there, and the one from which it is gone."""
    _ids: int = 0

    def __post_init__(self) -> None:
        for _ in range(self.count):
            self._add(-LOOKS_TO_WARM_UP)

    def describe(self) -> Cluster:
        return Cluster("played", self.application)

    def list(self) -> tuple[Executor, ...]:
        self.looks += 1
        return tuple(
            replace(executor, is_leaving=gone is not None, is_warm=self.looks >= since + LOOKS_TO_WARM_UP)
            for executor, since, gone in self._there
            if self.looks >= since and (gone is None or self.looks < gone)
        )

    def request(self, total: int) -> None:
        self.asked.append(f"request {total}")
        staying = sum(gone is None for _, _, gone in self._there)
        for _ in range(total - staying):
            self._add(self.looks + LOOKS_TO_COME)

    def decommission(self, ids: Sequence[str]) -> None:
        self.asked.append(f"decommission {' '.join(ids)}")
        self._end(ids, self.looks + LOOKS_TO_GO)

    def kill(self, ids: Sequence[str]) -> None:
        self.asked.append(f"kill {' '.join(ids)}")
        self._end(ids, self.looks)

    def lose(self, id: str) -> None:
        """Let an executor die."""
        self._end([id], self.looks)

    def _add(self, since: int) -> None:
        # As standalone clusters do: where there are the fewest.
        taken = Counter(executor.host for executor, _, gone in self._there if gone is None)
        host = min(self.hosts, key=lambda host: taken[host])
        self._there.append((Executor(str(self._ids), host, self.cores), since, None))
        self._ids += 1

    def _end(self, ids: Sequence[str], look: int) -> None:
        known = {executor.id for executor, _, gone in self._there if gone is None}
        strangers = set(ids) - known
        if strangers:
            staying = ", ".join(sort_ids(known)) or "none"
            msg = f"there is no executor {', '.join(sorted(strangers))} that stays; those that do are {staying}"
            raise EngineError(msg)
        self._there = [(executor, since, look if executor.id in ids else gone) for executor, since, gone in self._there]


def place_readers(tasks: Sequence[TaskMeasure], executors: Sequence[Executor]) -> list[TaskMeasure]:
    """Return tasks of which those without a home ran on one executor after the other."""
    staying = [one for one in executors if not one.is_leaving] or list(executors)
    if not staying:
        return list(tasks)
    known = {one.id for one in executors}
    there = [staying[place % len(staying)] for place in range(len(tasks))]
    return [
        task if task.executor in known else replace(task, executor=one.id, host=one.host)
        for task, one in zip(tasks, there, strict=True)
    ]
