"""The part ``lab``: the four flows on real hosts at a rate that leaves room, under policies that a run can name."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from anabranch.lab.lab import Lab
from anabranch.lab.plan import LabPlan
from anabranch.lab.record import RecordFile
from anabranch.model.energy import POLICY_NAMES
from benchmarks.shared.answers import compute_digest
from benchmarks.shared.launch import describe_environment, our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.registry import BenchOptions

HOSTS = 4
HOST_CPU, DRIVER_CPU = 0.35, 0.5
"""Of a core; what is left of two cores is for the master and what else runs."""
FILES, FILE_SECONDS, TRIGGER, TRIGGER_SECONDS = 45, 2.0, "2s", 2.0
ENERGY: Mapping[str, Any] = {
    "latency_seconds": 8.0,
    "window_seconds": 6.0,
    "windows_down": 2,
    "cool_down_seconds": 10.0,
    "restart_seconds": 60.0,
    # Of a core that Spark knows of, hosts have a third.
    "cpu_limit": 0.9 * HOST_CPU,
}
BASELINE = "awake"
SETTLED = 0.5
"""Figures are those of the last part of the batches with rows: processes have started, hosts have gone."""
_SPARK = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.locality.wait": "20s",
    "spark.executor.memory": "512m",
    # JVMs that run for a minute on a third of a core: the optimising compiler would take it from the rows.
    "spark.executor.extraJavaOptions": "-XX:ActiveProcessorCount=1 -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True, slots=True)
class LabFlow:
    """A flow of ``examples/``, and how much of its input a file has."""

    name: str
    module: str
    write: str
    rows: int
    """Of all files together; what the simulated topologies call a tuple."""
    options: Mapping[str, Any]


FLOWS = (
    LabFlow("WordCount", "word_count", "write_sentences", 45_000, {}),
    LabFlow("Sol", "sol", "write_messages", 9_000, {}),
    LabFlow("RollingSort", "rolling_sort", "write_messages", 9_000, {"seconds": 90}),
    LabFlow("RollingCount", "rolling_count", "write_sentences", 45_000, {}),
)


@dataclass(frozen=True, slots=True)
class LabRun:
    """One flow under one policy, as it was once its hosts had settled."""

    system: str
    topology: str
    rows: int
    """Of the whole run."""
    hosts: float
    """With slots, in the mean of the settled part."""
    releases: int
    """Executors that were let go, over the whole run."""
    rows_per_second: float
    p95_seconds: float
    """Of the trigger's interval and the batch."""
    bytes_between_hosts_a_row: float
    joules_per_million_rows: float
    joules_low: float
    joules_high: float
    energy_basis: str
    digest: str
    """Of the answer."""
    energy_saved_pct: float = 0.0
    latency_change_pct: float = 0.0
    bytes_change_pct: float = 0.0
    rate_change_pct: float = 0.0
    basis: str = "lab"


def run_lab(options: BenchOptions, console: Console) -> tuple[list[LabRun], dict[str, Mapping[str, Any]]]:
    """Run each flow under each policy on a lab of its own, one after the other; about two minutes each.

    Returned beside the runs is by flow what the one reported in which all hosts stay awake.
    """
    runs: list[LabRun] = []
    awake: dict[str, Mapping[str, Any]] = {}
    logs = (options.out_dir or options.cache_dir) / "logs"
    for flow in FLOWS:
        ours = []
        for policy in sorted(POLICY_NAMES, key=_baseline_first):
            run, reported = _run_one(options, logs, flow, policy, console)
            ours.append(run)
            if policy == BASELINE:
                awake[flow.name] = reported
        runs += [_compare(run, ours[0]) for run in ours]
    return runs, awake


def find_wrong(runs: Sequence[LabRun]) -> list[str]:
    """Return whose answer is not the same as without anybody asleep."""
    digests = {run.topology: run.digest for run in runs if run.system == BASELINE}
    return [
        f"{run.topology}, lab, {run.system}: the answer is another than with all hosts awake"
        for run in runs
        if run.digest != digests[run.topology]
    ]


