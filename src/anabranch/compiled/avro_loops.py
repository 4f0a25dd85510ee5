"""Whether many Avro messages are records, told by compiled code. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop

_BOOLEAN, _INT, _BYTES = 1, 101, 103
"""Kinds of fields that are read in a way of their own; 102 is a long, and others are the bytes that a field takes."""


def _are_records(  # noqa: PLR0911, PLR0912 - one loop, compiled as a whole
    text: NDArray[np.uint8], ends: NDArray[np.int64], kinds: NDArray[np.int64], null_places: NDArray[np.int64]
) -> bool:
    """Say whether each message is exactly one record, and every length in it is one that the message has."""
    at = 0
    for end in ends:
        for field in range(len(kinds)):
            kind = kinds[field]
            if null_places[field] >= 0:
                if at >= end or text[at] > 2 or text[at] & 1:
                    return False
                is_null = (text[at] >> 1) == null_places[field]
                at += 1
                if is_null:
                    continue
            if kind < _INT:
                if kind == _BOOLEAN and at < end and text[at] > 1:
                    return False
                at += kind
            else:
                number = np.uint64(0)
                shift = 0
                while True:
                    if at >= end or shift > 63:
                        return False
                    byte = text[at]
                    if shift == 63 and byte > 1:
                        return False
                    at += 1
                    number |= np.uint64(byte & 0x7F) << np.uint64(shift)
                    shift += 7
                    if byte < 0x80:
                        break
                if kind == _INT and number >= np.uint64(1 << 32):
                    return False
                if kind == _BYTES:
                    # Odd numbers are negative ones.
                    if number & np.uint64(1) or number > np.uint64(2 * (end - at)):
                        return False
                    at += int(number >> np.uint64(1))
            if at > end:
                return False
        if at != end:
            return False
    return True


are_records = compile_loop(_are_records)
