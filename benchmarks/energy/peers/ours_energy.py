"""One of the four flows on a lab under one policy, at a rate that stays; notes where batches ran and what they drew."""

from __future__ import annotations

import json
import os
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.model import BatchProgress
from anabranch.model.measures import TaskMeasure
from anabranch.spark.executors import SparkExecutors
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import describe_commit, list_versions

_PATIENCE_SECONDS = 300.0


class Feeder:
    """Moves files that were made beforehand to where the flow looks, one every few seconds, in their order."""

    def __init__(self, made: Path, watched: Path, seconds: float) -> None:
        self._files = sorted(made.iterdir())
        self._watched, self._seconds = watched, seconds
        self._watched.mkdir()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def start(self) -> None:
        """Begin with the first file."""
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether all files were moved."""
        return not self._thread.is_alive()

    def _feed(self) -> None:
        due = time.monotonic()
        for place, file in enumerate(self._files):
            time.sleep(max(0.0, due - time.monotonic()))
            due += self._seconds
            # Files are read oldest first.
            os.utime(file, (1_700_000_000 + place,) * 2)
            file.rename(self._watched / file.name)


def note(batch: BatchProgress) -> dict[str, Any]:
    """Return what the bench looks at of a batch."""
    measures, energy = batch.measures, batch.energy
    slots = [task for task in measures.tasks if task.level] if measures is not None else []
    crossing = [sent for (one, other), sent in measures.host_bytes.items() if one != other] if measures else []
    return {
        **describe_commit(batch, "batch"),
        "hosts": sorted({task.host for task in slots}),
        "crossing_bytes": sum(crossing),
        "energy": None if energy is None else [energy.joules, energy.low_joules, energy.high_joules, energy.basis],
        "tasks": [] if measures is None else [note_task(task) for task in measures.tasks],
    }


def note_task(task: TaskMeasure) -> dict[str, Any]:
    """Return what the simulator is told of a task: what it took, and what it sent to whom."""
    return {
        "id": task.id,
        "cpu_seconds": task.cpu_seconds + task.starting_seconds,
        "state_bytes": task.state_bytes,
        "sent_bytes": [[*target, sent] for target, sent in task.sent_bytes.items()],
    }


def main() -> None:
    """Run the flow over all files, and write what was seen as JSON."""
    given = read_options(flow=str, made=str, seconds=float, hosts=int, trigger=str, settings=str, energy=str)
    spark = ab.local_session(memory="512m", config=json.loads(given.settings))
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(SparkExecutors(spark).list()) < given.hosts:
        if time.monotonic() > deadline:
            msg = f"waited too long for {given.hosts} executors"
            raise RuntimeError(msg)
        time.sleep(0.2)
    watched = Path(given.checkpoint).with_name("watched")
    feeder = Feeder(Path(given.made), watched, given.seconds)
    batches: list[dict[str, Any]] = []
    flow: ab.Flow = import_module(f"examples.{given.flow}").make_flow(watched, Path(given.output))
    feeder.start()
    handle = flow.start(
        given.checkpoint,
        spark=spark,
        trigger=given.trigger,
        slots=2 * given.hosts,
        energy=json.loads(given.energy),
        on_progress=lambda batch: batches.append(note(batch)),
    )
    until_idle = 2
    while handle.active and until_idle:
        done = len(batches)
        handle.wait(max(2.0, given.seconds))
        # All files are through when triggers find nothing more.
        until_idle = 2 if not feeder.has_ended or len(batches) > done else until_idle - 1
    handle.stop(drain=True)
    handle.wait()
    decisions = ab.history(given.checkpoint, kind="decision")
    spark.stop()
    outcome = {
        "batches": batches,
        "decisions": decisions.select("batch", "action", "sender", "reason").rows(named=True),
        "versions": list_versions(),
    }
    Path(given.result).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
