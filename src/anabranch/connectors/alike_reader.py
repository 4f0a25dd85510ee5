"""The compiled half of ``alike_lines``: eight bytes at a time. Importing this takes as long as importing Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from anabranch.connectors.compiled_loops import compile_loop

SKIPPED_TEXT, TEXT, QUOTED_INTEGER, INTEGER, FLOAT = range(5)
"""How a field is read: passed over, noted where it lies, as a number in quotes, as a number."""
MOST_DIGITS = 18
"""What surely fits into 64 bits."""
_LARGEST_EXACT = 2**53
"""Up to here, a whole number divided by a power of ten is the nearest float to the decimal, if both are exact."""
_POWERS = 10.0 ** np.arange(MOST_DIGITS + 1)
_INLINE_BYTES = 12
"""A view of no more bytes holds them itself."""
_MINUS, _POINT, _ZERO, _QUOTE, _BACKSLASH, _BLANK, _RETURN, _LINE_END = b'-.0"\\ \r\n'
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(_QUOTE * 0x0101010101010101)
_BACKSLASHES = np.uint64(_BACKSLASH * 0x0101010101010101)
_BLANKS = np.uint64(_BLANK * 0x0101010101010101)
_WORD = ir.IntType(64)


@intrinsic  # type: ignore[untyped-decorator]
def _load(context: Any, array: Any, at: Any) -> Any:
    """Return the eight bytes from a place on as one number, wherever the place lies."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = inner.make_array(signature.args[0])(inner, builder, arguments[0]).data
        word = builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), _WORD.as_pointer()))
        word.align = 1
        return word

    return types.uint64(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _count_low_zeros(context: Any, word: Any) -> Any:
    """Return how many of the lowest bits are zero."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


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
) -> Any:
    """Fill the columns; return the number of rows, or -1 at the first byte that does not fit, and whether all is ASCII.

    A line end fits nowhere but at the end of a line, and the text ends with one: so no step but those that take eight
    bytes asks whether the text goes on.
    """
    end = len(text)
    at = 0
    row = 0
    seen = np.uint64(0)
    while at < end:
        for field in range(len(kinds)):
            place, stop = prefix_starts[field], prefix_starts[field + 1]
            if at + stop - place > end:
                return -1, False
            while stop - place >= 8:
                if _load(text, at) != _load(prefixes, place):
                    return -1, False
                at += 8
                place += 8
            while place < stop:
                if text[at] != prefixes[place]:
                    return -1, False
                at += 1
                place += 1
            kind = kinds[field]
            if kind <= TEXT:
                first = at
                while at + 8 <= end:
                    word = _load(text, at)
                    seen |= word
                    quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
                    # The high bit of a byte is set where it ends the text or is not allowed; the lowest is exact.
                    marks = (
                        ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - _BLANKS) & ~word)
                    ) & _HIGH_BITS
                    if marks != 0:
                        at += _count_low_zeros(marks) >> 3
                        break
                    at += 8
                while True:
                    byte = text[at]
                    if byte == _QUOTE:
                        break
                    if byte < _BLANK or byte == _BACKSLASH:
                        return -1, False
                    seen |= np.uint64(byte)
                    at += 1
                if kind == TEXT:
                    # A view: four bytes of length, then the text itself, or its beginning and where it lies.
                    size = at - first
                    low, high = np.uint64(size), np.uint64(0)
                    if size > _INLINE_BYTES:
                        low |= _load(text, first) << np.uint64(32)
                        high = np.uint64(first) << np.uint64(32)
                    else:
                        for step in range(min(size, 4)):
                            low |= np.uint64(text[first + step]) << np.uint64(32 + 8 * step)
                        for step in range(4, size):
                            high |= np.uint64(text[first + step]) << np.uint64(8 * step - 32)
                    texts[places[field], row, 0] = low
                    texts[places[field], row, 1] = high
                continue
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
            if digits == 0 or digits > MOST_DIGITS or (digits > 1 and text[first] == _ZERO):
                return -1, False
            if kind != FLOAT:
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
                if fraction_digits == 0 or digits + fraction_digits > MOST_DIGITS:
                    return -1, False
            if number > np.uint64(_LARGEST_EXACT):  # Without the cast, both would be compared as floats.
                return -1, False
            value = np.float64(number) / _POWERS[fraction_digits]
            floats[places[field], row] = -value if negative else value
        for step in range(len(suffix)):
            if text[at] != suffix[step]:
                return -1, False
            at += 1
        at += text[at] == _RETURN
        if text[at] != _LINE_END:
            return -1, False
        at += 1
        row += 1
    return row, (seen & _HIGH_BITS) == 0


read_lines = compile_loop(_read_lines)
