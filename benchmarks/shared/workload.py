"""The keyed-window input: sensor readings with zipf keys and slightly disordered event times, in equal files."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import polars as pl

from anabranch.errors import AnabranchError
from benchmarks.shared.mixed_json import MIXED_JSON, write_events

FORMATS = ("json", "csv", "parquet", MIXED_JSON)
SCHEMA = {"sensor": pl.Int64, "ts": pl.Int64, "value": pl.Float64}

WINDOW_MS = 10_000
WATERMARK_DELAY_MS = 2_000
ZIPF_EXPONENT = 1.1
# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1

_LARGEST_FILE_ROWS = 500_000
_FEWEST_FILES = 10
# Half a million rows in five seconds: each of 100,000 sensors reports once a second on average. Files start inside
# windows, so that no system gains by files that hold one window each.
_FILE_SPAN_MS = 5_000
_ORIGIN_MS = 1_700_000_003_700
# Below the watermark delay, so that no row is late in any system that reads the files in order.
_DISORDER_MS = 1_900


class WorkloadError(AnabranchError):
    """The input of a bench cannot be made as asked."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What to generate; two equal workloads have equal bytes on every machine with the same Polars."""

    rows: int
    rows_per_file: int
    keys: int
    seed: int

    @property
    def file_count(self) -> int:
        """Files in all, each of ``rows_per_file`` rows."""
        return self.rows // self.rows_per_file


