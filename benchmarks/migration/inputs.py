"""The input of the migration bench: one long window over millions of keys, then equal batches into it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.shared.workload import format_writer, write_atomically

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
SCHEMA = {"sensor": pl.Int64, "ts": pl.Int64, "value": pl.Float64}
WINDOW_MS = 3_600_000
_ORIGIN_MS = 1_700_002_800_000
assert _ORIGIN_MS % WINDOW_MS == 0, "all rows but the last belong to one window"


@dataclass(frozen=True, slots=True)
class MigrationInput:
    """A first batch that has every key once, equal batches of random keys, and a last row that ends the window."""

    keys: int
    batches: int
    """With the same number of rows, after the first and before the last."""
    rows_per_batch: int
    seed: int

    @property
    def rows(self) -> int:
        """Rows in all."""
        return self.keys + self.batches * self.rows_per_batch + 1

    @property
    def files(self) -> int:
        """A file is a batch."""
        return self.batches + 2

    def make_rows(self, file_index: int) -> pl.DataFrame:
        """Return the rows of one file; they depend on the input and the file's number alone."""
        rng = np.random.default_rng([self.seed, self.keys, self.rows_per_batch, file_index])
        if file_index == 0:
            sensors = rng.permutation(self.keys).astype(np.int64)
        elif file_index <= self.batches:
            sensors = rng.integers(0, self.keys, self.rows_per_batch, dtype=np.int64)
        else:
            sensors = np.zeros(1, np.int64)
        hours = 2 if file_index > self.batches else 0
        return pl.DataFrame(
            {
                "sensor": sensors,
                "ts": _ORIGIN_MS
                + hours * WINDOW_MS
                + file_index * 1_000
                + np.arange(len(sensors)) * 1_000 // len(sensors),
                # Quarters: every sum of them is exact in a double, so answers are equal or wrong, never close.
                "value": rng.integers(0, 1_000, len(sensors), dtype=np.int64) / 4.0,
            },
            schema=SCHEMA,
        )


def write_input(given: MigrationInput, cache_dir: Path) -> Path:
    """Return the folder with one Parquet file a batch, writing those that the cache lacks."""
    name = f"v{GENERATOR_VERSION}-k{given.keys}-{given.batches}x{given.rows_per_batch}-s{given.seed}"
    folder = cache_dir / name
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(given.files):
        path = folder / f"part-{index:05d}.parquet"
        if not path.exists():
            write_atomically(path, partial(_write_file, given, index))
    return folder


def _write_file(given: MigrationInput, index: int, path: Path) -> None:
    format_writer("parquet")(given.make_rows(index), path)
    # Spark's file source reads in the order of these times.
    os.utime(path, (_ORIGIN_MS // 1_000 + index, _ORIGIN_MS // 1_000 + index))


def hand_out(folder: Path, target: Path, first: int, until: int) -> None:
    """Link some of the files into a folder that a stream watches."""
    target.mkdir(parents=True, exist_ok=True)
    for index in range(first, until):
        name = f"part-{index:05d}.parquet"
        os.link(folder / name, target / name)
