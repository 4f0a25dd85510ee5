"""A Spark standalone cluster on the loopback network: a master, and workers that are hosts of their own to Spark."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE_SECONDS = 60.0


@contextlib.contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[str]:
    """Start a cluster with one-core workers on 127.0.0.1, 127.0.0.2 …; yield its master URL."""
    port = _free_port()
    started: list[subprocess.Popen[bytes]] = []
    try:
        master = [
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        ]
        started.append(_start(folder, "master", "127.0.0.1", master))
        _wait_for_port(port)
        for number in range(1, workers + 1):
            host = f"127.0.0.{number}"
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g"]
            worker += ["--webui-port", "0", "--work-dir", str(folder / f"work-{number}"), f"spark://127.0.0.1:{port}"]
            started.append(_start(folder, f"worker-{number}", host, worker))
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in started:
            _end(process)


def _start(folder: Path, name: str, host: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name}.log").open("wb") as log:
        command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
        for member in [psutil.Process(process.pid), *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    msg = f"no master answered on port {port} within {PATIENCE_SECONDS} s"
    raise AssertionError(msg)
