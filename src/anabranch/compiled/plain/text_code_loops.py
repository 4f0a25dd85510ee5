"""Plain twins of ``text_code_loops``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WORD = (1 << 64) - 1
_GOLDEN_RATIO, _OTHER_ODD = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F


def code_pairs(
    pairs: NDArray[np.uint64],
    start: int,
    table: NDArray[np.uint32],
    known: NDArray[np.uint64],
    found: int,
    codes: NDArray[np.int32],
    firsts: NDArray[np.int32],
) -> tuple[int, int]:
    """Number pairs of words in the order in which they first come, from ``start`` until half of the table is taken."""
    words = known[: 2 * found].tolist()
    numbers = {pair: code for code, pair in enumerate(zip(words[::2], words[1::2], strict=True))}
    for row in range(start, len(codes)):
        pair = int(pairs[2 * row]), int(pairs[2 * row + 1])
        is_new = pair not in numbers
        codes[row] = numbers.setdefault(pair, len(numbers))
        if is_new:
            known[2 * found : 2 * found + 2], firsts[found] = pair, row
            _enter(table, pair, found)
            found += 1
            if 2 * found >= len(table):
                return row + 1, found
    return len(codes), found


def fill_table(table: NDArray[np.uint32], known: NDArray[np.uint64], found: int) -> None:
    """Put the numbers that there are into an empty table."""
    for code in range(found):
        _enter(table, (int(known[2 * code]), int(known[2 * code + 1])), code)


def _enter(table: NDArray[np.uint32], pair: tuple[int, int], code: int) -> None:
    """Put a number at the place of its pair, or the next one that is free."""
    mixed = (pair[0] ^ (pair[1] * _OTHER_ODD & _WORD)) * _GOLDEN_RATIO & _WORD
    place = (mixed ^ mixed >> 32) * _OTHER_ODD & _WORD
    while table[place % len(table)]:
        place += 1
    table[place % len(table)] = code + 1
