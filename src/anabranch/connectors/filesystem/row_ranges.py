"""Ranges of rows of Parquet and Arrow files, on a disk or in an object store."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.connectors.filesystem.locations import open_file
from anabranch.state.objects import is_url


class FileRows(Protocol):
    """An open file that tells its columns, and gives rows by their numbers."""

    @property
    def schema(self) -> Mapping[str, pl.DataType]: ...

    def read(self, first: int, end: int, columns: Sequence[str]) -> pl.DataFrame: ...


@contextmanager
def open_rows(path: str, format: str) -> Iterator[FileRows]:
    """Open a Parquet or Arrow file."""
    if not is_url(path):
        # Polars maps local files, and is quicker than anything that goes through Python.
        yield _ScannedRows(pl.scan_parquet(path, glob=False) if format == "parquet" else pl.scan_ipc(path, glob=False))
        return
    with open_file(path) as file:
        yield _FetchedGroups(file) if format == "parquet" else _ScannedRows(pl.scan_ipc(io.BytesIO(file.read())))


class _ScannedRows:
    def __init__(self, scan: pl.LazyFrame) -> None:
        self._scan = scan

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        return self._scan.collect_schema()

    def read(self, first: int, end: int, columns: Sequence[str]) -> pl.DataFrame:
        return self._scan.slice(first, end - first).select(columns).collect()


class _FetchedGroups:
    """A Parquet object, of which only the row groups and columns that are asked for are fetched."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = pq.ParquetFile(file, pre_buffer=True)

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        return _to_polars(self._file.schema_arrow.empty_table()).schema

    def read(self, first: int, end: int, columns: Sequence[str]) -> pl.DataFrame:
        groups: list[int] = []
        before, start = 0, 0
        for number in range(self._file.metadata.num_row_groups):
            rows = self._file.metadata.row_group(number).num_rows
            if before < end and before + rows > first:
                start = start if groups else before
                groups.append(number)
            before += rows
        table = self._file.read_row_groups(groups, columns=list(columns))
        return _to_polars(table.slice(first - start, end - first)).select(columns)


def _to_polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
