"""Spark's executors: who is there, who is leaving, who has warmed up; and how more come and some go."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.engine.batches.slot_homes import OneProcess, refuse_obstacles
from anabranch.engine.tasks.spec import LoadsProgram
from anabranch.engine.tasks.task_errors import find_reason
from anabranch.errors import EngineError
from anabranch.model.cluster import Cluster, Executor, Executors, sort_ids
from anabranch.spark.anchors import anchor_frame, name_location
from anabranch.spark.session import runs_locally, task_environment
from anabranch.spark.worker_process import DRIVER, find_owner

MOST_WARM_UPS = 3
"""So often it is tried to warm an executor up; then it gets slots as it is."""
_MANAGERS = {"spark://": "standalone", "local-cluster[": "local-cluster", "yarn": "yarn", "k8s://": "kubernetes"}
_DECOMMISSION = "spark.decommission.enabled"
_RELEASE_COSTS = {
    _DECOMMISSION: "executors cannot be let go gently: they can only be killed, and what they do is done again",
    "spark.storage.decommission.enabled": "blocks of the exchange of a batch that runs go with an executor that is "
    "released, and the tasks that made them are run again",
}
"""Settings that must be true, and what it costs if they are not."""

_PYTHON_MEMORY, _OVERHEAD = "spark.executor.pyspark.memory", "spark.executor.memoryOverhead"
_CONTAINERS = ("yarn", "k8s://")
"""Masters that give an executor a container of heap and overhead, and end it if it takes more."""
_OVERHEAD_FACTOR = 0.1
"""Spark's own; the overhead's part of the heap."""

logger = logging.getLogger("anabranch")


def open_executors(spark: SparkSession) -> Executors:
    """Return the executors of a session: those of a cluster, or the one process of local mode."""
    if runs_locally(spark):
        return OneProcess(spark.sparkContext.defaultParallelism)
    return SparkExecutors(spark)


def list_executors(spark: SparkSession) -> tuple[Executor, ...]:
    """Return all executors of a cluster, those that are leaving included, as Spark's status has them."""
    found = _each(spark.sparkContext._jsc.sc().statusStore().executorList(True))
    there = {str(executor.id()): executor for executor in found}
    memory_bytes = find_python_memory(spark)
    executors = []
    for id in sort_ids(there.keys() - {DRIVER}):
        host, port = split_address(str(there[id].hostPort()))
        executors.append(Executor(id, host, int(there[id].totalCores()), memory_bytes, port))
    return tuple(executors)


def find_python_memory(spark: SparkSession) -> int:
    """Return what the Python workers of an executor may take, as the session's settings say; 0 if nobody limits them.

    State and blocks are Python's, beside the JVM's heap: in ``spark.executor.pyspark.memory`` if that is set, else in
    the overhead, which YARN and Kubernetes also give if nobody says how much.
    """
    settings = spark.sparkContext.getConf()
    for name in (_PYTHON_MEMORY, _OVERHEAD):
        said = settings.get(name, None)
        if said is not None:
            return read_size(said)
    if not str(spark.sparkContext.master).startswith(_CONTAINERS):
        return 0
    factor = settings.get(f"{_OVERHEAD}Factor", None) or settings.get("spark.kubernetes.memoryOverheadFactor", None)
    heap_bytes = read_size(settings.get("spark.executor.memory", "1g") or "1g")
    least_bytes = read_size(settings.get("spark.executor.minMemoryOverhead", "384m") or "384m")
    return max(least_bytes, int(heap_bytes * float(factor or _OVERHEAD_FACTOR)))


