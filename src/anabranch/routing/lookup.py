"""Find the few rows whose key is in a table among many whose key is not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PREFIX_BITS = 16


def find_keys(hashes: NDArray[np.uint64], known: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows whose hash is among the sorted ``known`` ones, and the position of each there.

    Rows are looked up by the first bits of their hash; a search, many times dearer, is left for known hashes that
    begin alike.
    """
    if not len(known):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    shift = np.uint64(64 - _PREFIX_BITS)
    prefixes = (known >> shift).astype(np.intp)
    first_of_prefix = np.full(2**_PREFIX_BITS, -1, np.int64)
    # Written backwards, so that the first of those that begin alike is written last.
    first_of_prefix[prefixes[::-1]] = np.arange(len(known))[::-1]
    positions = first_of_prefix[(hashes >> shift).astype(np.intp)]
    rows = np.flatnonzero(positions >= 0)
    positions, candidates = positions[rows], hashes[rows]
    same = known[positions] == candidates
    if (prefixes[1:] == prefixes[:-1]).any():
        missed = np.flatnonzero(~same)
        found = np.minimum(np.searchsorted(known, candidates[missed]), len(known) - 1)
        positions[missed] = found
        same[missed] = known[found] == candidates[missed]
    return rows[same], positions[same]


def take_turns(groups: NDArray[np.int64], group_count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return an order that puts the rows of each group together, and in that order each row's turn in its group."""
    # Small integers are sorted in one pass.
    order = np.argsort(groups.astype(np.min_scalar_type(max(group_count - 1, 0))), kind="stable")
    sizes = np.bincount(groups, minlength=group_count)
    return order, np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
