"""A cluster of two executors on this machine, and traps for the tasks on them."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from anabranch.lab.standalone import name_local_cluster
from lab.drivers import PATIENCE_SECONDS, DriverProcess

LOCAL_CLUSTER = name_local_cluster(2)
IMPATIENT = [
    # A lost executor's blocks are asked for again at once, not after three times five seconds.
    "spark.shuffle.io.maxRetries=1",
    "spark.shuffle.io.retryWait=100ms",
    "spark.locality.wait=100ms",
]


class Traps:
    """The traps of one driver; see ``flow_under_test.Trap``."""

    def __init__(self, folder: Path, *armed: str) -> None:
        self.folder = folder / "traps"
        self.folder.mkdir()
        for number, trap in enumerate(armed, start=1):
            self.arm(number, trap)

    def wait_until_sprung(self, number: int, process: DriverProcess) -> psutil.Process:
        """Return the Python worker that sits in a trap."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := list(self.folder.glob(f"sprung-{number:02d}-*"))):
            assert process.process.poll() is None, f"the driver ended before trap {number}: {process.lines[-3:]}"
            assert time.monotonic() < deadline, f"no task came to trap {number}"
            time.sleep(0.02)
        return psutil.Process(int(found[0].name.rsplit("-", 1)[1]))

    def arm(self, number: int, trap: str) -> None:
        """Set one trap more."""
        (self.folder / f"{number:02d}-{trap}").touch()

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