def read_size(written: str) -> int:
    """Return the bytes of a size as Spark's settings have it, such as ``512m``: without a unit they are mebibytes."""
    match = re.fullmatch(r"(\d+)\s*(?:([kmgtp]?)b?)", written.strip().lower())
    if match is None:
        msg = f"{written!r} is no size of memory as Spark has it; give one such as 512m or 5g"
        raise EngineError(msg)
    number, unit = int(match[1]), match[2]
    if not unit:
        unit = "" if written.strip().lower().endswith("b") else "m"
    return number << 10 * " kmgtp".index(unit or " ")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of an executor; the port is 0 before Spark knows where it serves its blocks."""
    host, _, port = address.rpartition(":")
    # An IPv6 address has colons, too: in brackets if a port follows.
    is_whole = host and port.isdecimal() and (":" not in host or host.endswith("]"))
    return (host, int(port)) if is_whole else (address, 0)


class SparkExecutors:
    """Executors of a standalone cluster, YARN, Kubernetes or local-cluster, by Spark's own developer API.

    ``list`` is asked by one thread; what warms executors up runs in threads of its own.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context: Any = spark.sparkContext._jsc.sc()
        self._backend: Any = self._context.schedulerBackend()
        self._leaving = (self._backend.executorsPendingDecommission(), self._backend.executorsPendingToRemove())
        """Maps of the scheduler's own, which change."""
        self._known: dict[str, Executor] = {}
        self._lock = threading.Lock()
        """On what threads learn that warm executors up."""
        self._warm: set[str] = set()
        self._warming: set[str] = set()
        self._warm_ups: Counter[str] = Counter()
        self._program: LoadsProgram | None = None
        self._total: int | None = None
        """How many were asked for; None: Spark's own settings say."""

    def warm_with(self, program: LoadsProgram) -> None:
        """Load this flow's program on executors that come from now on, before slots do."""
        self._program = program

    def describe(self) -> Cluster:
        """Return which cluster this is, and what keeps executors from being added and released."""
        master = str(self._spark.sparkContext.master)
        manager = next((name for start, name in _MANAGERS.items() if master.startswith(start)), None)
        obstacles = list(find_obstacles(self._spark))
        if manager is None:
            obstacles.append(f"{master} is none of {', '.join(_MANAGERS.values())}")
        return Cluster(
            manager or master,
            application=str(self._spark.sparkContext.applicationId),
            obstacles=tuple(obstacles),
            costs=tuple(_find_costs(self._spark)),
            shares_host_out=manager == "local-cluster",
        )

    def list(self) -> tuple[Executor, ...]:
        """Return the executors that are registered, in the order of their ids.

        Begins to warm up those that are new, except the first of all: slots have nowhere else to go.
        """
        ids = sort_ids(_split(self._backend.getExecutorIds()))
        if any(id not in self._known or not self._known[id].port for id in ids):
            self._known = {executor.id: executor for executor in list_executors(self._spark)}
        # Spark's status hears of executors a moment later than its scheduler.
        there = [self._known[id] for id in ids if id in self._known]
        # What Spark asked to leave by itself, as for a host that is drained, is there as well.
        leaving = {id for going in self._leaving if not going.isEmpty() for id in _split(going.keySet())}
        with self._lock:
            # Ids are never given twice, and a flow may outlive any number of executors.
            self._warm.intersection_update(ids)
            for gone in self._warm_ups.keys() - set(ids):
                del self._warm_ups[gone]
            if not self._warm:
                self._warm.update(executor.id for executor in there)
            cold = [executor for executor in there if executor.id not in self._warm | self._warming | leaving]
            self._warming.update(executor.id for executor in cold)
            warm = set(self._warm)
        for executor in cold:
            threading.Thread(target=self._warm_up, args=(executor,), daemon=True, name="anabranch-warm-up").start()
        return tuple(
            replace(executor, is_leaving=executor.id in leaving, is_warm=executor.id in warm) for executor in there
        )

    def request(self, total: int) -> None:
        """Ask the cluster manager for so many executors in all."""
        if total < 1:
            msg = f"a flow needs an executor, and {total} were asked for; ask for 1 or more"
            raise EngineError(msg)
        refuse_obstacles(self.describe())
        self._aim(total)

    def decommission(self, ids: Sequence[str]) -> None:
        """Let executors hand on their blocks and go."""
        refuse_obstacles(self.describe())
        if not _is_true(self._spark, _DECOMMISSION):
            msg = f"the Spark context lacks {_DECOMMISSION}=true: {_RELEASE_COSTS[_DECOMMISSION]}; set it, or kill them"
            raise EngineError(msg)
        self._check_going(ids)
        jvm: Any = self._spark._jvm
        info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("released", jvm.scala.Option.empty())
        gateway: Any = self._spark.sparkContext._gateway
        going = gateway.new_array(jvm.scala.Tuple2, len(ids))
        for place, id in enumerate(ids):
            going[place] = jvm.scala.Tuple2(id, info)
        _check_taken(ids, _split(self._backend.decommissionExecutors(going, False, False)))

    def kill(self, ids: Sequence[str]) -> None:
        """End executors at once."""
        refuse_obstacles(self.describe())
        self._check_going(ids)
        jvm: Any = self._spark._jvm
        going = jvm.java.util.ArrayList()
        for id in ids:
            going.append(id)
        wanted = jvm.scala.jdk.javaapi.CollectionConverters.asScala(going).toSeq()
        _check_taken(ids, _split(self._backend.killExecutors(wanted, False, False, True)))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check_going(self, ids: Sequence[str]) -> None:
        """Raise if these cannot go; else let Spark want so many fewer, or it would bring others in their place."""
        staying = {executor.id for executor in self.list() if not executor.is_leaving}
        strangers = [id for id in ids if id not in staying]
        if strangers:
            known = ", ".join(sort_ids(staying)) or "none"
            msg = f"there is no executor {', '.join(strangers)} that stays; those that do are {known}"
            raise EngineError(msg)
        self._aim(max(0, (len(staying) if self._total is None else self._total) - len(ids)))

    def _aim(self, total: int) -> None:
        jvm: Any = self._spark._jvm
        nowhere = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        if not self._context.requestTotalExecutors(total, 0, nowhere):
            msg = f"the cluster manager did not take the request for {total} executors; see the driver's log"
            raise EngineError(msg)
        self._total = total

    def _warm_up(self, executor: Executor) -> None:
        """Start an executor's Python workers and let them import what tasks do, one for each of its cores."""
        try:
            self._spark.sparkContext.setJobDescription(f"warm up executor {executor.id} on {executor.host}")
            where = [name_location(executor.id, executor.host)] * executor.cores
            with task_environment(self._spark):
                frame = anchor_frame(self._spark, where).mapInArrow(_Warming(self._program), "executor string")
            seen = {str(row.executor) for row in frame.collect()}
            # Spark may send tasks elsewhere if it is busy; where nobody can tell, its word is taken for it.
            is_done, why = seen <= {DRIVER, executor.id}, f"Spark ran what warms it up on {', '.join(sort_ids(seen))}"
        except Exception as error:
            is_done, why = False, find_reason(str(error))
        self._note_warm_up(executor, is_done, why)

    def _note_warm_up(self, executor: Executor, is_done: bool, why: str) -> None:
        with self._lock:
            self._warming.discard(executor.id)
            self._warm_ups[executor.id] += 1
            gives_up = self._warm_ups[executor.id] >= MOST_WARM_UPS
            if is_done or gives_up:
                self._warm.add(executor.id)
        if not is_done and gives_up:
            logger.warning(
                "executor %s on %s could not be warmed up (%s): its first batch takes longer",
                executor.id,
                executor.host,
                why,
            )


