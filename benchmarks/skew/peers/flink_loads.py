"""Run the keyed window as Flink SQL over many subtasks, and sample how many rows each of them has received.

This script runs in Flink's own environment, without this library: it imports nothing but PyFlink and the job of the
keyed window.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from pyflink.version import __version__ as flink_version  # type: ignore[import-not-found]

from benchmarks.keyed_window.peers.flink_job import QUERY, SourceMeter, configure, create_tables, open_tables


class SubtaskMeter(SourceMeter):
    """Ask the job's REST port what each subtask of the aggregation has received, until the job is gone."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.rows: list[int] = []

    def _sample(self) -> None:
        jobs = self._get("/jobs")["jobs"]
        if not jobs:
            return
        job = f"/jobs/{jobs[0]['id']}"
        for vertex in self._get(job)["vertices"]:
            if "Aggregate" in vertex["name"]:
                rows = self._count(job, vertex["id"])
                # A job that ends takes its counters away: the largest sums are the last ones.
                if sum(rows) > sum(self.rows):
                    self.rows = rows

    def _count(self, job: str, vertex: str) -> list[int]:
        subtasks: list[dict[str, Any]] = self._get(f"{job}/vertices/{vertex}")["subtasks"]
        return [int(subtask["metrics"]["read-records"]) for subtask in subtasks]


def main() -> None:
    """Run the job and write the rows of each subtask as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--format", choices=("json", "csv"), required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--rest-port", type=int, required=True)
    parser.add_argument("--managed-memory", default="1g")
    parser.add_argument("--slots", type=int, required=True)
    arguments = parser.parse_args()

    settings = configure(arguments) | {
        "parallelism.default": str(arguments.slots),
        "taskmanager.numberOfTaskSlots": str(arguments.slots),
        # A hot key would become one row a subtask, as by local merge.
        "table.optimizer.agg-phase-strategy": "ONE_PHASE",
        "table.exec.mini-batch.enabled": "false",
    }
    tables = open_tables(settings)
    create_tables(tables, arguments)
    meter = SubtaskMeter(arguments.rest_port)
    meter.start()
    tables.execute_sql(QUERY).wait()
    meter.stop()
    with open(arguments.result, "w") as file:
        json.dump({"rows": meter.rows, "settings": settings, "versions": {"flink": flink_version}}, file)


if __name__ == "__main__":
    main()
