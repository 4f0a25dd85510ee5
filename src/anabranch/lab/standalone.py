"""A Spark standalone cluster of real processes on this machine: a master, and workers that are hosts of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from anabranch.lab.errors import LabError
from anabranch.lab.ports import find_free_port

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE_SECONDS = 180.0
_DAEMON_MEMORY = "256m"


@dataclass(frozen=True, slots=True)
class SparkHost:
    """Where a daemon of Spark runs, by its address."""

    address: str
    prefix: tuple[str, ...] = ()
    """What its command is put behind, such as ``ip netns exec`` and a name."""


LOOPBACK = SparkHost("127.0.0.1")


def list_loopback_hosts(count: int) -> list[SparkHost]:
    """Return hosts at 127.0.0.1, 127.0.0.2 …, which are all this machine."""
    return [SparkHost(f"127.0.0.{number}") for number in range(1, count + 1)]


@contextlib.contextmanager
def standalone_cluster(
    folder: Path, workers: Sequence[SparkHost], *, master: SparkHost = LOOPBACK, worker_memory: str = "1g"
) -> Iterator[str]:
    """Start a cluster with one-core workers; yield its master URL. Logs and work folders lie in ``folder``."""
    port = find_free_port(master.address)
    url = f"spark://{master.address}:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        place = ["--host", master.address, "--port", str(port), "--webui-port", "0"]
        command = ["org.apache.spark.deploy.master.Master", *place]
        started.append(_start(folder, "master", master, command))
        _wait_for_port(master.address, port, folder / "master.log")
        for number, host in enumerate(workers, start=1):
            size = ["--host", host.address, "--cores", "1", "--memory", worker_memory, "--webui-port", "0"]
            command = [
                "org.apache.spark.deploy.worker.Worker",
                *size,
                "--work-dir",
                str(folder / f"work-{number}"),
                url,
            ]
            started.append(_start(folder, f"worker-{number}", host, command))
        yield url
    finally:
        for process in started:
            _end(process)


def _start(folder: Path, name: str, host: SparkHost, arguments: list[str]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name}.log").open("wb") as log:
        command = [*host.prefix, str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
        for member in [psutil.Process(process.pid), *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)


def _wait_for_port(address: str, port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((address, port)) == 0:
                return
        time.sleep(0.1)
    said = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
    msg = f"no master answered on {address}:{port} within {PATIENCE_SECONDS:.0f} s; the end of its log {log}:\n{said}"
    raise LabError(msg)