def evaluate(system: str, flow: LabFlow, reported: Mapping[str, Any], answer: pl.DataFrame) -> LabRun:
    """Return what a run shows."""
    batches = [batch for batch in reported["batches"] if batch["rows"]]
    settled = batches[int(SETTLED * len(batches)) :]
    rows = sum(batch["rows"] for batch in settled)
    seconds = settled[-1]["committed_at"] - batches[len(batches) - len(settled) - 1]["committed_at"]
    late = sorted(TRIGGER_SECONDS + batch["seconds"] for batch in settled)
    joules, low, high = (sum(batch["energy"][place] for batch in settled) * 1e6 / rows for place in range(3))
    released = [one for one in reported["decisions"] if (one["action"], one["sender"]) == ("release", "energy")]
    return LabRun(
        system=system,
        topology=flow.name,
        rows=sum(batch["rows"] for batch in batches),
        hosts=statistics.fmean(len(batch["hosts"]) for batch in settled),
        releases=sum(one["reason"].partition(":")[0].count(",") + 1 for one in released),
        rows_per_second=rows / seconds,
        p95_seconds=late[min(len(late) - 1, int(0.95 * len(late)))],
        bytes_between_hosts_a_row=sum(batch["crossing_bytes"] for batch in settled) / rows,
        joules_per_million_rows=joules,
        joules_low=low,
        joules_high=high,
        energy_basis="/".join(sorted({batch["energy"][3] for batch in settled})),
        digest=compute_digest(answer),
    )


def read_answer(flow: LabFlow, output: Path) -> pl.DataFrame:
    """Return what a flow wrote, in an order of its own; of counts that rise, the last."""
    written = pl.read_parquet(output / "*.parquet")
    if flow.module == "word_count":
        return written.group_by("word").agg(pl.col("count").max()).sort("word")
    lists = [name for name, kind in written.schema.items() if isinstance(kind, pl.List)]
    return written.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" ")).sort(pl.all())


def _run_one(
    options: BenchOptions, logs: Path, flow: LabFlow, policy: str, console: Console
) -> tuple[LabRun, Mapping[str, Any]]:
    with scratch_places(options.cache_dir, logs, f"energy-{flow.module}-{policy}") as places:
        made = places.scratch / "made"
        count = {"write_sentences": "sentences", "write_messages": "messages"}[flow.write]
        module = import_module(f"examples.{flow.module}")
        getattr(module, flow.write)(made, **{count: flow.rows}, files=FILES, seed=options.seed, **flow.options)
        given = {
            "flow": flow.module,
            "made": made,
            "seconds": FILE_SECONDS,
            "hosts": HOSTS,
            "trigger": TRIGGER,
            # Executors load the flow's functions from here, too.
            "settings": json.dumps({**_SPARK, "spark.executorEnv.PYTHONPATH": describe_environment()["PYTHONPATH"]}),
            "energy": json.dumps({**ENERGY, "policy": policy}),
        }
        lab = Lab(RecordFile(places.scratch / "lab"))
        try:
            with show_activity(console, f"{flow.name}, {policy}: a lab of four hosts"):
                lab.up(LabPlan(HOSTS, cpu=HOST_CPU, driver_cpu=DRIVER_CPU, memory_mb=640))
            command, variables = lab.place("driver", our_script("energy.peers.ours_energy"))
            with show_activity(console, f"{flow.name}, {policy}: {FILES} files, one each {FILE_SECONDS:g} s"):
                reported, _ = run_peer(f"energy-{flow.module}-{policy}", command, given, places, variables)
        finally:
            lab.down()
        return evaluate(policy, flow, reported, read_answer(flow, places.output)), reported


def _baseline_first(policy: str) -> tuple[bool, str]:
    return policy != BASELINE, policy


def _compare(run: LabRun, other: LabRun) -> LabRun:
    def change(name: str) -> float:
        before = float(getattr(other, name))
        return 100 * (float(getattr(run, name)) / before - 1) if before else 0.0

    return replace(
        run,
        energy_saved_pct=-change("joules_per_million_rows"),
        latency_change_pct=change("p95_seconds"),
        bytes_change_pct=change("bytes_between_hosts_a_row"),
        rate_change_pct=change("rows_per_second"),
    )


def describe_lab() -> dict[str, Any]:
    """Return what was run."""
    return {
        "hosts": HOSTS,
        "host_cpu": HOST_CPU,
        "driver_cpu": DRIVER_CPU,
        "files": FILES,
        "file_seconds": FILE_SECONDS,
        "trigger": TRIGGER,
        "energy": dict(ENERGY),
        "flows": [asdict(flow) for flow in FLOWS],
    }
