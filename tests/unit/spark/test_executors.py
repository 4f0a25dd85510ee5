"""What is asked of executors, and refused; Spark's own are in the lab."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.engine.batches.slot_homes import OneProcess
from anabranch.errors import EngineError
from anabranch.model.cluster import Executor, sort_ids
from anabranch.spark import executors as executors_module
from anabranch.spark.executors import (
    SparkExecutors,
    find_obstacles,
    find_python_memory,
    read_size,
    split_address,
    warn_of_unsteady_executors,
)
from anabranch.spark.job_runner import find_places


class PlayedContext:
    """As much of a Spark context as says what it was started with."""

    master = "k8s://cluster:6443"
    applicationId = "app-1"

    def __init__(self, allocates: bool = False, **settings: str) -> None:
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        manager = SimpleNamespace(isDefined=lambda: allocates)
        backend = SimpleNamespace(executorsPendingDecommission=dict, executorsPendingToRemove=dict)
        context = SimpleNamespace(executorAllocationManager=lambda: manager, schedulerBackend=lambda: backend)
        self._jsc = SimpleNamespace(sc=lambda: context)

    def getConf(self) -> Any:
        return self._settings


def session(allocates: bool = False, **settings: str) -> Any:
    return SimpleNamespace(sparkContext=PlayedContext(allocates, **settings))


def test_dynamic_allocation_and_speculation_are_refused_with_the_setting_to_change() -> None:
    steady = session()
    unsteady = session(allocates=True, spark_speculation="true")
    assert list(find_obstacles(steady)) == []
    executors = SparkExecutors(unsteady)
    for ask in (lambda: executors.request(3), lambda: executors.decommission(["1"]), lambda: executors.kill(["1"])):
        with pytest.raises(EngineError) as refused:
            ask()
        assert "set spark.dynamicAllocation.enabled=false" in str(refused.value)
        assert "set spark.speculation=false" in str(refused.value)


def test_a_flow_that_leaves_executors_alone_is_warned_of_what_moves_its_slots(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "anabranch"):
        warn_of_unsteady_executors(session(spark_speculation="true", spark_decommission_enabled="true"))
    costs, told = caplog.messages
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert costs.startswith("the Spark context lacks spark.storage.decommission.enabled=true")
    assert "set spark.speculation=false" in told and "answers stay right" in told


def test_executors_are_not_marked_to_go_that_would_stay() -> None:
    executors = SparkExecutors(session())
    with pytest.raises(
        EngineError, match=r"lacks spark\.decommission\.enabled=true: executors cannot be let go gently"
    ):
        executors.decommission(["1"])
    described = executors.describe()
    assert (described.manager, described.application, described.obstacles) == ("kubernetes", "app-1", ())
    assert [cost.partition(":")[0] for cost in described.costs] == [
        "the Spark context lacks spark.decommission.enabled=true",
        "the Spark context lacks spark.storage.decommission.enabled=true",
    ]


def session_on(master: str, **settings: str) -> Any:
    played = session(**settings)
    played.sparkContext.master = master
    return played


@pytest.mark.parametrize(
    ("master", "settings", "mebibytes"),
    [
        ("yarn", {}, 384),
        ("yarn", {"spark_executor_memory": "8g"}, 819.2),
        ("k8s://a", {"spark_executor_memory": "8g", "spark_kubernetes_memoryOverheadFactor": "0.4"}, 3_276.8),
        ("k8s://a", {"spark_executor_memory": "8g", "spark_executor_memoryOverheadFactor": "0.5"}, 4_096),
        ("k8s://a", {"spark_executor_memory": "1g", "spark_executor_minMemoryOverhead": "1g"}, 1_024),
        ("k8s://a", {"spark_executor_memoryOverhead": "5g"}, 5_120),
        ("k8s://a", {"spark_executor_memoryOverhead": "2048"}, 2_048),
        ("k8s://a", {"spark_executor_memoryOverhead": "5g", "spark_executor_pyspark_memory": "3g"}, 3_072),
        # Nobody limits Python there, whatever the heap is.
        ("spark://a:7077", {"spark_executor_memory": "8g"}, 0),
        ("local-cluster[2,1,768]", {}, 0),
        ("spark://a:7077", {"spark_executor_memoryOverhead": "700m"}, 700),
    ],
)
def test_the_memory_of_an_executor_is_what_python_may_take_of_it(
    master: str, settings: dict[str, str], mebibytes: float
) -> None:
    assert find_python_memory(session_on(master, **settings)) == int(mebibytes * 2**20)


@pytest.mark.parametrize(
    ("written", "size"), [("1g", 2**30), ("1GB", 2**30), ("3 m", 3 * 2**20), ("2k", 2_048), ("7", 7 * 2**20), ("7b", 7)]
)
def test_sizes_are_read_as_spark_reads_them(written: str, size: int) -> None:
    assert read_size(written) == size


def test_a_size_that_is_none_is_refused_with_what_to_give() -> None:
    with pytest.raises(EngineError, match="'much' is no size of memory as Spark has it; give one such as 512m or 5g"):
        read_size("much")


class PlayedCollection:
    """A collection of Scala's, as far as it is asked for."""

    def __init__(self, items: Any) -> None:
        self._items = list(items)

    def mkString(self, between: str) -> str:
        return between.join(self._items)

    def isEmpty(self) -> bool:
        return not self._items


