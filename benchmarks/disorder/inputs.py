"""The input of the disorder bench: sensors in order, each for itself, of sources that lag behind each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.shared.workload import SCHEMA, WorkloadError, write_files

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
FILE_FORMAT = "csv"
WINDOW_MS = 10_000
DELAY_MS = 2_000
SOURCES = 100
"""Sensors have the number of their source in their last two digits."""
# Several windows: rows of these sources arrive long after all others of their time, and longer after it than a batch
# lasts, so that they are late for whoever keeps one time for all sources.
LEAST_LAG_MS = 45_000
LARGEST_LAG_MS = 95_000
LATENESS_MS = 100_000
"""How long after its end a window takes rows: longer than the largest lag, so that none is dropped."""
# Sources that do not lag differ by less than the delay of watermarks.
_PUNCTUAL_LAG_MS = 1_000
_LARGEST_FILE_ROWS = 500_000
_FEWEST_FILES = 10
_ORIGIN_MS = 1_700_000_003_700


@dataclass(frozen=True, slots=True)
class DisorderInput:
    """What to generate; equal inputs have equal bytes."""

    rows: int
    rows_per_file: int
    late_pct: int
    """Of the sources, and so of the rows: how many lag by several windows."""
    sensors: int
    rows_per_event_second: int
    seed: int

    @property
    def file_count(self) -> int:
        return self.rows // self.rows_per_file

    def find_lags_ms(self) -> np.ndarray:
        """Return how far each source lags; those that lag at 25 % lag as far at 75 %."""
        rng = np.random.default_rng([self.seed, SOURCES])
        lags_ms = rng.integers(0, _PUNCTUAL_LAG_MS, SOURCES, dtype=np.int64)
        far_ms = rng.integers(LEAST_LAG_MS, LARGEST_LAG_MS, SOURCES, dtype=np.int64)
        lagging = rng.permutation(SOURCES)[: SOURCES * self.late_pct // 100]
        lags_ms[lagging] = far_ms[lagging]
        return lags_ms

    def list_punctual_sources(self) -> list[int]:
        """Return the sources whose rows are late for no one."""
        return np.flatnonzero(self.find_lags_ms() < _PUNCTUAL_LAG_MS).tolist()

    def make_rows(self, file_index: int) -> pl.DataFrame:
        """Return the rows of one file in the order of their arrival; every sensor reports once a round."""
        first = file_index * self.rows_per_file
        arrived = np.arange(first, first + self.rows_per_file, dtype=np.int64)
        rounds = range(first // self.sensors, (first + self.rows_per_file - 1) // self.sensors + 1)
        order = np.concatenate([self._shuffle_sensors(number) for number in rounds])
        sensors = order[first - rounds.start * self.sensors :][: self.rows_per_file]
        rng = np.random.default_rng([self.seed, self.sensors, self.rows_per_file, file_index])
        return pl.DataFrame(
            {
                "sensor": sensors,
                "ts": _ORIGIN_MS
                + arrived * 1_000 // self.rows_per_event_second
                - self.find_lags_ms()[sensors % SOURCES],
                # Volts in quarters: every sum of them is exact in a double, so answers are equal or wrong, never close.
                "value": rng.integers(800, 1_000, self.rows_per_file, dtype=np.int64) / 4.0,
            },
            schema=SCHEMA,
        )

    def _shuffle_sensors(self, number: int) -> np.ndarray:
        return np.random.default_rng([self.seed, self.sensors, number]).permutation(self.sensors).astype(np.int64)


def plan_input(
    rows: int, late_pct: int, sensors: int = 100_000, rows_per_event_second: int = 300_000, seed: int = 7
) -> DisorderInput:
    """Return an input of whole, equal files with at least ``rows`` rows."""
    if rows < _FEWEST_FILES:
        msg = f"rows is {rows}; the smallest run has {_FEWEST_FILES} files of one row; ask for more rows"
        raise WorkloadError(msg)
    if sensors < SOURCES:
        msg = f"sensors is {sensors}; there are {SOURCES} sources with at least one each; ask for more keys"
        raise WorkloadError(msg)
    rows_per_file = min(_LARGEST_FILE_ROWS, -(-rows // _FEWEST_FILES))
    file_count = -(-rows // rows_per_file)
    return DisorderInput(file_count * rows_per_file, rows_per_file, late_pct, sensors, rows_per_event_second, seed)


def write_input(given: DisorderInput, cache_dir: Path) -> Path:
    """Return the folder with the input's files, writing those that the cache lacks."""
    name = (
        f"v{GENERATOR_VERSION}-rows{given.rows}-n{given.rows_per_file}-late{given.late_pct}-k{given.sensors}"
        f"-r{given.rows_per_event_second}-s{given.seed}"
    )
    folder = cache_dir / name / FILE_FORMAT
    write_files(folder, given.file_count, given.make_rows, FILE_FORMAT)
    return folder
