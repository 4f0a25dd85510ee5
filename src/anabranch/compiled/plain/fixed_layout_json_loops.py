"""Plain twin of ``fixed_layout_json_loops``."""

from __future__ import annotations

import re
import struct

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.byte_words import INLINE_BYTES, LARGEST_EXACT
from anabranch.compiled.fixed_layout_json_loops import (
    FLOAT,
    INTEGER,
    MOST_DIGITS,
    QUOTED_INTEGER,
    SKIPPED_TEXT,
    TEXT,
    WRITTEN_NUMBER,
)

_WHOLE = rb"-?(?:0|[1-9][0-9]*)"
_FORMS = {
    SKIPPED_TEXT: rb'[^"\\\x00-\x1f]*',
    TEXT: rb'[^"\\\x00-\x1f]*',
    QUOTED_INTEGER: _WHOLE,
    INTEGER: _WHOLE,
    FLOAT: _WHOLE + rb"(?:\.[0-9]+)?",
    WRITTEN_NUMBER: _WHOLE + rb"(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?",
}


def read_lines(  # noqa: PLR0913, PLR0917 - those of the loop
    text: NDArray[np.uint8],
    prefixes: NDArray[np.uint8],
    prefix_starts: NDArray[np.int64],
    suffix: NDArray[np.uint8],
    kinds: NDArray[np.int64],
    places: NDArray[np.int64],
    texts: NDArray[np.uint64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    first_row: int,
    buffer: int,
) -> tuple[int, bool]:
    """Fill the columns; return the number of rows, or -1 if a byte does not fit, and whether all texts are ASCII."""
    names = bytes(prefixes)
    fields = [
        re.escape(names[begin:end]) + b"(" + _FORMS[kind] + b")"
        for begin, end, kind in zip(prefix_starts[:-1], prefix_starts[1:], kinds.tolist(), strict=True)
    ]
    line = re.compile(b"".join(fields) + re.escape(bytes(suffix)) + rb"\r?\n")
    content, at, row, is_ascii = bytes(text), 0, first_row, True
    while row - first_row < len(starts) if len(starts) else at < len(content):
        at = int(starts[row - first_row]) if len(starts) else at
        found = line.match(content, at)
        if found is None or (len(starts) and found.end() - 1 != ends[row - first_row]):
            return -1, False
        for field, (kind, place) in enumerate(zip(kinds.tolist(), places.tolist(), strict=True), start=1):
            value = found[field]
            if kind in (SKIPPED_TEXT, TEXT):
                is_ascii = is_ascii and value.isascii()
            if kind in (TEXT, WRITTEN_NUMBER):
                texts[place, row] = _view(value, found.start(field), buffer)
            elif kind != SKIPPED_TEXT:
                digits = re.sub(rb"[-.]", b"", value)
                if len(digits) > MOST_DIGITS or (kind == FLOAT and int(digits) > LARGEST_EXACT):
                    return -1, False
                if kind == FLOAT:
                    floats[place, row] = float(value)
                else:
                    integers[place, row] = int(value)
        at, row = found.end(), row + 1
    return row - first_row, is_ascii


def _view(value: bytes, start: int, buffer: int) -> tuple[int, ...]:
    if len(value) > INLINE_BYTES:
        return struct.unpack("<QQ", struct.pack("<I4sII", len(value), value[:4], buffer, start))
    return struct.unpack("<QQ", struct.pack("<I12s", len(value), value))
