"""Lines of plain numbers that all look alike, read by compiled code: CSV of sensors, meters and clicks.

A general parser asks at every byte what may come next. Lines that all have the first line's layout leave no question
but the digits: compiled to machine code, reading them takes a third of the time. Whatever does not fit to the last byte
(a null, an exponent, a blank, more digits than fit) is left to the general parser, for the whole text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

WORTH_COMPILED_CODE_BYTES = 1024 * 1024
"""Below it, loading the compiled code takes a process longer than it saves."""


@dataclass(frozen=True, slots=True)
class NumberField:
    """One place in the layout of all lines: the text before a number, and whether it may have a fraction."""

    prefix: bytes
    is_float: bool


def parse_number_lines(text: bytes, fields: Sequence[NumberField], suffix: bytes = b"") -> list[pl.Series] | None:
    """Return Int64 and Float64 columns; None unless every line is prefix, number, prefix, number, …, suffix."""
    places = np.zeros(len(fields), np.int64)
    is_float = np.array([field.is_float for field in fields])
    places[is_float] = np.arange(is_float.sum())
    places[~is_float] = np.arange((~is_float).sum())
    if not text.endswith(b"\n"):
        text += b"\n"
    # More than there can be: pages that nothing is written to cost nothing, counting lines would.
    shortest_line = sum(len(field.prefix) + 1 for field in fields) + len(suffix) + 1
    most_rows = len(text) // shortest_line
    integers = np.empty(((~is_float).sum(), most_rows), np.int64)
    floats = np.empty((is_float.sum(), most_rows), np.float64)
    from anabranch.compiled.fixed_layout_json_loops import FLOAT, INTEGER, NO_PLACES, read_lines

    rows, _ = read_lines(
        np.frombuffer(text, np.uint8),
        np.frombuffer(b"".join(field.prefix for field in fields), np.uint8),
        np.cumsum([0, *(len(field.prefix) for field in fields)]),
        np.frombuffer(suffix, np.uint8),
        np.where(is_float, FLOAT, INTEGER),
        places,
        np.empty((0, 0, 2), np.uint64),
        integers,
        floats,
        NO_PLACES,
        NO_PLACES,
        0,
        0,
    )
    if rows < 0:
        return None
    return [
        pl.Series((floats if field.is_float else integers)[place, :rows])
        for field, place in zip(fields, places, strict=True)
    ]
