"""What a run of Anabranch itself reports: its commits by the wall clock, its batches, settings and versions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anabranch.model import BatchProgress


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
    """Return a batch's rows, seconds and phases, and what else of it is named."""
    described = {"rows": batch.rows_in, "seconds": batch.batch_seconds, "phase_seconds": batch.phase_seconds}
    return {**described, **{name: getattr(batch, name) for name in more}}


def describe_commit(batch: BatchProgress, *more: str) -> dict[str, Any]:
    """Return what ``describe_batch`` does, with the moment, which is now, and with what changes about routes."""
    return {**describe_batch(batch, *more), "committed_at": time.time(), "change": "; ".join(batch.changes)}


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
