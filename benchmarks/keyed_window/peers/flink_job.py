"""Run the keyed window as Flink SQL and sample how many rows the source has read.

This script runs in Flink's own environment, without this library: it imports nothing but PyFlink and Python.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]
from pyflink.version import __version__ as flink_version  # type: ignore[import-not-found]

SAMPLE_SECONDS = 0.25
SEARCHES = 40

MIXED_JSON = "mixed-json"
FIELDS = {
    "plain": "sensor BIGINT, ts BIGINT, `value` DOUBLE",
    MIXED_JSON: "sensor STRING, ts BIGINT, reading ROW<`value` DOUBLE>, `value` AS reading.`value`",
}

READINGS = """
CREATE TABLE readings (
  {fields},
  event_time AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR event_time AS event_time - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = '{format}')
"""

TOTALS = """
CREATE TABLE totals (window_start TIMESTAMP(3), sensor {sensor}, readings BIGINT, total DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""

QUERY = """
INSERT INTO totals
SELECT window_start, sensor, COUNT(*) AS readings, SUM(`value`) AS total
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(event_time), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, sensor
"""


class SourceMeter:
    """Ask the job's REST port how many rows its sources have sent on, until the job is gone."""

    def __init__(self, port: int) -> None:
        self.samples: list[tuple[float, int]] = []
        self.checkpoints: dict[str, Any] = {}
        self._base = f"http://127.0.0.1:{port}"
        self._metrics: dict[str, str] = {}
        self._searches_left = SEARCHES
        self._rows: dict[str, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            try:
                self._sample()
            except (OSError, urllib.error.URLError, ValueError, KeyError, IndexError):
                # The port opens after the job's start and closes at its end; a sample in between is simply missing.
                continue

    def _sample(self) -> None:
        jobs = self._get("/jobs")["jobs"]
        if not jobs:
            return
        job = f"/jobs/{jobs[0]['id']}"
        if self._searches_left:
            self._metrics |= self._find_metrics(job)
            # Sources do not show themselves all at once.
            self._searches_left -= bool(self._metrics)
        for path, metric in self._metrics.items():
            answer = self._get(f"{path}?get={urllib.parse.quote(metric)}&agg=sum")
            # Of a source that has ended, what it said last.
            if answer:
                self._rows[path] = int(float(answer[0]["sum"]))
        if self._rows:
            self.samples.append((time.monotonic(), sum(self._rows.values())))
        counts = self._get(f"{job}/checkpoints")
        self.checkpoints = {
            "completed": counts["counts"]["completed"],
            "end_to_end_ms": counts["summary"]["end_to_end_duration"],
        }

    def _find_metrics(self, job: str) -> dict[str, str]:
        paths = [f"{job}/vertices/{vertex['id']}/subtasks/metrics" for vertex in self._get(job)["vertices"]]
        return {
            path: metric["id"]
            for path in paths
            for metric in self._get(path)
            if metric["id"].startswith("Source__") and metric["id"].endswith(".numRecordsOut")
        }

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self._base + path, timeout=2) as answer:
            return json.load(answer)


def configure(arguments: argparse.Namespace) -> dict[str, str]:
    """Return Flink's settings: two slots, aggregation in two phases, checkpoints every three seconds."""
    return {
        "execution.runtime-mode": "STREAMING",
        "parallelism.default": "2",
        "taskmanager.numberOfTaskSlots": "2",
        "rest.bind-port": str(arguments.rest_port),
        "rest.port": str(arguments.rest_port),
        "rest.address": "127.0.0.1",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "50000",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": "3 s",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{arguments.checkpoint}",
        "taskmanager.memory.managed.size": arguments.managed_memory,
        "taskmanager.memory.network.min": "256m",
        "taskmanager.memory.network.max": "256m",
        "metrics.fetcher.update-interval": str(int(SAMPLE_SECONDS * 1000)),
    }


def create_tables(tables: Any, arguments: argparse.Namespace) -> None:
    """Declare what is read and what is written."""
    is_mixed = arguments.format == MIXED_JSON
    fields = FIELDS[arguments.format if is_mixed else "plain"]
    file_format = "json" if is_mixed else arguments.format
    tables.execute_sql(READINGS.format(fields=fields, path=f"file://{arguments.input}", format=file_format))
    sensor = "STRING" if is_mixed else "BIGINT"
    tables.execute_sql(TOTALS.format(sensor=sensor, path=f"file://{arguments.output}"))


def open_tables(settings: Mapping[str, str]) -> Any:
    """Return Flink with these settings."""
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )


def run_measured(tables: Any, query: str, arguments: argparse.Namespace, settings: Mapping[str, str]) -> None:
    """Run a query to its end, and write samples, settings and versions as JSON."""
    plan = tables.explain_sql(query)
    meter = SourceMeter(arguments.rest_port)
    meter.start()
    started = time.monotonic()
    tables.execute_sql(query).wait()
    job_seconds = time.monotonic() - started
    meter.stop()
    with open(arguments.result, "w") as file:
        json.dump(
            {
                "samples": [(seconds - started, rows) for seconds, rows in meter.samples],
                "job_seconds": job_seconds,
                "checkpoints": meter.checkpoints,
                "settings": settings,
                "plan": plan,
                "versions": {"flink": flink_version},
            },
            file,
        )


def main() -> None:
    """Count and sum the readings of each sensor in windows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--format", choices=("json", "csv", MIXED_JSON), required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--rest-port", type=int, required=True)
    parser.add_argument("--managed-memory", default="1g")
    arguments = parser.parse_args()

    settings = configure(arguments)
    tables = open_tables(settings)
    create_tables(tables, arguments)
    run_measured(tables, QUERY, arguments, settings)


if __name__ == "__main__":
    main()
