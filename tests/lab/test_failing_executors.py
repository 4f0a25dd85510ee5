"""Executors, Python workers and task attempts that fail on a cluster of two executors, with local merge on."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from anabranch.lab.standalone import list_loopback_hosts, standalone_cluster
from lab.drivers import assert_same_results, driver, results
from lab.executors import IMPATIENT, LOCAL_CLUSTER, Traps, cluster_arguments, executor_of

SPECULATIVE = [
    "spark.speculation=true",
    "spark.speculation.interval=50ms",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.quantile=0.1",
    "spark.speculation.minTaskRuntime=50ms",
    # Stages with a single task are duplicated, too.
    "spark.speculation.task.duration.threshold=500ms",
]


def test_failed_attempts_and_killed_workers_and_executors_leave_the_undisturbed_output(
    folder: Path, undisturbed: dict[str, Any]
) -> None:
    traps = Traps(folder, "read-raise", "first-raise", "first-wait", "first-wait", "second-wait")
    environment = {"UNDER_TEST_TRAPS": str(traps.folder)}
    with driver(folder, *cluster_arguments(LOCAL_CLUSTER, *IMPATIENT), environment=environment) as process:
        traps.wait_until_sprung(3, process).send_signal(signal.SIGKILL)
        traps.let_go(3)
        # Stage B: the rows of the batch were merged locally and exchanged; they and the slot's work are lost.
        executor_of(traps.wait_until_sprung(4, process)).send_signal(signal.SIGKILL)
        traps.let_go(4)
        # The second hop: what the first hop made on this executor is gone and must be made again, to the byte.
        executor_of(traps.wait_until_sprung(5, process)).send_signal(signal.SIGKILL)
        traps.let_go(5)
        assert process.wait() == 0, process.lines[-3:]
    assert traps.left() == []
    assert_same_results(results(folder), undisturbed)


def test_duplicate_attempts_leave_the_undisturbed_output(folder: Path, undisturbed: dict[str, Any]) -> None:
    """Spark gives no duplicate to the host that has the original, so this takes workers on two addresses."""
    traps = Traps(folder, "read-wait", "first-wait", "second-wait")
    environment = {"UNDER_TEST_TRAPS": str(traps.folder)}
    with standalone_cluster(folder, list_loopback_hosts(2)) as master:
        arguments = cluster_arguments(master, *IMPATIENT, *SPECULATIVE, "spark.executor.memory=768m")
        with driver(folder, *arguments, environment=environment) as process:
            for number in (1, 2, 3):
                traps.wait_until_sprung(number, process)
                # The batch can only end through a second attempt at the trapped task.
                assert process.wait_for("batch ", process.batches + 1), process.lines[-3:]
                traps.let_go(number)
            assert process.wait() == 0, process.lines[-3:]
    assert traps.left() == []
    assert_same_results(results(folder), undisturbed)
