"""How one file becomes splits: byte ranges of text, row ranges of Parquet and Arrow, whole compressed files."""

from __future__ import annotations

import itertools
import math
import zlib
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars.exceptions import PolarsError

from anabranch.connectors.file_listing import FileEntry
from anabranch.connectors.line_ranges import compression_of
from anabranch.model import Split

SPLIT_BYTES = 16 * 1024 * 1024
_SAMPLE_BYTES = 64 * 1024
_TEXT_FORMATS = ("json", "csv")


class UnreadableFile(Exception):
    """A file has no footer that can be read: damaged, or not written to its end yet."""


@dataclass(frozen=True, slots=True)
class FileMeasure:
    """What planning must know of a file: how long it is, in bytes or rows, and what a row costs."""

    unit: str
    """``bytes``, ``rows`` or ``file``: what a position in the file counts."""
    length: int
    bytes_per_unit: float
    rows_per_unit: float


def measure_file(entry: FileEntry, format: str, cut_text: bool = True) -> FileMeasure:
    """Measure a file from its metadata, or from a sample of its first 64 kB."""
    if format in _TEXT_FORMATS:
        return _measure_text(entry, cut_text)
    try:
        if format == "parquet":
            rows = pq.read_metadata(entry.path).num_rows
        else:
            rows = pl.scan_ipc(entry.path).select(pl.len()).collect().item()
    except FileNotFoundError:
        raise
    except (OSError, ValueError, pa.ArrowException, PolarsError) as error:
        raise UnreadableFile(str(error).splitlines()[0]) from error
    return FileMeasure("rows", rows, entry.size_bytes / max(1, rows), 1.0)


def _measure_text(entry: FileEntry, cut_text: bool) -> FileMeasure:
    with open(entry.path, "rb") as file:
        raw = file.read(_SAMPLE_BYTES)
    compression = compression_of(entry.path)
    sample = raw if compression is None else _inflate_sample(raw, compression)
    inflation = 1.0 if compression is None else max(1.0, len(sample) / max(1, len(raw)))
    bytes_per_row = max(2.0, len(sample) / max(1, sample.count(b"\n")))
    if compression is None and cut_text:
        return FileMeasure("bytes", entry.size_bytes, 1.0, 1.0 / bytes_per_row)
    total_bytes = entry.size_bytes * inflation
    return FileMeasure("file", 1, total_bytes, total_bytes / bytes_per_row)


def _inflate_sample(raw: bytes, compression: str) -> bytes:
    try:
        if compression == "gzip":
            return zlib.decompressobj(wbits=31).decompress(raw, 8 * _SAMPLE_BYTES)
        with pa.CompressedInputStream(pa.BufferReader(raw), "zstd") as stream:
            return bytes(stream.read(8 * _SAMPLE_BYTES))
    except (zlib.error, OSError):
        return raw  # Damage is found, and told, when the file is read.


def cut_file(
    entry: FileEntry, measure: FileMeasure, start: int, max_rows: float, max_bytes: float, at_least_one: bool
) -> tuple[list[Split], int]:
    """Cut what fits into the limits, from ``start`` on, into splits of about 16 MiB; return them and the next start."""
    fits = min(max_rows / measure.rows_per_unit, max_bytes / measure.bytes_per_unit)
    units = measure.length - start if fits >= measure.length - start else math.floor(fits)
    if at_least_one:
        # A batch must move on: by one row, one file, or about one line.
        smallest = 1 if measure.unit != "bytes" else math.ceil(1 / measure.rows_per_unit)
        units = max(units, smallest)
    units = min(units, measure.length - start)
    if units <= 0:
        return [], start
    pieces = max(1, round(units * measure.bytes_per_unit / SPLIT_BYTES)) if measure.unit != "file" else 1
    edges = [start + units * piece // pieces for piece in range(pieces + 1)]
    splits = [
        {
            "path": entry.path,
            "size": entry.size_bytes,
            "unit": measure.unit,
            "from": first,
            "to": last,
            "bytes": int((last - first) * measure.bytes_per_unit),
        }
        for first, last in itertools.pairwise(edges)
        if last > first
    ]
    return splits, start + units
