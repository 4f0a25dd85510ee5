"""Plain twins of ``written_numbers``."""

from __future__ import annotations

import re

from anabranch.compiled.plain.byte_words import NUMBER_LIKE
from anabranch.compiled.plain.memory import bytes_at, length_of

_MOST_DIGITS, _LARGEST_POWER, _MOST_EXPONENT_DIGITS = 19, 22, 4
_LARGEST_EXACT = 2**53
_PARTS = rb"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?"


def read_digits(address: int, number: int) -> tuple[int, int]:
    """Return the place behind the digits, and the number that they are behind those of another, if it fits."""
    size = length_of(rb"[0-9]*", address)
    return address + size, int(b"%d" % number + bytes_at(address, size)) % 2**64


def read_float(address: int) -> tuple[int, bool, float]:
    """Return the address behind a number, 0 if there is none, whether its float is known, and the float."""
    text = bytes_at(address, length_of(NUMBER_LIKE, address))
    found = re.fullmatch(_PARTS, text)
    if found is None:
        return 0, False, 0.0
    whole, fraction, sign, exponent = (part or b"" for part in found.groups())
    digits = whole + fraction
    power = int(exponent or b"0") if len(exponent) <= _MOST_EXPONENT_DIGITS else 10**_MOST_EXPONENT_DIGITS
    power = (-power if sign == b"-" else power) - len(fraction)
    is_known = len(digits) <= _MOST_DIGITS and int(digits) <= _LARGEST_EXACT and abs(power) <= _LARGEST_POWER
    return address + len(text), is_known, float(text) if is_known else 0.0