def test_what_is_known_of_executors_that_are_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now: list[str] = []
    none = PlayedCollection(())
    backend = SimpleNamespace(
        executorsPendingDecommission=lambda: none,
        executorsPendingToRemove=lambda: none,
        getExecutorIds=lambda: PlayedCollection(now),
    )
    played = session()
    played.sparkContext._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(schedulerBackend=lambda: backend))
    monkeypatch.setattr(
        executors_module, "list_executors", lambda spark: tuple(Executor(id, "a", 1, port=7) for id in now)
    )
    executors = SparkExecutors(played)
    monkeypatch.setattr(executors, "_warm_up", lambda executor: executors._note_warm_up(executor, True, ""))
    for first in range(500):
        now = [str(first), str(first + 1)]
        executors.list()
        until = time.monotonic() + 10
        while not all(one.is_warm for one in executors.list()):
            assert time.monotonic() < until
            time.sleep(0.001)
    assert executors._warm == set(now) == set(executors._known)
    assert set(executors._warm_ups) <= set(now) and not executors._warming


def test_a_flow_needs_an_executor() -> None:
    with pytest.raises(EngineError, match="ask for 1 or more"):
        SparkExecutors(session()).request(0)


def test_one_process_is_all_there_is() -> None:
    alone = OneProcess(4)
    assert [(executor.id, executor.cores) for executor in alone.list()] == [("driver", 4)]
    assert not alone.describe().pins_slots
    for ask in (lambda: alone.request(2), lambda: alone.decommission(["driver"]), lambda: alone.kill(["driver"])):
        with pytest.raises(EngineError, match="driver and executor are one process; run the flow on a cluster"):
            ask()


def test_ids_are_sorted_as_people_count() -> None:
    assert sort_ids({"10", "2", "9"}) == ("2", "9", "10")


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("10.0.0.7:41234", "10.0.0.7", 41234),
        ("10.0.0.7", "10.0.0.7", 0),
        ("worker-1", "worker-1", 0),
        ("[fe80::1]:41234", "[fe80::1]", 41234),
        ("[fe80::1]", "[fe80::1]", 0),
        ("fe80::1", "fe80::1", 0),
    ],
)
def test_an_executor_that_has_just_come_has_no_port_yet(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)


def test_reading_keeps_off_executors_that_are_cold_or_leaving_and_goes_anywhere_if_all_are_usable() -> None:
    warm, cold = Executor("1", "a", 2), Executor("2", "b", 1, is_warm=False)
    assert find_places([warm, Executor("3", "b", 1)]) == ()
    assert find_places([warm, cold]) == ("executor_a_1", "executor_a_1")
    assert find_places([warm, replace(cold, is_warm=True, is_leaving=True)]) == ("executor_a_1", "executor_a_1")
    assert find_places([cold]) == ()
