"""Executors, Python workers and task attempts that fail on a cluster of two executors, with local merge on."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import psutil

from cluster.drivers import PATIENCE_SECONDS, DriverProcess, assert_same_results, driver, results
from cluster.standalone import standalone_cluster

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
IMPATIENT = [
    # A lost executor's blocks are asked for again at once, not after three times five seconds.
    "spark.shuffle.io.maxRetries=1",
    "spark.shuffle.io.retryWait=100ms",
    "spark.locality.wait=100ms",
]
SPECULATIVE = [
    "spark.speculation=true",
    "spark.speculation.interval=50ms",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.quantile=0.1",
    "spark.speculation.minTaskRuntime=50ms",
    # Stages with a single task are duplicated, too.
    "spark.speculation.task.duration.threshold=500ms",
]


class Traps:
    """The traps of one driver; see ``flow_under_test.Trap``."""

    def __init__(self, folder: Path, *armed: str) -> None:
        self.folder = folder / "traps"
        self.folder.mkdir()
        for number, trap in enumerate(armed, start=1):
            (self.folder / f"{number:02d}-{trap}").touch()

    def wait_until_sprung(self, number: int, process: DriverProcess) -> psutil.Process:
        """Return the Python worker that sits in a trap."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := list(self.folder.glob(f"sprung-{number:02d}-*"))):
            assert process.process.poll() is None, f"the driver ended before trap {number}: {process.lines[-3:]}"
            assert time.monotonic() < deadline, f"no task came to trap {number}"
            time.sleep(0.02)
        return psutil.Process(int(found[0].name.rsplit("-", 1)[1]))

    def let_go(self, number: int) -> None:
        (self.folder / f"go-{number:02d}").touch()

    def left(self) -> list[str]:
        """Return the traps that nobody sprang."""
        return sorted(path.name for path in self.folder.iterdir() if path.name[0].isdigit())


def executor_of(worker: psutil.Process) -> psutil.Process:
    """Return the executor's JVM above a Python worker."""
    for parent in worker.parents():
        if "CoarseGrainedExecutorBackend" in " ".join(parent.cmdline()):
            return parent
    msg = f"no executor above process {worker.pid}"
    raise AssertionError(msg)


def cluster_arguments(master: str, *config: str) -> list[str]:
    return ["--master", master, "--slots", "4", *(part for item in config for part in ("--conf", item))]


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
    with standalone_cluster(folder, workers=2) as master:
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
