"""The compiled half of ``alike_lines``: many bytes at a time. Importing this takes as long as importing Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from anabranch.model.compiled_loops import compile_loop

SKIPPED_TEXT, TEXT, QUOTED_INTEGER, INTEGER, FLOAT, WRITTEN_NUMBER = range(6)
"""How a field is read: passed over, noted where it lies, as a number in quotes, as a number, as a number's own text."""
MOST_DIGITS = 18
"""What surely fits into 64 bits."""
_LARGEST_EXACT = 2**53
"""Up to here, a whole number divided by a power of ten is the nearest float to the decimal, if both are exact."""
_POWERS = 10.0 ** np.arange(MOST_DIGITS + 1)
_INLINE_BYTES = 12
"""A view of no more bytes holds them itself."""
_MINUS, _PLUS, _POINT, _ZERO, _QUOTE, _BACKSLASH, _BLANK, _RETURN, _LINE_END = b'-+.0"\\ \r\n'
_SMALL_E, _LARGE_E = b"eE"
_HIGH_BIT = np.uint8(0x80)
_HIGH_HALVES = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES = np.uint64(0x0606060606060606)
_EIGHT_DIGITS = np.uint64(0x3333333333333333)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_WORD = ir.IntType(64)
_LANES = 32
"""Bytes of a text that are looked at together."""
NO_PLACES = np.empty(0, np.int64)
"""Lines that follow each other need not be told where they begin."""


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
def _find_marks(context: Any, array: Any, at: Any) -> Any:
    """Return a bit for each of 32 bytes: in the low half whether it ends a text or is not allowed in one, in the high
    half whether it is not ASCII."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = inner.make_array(signature.args[0])(inner, builder, arguments[0]).data
        kind = ir.VectorType(ir.IntType(8), _LANES)
        chunk = builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), kind.as_pointer()))
        chunk.align = 1

        def all_lanes(byte: int) -> Any:
            return ir.Constant(kind, [byte] * _LANES)

        def to_bits(lanes: Any) -> Any:
            return builder.zext(builder.bitcast(lanes, ir.IntType(_LANES)), _WORD)

        quotes = builder.icmp_unsigned("==", chunk, all_lanes(_QUOTE))
        slashes = builder.icmp_unsigned("==", chunk, all_lanes(_BACKSLASH))
        controls = builder.icmp_unsigned("<", chunk, all_lanes(_BLANK))
        marks = to_bits(builder.or_(builder.or_(quotes, slashes), controls))
        high = to_bits(builder.icmp_signed("<", chunk, all_lanes(0)))
        return builder.or_(marks, builder.shl(high, ir.Constant(_WORD, _LANES)))

    return types.uint64(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _count_low_zeros(context: Any, word: Any) -> Any:
    """Return how many of the lowest bits are zero."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _read_digits(word: Any) -> Any:
    """Return the number that eight digits are, the first of them in the lowest byte: pairs, fours, all eight."""
    pairs = ((word & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561)) >> np.uint64(8)
    fours = ((pairs & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    return ((fours & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)


_read_eight_digits = compile_loop(_read_digits)


def _skip_number(text: NDArray[np.uint8], at: int) -> int:
    """Return the place behind a JSON number, -1 if there is none; there is a line end somewhere behind it."""
    at += text[at] == _MINUS
    first = at
    while np.uint8(text[at] - _ZERO) <= 9:
        at += 1
    if at == first or (at > first + 1 and text[first] == _ZERO):
        return -1
    if text[at] == _POINT:
        first = at + 1
        at = first
        while np.uint8(text[at] - _ZERO) <= 9:
            at += 1
        if at == first:
            return -1
    if text[at] == _SMALL_E or text[at] == _LARGE_E:
        at += 1
        at += text[at] == _MINUS or text[at] == _PLUS
        first = at
        while np.uint8(text[at] - _ZERO) <= 9:
            at += 1
        if at == first:
            return -1
    return at


_pass_number = compile_loop(_skip_number)


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
                    if _load(text, at + step) != _load(prefixes, place + step):
                        return -1, False
                # The last eight bytes, some of them for the second time.
                if _load(text, at + size - 8) != _load(prefixes, place + size - 8):
                    return -1, False
            else:
                for step in range(size):
                    if text[at + step] != prefixes[place + step]:
                        return -1, False
            at += size
            kind = kinds[field]
            if kind <= TEXT:
                first = at
                while at + _LANES <= end:
                    found = _find_marks(text, at)
                    marks = found & _LOW_WORD
                    if marks != 0:
                        seen |= (found >> np.uint64(_LANES)) & ((marks & (~marks + np.uint64(1))) - np.uint64(1))
                        at += _count_low_zeros(marks)
                        break
                    seen |= found >> np.uint64(_LANES)
                    at += _LANES
                while True:
                    byte = text[at]
                    if byte == _QUOTE:
                        break
                    if byte < _BLANK or byte == _BACKSLASH:
                        return -1, False
                    seen |= np.uint64(byte & _HIGH_BIT)
                    at += 1
            elif kind == WRITTEN_NUMBER:
                first = at
                at = _pass_number(text, at)
                if at < 0:
                    return -1, False
            if kind in (TEXT, WRITTEN_NUMBER):
                # A view: four bytes of length, then the text itself, or its beginning and where it lies.
                size = at - first
                low, high = np.uint64(size), np.uint64(0)
                if size > _INLINE_BYTES:
                    low |= _load(text, first) << np.uint64(32)
                    high = (np.uint64(first) << np.uint64(32)) | np.uint64(buffer)
                elif size > 0 and first + _INLINE_BYTES <= end:
                    low |= (_load(text, first) & (_ALL_BITS >> np.uint64(64 - 8 * min(size, 4)))) << np.uint64(32)
                    if size > 4:
                        high = _load(text, first + 4) & (_ALL_BITS >> np.uint64(96 - 8 * size))
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
            negative = text[at] == _MINUS
            at += negative
            first = at
            number = np.uint64(0)
            while kind != FLOAT and at + 8 <= end:
                word = _load(text, at)
                if (word & _HIGH_HALVES) | (((word + _SIXES) & _HIGH_HALVES) >> np.uint64(4)) != _EIGHT_DIGITS:
                    break
                number = number * np.uint64(100_000_000) + _read_eight_digits(word)
                at += 8
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
        if text[at] != _LINE_END or (lines > 0 and at != ends[row - first_row]):
            return -1, False
        at += 1
        row += 1
    return row - first_row, seen == 0


read_lines = compile_loop(_read_lines)
