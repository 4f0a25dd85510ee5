"""What a run of Anabranch itself reports: its commits by the wall clock, its batches, settings and versions."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.model import BatchProgress
from anabranch.model.measures import BatchMeasures


class CommitClock:
    """Note by the wall clock when each batch with rows was committed."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int]] = []
        self._started = time.monotonic()

    def note(self, batch: BatchProgress) -> None:
        """Take one committed batch."""
        if batch.rows_in:
            done = self.samples[-1][1] if self.samples else 0
            self.samples.append((time.monotonic() - self._started, done + batch.rows_in))


def describe_batch(batch: BatchProgress, *more: str) -> dict[str, Any]:
    """Return a batch's rows, seconds, phases and longest tasks, and what else of it is named."""
    described = {
        "batch": batch.batch,
        "rows": batch.rows_in,
        "seconds": batch.batch_seconds,
        "phase_seconds": batch.phase_seconds,
        "task_seconds": find_longest_tasks(batch.measures),
    }
    return {**described, **{name: getattr(batch, name) for name in more}}


def find_longest_tasks(measures: BatchMeasures | None) -> dict[str, float]:
    """Return the seconds of the longest task of each level by the wall clock, readers first: a level waits for it."""
    longest: dict[str, float] = {}
    for task in measures.tasks if measures is not None else ():
        longest[str(task.level)] = max(longest.get(str(task.level), 0.0), task.wall_seconds)
    return longest


def describe_commit(batch: BatchProgress, *more: str) -> dict[str, Any]:
    """Return what ``describe_batch`` does, with the moment, which is now, and with what changes about routes."""
    return {**describe_batch(batch, *more), "committed_at": time.time(), "change": "; ".join(batch.changes)}


def add_spark_ms(batches: Sequence[dict[str, Any]], told: Iterable[Mapping[str, Any]]) -> None:
    """Add to batches what Spark says of their triggers: milliseconds by part. It remembers the last hundred."""
    # Triggers that made no batch are told of, too, under the number of the next one.
    by_batch = {report["batchId"]: report["durationMs"] for report in told if "addBatch" in report["durationMs"]}
    for batch in batches:
        if batch["batch"] in by_batch:
            batch["spark_ms"] = by_batch[batch["batch"]]


def list_versions(*more: str) -> dict[str, str]:
    """Return the versions of what every flow needs, and of the packages that are named."""
    return {name: version(name) for name in ("anabranch", "pyspark", "polars", "pyarrow", *more)}


def write_outcome(
    path: str, clock: CommitClock, batches: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], *packages: str
) -> None:
    """Write what a run saw as JSON; ``packages`` are those that it needs beside what every flow does."""
    outcome = {
        "samples": clock.samples,
        "batches": batches,
        "settings": settings,
        "versions": list_versions(*packages),
    }
    Path(path).write_text(json.dumps(outcome))


def run_over_files(
    flow: ab.Flow,
    given: Namespace,
    *more: str,
    drain: bool = False,
    local_merge: bool = True,
    cores: int | None = None,
) -> None:
    """Run a flow over all files there are, and write its outcome, with what else of each batch is named.

    There are as many cores as slots unless it is said.
    """
    spark = ab.local_session(master=f"local[{cores or given.slots}]", memory=given.memory)
    clock = CommitClock()
    batches: list[dict[str, Any]] = []

    def note(batch: BatchProgress) -> None:
        clock.note(batch)
        # Now: of batches that are long over, memory keeps no single tasks.
        batches.append(describe_batch(batch, *more))

    handle = flow.start(
        given.checkpoint,
        spark=spark,
        on_progress=note,
        trigger="available-now",
        drain=drain,
        slots=given.slots,
        local_merge=local_merge,
    )
    queries = handle.spark.streams.active
    handle.wait()
    add_spark_ms(batches, [json.loads(told.json) for query in queries for told in query.recentProgress])
    spark.stop()
    settings = {
        "slots": given.slots,
        "max_files": given.files_per_batch,
        "memory": given.memory,
        "local_merge": "on" if local_merge else "off",
    }
    write_outcome(given.result, clock, batches, settings)
