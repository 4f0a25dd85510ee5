"""The compiled half of ``fixed_layout_json``: many bytes at a time. Importing this takes as long as importing Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.byte_words import (
    ALL_BITS,
    BACKSLASH,
    BLANK,
    INLINE_BYTES,
    LANES,
    LARGEST_EXACT,
    LINE_END,
    LOW_WORD,
    MINUS,
    POINT,
    QUOTE,
    RETURN,
    ZERO,
    are_eight_digits,
    count_low_zeros,
    find_marks,
    pass_number,
    read_eight_digits,
    word_at,
)
from anabranch.compiled.jit import compile_loop

SKIPPED_TEXT, TEXT, QUOTED_INTEGER, INTEGER, FLOAT, WRITTEN_NUMBER = range(6)
"""How a field is read: passed over, noted where it lies, as a number in quotes, as a number, as a number's own text."""
MOST_DIGITS = 18
"""What surely fits into 64 bits."""
_POWERS = 10.0 ** np.arange(MOST_DIGITS + 1)
_HIGH_BIT = np.uint8(0x80)
NO_PLACES = np.empty(0, np.int64)
"""Lines that follow each other need not be told where they begin."""


def _read_lines(  # noqa: PLR0911, PLR0912, PLR0913, PLR0915, PLR0917 - one loop, compiled as a whole
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
) -> Any:
    """Fill the columns; return the number of rows, or -1 at the first byte that does not fit, and whether all is ASCII.

    A line end fits nowhere but at the end of a line, and the text ends with one: so no step but those that take many
    bytes asks whether the text goes on. Lines with other things between them have ``starts`` and ``ends``, and line
    ends there. Rows go to ``first_row`` and behind it; ``buffer`` is the text's number among those of a column.
    """
    # Signed: an unsigned address and a signed place would be added as floats.
    memory, prefix_memory = np.int64(text.ctypes.data), np.int64(prefixes.ctypes.data)
    end = len(text)
    at = 0
    row = first_row
    lines = len(starts)
    seen = np.uint64(0)
    while (row - first_row < lines) if lines > 0 else (at < end):
        if lines > 0:
            at = starts[row - first_row]
        for field in range(len(kinds)):
            place = prefix_starts[field]
            size = prefix_starts[field + 1] - place
            if at + size > end:
                return -1, False
            if size >= 8:
                for step in range(0, size - 8, 8):
                    if word_at(memory + at + step) != word_at(prefix_memory + place + step):
                        return -1, False
                # The last eight bytes, some of them for the second time.
                if word_at(memory + at + size - 8) != word_at(prefix_memory + place + size - 8):
                    return -1, False
            else:
                for step in range(size):
                    if text[at + step] != prefixes[place + step]:
                        return -1, False
            at += size
            kind = kinds[field]
            if kind <= TEXT:
                first = at
                while at + LANES <= end:
                    found = find_marks(memory + at)
                    marks = found & LOW_WORD
                    if marks != 0:
                        seen |= (found >> np.uint64(LANES)) & ((marks & (~marks + np.uint64(1))) - np.uint64(1))
                        at += count_low_zeros(marks)
                        break
                    seen |= found >> np.uint64(LANES)
                    at += LANES
                while True:
                    byte = text[at]
                    if byte == QUOTE:
                        break
                    if byte < BLANK or byte == BACKSLASH:
                        return -1, False
                    seen |= np.uint64(byte & _HIGH_BIT)
                    at += 1
            elif kind == WRITTEN_NUMBER:
                first = at
                at = pass_number(memory + at) - memory
                if at < 0:
                    return -1, False
            if kind in (TEXT, WRITTEN_NUMBER):
                # A view: four bytes of length, then the text itself, or its beginning and where it lies.
                size = at - first
                low, high = np.uint64(size), np.uint64(0)
                if size > INLINE_BYTES:
                    low |= word_at(memory + first) << np.uint64(32)
                    high = (np.uint64(first) << np.uint64(32)) | np.uint64(buffer)
                elif size > 0 and first + INLINE_BYTES <= end:
                    low |= (word_at(memory + first) & (ALL_BITS >> np.uint64(64 - 8 * min(size, 4)))) << np.uint64(32)
                    if size > 4:
                        high = word_at(memory + first + 4) & (ALL_BITS >> np.uint64(96 - 8 * size))
                else:
                    for step in range(min(size, 4)):
                        low |= np.uint64(text[first + step]) << np.uint64(32 + 8 * step)
                    for step in range(4, size):
                        high |= np.uint64(text[first + step]) << np.uint64(8 * step - 32)
                texts[places[field], row, 0] = low
                texts[places[field], row, 1] = high
                continue
            if kind == SKIPPED_TEXT:
                continue
            negative = text[at] == MINUS
            at += negative
            first = at
            number = np.uint64(0)
            while kind != FLOAT and at + 8 <= end:
                word = word_at(memory + at)
                if not are_eight_digits(word):
                    break
                number = number * np.uint64(100_000_000) + read_eight_digits(word)
                at += 8
            while True:
                digit = np.uint8(text[at] - ZERO)
                if digit > 9:
                    break
                number = number * np.uint64(10) + np.uint64(digit)
                at += 1
            digits = at - first
            if digits == 0 or digits > MOST_DIGITS or (digits > 1 and text[first] == ZERO):
                return -1, False
            if kind != FLOAT:
                integers[places[field], row] = -np.int64(number) if negative else np.int64(number)
                continue
            fraction_digits = 0
            if text[at] == POINT:
                at += 1
                first = at
                while True:
                    digit = np.uint8(text[at] - ZERO)
                    if digit > 9:
                        break
                    number = number * np.uint64(10) + np.uint64(digit)
                    at += 1
                fraction_digits = at - first
                if fraction_digits == 0 or digits + fraction_digits > MOST_DIGITS:
                    return -1, False
            if number > np.uint64(LARGEST_EXACT):  # Without the cast, both would be compared as floats.
                return -1, False
            value = np.float64(number) / _POWERS[fraction_digits]
            floats[places[field], row] = -value if negative else value
        for step in range(len(suffix)):
            if text[at] != suffix[step]:
                return -1, False
            at += 1
        at += text[at] == RETURN
        if text[at] != LINE_END or (lines > 0 and at != ends[row - first_row]):
            return -1, False
        at += 1
        row += 1
    return row - first_row, seen == 0


read_lines = compile_loop(_read_lines)