@dataclass(frozen=True, slots=True)
class _Warming:
    """A task that does nothing but what any task does first."""

    program: LoadsProgram | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        if self.program is not None:
            _ = self.program.load().kernels
        yield pa.RecordBatch.from_pydict({"executor": [find_owner(os.getpid()).executor]})


def find_obstacles(spark: SparkSession) -> Iterator[str]:
    """Yield why a flow may not add and release executors of this session, each with what to change."""
    if spark.sparkContext._jsc.sc().executorAllocationManager().isDefined():
        yield (
            "Spark's dynamic allocation adds and removes executors by itself, and would undo what the flow does; "
            "set spark.dynamicAllocation.enabled=false"
        )
    if _is_true(spark, "spark.speculation"):
        yield (
            "speculation runs slots a second time, away from their homes, and keeps executors busy that are to go; "
            "set spark.speculation=false"
        )


def warn_of_unsteady_executors(spark: SparkSession) -> None:
    """Say what moves slots away from their homes, and what that costs; and, more quietly, what leaving costs."""
    for cost in _find_costs(spark):
        logger.info("%s", cost)
    for obstacle in find_obstacles(spark):
        logger.warning("%s: answers stay right, but state is read from the checkpoint again", obstacle)


def _find_costs(spark: SparkSession) -> Iterator[str]:
    for setting, cost in _RELEASE_COSTS.items():
        if not _is_true(spark, setting):
            yield f"the Spark context lacks {setting}=true: {cost}"


def _is_true(spark: SparkSession, setting: str) -> bool:
    return spark.sparkContext.getConf().get(setting, "false").lower() == "true"


def _check_taken(ids: Sequence[str], taken: set[str]) -> None:
    refused = [id for id in ids if id not in taken]
    if refused:
        msg = f"Spark did not let executor {', '.join(refused)} go; see the driver's log"
        raise EngineError(msg)


def _split(ids: Any) -> set[str]:
    """Return the ids in a collection of Scala's: as one text, because every call to the JVM takes its time."""
    return set(str(ids.mkString(" ")).split())


def _each(collection: Any) -> Iterator[Any]:
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()
