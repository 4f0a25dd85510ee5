"""How one file becomes splits: byte ranges of text, row ranges of Parquet and Arrow, whole compressed files."""

from __future__ import annotations

import io
import itertools
import math
import os
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.connectors.filesystem.content_marks import mark_content
from anabranch.connectors.filesystem.line_ranges import CompressedDamage, compression_of, decompress
from anabranch.connectors.filesystem.listing import FileEntry
from anabranch.connectors.filesystem.locations import is_out_of_reach, open_file
from anabranch.model import Split

SPLIT_BYTES = 16 * 1024 * 1024
_SAMPLE_BYTES = 64 * 1024
_TEXT_FORMATS = ("json", "csv")


class UnreadableFile(Exception):
    """A file has no footer that can be read: damaged, or not written to its end yet."""


@dataclass(frozen=True, slots=True)
class FileMeasure:
    """What planning must know of a file: how long it is, in bytes or rows, and what a unit of it holds."""

    unit: str
    """``bytes``, ``rows`` or ``file``: what a position in the file counts."""
    length: int
    bytes_per_unit: float
    rows_per_unit: float
    boundaries: tuple[int, ...] = ()
    """Where a cut costs nothing: between the row groups of a Parquet file."""
    mark: str | None = None
    """What the file holds, by a sample: whoever reads it finds out if it was replaced."""


def measure_file(entry: FileEntry, format: str, *, counts_rows: bool = True, cut_text: bool = True) -> FileMeasure:
    """Measure a file from its metadata; text whose rows count, from a sample of its first 64 kB."""
    with open_file(entry.path) as file:  # Gone files are found out here, before they are planned.
        mark = mark_content(file, entry.size_bytes)
        if format in _TEXT_FORMATS:
            measure = _measure_text(file, entry, counts_rows, cut_text)
        else:
            measure = _measure_rows(file, entry, format)
    return replace(measure, mark=mark)


def _measure_rows(file: BinaryIO, entry: FileEntry, format: str) -> FileMeasure:
    try:
        if format == "parquet":
            metadata = pq.read_metadata(file)
            groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        else:
            groups = [pa.ipc.open_file(file).count_rows()]
    except (OSError, ValueError, pa.ArrowException) as error:
        if is_out_of_reach(error):
            raise
        raise UnreadableFile(str(error).splitlines()[0]) from error
    ends = tuple(itertools.accumulate(groups))
    rows = ends[-1] if ends else 0
    return FileMeasure("rows", rows, entry.size_bytes / max(1, rows), 1.0, ends)


def _measure_text(file: BinaryIO, entry: FileEntry, counts_rows: bool, cut_text: bool) -> FileMeasure:
    compression = compression_of(entry.path)
    is_cut = compression is None and cut_text
    if is_cut and not counts_rows:
        return FileMeasure("bytes", entry.size_bytes, 1.0, 0.0)
    raw = file.read(_SAMPLE_BYTES)
    sample = raw if compression is None else _inflate_sample(raw, compression)
    bytes_per_row = max(2.0, len(sample) / max(1, sample.count(b"\n")))
    if is_cut:
        return FileMeasure("bytes", entry.size_bytes, 1.0, 1.0 / bytes_per_row)
    total_bytes = entry.size_bytes * max(1.0, len(sample) / max(1, len(raw)))
    return FileMeasure("file", 1, total_bytes, total_bytes / bytes_per_row)


def _inflate_sample(raw: bytes, compression: str) -> bytes:
    sample = b""
    try:
        for chunk in decompress(io.BytesIO(raw), compression, len(raw), recovers=False):
            sample += chunk
    except CompressedDamage:
        pass  # The sample ends early by its nature; real damage is found, and told, when the file is read.
    return sample


def cut_file(
    entry: FileEntry, measure: FileMeasure, start: int, max_rows: float, max_bytes: float, at_least_one: bool
) -> tuple[list[Split], int]:
    """Cut what fits into the limits, from ``start`` on, into splits of about 16 MiB; return them and the next start."""
    left = measure.length - start
    fits_by_bytes = max_bytes / measure.bytes_per_unit
    fits_by_rows = max_rows / measure.rows_per_unit if measure.rows_per_unit else math.inf
    units = left if min(fits_by_bytes, fits_by_rows) >= left else math.floor(min(fits_by_bytes, fits_by_rows))
    if units < left and fits_by_bytes < fits_by_rows:
        # Bytes are no exact measure, so the batch may as well end where a row group does.
        units = max([end - start for end in measure.boundaries if start < end <= start + units], default=units)
    if at_least_one:
        # A batch must move on: by one row, one file, or about one line.
        units = max(units, 1 if measure.unit != "bytes" else math.ceil(1 / (measure.rows_per_unit or 1.0)))
    units = min(units, left)
    if units <= 0:
        return [], start
    mark = {} if measure.mark is None else {"mark": measure.mark}
    edges = [start, *_cut_evenly(measure, start, units), start + units]
    splits = [
        {
            "path": entry.path,
            "size": entry.size_bytes,
            "unit": measure.unit,
            "from": first,
            "to": last,
            "bytes": int((last - first) * measure.bytes_per_unit),
            **mark,
            **partition_of(entry),
        }
        for first, last in itertools.pairwise(edges)
    ]
    return splits, start + units


def pass_over(entry: FileEntry, reason: str) -> Split:
    """Return the split of a file that is set aside: it brings a dead letter and no rows."""
    extent = {"path": entry.path, "size": entry.size_bytes, "unit": "file", "from": 0, "to": 1, "bytes": 1}
    return {**extent, **partition_of(entry), "set_aside": reason}


def partition_of(entry: FileEntry) -> Split:
    """Return what a split says of the folder that its file is in."""
    folder = os.path.dirname(entry.name)
    return {"partition": folder} if folder else {}


def _cut_evenly(measure: FileMeasure, start: int, units: int) -> list[int]:
    """Return the inner edges of splits of about 16 MiB, moved to the nearest boundary where there are any."""
    if measure.unit == "file":
        return []
    pieces = max(1, round(units * measure.bytes_per_unit / SPLIT_BYTES))
    edges = {start + units * piece // pieces for piece in range(1, pieces)}
    inner = [end for end in measure.boundaries if start < end < start + units]
    if inner:
        edges = {min(inner, key=lambda end: (abs(end - edge), end)) for edge in edges}
    return sorted(edge for edge in edges if start < edge < start + units)
