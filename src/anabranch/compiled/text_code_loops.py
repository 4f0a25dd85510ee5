"""The compiled half of ``text_codes``. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop

_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)
_OTHER_ODD = np.uint64(0xC2B2AE3D27D4EB4F)


def _code_pairs(
    pairs: NDArray[np.uint64],
    start: int,
    table: NDArray[np.uint32],
    known: NDArray[np.uint64],
    found: int,
    codes: NDArray[np.int32],
    firsts: NDArray[np.int32],
) -> tuple[int, int]:
    """Number pairs of words in the order in which they first come, from ``start`` until half of the table is taken.

    ``pairs`` has the two words of a pair one after the other, ``known`` those of each number, and ``table`` numbers
    from 1 on by the hash of their pair. Fills in the number of each pair, and where each number first comes. Returns
    where it stopped, and how many numbers there are.
    """
    # All that is used as a place is unsigned: a sign would have to be looked at in every step.
    mask = np.uint64(len(table) - 1)
    for i in range(start, len(codes)):
        low, high = pairs[2 * i], pairs[2 * i + 1]
        mixed = (low ^ (high * _OTHER_ODD)) * _GOLDEN_RATIO
        place = ((mixed ^ (mixed >> np.uint64(32))) * _OTHER_ODD) & mask
        while True:
            taken = table[place]
            if taken == 0:
                table[place] = found + 1
                known[2 * found], known[2 * found + 1] = low, high
                firsts[found] = i
                codes[i] = found
                found += 1
                if 2 * found >= len(table):
                    return i + 1, found
                break
            code = np.uint32(taken - 1)
            if known[2 * code] == low and known[2 * code + 1] == high:
                codes[i] = code
                break
            place = (place + np.uint64(1)) & mask
    return len(codes), found


def _fill_table(table: NDArray[np.uint32], known: NDArray[np.uint64], found: int) -> None:
    """Put the numbers that there are into an empty table."""
    mask = np.uint64(len(table) - 1)
    for code in range(found):
        mixed = (known[2 * code] ^ (known[2 * code + 1] * _OTHER_ODD)) * _GOLDEN_RATIO
        place = ((mixed ^ (mixed >> np.uint64(32))) * _OTHER_ODD) & mask
        while table[place] != 0:
            place = (place + np.uint64(1)) & mask
        table[place] = code + 1


code_pairs = compile_loop(_code_pairs)
fill_table = compile_loop(_fill_table)
