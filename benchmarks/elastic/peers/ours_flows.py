"""Run one flow after the other in one session on a cluster; note what its tasks, executors, hosts and wires did."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.lab.lab import Lab
from anabranch.lab.plan import DRIVER
from anabranch.lab.record import RecordFile
from anabranch.model import BatchProgress
from benchmarks.elastic.peers import busy_windows, phone_query
from benchmarks.elastic.peers.unmeasured import without_measures
from benchmarks.shared.peers.cluster import wait_for_executors
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import describe_commit, list_versions
from benchmarks.skew.peers.ours_runs import measure_processor_seconds

_QUERIES: Mapping[str, Callable[..., ab.Flow]] = {"phones": phone_query.build_flow, "busy": busy_windows.build_flow}


def run_flow(
    spark: SparkSession, given: Mapping[str, Any], output: Path, checkpoint: Path, lab: Lab | None
) -> dict[str, Any]:
    """Run one flow to its end; with a lab, its hosts are asked after every batch what they used and sent."""
    output.parent.mkdir(parents=True, exist_ok=True)
    flow = _QUERIES[given["query"]](output=str(output), **given["arguments"])
    settings = dict(given["settings"])
    if "elasticity" in settings:
        settings["elasticity"] = ab.Elasticity(**settings["elasticity"])
    batches: list[dict[str, Any]] = []

    def note(batch: BatchProgress) -> None:
        batches.append({**describe_commit(batch, "exchanged_bytes"), **_describe_measures(batch), **_ask_hosts(lab)})

    before, began = measure_processor_seconds(), {"committed_at": time.time(), **_ask_hosts(lab)}
    with without_measures() if given.get("unmeasured") else nullcontext():
        flow.run(str(checkpoint), spark=spark, on_progress=note, trigger="available-now", drain=True, **settings)
    spent = measure_processor_seconds() - before
    homes = _count_home_changes(checkpoint)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        "name": given["name"],
        "began": began,
        "batches": batches,
        "home_changes": homes,
        "processor_seconds": spent,
    }


def _describe_measures(batch: BatchProgress) -> dict[str, Any]:
    measures = batch.measures
    if measures is None:
        return {}
    return {
        "task_seconds": sum(task.cpu_seconds for task in measures.tasks),
        "exchange_seconds": sum(task.exchange_seconds for task in measures.tasks),
        "cpu_seconds": measures.cpu_seconds,
        "measuring_seconds": measures.measuring_seconds,
        "tasks": len(measures.tasks),
        "busy_seconds": {load.executor: load.busy_seconds for load in measures.executors},
        "slot_seconds": {
            load.executor: sum(
                task.cpu_seconds for task in measures.tasks if task.executor == load.executor and task.level > 0
            )
            for load in measures.executors
        },
    }


def _ask_hosts(lab: Lab | None) -> dict[str, Any]:
    if lab is None:
        return {}
    return {
        "hosts": {
            host.name: {
                "cpu_seconds": host.cpu_use.seconds if host.cpu_use is not None else None,
                "throttled_seconds": host.cpu_use.throttled_seconds if host.cpu_use is not None else 0.0,
                "sent_bytes": host.traffic.sent_bytes if host.traffic is not None else 0,
                "sent_packets": host.traffic.sent_packets if host.traffic is not None else 0,
            }
            for host in lab.status().hosts
            if host.name != DRIVER
        }
    }


def _count_home_changes(checkpoint: Path) -> int:
    """Return how many batches, behind the first, gave slots other homes."""
    decisions = ab.history(checkpoint, kind="decision")
    return decisions.filter(pl.col("action") == "home", pl.col("batch") > 0)["batch"].n_unique()


def main() -> None:
    """Run all flows of a JSON file and write what was seen as JSON."""
    arguments = read_options({"executors": 0, "settings": "{}", "record": ""}, flows=str, memory=str, master=str)
    flows: Sequence[Mapping[str, Any]] = json.loads(Path(arguments.flows).read_text())
    lab = Lab(RecordFile(Path(arguments.record))) if arguments.record else None
    spark = ab.local_session(master=arguments.master, memory=arguments.memory, config=json.loads(arguments.settings))
    wait_for_executors(spark, arguments.executors)
    seen = []
    for number, given in enumerate(flows):
        output, checkpoint = (Path(folder) / str(number) for folder in (arguments.output, arguments.checkpoint))
        seen.append(run_flow(spark, given, output, checkpoint, lab))
    spark.stop()
    Path(arguments.result).write_text(json.dumps({"flows": seen, "versions": list_versions()}))


if __name__ == "__main__":
    main()