def plan_workload(rows: int, keys: int = 100_000, seed: int = 7) -> Workload:
    """Return a workload of whole files with at least ``rows`` rows.

    The rows are rounded up to files of equal size, because every system admits its input by the file.
    """
    if rows < _FEWEST_FILES:
        msg = f"rows is {rows}; the smallest run has {_FEWEST_FILES} files of one row; ask for more rows"
        raise WorkloadError(msg)
    if keys < 1:
        msg = f"keys is {keys}; a keyed workload needs at least one key"
        raise WorkloadError(msg)
    rows_per_file = min(_LARGEST_FILE_ROWS, -(-rows // _FEWEST_FILES))
    file_count = -(-rows // rows_per_file)
    return Workload(rows=file_count * rows_per_file, rows_per_file=rows_per_file, keys=keys, seed=seed)


def make_rows(workload: Workload, file_index: int) -> pl.DataFrame:
    """Return the rows of one file; they depend on the seed, the keys and the file's number and size alone."""
    rng = np.random.default_rng([workload.seed, workload.keys, workload.rows_per_file, file_index])
    count = workload.rows_per_file
    cumulative_share, sensor_of_rank = _zipf(workload.keys, workload.seed)
    ranks = np.searchsorted(cumulative_share, rng.random(count), side="right")
    rising_ms = _ORIGIN_MS + file_index * _FILE_SPAN_MS + np.arange(count, dtype=np.int64) * _FILE_SPAN_MS // count
    return pl.DataFrame(
        {
            "sensor": sensor_of_rank[np.minimum(ranks, workload.keys - 1)],
            "ts": rising_ms - rng.integers(0, _DISORDER_MS, count, dtype=np.int64),
            # Quarters: every sum of them is exact in a double, so answers are equal or wrong, never close.
            "value": rng.integers(0, 1_000, count, dtype=np.int64) / 4.0,
        },
        schema=SCHEMA,
    )


@lru_cache(maxsize=2)
def _zipf(keys: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    cumulative = np.cumsum(weights)
    # Sensor numbers are shuffled over the ranks: no system may profit from hot keys being small numbers.
    sensors = np.random.default_rng([seed, keys]).permutation(keys).astype(np.int64)
    return cumulative / cumulative[-1], sensors


_WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    "json": lambda frame, path: frame.write_ndjson(path),
    "csv": lambda frame, path: frame.write_csv(path),
    "parquet": lambda frame, path: frame.write_parquet(path, compression="snappy"),
}


def format_writer(file_format: str) -> Callable[[pl.DataFrame, Path], None]:
    """Return the function that writes one file of this format."""
    if file_format not in _WRITERS:
        msg = f"unknown file format {file_format!r}; rows are written as {', '.join(_WRITERS)}"
        raise WorkloadError(msg)
    return _WRITERS[file_format]


def write_workload(
    workload: Workload, file_format: str, cache_dir: Path, on_file: Callable[[], None] | None = None
) -> Path:
    """Return the folder with the workload's files, writing those that the cache lacks.

    A longer workload of the same seed and keys begins with the files of a shorter one, so the folder holds hard
    links into a pool that all lengths share.
    """
    pool = (
        cache_dir
        / f"pool-v{GENERATOR_VERSION}-k{workload.keys}-s{workload.seed}-n{workload.rows_per_file}"
        / file_format
    )
    folder = cache_dir / f"v{GENERATOR_VERSION}-rows{workload.rows}-k{workload.keys}-s{workload.seed}" / file_format
    pool.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in _file_names(workload, file_format):
        if not (pool / name).exists():
            write_atomically(pool / name, partial(_write_file, workload, file_format, index))
        if not (folder / name).exists():
            os.link(pool / name, folder / name)
        if on_file is not None:
            on_file()
    return folder


def _file_names(workload: Workload, file_format: str) -> Iterator[tuple[int, str]]:
    suffix = "json" if file_format == MIXED_JSON else file_format
    for index in range(workload.file_count):
        yield index, f"part-{index:05d}.{suffix}"


def _write_file(workload: Workload, file_format: str, index: int, path: Path) -> None:
    rows = make_rows(workload, index)
    if file_format == MIXED_JSON:
        path.write_bytes(write_events(rows, workload.seed, index))
    else:
        format_writer(file_format)(rows, path)
    _set_time(path, index)


def write_files(folder: Path, count: int, make_rows: Callable[[int], pl.DataFrame], file_format: str) -> None:
    """Write those of so many files that the folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        path = folder / f"part-{index:05d}.{file_format}"
        if not path.exists():
            write_atomically(path, partial(_write_rows, make_rows, index, file_format))


def _write_rows(make_rows: Callable[[int], pl.DataFrame], index: int, file_format: str, path: Path) -> None:
    format_writer(file_format)(make_rows(index), path)
    _set_time(path, index)


def _set_time(path: Path, index: int) -> None:
    # Spark's file source reads in the order of these times, and small files are written within one tick of the clock.
    os.utime(path, (_ORIGIN_MS // 1_000 + index, _ORIGIN_MS // 1_000 + index))


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file so that it is seen whole or not at all, also after a kill."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_lanes(folder: Path, lanes: int) -> Path:
    """Return a folder with the same lines in one file a reader, for systems that take files in no particular order.

    File i goes into lane i mod ``lanes``, so the lanes rise in event time side by side. CSV headers are left out.
    """
    target = folder.with_name(f"{folder.name}-lanes{lanes}")
    target.mkdir(exist_ok=True)
    for lane in range(lanes):
        path = target / f"lane-{lane}{list_files(folder)[0].suffix}"
        if not path.exists():
            write_atomically(path, partial(_join_files, list_files(folder)[lane::lanes]))
    return target


def _join_files(paths: list[Path], target: Path) -> None:
    with target.open("wb") as joined:
        for path in paths:
            with path.open("rb") as file:
                if path.suffix == ".csv":
                    file.readline()
                shutil.copyfileobj(file, joined, 1 << 22)


def write_small_batches(cache_dir: Path, batches: int, rows_per_batch: int, seed: int) -> Path:
    """Return a folder of JSON files with ``rows_per_batch`` rows each, for runs of one file a batch."""
    workload = Workload(batches * rows_per_batch, rows_per_batch, keys=100_000, seed=seed)
    return write_workload(workload, "json", cache_dir)


def list_files(folder: Path) -> list[Path]:
    """Return the workload files of a folder in the order of their event times."""
    return sorted(folder.glob("part-*"))


def read_through(folder: Path) -> int:
    """Read every file once, so that each system finds the same warm page cache; return the bytes read."""
    total_bytes = 0
    for path in list_files(folder):
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                total_bytes += len(chunk)
    return total_bytes
