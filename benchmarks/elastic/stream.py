"""The stream of the elastic bench: files of readings that come at a rate, made as they come, and its right answer."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.shared.answers import AnswerCheck, compute_digest
from benchmarks.skew.peers.lehmer import MODULUS, MULTIPLIER

SCHEMA: dict[str, type[pl.DataType]] = {"sensor": pl.Int64, "ts": pl.Int64, "value": pl.Float64}
TICK_SECONDS = 0.5
"""A file comes so often; more of them at once when the load is higher."""
_ORIGIN_MS = 1_767_225_600_000
_MOST_QUARTERS = 4_000


@dataclass(frozen=True, slots=True)
class Readings:
    """Files of readings: the same bytes for the same number, however they are handed out."""

    rows: int
    """Of a file."""
    sensors: int
    seed: int

    def make(self, number: int) -> pl.DataFrame:
        """Return the rows of a file; each is half a second of event time later than the one before."""
        rng = np.random.default_rng([self.seed, number])
        offsets = np.arange(self.rows) * int(TICK_SECONDS * 1_000) // self.rows
        return pl.DataFrame(
            {
                "sensor": rng.integers(0, self.sensors, self.rows),
                "ts": _ORIGIN_MS + number * int(TICK_SECONDS * 1_000) + offsets,
                # Quarters: every sum of them is exact in a double, so answers are equal or wrong, never close.
                "value": rng.integers(0, _MOST_QUARTERS, self.rows) / 4.0,
            },
            schema=SCHEMA,
        )

    def write(self, number: int, folder: Path, suffix: str = "parquet") -> None:
        """Put a file into a folder that a stream watches, as a whole."""
        hidden, path = folder / f".part-{number:06d}.{suffix}", folder / f"part-{number:06d}.{suffix}"
        rows = self.make(number)
        if suffix == "csv":
            rows.write_csv(hidden)
        else:
            rows.write_parquet(hidden, compression="lz4")
        os.replace(hidden, path)


class Feeder:
    """Writes files at a rate from a thread of its own."""

    def __init__(self, readings: Readings, folder: Path, suffix: str = "parquet") -> None:
        self.load = 1
        """How many files come at once."""
        self.tick_seconds = TICK_SECONDS
        """So often files come."""
        self.files = 0
        """So many have come."""
        self._readings, self._folder, self._suffix = readings, folder, suffix
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True, name="feeder")
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def add(self, files: int) -> None:
        """Write so many files now."""
        for _ in range(files):
            self._readings.write(self.files, self._folder, self._suffix)
            self.files += 1

    def stop(self) -> int:
        """Let no more files come; return how many there are."""
        self._ends.set()
        self._thread.join()
        return self.files

    def _feed(self) -> None:
        due = time.monotonic() + self.tick_seconds
        while not self._ends.wait(max(0.0, due - time.monotonic())):
            # Who is late catches up: the load is what it is said to be.
            due += self.tick_seconds
            self.add(self.load)


def compute_answer(readings: Readings, files: Iterable[int], window_ms: int, steps: int = 0) -> pl.DataFrame:
    """Return window, sensor, readings and total; with ``steps``, the total is that of ``LehmerSum``."""
    rows = pl.concat([readings.make(number) for number in files])
    value = pl.col("value")
    if steps:
        # The generator multiplies by the same number again and again: all steps are one.
        factor = pow(MULTIPLIER, steps, MODULUS)
        value = (((value * 4).cast(pl.Int64) + 1) * factor % MODULUS).cast(pl.Float64)
    windows = rows.select("sensor", value.alias("value"), window_start=pl.col("ts") - pl.col("ts") % window_ms)
    found = windows.group_by("window_start", "sensor").agg(
        readings=pl.len().cast(pl.Int64), total=pl.col("value").sum()
    )
    return found.sort("window_start", "sensor")


def compare_answers(found: pl.DataFrame, wanted: pl.DataFrame) -> AnswerCheck:
    """Compare row for row; a row that was written twice is wrong, too."""
    found = found.select(wanted.columns).cast(wanted.schema).sort("window_start", "sensor", "readings", "total")
    digest = compute_digest(found) if found.height else hashlib.sha256().hexdigest()
    if found.equals(wanted):
        return AnswerCheck(True, found.height, digest)
    missing = wanted.join(found, on=["window_start", "sensor"], how="anti").height
    extra = found.join(wanted, on=["window_start", "sensor"], how="anti").height
    difference = f"{found.height} rows, not {wanted.height}; {missing} are missing, {extra} should not be there"
    return AnswerCheck(False, found.height, digest, difference)


def find_closed(files: int, delay_ms: int) -> int:
    """Return until when all windows must have been emitted after so many files, in milliseconds of event time."""
    return _ORIGIN_MS + files * int(TICK_SECONDS * 1_000) - delay_ms - int(TICK_SECONDS * 1_000)


def keep_closed(answer: pl.DataFrame, until_ms: int, window_ms: int) -> pl.DataFrame:
    """Return the windows that end by then: later ones may still be open in some systems."""
    return answer.filter(pl.col("window_start") + window_ms <= until_ms)
