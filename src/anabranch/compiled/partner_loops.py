"""The compiled half of ``partners``. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop


def _lay_pairs(
    firsts: NDArray[np.int64],
    counts: NDArray[np.int64],
    start: np.int64,
    partners: NDArray[np.uint32],
    seeking: NDArray[np.uint32],
) -> None:
    """Fill in the pairs of rows from ``start`` on, as places of partners and of those who seek them."""
    place = 0
    for j in range(len(firsts)):
        for i in range(counts[j]):
            partners[place] = firsts[j] + i
            seeking[place] = start + j
            place += 1


def _find(
    hashes: NDArray[np.uint64],
    times_us: NDArray[np.int64],
    seeking: NDArray[np.uint64],
    at_us: NDArray[np.int64],
    least_us: np.int64,
    most_us: np.int64,
    firsts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Find for each seeking row the rows of its hash with a time in [at + least, at + most]: they lie side by side.

    Both are sorted by hash, then time. The rows of a hash are walked once for all that seek them.
    """
    count, seeking_count = len(hashes), len(seeking)
    group, j = 0, 0
    while j < seeking_count:
        wanted = seeking[j]
        # In growing steps, then by halves: one in a thousand rows may be sought, or every one.
        step, low = 1, group
        while group < count and hashes[group] < wanted:
            low = group + 1
            group += step
            step *= 2
        high = min(group, count)
        while low < high:
            middle = (low + high) // 2
            if hashes[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        group = low
        first, last = group, group
        while j < seeking_count and seeking[j] == wanted:
            earliest, latest = at_us[j] + least_us, at_us[j] + most_us
            while first < count and hashes[first] == wanted and times_us[first] < earliest:
                first += 1
            last = max(last, first)
            while last < count and hashes[last] == wanted and times_us[last] <= latest:
                last += 1
            firsts[j] = first
            counts[j] = last - first
            j += 1


find_partners = compile_loop(_find)
lay_pairs = compile_loop(_lay_pairs)
