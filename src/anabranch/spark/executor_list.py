"""The executors that a driver knows, with their hosts and cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import SparkSession

from anabranch.model.cluster import Executor

LIST_SECONDS = 10.0
"""Executors are listed anew so often, or when a task ran on one that is not known."""


class ExecutorList:
    """Asks Spark's status store for executors; not for every batch, as each figure is a call into the JVM."""

    def __init__(self, spark: SparkSession, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._spark = spark
        self._monotonic = monotonic
        self._listed_at: float | None = None
        self.executors: tuple[Executor, ...] = ()
        """Those that can run tasks, as they were listed last, by id."""
        self.ports: dict[str, int] = {}
        """Host → the port that one of its executors serves its blocks on."""

    def refresh(self, seen: Iterable[str] = ()) -> None:
        """List executors anew if it is time, or if one was seen that is not among them."""
        known = {executor.id for executor in self.executors}
        now = self._monotonic()
        if self._listed_at is not None and now - self._listed_at < LIST_SECONDS and known.issuperset(seen):
            return
        self._listed_at = now
        self._list()

    def _list(self) -> None:
        status: Any = self._spark.sparkContext._jsc.sc().statusStore()
        found: Any = status.executorList(True).iterator()
        executors, ports = [], {}
        while found.hasNext():
            one = found.next()
            cores = int(one.totalCores())
            if not cores:
                # The driver of a cluster is in the list, and runs no tasks.
                continue
            host, _, port = str(one.hostPort()).rpartition(":")
            executors.append(Executor(str(one.id()), host, cores, int(one.maxMemory())))
            ports[host] = int(port)
        self.executors = tuple(sorted(executors, key=lambda executor: executor.id))
        self.ports = ports
