"""The input of the operators bench: visits of users with names of all lengths, to sites, in Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.shared.workload import WorkloadError, format_writer, write_atomically
from benchmarks.shared.zipf import draw_zipf

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
SCHEMA = {"user": pl.String, "site": pl.String, "ts": pl.Int64, "item": pl.Int64, "value": pl.Float64}
FILE_FORMAT = "parquet"
SITES = 600
ITEMS = 300
LARGEST_VALUE = 250.0
"""No value reaches it."""
_LARGEST_FILE_ROWS = 250_000
_FEWEST_FILES = 12
# A quarter of a million rows in three seconds; files start inside windows.
_FILE_SPAN_MS = 3_000
_ORIGIN_MS = 1_700_000_003_700
# Below the watermark delay, so that no row is late in any system that reads the files in order.
_DISORDER_MS = 1_900
_LONGEST_NAME = 160
_BEGINNINGS = ("", "", "user:", "https://shop.example/customers/", "Zoë-", "用户", "tenant-0042/eu-central-1/")


@dataclass(frozen=True, slots=True)
class OperatorsInput:
    """What to generate; equal inputs have equal bytes."""

    rows: int
    rows_per_file: int
    users: int
    seed: int

    @property
    def file_count(self) -> int:
        return self.rows // self.rows_per_file

    @property
    def latest_ms(self) -> int:
        """A time that no row has reached."""
        return _ORIGIN_MS + self.file_count * _FILE_SPAN_MS

    def describe_names(self) -> dict[str, float]:
        """Return how long the users' names are, in bytes, and how skewed."""
        lengths = _make_users(self.users, self.seed).str.len_bytes()
        quantiles = {f"name_bytes_p{pct}": float(lengths.quantile(pct / 100) or 0) for pct in (10, 50, 99)}
        return {**quantiles, "zipf_exponent": _find_shape(self.seed).exponent}

    def make_rows(self, file_index: int) -> pl.DataFrame:
        """Return the rows of one file; they depend on the seed, the users and the file's number and size alone."""
        count, shape = self.rows_per_file, _find_shape(self.seed)
        rng = np.random.default_rng([self.seed, self.users, count, file_index])
        rising_ms = _ORIGIN_MS + file_index * _FILE_SPAN_MS + np.arange(count, dtype=np.int64) * _FILE_SPAN_MS // count
        users = _make_users(self.users, self.seed)
        sites = _make_sites(self.seed)
        return pl.DataFrame(
            {
                "user": users[draw_zipf(rng, count, self.users, shape.exponent)],
                "site": sites[draw_zipf(rng, count, SITES, 0.9)],
                "ts": rising_ms - rng.integers(0, _DISORDER_MS, count, dtype=np.int64),
                "item": draw_zipf(rng, count, ITEMS, 0.7),
                # Quarters: every sum of them is exact in a double, so answers are equal or wrong, never close.
                "value": np.minimum(rng.exponential(shape.mean_value, count), LARGEST_VALUE - 1) // 0.25 / 4.0,
            },
            schema=SCHEMA,
        )


@dataclass(frozen=True, slots=True)
class _Shape:
    """What differs from seed to seed beside the rows themselves."""

    exponent: float
    median_name: float
    spread_of_names: float
    mean_value: float


def _find_shape(seed: int) -> _Shape:
    rng = np.random.default_rng([seed, 1])
    return _Shape(
        exponent=float(rng.uniform(0.9, 1.2)),
        median_name=float(rng.uniform(7, 16)),
        spread_of_names=float(rng.uniform(0.5, 0.9)),
        mean_value=float(rng.uniform(10, 40)),
    )


def plan_input(rows: int, users: int, seed: int) -> OperatorsInput:
    """Return an input of whole, equal files with at least ``rows`` rows."""
    if rows < _FEWEST_FILES:
        msg = f"rows is {rows}; the smallest run has {_FEWEST_FILES} files of one row; ask for more rows"
        raise WorkloadError(msg)
    rows_per_file = min(_LARGEST_FILE_ROWS, -(-rows // _FEWEST_FILES))
    file_count = -(-rows // rows_per_file)
    return OperatorsInput(file_count * rows_per_file, rows_per_file, users, seed)


def write_input(given: OperatorsInput, cache_dir: Path, on_file: Callable[[], None] | None = None) -> Path:
    """Return the folder with the input's files, writing those that the cache lacks."""
    name = f"v{GENERATOR_VERSION}-rows{given.rows}-n{given.rows_per_file}-k{given.users}-s{given.seed}"
    folder = cache_dir / name / FILE_FORMAT
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(given.file_count):
        path = folder / f"part-{index:05d}.{FILE_FORMAT}"
        if not path.exists():
            write_atomically(path, partial(_write_file, given, index))
        if on_file is not None:
            on_file()
    return folder


def _write_file(given: OperatorsInput, index: int, path: Path) -> None:
    format_writer(FILE_FORMAT)(given.make_rows(index), path)
    # Spark's file source reads in the order of these times, and small files are written within one tick of the clock.
    os.utime(path, (_ORIGIN_MS // 1_000 + index, _ORIGIN_MS // 1_000 + index))


@lru_cache(maxsize=2)
def _make_users(users: int, seed: int) -> pl.Series:
    """Return different names by rank, most of them short, some of them very long, some with the same beginning."""
    shape, rng = _find_shape(seed), np.random.default_rng([seed, users, 2])
    lengths = rng.lognormal(np.log(shape.median_name), shape.spread_of_names, users).astype(np.int64)
    digits = pl.concat_list(
        [pl.Series(f"{i}", rng.integers(2**60, 2**63, users)).cast(pl.String) for i in range(_LONGEST_NAME // 19)]
    )
    number = pl.Series(rng.permutation(users)).cast(pl.String)
    names = pl.select(
        pl.Series(np.array(_BEGINNINGS, dtype=object)[rng.integers(0, len(_BEGINNINGS), users)].tolist())
        + number
        + "-"
        + digits.list.join("").str.slice(0, pl.Series(np.clip(lengths, 1, _LONGEST_NAME)))
    )
    return names.to_series()


@lru_cache(maxsize=2)
def _make_sites(seed: int) -> pl.Series:
    rng = np.random.default_rng([seed, 3])
    return pl.Series([f"www.{'ab' * int(size)}{i}.example" for i, size in enumerate(rng.lognormal(1.2, 0.7, SITES))])
