"""The compiled half of ``heavy_hitters``. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop


def _purge(
    keys: NDArray[np.uint64], counts: NDArray[np.int64], places: NDArray[np.int64], active: int
) -> tuple[int, int]:
    """Take the middle count from all, drop the keys that have nothing left; return how many are left, and the count."""
    held = np.empty(active, np.int64)
    kept_keys = np.empty(active, np.uint64)
    kept_places = np.empty(active, np.int64)
    number = 0
    for i in range(len(keys)):
        if counts[i] > 0:
            held[number] = counts[i]
            kept_keys[number] = keys[i]
            kept_places[number] = places[i]
            number += 1
            counts[i] = 0
    middle = np.partition(held, active // 2)[active // 2]
    mask = np.uint64(len(keys) - 1)
    left = 0
    for j in range(number):
        if held[j] > middle:
            i = kept_keys[j] & mask
            while counts[i] > 0:
                i = (i + np.uint64(1)) & mask
            keys[i], counts[i], places[i] = kept_keys[j], held[j] - middle, kept_places[j]
            left += 1
    return left, middle


purge = compile_loop(_purge)


def _count(
    hashes: NDArray[np.uint64],
    rows: NDArray[np.int64],
    keys: NDArray[np.uint64],
    counts: NDArray[np.int64],
    places: NDArray[np.int64],
    active: int,
    error: int,
) -> tuple[int, int]:
    """Count hashes, whose places are given, into a table of which three quarters may be used."""
    mask = np.uint64(len(keys) - 1)
    most = len(keys) * 3 // 4
    for row in range(len(hashes)):
        this = hashes[row]
        # Hashes of keys are even in all their bits, so that some of them are the place to begin.
        i = this & mask
        while counts[i] > 0 and keys[i] != this:
            i = (i + np.uint64(1)) & mask
        if counts[i] == 0:
            if active == most:
                active, taken = purge(keys, counts, places, active)
                error += taken
                i = this & mask
                while counts[i] > 0:
                    i = (i + np.uint64(1)) & mask
            keys[i], places[i] = this, rows[row]
            active += 1
        counts[i] += 1
    return active, error


count_hashes = compile_loop(_count)
