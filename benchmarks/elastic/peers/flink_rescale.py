"""Rescale a job of Flink's by the REST interface of its adaptive scheduler."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from anabranch.lab.ports import find_free_port
from benchmarks.elastic.peers.rescaling import (
    PATIENCE_SECONDS,
    make_feeder,
    read_rescaling_options,
    rescale,
    watched_folder,
)
from benchmarks.shared.peers.flink_java import SETTINGS, prepare_job

MAIN_CLASS = "benchmarks.RescaleJob"
_HERE = Path(__file__).parent
SOURCES = [*sorted((_HERE.parents[1] / "disorder" / "peers").glob("*.java")), _HERE / "RescaleJob.java"]
"""Reading, writing and adding up are those of the disorder bench."""
_ROW = np.dtype([("window_start", "<i8"), ("sensor", "<i8"), ("readings", "<i8"), ("total", "<f8")])
ADAPTIVE = {
    "jobmanager.scheduler": "adaptive",
    # A change that is asked for is made at once, and not after half a minute.
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 s",
    "execution.checkpointing.interval": "1 s",
}


def prepare_command(cache_dir: Path, memory: str) -> list[str]:
    """Return the command that runs the job, compiling it first when that was not done yet."""
    return prepare_job("rescale", SOURCES, MAIN_CLASS, cache_dir, memory)


def read_results(output: Path) -> pl.DataFrame:
    """Return what the job has committed."""
    parts = [path for path in sorted(output.rglob("part-*")) if path.is_file()]
    found = [np.frombuffer(path.read_bytes(), _ROW) for path in parts]
    rows = np.concatenate(found) if found else np.empty(0, _ROW)
    return pl.DataFrame({name: rows[name] for name in _ROW.names or ()})


class Rest:
    """The REST interface of a Flink on this machine."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        # A proxy that the environment names leads away from this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, path: str, body: Any = None) -> Any:
        """Return what a path says; with a body, put that there."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._base}{path}",
            data=data,
            method="GET" if body is None else "PUT",
            headers={"Content-Type": "application/json"},
        )
        with self._opener.open(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def main() -> None:
    """Run the job, and ask for more parallel subtasks."""
    given = read_rescaling_options()
    feeder, port = make_feeder(given), find_free_port()
    settings = {
        **SETTINGS,
        **ADAPTIVE,
        "parallelism.default": str(given.slots),
        "taskmanager.numberOfTaskSlots": str(given.slots_after),
        "rest.port": str(port),
        "rest.bind-port": str(port),
        "rest.address": "127.0.0.1",
    }
    options = {
        "input": watched_folder(given),
        "output": given.output,
        "checkpoint": given.checkpoint,
        "result": f"{given.result}.job",
        "window-ms": given.window_ms,
        "delay-ms": given.delay_ms,
        **{f"flink.{name}": value for name, value in settings.items()},
    }
    command = [
        *json.loads(given.command),
        *(part for name, value in options.items() for part in (f"--{name}", str(value))),
    ]
    Path(given.output).mkdir(parents=True)
    job = subprocess.Popen(command)
    rest = Rest(port)

    def change() -> None:
        (overview,) = rest.ask("/jobs/overview")["jobs"]
        path = f"/jobs/{overview['jid']}"
        wanted = rest.ask(f"{path}/resource-requirements")
        for vertex in wanted.values():
            vertex["parallelism"]["upperBound"] = given.slots_after
        rest.ask(f"{path}/resource-requirements", wanted)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while {vertex["parallelism"] for vertex in rest.ask(path)["vertices"]} != {given.slots_after}:
            if job.poll() is not None or time.monotonic() > deadline:
                msg = f"the job was not rescaled: {rest.ask(path)['vertices']}"
                raise RuntimeError(msg)
            time.sleep(0.05)

    try:
        rescale(given, feeder, "part-*", change, lambda: read_results(Path(given.output)))
    finally:
        job.kill()
        job.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
