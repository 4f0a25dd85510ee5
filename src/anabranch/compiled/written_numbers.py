"""Numbers as they are written, read by compiled code. Importing this takes as long as importing Numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.compiled.byte_words import (
    LARGE_E,
    LARGEST_EXACT,
    MINUS,
    PLUS,
    POINT,
    SMALL_E,
    ZERO,
    are_eight_digits,
    byte_at,
    read_eight_digits,
    word_at,
)
from anabranch.compiled.jit import compile_loop

MOST_INTEGER_DIGITS = 19
"""So many fit into 64 bits without a sign."""
_LARGEST_POWER = 22
_POWERS = np.array([10.0**power for power in range(_LARGEST_POWER + 1)])
"""Powers of ten that floats hold exactly."""
_MOST_EXPONENT_DIGITS = 4


def _read_more_digits(at: int, number: Any) -> Any:
    """Return the place behind the digits, and the number that they are behind those of another, if it fits."""
    while True:
        word = word_at(at)
        if not are_eight_digits(word):
            break
        number = number * np.uint64(100_000_000) + read_eight_digits(word)
        at += 8
    while True:
        digit = np.uint8(byte_at(at) - ZERO)
        if digit > 9:
            return at, number
        number = number * np.uint64(10) + np.uint64(digit)
        at += 1


read_digits = compile_loop(_read_more_digits)


def _read_number(at: int) -> Any:
    """Return the address behind a number, 0 if there is none, whether its float is known, and the float."""
    negative = byte_at(at) == MINUS
    at += negative
    first = at
    at, number = read_digits(at, np.uint64(0))
    digits = at - first
    if digits == 0 or (digits > 1 and byte_at(first) == ZERO):
        return 0, False, 0.0
    power = 0
    if byte_at(at) == POINT:
        first = at + 1
        at, number = read_digits(first, number)
        power = first - at
        digits -= power
        if power == 0:
            return 0, False, 0.0
    if byte_at(at) == SMALL_E or byte_at(at) == LARGE_E:
        at += 1
        falls = byte_at(at) == MINUS
        at += falls or byte_at(at) == PLUS
        first = at
        exponent: Any = 0
        while np.uint8(byte_at(at) - ZERO) <= 9:
            if at - first < _MOST_EXPONENT_DIGITS:
                exponent = exponent * 10 + np.int64(byte_at(at) - ZERO)
            else:
                exponent = 10**_MOST_EXPONENT_DIGITS
            at += 1
        if at == first:
            return 0, False, 0.0
        power += -exponent if falls else exponent
    is_long = digits > MOST_INTEGER_DIGITS or number > np.uint64(LARGEST_EXACT)
    if is_long or power < -_LARGEST_POWER or power > _LARGEST_POWER:
        return at, False, 0.0
    value = np.float64(number)
    value = value / _POWERS[-power] if power < 0 else value * _POWERS[power]
    return at, True, -value if negative else value


read_float = compile_loop(_read_number)
