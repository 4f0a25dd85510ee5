"""Frames as bytes for an exchange: whole numbers in as few bytes as they need, compressed only where that helps.

Compressing takes most of the time of sending rows that were not merged, and hashes, ids and times of millions of keys
do not get smaller by it. Leaving out the bytes that are the same in all of them does, and costs next to nothing.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import polars as pl
import pyarrow as pa

FEWEST_ROWS = 4096
"""A smaller frame is compressed as it is."""
_MARK = b"packed: "
_LENGTHS = struct.Struct("<QQ")
_SAMPLED_ROWS = 8192
"""Of eight bytes each, as much as the compressor looks back."""
_WORTH_IT_BELOW = 0.8
"""Columns of which a sample does not shrink to this are not compressed."""
_PLAIN_TYPES = (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Int64, pl.Float64)
_NARROW_TYPES = ((2**8, pl.UInt8), (2**16, pl.UInt16), (2**32, pl.UInt32))


def pack(frame: pl.DataFrame) -> bytes:
    """Return the frame as bytes; equal frames give equal bytes."""
    if frame.height < FEWEST_ROWS or not frame.width:
        return _write(frame, compressed=True)
    lowest: dict[str, int] = {}
    squeezed: list[pl.Series] = []
    plain: list[pl.Series] = []
    for column in frame.iter_columns():
        narrow, base = _narrow(column)
        if base is not None:
            lowest[column.name] = base
        if narrow is not None:
            (squeezed if _shrinks(narrow) else plain).append(narrow)
    facts = {"rows": frame.height, "columns": frame.columns, "lowest": lowest}
    header = json.dumps(facts, separators=(",", ":")).encode()
    first = _write(pl.DataFrame(squeezed), compressed=True) if squeezed else b""
    second = _write(pl.DataFrame(plain), compressed=False) if plain else b""
    return b"".join((_MARK, _LENGTHS.pack(len(header), len(first)), header, first, second))


def unpack(packed: bytes) -> pl.DataFrame:
    """Return the frame that ``pack`` was given."""
    if not packed.startswith(_MARK):
        return pl.read_ipc_stream(io.BytesIO(packed))
    header_bytes, first_bytes = _LENGTHS.unpack_from(packed, len(_MARK))
    content = memoryview(packed)[len(_MARK) + _LENGTHS.size :]
    facts: dict[str, Any] = json.loads(bytes(content[:header_bytes]))
    content = content[header_bytes:]
    streams = (content[:first_bytes], content[first_bytes:])
    parts = [pl.read_ipc_stream(io.BytesIO(stream)) for stream in streams if len(stream)]
    found = {column.name: column for part in parts for column in part.iter_columns()}
    for name, base in facts["lowest"].items():
        if name in found:
            found[name] = found[name].cast(pl.Int64) + base
        else:
            found[name] = pl.Series(name, [base], pl.Int64).new_from_index(0, facts["rows"])
    return pl.DataFrame([found[name] for name in facts["columns"]])


def _narrow(column: pl.Series) -> tuple[pl.Series | None, int | None]:
    """Return whole numbers less the lowest of them, in fewer bytes, and the lowest; no numbers where all are equal."""
    if column.dtype != pl.Int64 or column.null_count():
        return column, None
    lowest, highest = int(column.min()), int(column.max())  # type: ignore[arg-type]
    if lowest == highest:
        return None, lowest
    for limit, dtype in _NARROW_TYPES:
        if highest - lowest < limit:
            return (column - lowest).cast(dtype), lowest
    return column, None


def _shrinks(column: pl.Series) -> bool:
    """Say whether compressing a column makes it much smaller, by some of its rows."""
    if column.dtype not in _PLAIN_TYPES or column.null_count():
        return True
    sample = column.head(_SAMPLED_ROWS).to_numpy().tobytes()
    return len(pa.compress(sample, codec="lz4", asbytes=True)) < _WORTH_IT_BELOW * len(sample)


def _write(frame: pl.DataFrame, compressed: bool) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="lz4" if compressed else "uncompressed")
    return buffer.getvalue()
