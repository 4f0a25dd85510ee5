"""A Spark standalone cluster of real processes on this machine: a master, and workers that are hosts of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyspark

from anabranch.lab.errors import LabError
from anabranch.lab.ports import find_free_port

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE_SECONDS = 180.0
_DAEMON_MEMORY = "256m"
_ANSWER_SECONDS = 5.0
_SAME_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class SparkHost:
    """Where a daemon of Spark runs, by its address."""

    address: str
    prefix: tuple[str, ...] = ()
    """What its command is put behind, such as ``ip netns exec`` and a name."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A process that may outlive the one that started it: by its number, and when it began."""

    pid: int
    began: float

    @property
    def is_alive(self) -> bool:
        """Say whether it runs; a later process of the same number is another one."""
        return self._find() is not None

    def end(self) -> None:
        """End it and all that it started, at once."""
        process = self._find()
        if process is None:
            return
        family = [process]
        with contextlib.suppress(psutil.NoSuchProcess):
            family += process.children(recursive=True)
        end_processes(family)

    def _find(self) -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            # The moment moves when the machine's clock is set right; and nobody may have taken note of an end.
            if abs(process.create_time() - self.began) < _SAME_SECONDS and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def end_processes(processes: Sequence[psutil.Process]) -> None:
    """End processes at once, and wait until they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=PATIENCE_SECONDS)


@dataclass(frozen=True, slots=True)
class DaemonPlace:
    """Where the daemons of a cluster write, and what is said to all of them."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stays: bool = False
    """Whether they go on when the process that starts them ends, or is interrupted."""


@dataclass(frozen=True, slots=True)
class Master:
    """A cluster's master: what applications are sent to, and what answers questions about it."""

    daemon: Daemon
    url: str
    pages: str
    """Where its web pages are."""


@dataclass(frozen=True, slots=True)
class WorkerSize:
    """What a worker has for executors."""

    cores: int = 1
    memory: str = "1g"


LOOPBACK = SparkHost("127.0.0.1")


def list_loopback_hosts(count: int) -> list[SparkHost]:
    """Return hosts at 127.0.0.1, 127.0.0.2 …, which are all this machine."""
    return [SparkHost(f"127.0.0.{number}") for number in range(1, count + 1)]


def name_local_cluster(executors: int, memory_mb: int = 1024) -> str:
    """Return the master URL of Spark's own cluster in small: executors of one core at one address, without root."""
    return f"local-cluster[{executors},1,{memory_mb}]"


def name_settings(master_url: str, driver_address: str, size: WorkerSize) -> dict[str, str]:
    """Return what an application on the cluster must say, with a driver at this address: an executor a worker."""
    return {
        "spark.master": master_url,
        "spark.driver.host": driver_address,
        "spark.driver.bindAddress": driver_address,
        "spark.executor.cores": str(size.cores),
        "spark.executor.memory": size.memory,
    }


@contextlib.contextmanager
def standalone_cluster(
    folder: Path, workers: Sequence[SparkHost], *, master: SparkHost = LOOPBACK, worker_memory: str = "1g"
) -> Iterator[str]:
    """Start a cluster with one-core workers; yield its master URL. Logs and work folders lie in ``folder``."""
    place = DaemonPlace(folder)
    started: list[Daemon] = []
    try:
        made = start_master(place, master)
        started.append(made.daemon)
        for number, host in enumerate(workers, start=1):
            started.append(start_worker(place, str(number), host, made.url, WorkerSize(memory=worker_memory)))
        yield made.url
    finally:
        for daemon in started:
            daemon.end()


def start_master(place: DaemonPlace, host: SparkHost) -> Master:
    """Start a master, and return when it answers."""
    port, page_port = find_free_port(host.address), find_free_port(host.address)
    address = ["--host", host.address, "--port", str(port), "--webui-port", str(page_port)]
    daemon = _start(place, "master", host, ["org.apache.spark.deploy.master.Master", *address])
    master = Master(daemon, f"spark://{host.address}:{port}", f"http://{host.address}:{page_port}")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ask_master(master.pages):
        if not daemon.is_alive or time.monotonic() > deadline:
            daemon.end()
            msg = f"no master answered at {master.pages}; {quote_log(place, 'master')}"
            raise LabError(msg)
        time.sleep(0.1)
    return master


def start_worker(place: DaemonPlace, name: str, host: SparkHost, master_url: str, size: WorkerSize) -> Daemon:
    """Start a worker; it comes to its master in some seconds."""
    folders = ["--work-dir", str(place.folder / f"work-{name}")]
    given = ["--host", host.address, "--cores", str(size.cores), "--memory", size.memory, "--webui-port", "0"]
    command = ["org.apache.spark.deploy.worker.Worker", *given, *folders, master_url]
    return _start(place, f"worker-{name}", host, command)


def ask_master(pages: str) -> Mapping[str, Any]:
    """Return what the master says of workers and applications; nothing if it does not answer."""
    # A proxy that the user's environment names leads away from this machine.
    ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError, ValueError), ask.open(f"{pages}/json/", timeout=_ANSWER_SECONDS) as answer:
        said: Mapping[str, Any] = json.load(answer)
        return said
    return {}


def quote_log(place: DaemonPlace, name: str) -> str:
    """Return where a daemon's log lies, and its last lines."""
    log = place.folder / f"{name}.log"
    last = "\n".join(log.read_text(errors="replace").splitlines()[-10:]) if log.exists() else ""
    return f"the end of its log {log}:\n{last}"


def _start(place: DaemonPlace, name: str, host: SparkHost, arguments: list[str]) -> Daemon:
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "PYSPARK_PYTHON": sys.executable,
        **place.environment,
    }
    with (place.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*host.prefix, str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=place.stays,
        )
    return Daemon(process.pid, psutil.Process(process.pid).create_time())
