"""Where the parts that spread a flow run it: on hosts with quotas of cores, or on executors that share the machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from anabranch.lab.errors import LabError
from anabranch.lab.lab import Lab
from anabranch.lab.plan import LabPlan
from anabranch.lab.record import RecordFile
from anabranch.lab.standalone import name_local_cluster
from benchmarks.shared.launch import Places, describe_environment, our_script, run_peer, show_activity
from benchmarks.shared.process import ProcessOutcome
from benchmarks.skew.launch import describe_neighbours

EXECUTORS = 4
HOST_CORES = 0.3
"""Of the machine's cores, for each host: what is left of two is the driver's."""
DRIVER_MEMORY = "1g"
LAB_RECORD = "elastic-lab"
"""In the cache: always at the same place, so that a lab which a killed bench left is taken away by the next one."""
_EXECUTOR_MB = 700
_SETTINGS = {
    # Slots run where they are at home, also while a slow executor still works on another.
    "spark.locality.wait": "30s",
    # What a quota holds up is not lost.
    "spark.network.timeout": "300s",
    "spark.executor.heartbeatInterval": "20s",
}


@dataclass(frozen=True, slots=True)
class Ground:
    """A cluster to run flows on."""

    master: str
    settings: Mapping[str, str]
    cores: float
    """What all executors together may use."""
    record: Path | None = None
    """The folder of the lab's record, by which its hosts are asked what they used and sent; None without a lab."""
    note: str = ""
    """Why there are no hosts, if there are none."""

    def describe(self) -> dict[str, Any]:
        """Return what was run on."""
        kind = "lab" if self.record is not None else "local-cluster"
        return {"ground": kind, "executors": EXECUTORS, "executor_cores": self.cores / EXECUTORS}


@contextmanager
def open_ground(cache_dir: Path, *, quotas: bool = True) -> Iterator[Ground]:
    """Make a lab of its own, which no user's is touched by, and take it down again.

    Where this machine can have no hosts, executors share its cores, and nobody knows what crosses their wires.
    """
    machine_cores = len(os.sched_getaffinity(0))
    settings = {**_SETTINGS, "spark.executorEnv.PYTHONPATH": describe_environment()["PYTHONPATH"]}
    record = cache_dir / LAB_RECORD
    lab = Lab(RecordFile(record))
    cpu = machine_cores * HOST_CORES / 2 if quotas else None
    plan = LabPlan(
        hosts=EXECUTORS,
        cpu=cpu,
        driver_cpu=None if cpu is None else machine_cores - EXECUTORS * cpu,
        memory_mb=_EXECUTOR_MB,
    )
    try:
        lab.down()
        status = lab.up(plan)
    except LabError as error:
        note = f"without hosts of their own, quotas and wires, on executors that share {machine_cores} cores: {error}"
        yield Ground(name_local_cluster(EXECUTORS), settings, min(machine_cores, EXECUTORS), note=note)
        return
    try:
        cores = machine_cores if cpu is None else EXECUTORS * cpu
        yield Ground(status.master_url, {**status.settings, **settings}, cores, record)
    finally:
        lab.down()


def run_flows(
    name: str, flows: Sequence[Mapping[str, Any]], ground: Ground, places: Places, console: Console
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run flows one after the other in one session; return what was seen of each, and what is to be said of it."""
    path = places.scratch / "flows.json"
    path.write_text(json.dumps(flows))
    options: dict[str, object] = {
        "flows": path,
        "master": ground.master,
        "memory": DRIVER_MEMORY,
        "executors": 0 if ground.master.startswith("local[") else EXECUTORS,
        "settings": json.dumps(dict(ground.settings)),
    }
    if ground.record is not None:
        options["record"] = ground.record
    with show_activity(console, name):
        reported, took = run_peer(name, our_script("elastic.peers.ours_flows"), options, places)
    seen: list[dict[str, Any]] = reported["flows"]
    return seen, [*([ground.note] if ground.note else []), *_describe_neighbours(name, seen, took)]


def _describe_neighbours(name: str, flows: Sequence[Mapping[str, Any]], took: ProcessOutcome) -> list[str]:
    """Return a note that the machine was busy with other programs, if it was; hosts are none of them."""
    before, *_, after = [each for flow in flows for each in (flow["began"], *flow["batches"]) if "hosts" in each] or [
        {}
    ] * 2
    own_seconds = sum(
        (counted["cpu_seconds"] or 0.0) - (before["hosts"][host]["cpu_seconds"] or 0.0)
        for host, counted in after.get("hosts", {}).items()
    )
    own_share = own_seconds / (took.run_seconds * (os.cpu_count() or 1))
    # Without control groups, nobody can tell what hosts took from what others did.
    if "hosts" in after and not own_seconds:
        return []
    return describe_neighbours(name, replace(took, other_cpu_share=took.other_cpu_share - own_share))
