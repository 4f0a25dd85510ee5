"""Lines of plain numbers that all look alike, read by compiled code: JSON and CSV of sensors, meters and clicks.

A general parser asks at every byte what may come next. Lines that all have the first line's layout leave no question
but the digits: compiled to machine code, reading them takes a third of the time. Whatever does not fit to the last byte
(a null, an exponent, a blank, more digits than fit) is left to the general parser, for the whole text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

WORTH_COMPILED_CODE_BYTES = 1024 * 1024
"""Below it, loading the compiled code takes a process longer than it saves."""

_MOST_DIGITS = 18
"""What surely fits into 64 bits."""
_LARGEST_EXACT = 2**53
"""Up to here, a whole number divided by a power of ten is the nearest float to the decimal, if both are exact."""
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)
_MINUS, _POINT, _ZERO, _RETURN, _LINE_END = b"-.0\r\n"


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
    rows = _compiled_reader()(
        np.frombuffer(text, np.uint8),
        np.frombuffer(b"".join(field.prefix for field in fields) + b" ", np.uint8),
        np.cumsum([0, *(len(field.prefix) for field in fields)]),
        np.frombuffer(suffix + b" ", np.uint8)[:-1],
        is_float,
        places,
        integers,
        floats,
    )
    if rows < 0:
        return None
    return [
        pl.Series((floats if field.is_float else integers)[place, :rows])
        for field, place in zip(fields, places, strict=True)
    ]


@cache
def _compiled_reader() -> Callable[..., int]:
    """Compile the reader, or load what an earlier process compiled."""
    import numba

    try:
        compiled: Callable[..., int] = numba.njit(cache=True, nogil=True)(_read_lines)
    except RuntimeError:
        # Nowhere to keep what is compiled: this process compiles for itself, in less than a second.
        compiled = numba.njit(nogil=True)(_read_lines)
    return compiled


def _read_lines(  # noqa: PLR0912  One loop: functions that it called would have to be compiled, and kept, too.
    text: NDArray[np.uint8],
    prefixes: NDArray[np.uint8],
    prefix_starts: NDArray[np.int64],
    suffix: NDArray[np.uint8],
    is_float: NDArray[np.bool_],
    places: NDArray[np.int64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
) -> Any:
    """Fill the columns and return the number of rows, or -1 at the first byte that does not fit.

    No step asks whether the text goes on: a line end fits nowhere but at the end of a line, and the text ends with one.
    """
    end = len(text)
    at = 0
    row = 0
    while at < end:
        for field in range(len(is_float)):
            for place in range(prefix_starts[field], prefix_starts[field + 1]):
                if text[at] != prefixes[place]:
                    return -1
                at += 1
            negative = text[at] == _MINUS
            at += negative
            first = at
            number = np.uint64(0)
            while True:
                digit = np.uint8(text[at] - _ZERO)
                if digit > 9:
                    break
                number = number * np.uint64(10) + np.uint64(digit)
                at += 1
            digits = at - first
            if digits == 0 or digits > _MOST_DIGITS or (digits > 1 and text[first] == _ZERO):
                return -1
            if not is_float[field]:
                integers[places[field], row] = -np.int64(number) if negative else np.int64(number)
                continue
            fraction_digits = 0
            if text[at] == _POINT:
                at += 1
                first = at
                while True:
                    digit = np.uint8(text[at] - _ZERO)
                    if digit > 9:
                        break
                    number = number * np.uint64(10) + np.uint64(digit)
                    at += 1
                fraction_digits = at - first
                if fraction_digits == 0 or digits + fraction_digits > _MOST_DIGITS:
                    return -1
            if number > np.uint64(_LARGEST_EXACT):  # Without the cast, both would be compared as floats.
                return -1
            value = np.float64(number) / _POWERS[fraction_digits]
            floats[places[field], row] = -value if negative else value
        for place in range(len(suffix)):
            if text[at] != suffix[place]:
                return -1
            at += 1
        at += text[at] == _RETURN
        if text[at] != _LINE_END:
            return -1
        at += 1
        row += 1
    return row
