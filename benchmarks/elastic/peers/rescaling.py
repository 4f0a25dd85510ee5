"""What all systems of the part ``rescale`` go through: a stream at a rate, a change in the middle, its results."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import polars as pl

from benchmarks.elastic.stream import Feeder, Readings, find_closed
from benchmarks.shared.peers.options import read_options

BEFORE_SECONDS = 12.0
FEWEST_BEFORE = 10
"""So many results must have come before the change; on a slow machine that takes longer."""
AFTER_SECONDS = 15.0
PATIENCE_SECONDS = 90.0
_LOOK_SECONDS = 0.02


class ResultsWatch:
    """Notes when results become visible: files that are there under their last name, in a folder or below it."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self.moments: list[float] = []
        self._folder, self._pattern = folder, pattern
        self._seen: set[Path] = set()
        self._ends = threading.Event()
        threading.Thread(target=self._look, daemon=True, name="results").start()

    def stop(self) -> None:
        """Look no more."""
        self._ends.set()

    def _look(self) -> None:
        while not self._ends.is_set():
            # Systems delete folders while they are looked through: whatever is missed is found at the next look.
            with contextlib.suppress(FileNotFoundError):
                self.look()
            self._ends.wait(_LOOK_SECONDS)

    def look(self) -> None:
        """Note the moment if there is a result that was not there before."""
        found = self._folder.rglob(self._pattern) if self._folder.exists() else ()
        # What Spark is about to write is no result yet.
        there = {path for path in found if "_temporary" not in path.parts}
        now = time.time()
        # An empty file is no result.
        if any(path.stat().st_size for path in there - self._seen):
            self.moments.append(now)
        self._seen |= there


def read_rescaling_options() -> Namespace:
    """Return what every system is told."""
    return read_options(
        {"command": ""}, rows=int, sensors=int, seed=int, window_ms=int, delay_ms=int, slots=int, slots_after=int
    )


def rescale(
    given: Namespace, feeder: Feeder, pattern: str, change: Callable[[], None], read: Callable[[], pl.DataFrame]
) -> None:
    """Let the stream run, change it, let it run on, and write when results came; the system has been started."""
    watch = ResultsWatch(Path(given.output), pattern)
    feeder.start()
    _wait_until(lambda: bool(watch.moments), "the first result")
    time.sleep(BEFORE_SECONDS)
    _wait_until(lambda: len(watch.moments) >= FEWEST_BEFORE, f"{FEWEST_BEFORE} results")
    changed_at = time.time()
    change()
    done_at = time.time()
    time.sleep(max(0.0, AFTER_SECONDS - (done_at - changed_at)))
    files = feeder.stop()
    until_ms = find_closed(files, given.delay_ms)

    def is_through() -> bool:
        found = read()
        ends = pl.col("window_start") + given.window_ms
        return found.height > 0 and found.select(ends.max()).item() + given.window_ms > until_ms

    _wait_until(is_through, "the last result")
    outcome = {
        "moments": watch.moments,
        "changed_at": changed_at,
        "change_seconds": done_at - changed_at,
        "files": files,
    }
    Path(given.result).write_text(json.dumps(outcome))


def make_feeder(given: Namespace) -> Feeder:
    """Return what writes the stream's files into a folder beside the checkpoint."""
    readings = Readings(given.rows, given.sensors, given.seed)
    return Feeder(readings, Path(given.checkpoint).with_name("watched"), "csv")


def watched_folder(given: Namespace) -> Path:
    """Return where the stream's files are."""
    return Path(given.checkpoint).with_name("watched")


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            msg = f"{what} did not come within {PATIENCE_SECONDS:.0f} s"
            raise RuntimeError(msg)
        time.sleep(0.2)
