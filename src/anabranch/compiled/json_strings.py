"""JSON strings and blanks, passed over by compiled code. Importing this takes as long as importing Numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.compiled.byte_words import (
    BACKSLASH,
    BLANK,
    LANES,
    LOW_WORD,
    QUOTE,
    RETURN,
    ZERO,
    byte_at,
    copy_chunk,
    count_low_zeros,
    find_marks,
    put_byte,
)
from anabranch.compiled.jit import compile_loop

_SMALL_U, _SMALL_B, _SMALL_F, _SMALL_N, _SMALL_R, _SMALL_T, _SLASH, _TAB = b"ubfnrt/\t"


def _skip_blanks(at: int) -> int:
    """Return the address of the next byte that is no blank of JSON's, or of the line's end."""
    while True:
        byte = byte_at(at)
        if byte > BLANK or (byte not in (BLANK, _TAB, RETURN)):
            return at
        at += 1


pass_blanks = compile_loop(_skip_blanks)


def _skip_escape(at: int) -> int:
    """Return the address behind an escape, 0 if it is none of JSON's."""
    byte = byte_at(at + 1)
    if byte == _SMALL_U:
        for step in range(2, 6):
            digit = byte_at(at + step)
            if np.uint8(digit - ZERO) > 9 and np.uint8((digit | 32) - 97) > 5:
                return 0
        return at + 6
    for plain in (QUOTE, BACKSLASH, _SMALL_N, _SLASH, _SMALL_T, _SMALL_R, _SMALL_B, _SMALL_F):
        if byte == plain:
            return at + 2
    return 0


_pass_escape = compile_loop(_skip_escape)


def _skip_string(at: int) -> Any:
    """Return the address of the closing quote, 0 if the string is malformed; whether it has escapes, and its marks."""
    has_escapes = False
    seen = np.uint64(0)
    while True:
        found = find_marks(at)
        seen |= found
        marks = found & LOW_WORD
        if marks == 0:
            at += LANES
            continue
        at += count_low_zeros(marks)
        byte = byte_at(at)
        if byte == QUOTE:
            return at, has_escapes, seen
        has_escapes = True
        at = _pass_escape(at) if byte == BACKSLASH else 0
        if at == 0:
            return at, has_escapes, seen


pass_string = compile_loop(_skip_string)


def _read_unit(at: int) -> Any:
    """Return the number that four hexadecimal digits are."""
    unit: Any = 0
    for step in range(4):
        byte = np.int64(byte_at(at + step))
        unit = unit * 16 + (byte - 48 if byte <= 57 else (byte | 32) - 87)
    return unit


_read_code_unit = compile_loop(_read_unit)


def _put_code(code: int, side: int) -> int:
    """Write a character as UTF-8; return the address behind it."""
    if code < 0x80:
        put_byte(side, code)
        return side + 1
    size = 2 if code < 0x800 else 3 if code < 0x10000 else 4
    for step in range(size - 1, 0, -1):
        put_byte(side + step, 0x80 | (code & 63))
        code >>= 6
    put_byte(side, (0xF00 >> size) & 0xFF | code)
    return side + size


_write_code = compile_loop(_put_code)


def _unescape(at: int, last: int, side: int) -> int:
    """Write a valid string's text to the side; return where it ends there, 0 if half of a surrogate pair is alone."""
    while True:
        # What follows the next mark is written, too, and overwritten by what comes next.
        copy_chunk(side, at)
        marks = find_marks(at) & LOW_WORD
        step = LANES if marks == 0 else count_low_zeros(marks)
        at += step
        side += step
        if at >= last:
            return side
        if marks == 0:
            continue
        byte = byte_at(at + 1)
        at += 2
        if byte != _SMALL_U:
            if byte == _SMALL_N:
                byte = np.uint8(10)
            elif byte == _SMALL_T:
                byte = np.uint8(9)
            elif byte == _SMALL_R:
                byte = np.uint8(13)
            elif byte == _SMALL_B:
                byte = np.uint8(8)
            elif byte == _SMALL_F:
                byte = np.uint8(12)
            put_byte(side, byte)
            side += 1
            continue
        code = _read_code_unit(at)
        at += 4
        if 0xD800 <= code < 0xE000:
            if code >= 0xDC00 or byte_at(at) != BACKSLASH or byte_at(at + 1) != _SMALL_U:
                return 0
            low = _read_code_unit(at + 2)
            if not 0xDC00 <= low < 0xE000:
                return 0
            at += 6
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        side = _write_code(code, side)


write_unescaped = compile_loop(_unescape)
