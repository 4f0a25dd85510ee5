"""What the inputs of all joins of the bench have in common: whole files, a folder a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

from benchmarks.joins.streams import MOMENT, STREAMS
from benchmarks.shared.workload import WorkloadError, write_files

LARGEST_FILE_ROWS = 125_000
FEWEST_FILES = 12
_TYPES: Mapping[str, type[pl.DataType]] = {
    "BIGINT": pl.Int64,
    "INT": pl.Int32,
    "DOUBLE": pl.Float64,
    "STRING": pl.String,
    "BOOLEAN": pl.Boolean,
    "DATE": pl.Date,
    MOMENT: pl.Int64,
}


@dataclass(frozen=True, slots=True)
class FileCut:
    """How many equal files rows are cut into."""

    count: int
    rows_per_file: int


class JoinInput(Protocol):
    """The streams of one join, under one skew; equal inputs have equal bytes."""

    @property
    def query(self) -> str:
        """What is asked of them."""
        ...

    @property
    def name(self) -> str:
        """What tells it from all other inputs."""
        ...

    @property
    def cut(self) -> FileCut:
        """The files of the largest stream; batches take whole ones."""
        ...

    def count_rows(self) -> dict[str, int]:
        """Return the rows of each stream."""
        ...

    def count_files(self, stream: str) -> int:
        """Return the files of a stream."""
        ...

    def make_rows(self, stream: str, index: int) -> pl.DataFrame:
        """Return the rows of one file of a stream."""
        ...

    def describe(self) -> dict[str, object]:
        """Return what is to be known of it beside a figure."""
        ...


def find_schema(query: str, stream: str) -> dict[str, pl.DataType]:
    """Return the columns of a stream's files."""
    return {name: _TYPES[kind]() for name, kind in STREAMS[query][stream].items()}


def cut_files(rows: int, largest: int = LARGEST_FILE_ROWS) -> FileCut:
    """Return whole, equal files with at least so many rows in all."""
    if rows < FEWEST_FILES:
        msg = f"rows is {rows}; the smallest run has {FEWEST_FILES} files of one row; ask for more rows"
        raise WorkloadError(msg)
    rows_per_file = min(largest, -(-rows // FEWEST_FILES))
    return FileCut(-(-rows // rows_per_file), rows_per_file)


def write_streams(given: JoinInput, file_format: str, cache_dir: Path) -> Path:
    """Return the folder with a folder of files for each stream, writing those that the cache lacks."""
    folder = cache_dir / given.name / file_format
    for stream in STREAMS[given.query]:
        write_files(
            folder / stream,
            given.count_files(stream),
            lambda index, stream=stream: given.make_rows(stream, index),  # type: ignore[misc]
            file_format,
        )
    return folder
