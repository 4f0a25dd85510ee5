"""The input of the exchange bench: readings of sensors that all report alike, as they came and in partitions by key."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from anabranch.connectors.partitioner import Partitioner
from benchmarks.shared.workload import SCHEMA, WorkloadError, format_writer, write_atomically

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
FILE_FORMAT: Final = "parquet"
WINDOW_MS = 300_000
DELAY_MS = 2_000
READINGS_PER_SECOND = 10
"""Of every sensor."""
BATCH_ROWS = 2_000_000
"""At 2,000 sensors, 100 s of event time."""
PARTITIONS = 8
"""And files a batch, in both layouts."""
FEWEST_BATCHES = 12
# Below the watermark's delay, so that no row is late.
_DISORDER_MS = 1_900
_ORIGIN_MS = 1_700_000_003_700
_ROUND_MS = 1_000 // READINGS_PER_SECOND
MIXED, PARTITIONED = "mixed", "partitioned"


@dataclass(frozen=True, slots=True)
class ExchangeInput:
    """What to generate; equal inputs have equal bytes."""

    batches: int
    batch_rows: int
    sensors: int
    seed: int

    @property
    def rows(self) -> int:
        return self.batches * self.batch_rows

    @property
    def span_seconds(self) -> float:
        """Event time from the first row to the last."""
        return self.rows / (self.sensors * READINGS_PER_SECOND)

    def make_rows(self, batch: int) -> pl.DataFrame:
        """Return the rows of a batch in the order of their arrival; every sensor reports once a round."""
        first = batch * self.batch_rows
        arrived = np.arange(first, first + self.batch_rows, dtype=np.int64)
        rounds = range(first // self.sensors, (first + self.batch_rows - 1) // self.sensors + 1)
        order = np.concatenate([self._shuffle_sensors(number) for number in rounds])
        sensors = order[first - rounds.start * self.sensors :][: self.batch_rows]
        rng = np.random.default_rng([self.seed, self.sensors, self.batch_rows, batch])
        return pl.DataFrame(
            {
                "sensor": sensors,
                "ts": _ORIGIN_MS
                + arrived * _ROUND_MS // self.sensors
                - rng.integers(0, _DISORDER_MS, self.batch_rows, dtype=np.int64),
                # Volts in quarters: every sum of them is exact in a double, so answers are equal or wrong, never close.
                "value": rng.integers(800, 1_000, self.batch_rows, dtype=np.int64) / 4.0,
            },
            schema=SCHEMA,
        )

    def _shuffle_sensors(self, number: int) -> np.ndarray:
        return np.random.default_rng([self.seed, self.sensors, number]).permutation(self.sensors).astype(np.int64)


def plan_input(rows: int, sensors: int, seed: int = 7, fewest_batches: int = FEWEST_BATCHES) -> ExchangeInput:
    """Return an input of whole batches with at least ``rows`` rows, smaller batches where there are few."""
    fewest = fewest_batches * PARTITIONS
    if rows < fewest:
        msg = f"rows is {rows}; the smallest run has {fewest_batches} batches of {PARTITIONS} rows; ask for {fewest}"
        raise WorkloadError(msg)
    if sensors < PARTITIONS:
        msg = f"sensors is {sensors}; there are {PARTITIONS} partitions, each with some; ask for more keys"
        raise WorkloadError(msg)
    wanted = min(BATCH_ROWS, -(-rows // fewest_batches))
    batch_rows = -(-wanted // PARTITIONS) * PARTITIONS
    return ExchangeInput(-(-rows // batch_rows), batch_rows, sensors, seed)


def make_partitioner() -> Partitioner:
    """Return what the partitioned layout is written by."""
    return Partitioner("hash", partitions=PARTITIONS, keys="sensor")


def write_input(given: ExchangeInput, cache_dir: Path) -> Path:
    """Return the folder of both layouts, writing what the cache lacks: the same rows, as many files a batch.

    *mixed* has files that follow one another in time, each with all sensors. *partitioned* has a folder a partition.
    """
    folder = cache_dir / f"v{GENERATOR_VERSION}-b{given.batches}-n{given.batch_rows}-k{given.sensors}-s{given.seed}"
    mixed, partitioned = folder / MIXED, folder / PARTITIONED
    for place in (mixed, *(partitioned / f"p-{number}" for number in range(PARTITIONS))):
        place.mkdir(parents=True, exist_ok=True)
    partitioner = make_partitioner()
    file_rows = given.batch_rows // PARTITIONS
    for batch in range(given.batches):
        done = folder / f".batch-{batch:05d}"
        if done.exists():
            continue
        rows = given.make_rows(batch)
        for number in range(PARTITIONS):
            path = mixed / f"part-{batch:05d}-{number}.{FILE_FORMAT}"
            part = rows[number * file_rows : (number + 1) * file_rows]
            write_atomically(path, partial(_write_file, part, batch))
        for number, part in partitioner.split_frame(rows):
            path = partitioned / f"p-{number}" / f"part-{batch:05d}.{FILE_FORMAT}"
            write_atomically(path, partial(_write_file, part, batch))
        done.touch()
    return folder


def _write_file(rows: pl.DataFrame, batch: int, path: Path) -> None:
    format_writer(FILE_FORMAT)(rows, path)
    # The file source reads in the order of these times: batches are cut where they were written.
    os.utime(path, (_ORIGIN_MS // 1_000 + batch, _ORIGIN_MS // 1_000 + batch))
