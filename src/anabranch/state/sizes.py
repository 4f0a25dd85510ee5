"""How many bytes of state lie where on the line of hashes, told from the edges of sorted runs and not row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.model import HASH, WINDOW, RunRef
from anabranch.state.runs import RunDamaged, RunFiles

Edges = NDArray[np.int64]
_LAST_HASH = 2**64 - 1


def measure_between(runs: Iterable[RunRef], files: RunFiles, cuts: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the bytes of live rows from each cut up to the next; cuts rise, and the first of them is 0.

    What is counted is the rows as they lie in memory, packed or not in their file. Searching for the cuts touches a few
    pages of a run, however large it is. A run that cannot be read counts nothing: whoever needs its rows will say so.
    """
    sizes = np.zeros(len(cuts), np.int64)
    for ref in runs:
        with suppress(RunDamaged, pa.ArrowException, OSError):
            sizes += _measure_run(files.open_table(ref), ref, cuts)
    return sizes


def measure_rows(rows: pa.Table) -> NDArray[np.int64]:
    """Return the bytes of each row."""
    return _bytes_between(rows, np.arange(rows.num_rows + 1))


def _measure_run(rows: pa.Table, ref: RunRef, cuts: NDArray[np.uint64]) -> NDArray[np.int64]:
    finer, counts = _cut_out(ref, cuts)
    sizes = np.zeros(len(finer), np.int64)
    hashes = _numbers_of(rows, HASH)
    for start, end in _segments(rows, ref.first_live):
        places = start + np.searchsorted(hashes[start:end], finer)
        sizes += _bytes_between(rows, np.append(places, end))
    into = np.searchsorted(cuts, finer, "right") - 1
    return np.bincount(into, np.where(counts, sizes, 0), len(cuts)).astype(np.int64)


def _cut_out(ref: RunRef, cuts: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the cuts with the edges of what is gone among them, and whether what follows each of them counts."""
    if not ref.gone:
        return cuts, np.ones(len(cuts), np.bool_)
    firsts = np.array([first for first, _ in ref.gone], np.uint64)
    ends = np.array([last + 1 for _, last in ref.gone if last < _LAST_HASH], np.uint64)
    finer = np.unique(np.concatenate((cuts, firsts, ends)))
    # Ranges are sorted and apart: one that has begun and not ended holds the cut.
    begun = np.searchsorted(firsts, finer, "right")
    return finer, begun == np.searchsorted(ends, finer, "right")


def _segments(rows: pa.Table, first: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of live rows within which hashes rise, one a window."""
    if WINDOW not in rows.column_names:
        yield first, rows.num_rows
        return
    windows = _numbers_of(rows, WINDOW)
    while first < rows.num_rows:
        end = first + int(np.searchsorted(windows[first:], windows[first], side="right"))
        yield first, end
        first = end


def _numbers_of(rows: pa.Table, column: str) -> NDArray[Any]:
    whole = _whole(rows.column(column))
    if not len(whole):
        return np.empty(0, np.uint64)
    # Arrow's own way to NumPy imports pandas, which takes a process a third of a second.
    kind = np.uint64 if pa.types.is_uint64(whole.type) else np.int64
    return np.frombuffer(whole.buffers()[1], kind)[whole.offset : whole.offset + len(whole)]


def _bytes_between(rows: pa.Table, edges: Edges) -> NDArray[np.int64]:
    """Return the bytes of the rows from each edge to the next; edges rise."""
    bits = np.zeros(len(edges) - 1, np.int64)
    for column in rows.columns:
        bits += _bits_between(_whole(column), edges)
    return bits // 8


def _whole(column: pa.ChunkedArray) -> pa.Array:
    # A run is one batch: putting its only piece together would copy it.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _bits_between(column: pa.Array, edges: Edges) -> NDArray[np.int64]:
    kind = column.type
    rows: NDArray[np.int64] = np.diff(edges)
    if isinstance(column, pa.StructArray):
        # Fields begin where the struct does only once it is flattened.
        return sum((_bits_between(field, edges) for field in column.flatten()), np.zeros(len(rows), np.int64))
    if isinstance(column, pa.DictionaryArray):
        return _bits_between(column.indices, edges)
    if isinstance(column, pa.FixedSizeListArray):
        return _bits_between(column.values, (column.offset + edges) * kind.list_size)
    if isinstance(column, pa.ListArray | pa.LargeListArray):
        width = 64 if isinstance(column, pa.LargeListArray) else 32
        # A damaged file may say anything here: what it says must not lead outside of it.
        ends = np.maximum.accumulate(np.clip(_offsets_of(column, width)[edges], 0, len(column.values)))
        return rows * width + _bits_between(column.values, ends)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return rows * 64 + _text_bits(column, 64, edges)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return rows * 32 + _text_bits(column, 32, edges)
    try:
        width = int(kind.bit_width)
    except ValueError:
        # Of other kinds, only the whole is known: rows are taken to be alike.
        width = 8 * int(column.nbytes) // max(len(column), 1)
    return rows * width


def _text_bits(column: pa.Array, width: int, edges: Edges) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = np.diff(_offsets_of(column, width)[edges])
    return np.maximum(lengths, 0) * 8


def _offsets_of(column: pa.Array, width: int) -> NDArray[np.int64]:
    if not len(column):
        # Arrow leaves out the one offset of an empty column.
        return np.zeros(1, np.int64)
    offsets: NDArray[np.int64] = np.frombuffer(column.buffers()[1], f"<i{width // 8}").astype(np.int64, copy=False)
    return offsets[column.offset : column.offset + len(column) + 1]
