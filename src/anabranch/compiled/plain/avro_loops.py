"""Plain twin of ``avro_loops``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BOOLEAN, _INT, _LONG, _BYTES = 1, 101, 102, 103
_MOST_BYTES = 10
"""Of a number of 64 bits, seven in each."""


def are_records(
    text: NDArray[np.uint8], ends: NDArray[np.int64], kinds: NDArray[np.int64], null_places: NDArray[np.int64]
) -> bool:
    """Say whether each message is exactly one record, and every length in it is one that the message has."""
    content, start = bytes(text), 0
    for end in ends.tolist():
        rest: bytes | None = content[start:end]
        for kind, null_place in zip(kinds.tolist(), null_places.tolist(), strict=True):
            rest = None if rest is None else _behind_field(rest, kind, null_place)
        if rest != b"":
            return False
        start = end
    return True


def _behind_field(rest: bytes, kind: int, null_place: int) -> bytes | None:
    """Return what follows a field, None if there is no such field."""
    if null_place >= 0:
        branch, rest = rest[:1], rest[1:]
        if branch not in (b"\x00", b"\x02"):
            return None
        if branch[0] // 2 == null_place:
            return rest
    if kind < _INT:
        is_wrong = len(rest) < kind or (kind == _BOOLEAN and rest[0] > 1)
        return None if is_wrong else rest[kind:]
    found = read_number(rest)
    if found is None or (kind == _INT and found[0] >= 1 << 32):
        return None
    number, size = found
    if kind in (_INT, _LONG):
        return rest[size:]
    # Odd numbers are negative ones.
    is_wrong = number % 2 == 1 or number // 2 > len(rest) - size
    return None if is_wrong else rest[size + number // 2 :]


def read_number(rest: bytes) -> tuple[int, int] | None:
    """Return a number of seven bits a byte, lowest first, and the bytes it has; None if it is none of 64 bits."""
    number = 0
    for place, byte in enumerate(rest[:_MOST_BYTES]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number, place + 1) if number < 1 << 64 else None
    return None
