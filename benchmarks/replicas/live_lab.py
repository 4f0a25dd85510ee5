"""A lab whose flows keep their checkpoints on a server that speaks S3, itself on one of its hosts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anabranch.lab.lab import Lab
from anabranch.lab.plan import DRIVER, LabPlan
from anabranch.lab.record import RecordFile
from anabranch.lab.status import LabStatus
from benchmarks.servers.jars import S3_FILES
from benchmarks.shared.launch import Places, our_script
from benchmarks.shared.registry import BenchError

_PORT = 9_000
_REGION = "us-east-1"
_PATIENCE_SECONDS = 60.0


def list_settings(status: LabStatus, endpoint: str) -> dict[str, str]:
    """Return what Spark must be told for tasks, and for Hadoop, to find the store."""
    return {
        **status.settings,
        **{f"spark.executorEnv.{name}": value for name, value in describe_s3(endpoint).items()},
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": _REGION,
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.jars": ",".join(sorted(map(str, S3_FILES.find().glob("*.jar")))),
    }


@contextmanager
def open_lab(cache_dir: Path, plan: LabPlan) -> Iterator[tuple[Lab, Path]]:
    """Make a lab, return it and its record, and take it away afterwards."""
    # One that a killed bench left is taken away by its record, which is always at the same place.
    record = cache_dir / "replicas-lab"
    lab = Lab(RecordFile(record))
    lab.down()
    lab.up(plan)
    try:
        yield lab, record
    finally:
        lab.down()


def describe_runs(
    runs: Sequence[Mapping[str, Any]],
    places: Places,
    lab: Lab,
    record: Path,
    settings: Mapping[str, str],
    executors: int,
) -> dict[str, Any]:
    """Write down what is to be run, and return what a script is told that runs it on a lab."""
    path = places.scratch / "runs.json"
    path.write_text(json.dumps(runs))
    return {
        "runs": path,
        "master": lab.status().master_url,
        "memory": "1g",
        "settings": json.dumps(settings),
        "record": record,
        "executors": executors,
    }


@contextmanager
def serve_s3(lab: Lab, host: str, logs: Path) -> Iterator[str]:
    """Let a host be a server that speaks S3, and nothing else; return its endpoint."""
    if host != DRIVER:
        lab.kill(host)
    address = next(one.address for one in lab.status().hosts if one.name == host)
    command, variables = lab.place(host, [*our_script("replicas.peers.s3_server"), address, str(_PORT)])
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / "replicas-s3.log").open("wb") as log:
        # Credentials of whoever runs the bench are none of its business.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**environment, **variables})
        try:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    msg = f"the server that speaks S3 did not start on {host}; see {log.name}"
                    raise BenchError(msg)
                time.sleep(0.1)
            yield f"http://{address}:{_PORT}"
        finally:
            process.terminate()
            process.wait(_PATIENCE_SECONDS)


def _answers(address: str) -> bool:
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex((address, _PORT)) == 0


def describe_s3(endpoint: str) -> dict[str, str]:
    """Return the environment in which a flow finds the store."""
    return {
        "AWS_ACCESS_KEY_ID": "anabranch",
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-bench",
        "AWS_REGION": _REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }


def make_bucket(endpoint: str, name: str) -> str:
    """Make a bucket, and return its address."""
    # A proxy that the user's environment names leads away from this machine.
    ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    ask.open(urllib.request.Request(f"{endpoint}/{name}", method="PUT"), timeout=30).close()
    return f"s3://{name}"
