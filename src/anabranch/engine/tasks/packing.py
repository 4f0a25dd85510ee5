"""Frames as bytes for an exchange: whole numbers in as few bytes as they need, compressed only where that helps.

Texts that repeat are sent once, and numbers in their place.

Compressing takes most of the time of sending rows that were not merged, and hashes, ids and times of millions of keys
do not get smaller by it. Leaving out the bytes that are the same in all of them does, and costs next to nothing.
"""

from __future__ import annotations

import io
import json
import struct
from itertools import accumulate, pairwise
from typing import Any

import polars as pl
import pyarrow as pa

from anabranch.operators.aggregates.text_codes import code_texts

FEWEST_ROWS = 4096
"""A smaller frame is compressed as it is."""
_MARK = b"packed: "
_LENGTH = struct.Struct("<Q")
_SAMPLED_ROWS = 8192
"""Of eight bytes each, as much as the compressor looks back."""
_WORTH_IT_BELOW = 0.8
"""Columns of which a sample does not shrink to this are not compressed."""
_PLAIN_TYPES = (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Int64, pl.Float64)
_NARROW_TYPES = ((2**8, pl.UInt8), (2**16, pl.UInt16), (2**32, pl.UInt32))


def pack(frame: pl.DataFrame) -> bytes:
    """Return the frame as bytes; frames that are equal and came about in the same way give equal bytes."""
    if frame.height < FEWEST_ROWS or not frame.width:
        return _write(frame, compressed=True)
    lowest: dict[str, int] = {}
    texts: list[pl.Series] = []
    squeezed: list[pl.Series] = []
    plain: list[pl.Series] = []
    for column in frame.iter_columns():
        coded = code_texts(column)
        if coded is not None:
            texts.append(coded.texts.alias(column.name))
        numbers = column if coded is None else pl.Series(column.name, coded.codes).cast(pl.Int64)
        narrow, base = _narrow(numbers)
        if base is not None:
            lowest[column.name] = base
        if narrow is not None:
            (squeezed if _shrinks(narrow) else plain).append(narrow)
    facts = {"rows": frame.height, "columns": frame.columns, "lowest": lowest, "texts": len(texts)}
    header = json.dumps(facts, separators=(",", ":")).encode()
    # Columns of texts have lengths of their own, so each is a part by itself.
    parts = [_write(column.to_frame(), compressed=True) for column in texts]
    parts.append(_write(pl.DataFrame(squeezed), compressed=True) if squeezed else b"")
    parts.append(_write(pl.DataFrame(plain), compressed=False) if plain else b"")
    lengths = b"".join(_LENGTH.pack(len(part)) for part in (header, *parts))
    return b"".join((_MARK, _LENGTH.pack(len(parts)), lengths, header, *parts))


def unpack(packed: bytes) -> pl.DataFrame:
    """Return the frame that ``pack`` was given."""
    if not packed.startswith(_MARK):
        return pl.read_ipc_stream(io.BytesIO(packed))
    pieces = _cut(packed)
    facts: dict[str, Any] = json.loads(bytes(pieces[0]))
    parts = [pl.read_ipc_stream(io.BytesIO(piece)) for piece in pieces[1:] if len(piece)]
    texts = {part.columns[0]: part.to_series() for part in parts[: facts["texts"]]}
    found = {column.name: column for part in parts[facts["texts"] :] for column in part.iter_columns()}
    for name, base in facts["lowest"].items():
        if name in found:
            found[name] = found[name].cast(pl.Int64) + base
        else:
            found[name] = pl.Series(name, [base], pl.Int64).new_from_index(0, facts["rows"])
    for name, different in texts.items():
        found[name] = different[found[name]]
    return pl.DataFrame([found[name] for name in facts["columns"]])


def _cut(packed: bytes) -> list[memoryview]:
    """Return the header and the parts behind it."""
    content = memoryview(packed)[len(_MARK) :]
    count = 2 + _LENGTH.unpack_from(content)[0]
    lengths = [_LENGTH.unpack_from(content, _LENGTH.size * place)[0] for place in range(1, count)]
    ends = list(accumulate(lengths, initial=_LENGTH.size * count))
    return [content[start:end] for start, end in pairwise(ends)]


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
