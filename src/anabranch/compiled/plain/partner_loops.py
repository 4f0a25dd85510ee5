"""Plain twin of ``partner_loops``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LARGEST_NUMBER = 2**62


def lay_pairs(
    firsts: NDArray[np.int64],
    counts: NDArray[np.int64],
    start: int,
    partners: NDArray[np.uint32],
    seeking: NDArray[np.uint32],
) -> None:
    """Fill in the pairs of rows from ``start`` on, as places of partners and of those who seek them."""
    places_in_stretch = np.arange(len(partners)) - np.repeat(np.cumsum(counts) - counts, counts)
    partners[:] = np.repeat(firsts, counts) + places_in_stretch
    seeking[:] = np.repeat(np.arange(start, start + len(firsts)), counts)


def find_partners(
    hashes: NDArray[np.uint64],
    times_us: NDArray[np.int64],
    seeking: NDArray[np.uint64],
    at_us: NDArray[np.int64],
    least_us: int,
    most_us: int,
    firsts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Find for each seeking row the rows of its hash with a time in [at + least, at + most]: they lie side by side."""
    known, begins, sizes = np.unique(hashes, return_index=True, return_counts=True)
    group = np.minimum(np.searchsorted(known, seeking), len(known) - 1)
    is_known = known[group] == seeking
    earliest, latest = int(times_us.min()), int(times_us.max())
    # What lies before all times, or behind them, may as well lie just there.
    from_us = np.clip(at_us + least_us, earliest, latest + 1) - earliest
    until_us = np.clip(at_us + most_us, earliest - 1, latest) - earliest
    span = latest - earliest + 3
    if len(known) * span < _LARGEST_NUMBER:
        # Hash and time in one number, and a search for each end.
        numbers = np.repeat(np.arange(len(known)), sizes) * span + (times_us - earliest + 1)
        firsts[:] = np.searchsorted(numbers, group * span + from_us + 1, "left")
        ends = np.searchsorted(numbers, group * span + until_us + 1, "right")
    else:
        ends = np.zeros(len(seeking), np.int64)
        for number in np.unique(group).tolist():
            rows = np.flatnonzero(group == number)
            times = times_us[begins[number] : begins[number] + sizes[number]] - earliest
            firsts[rows] = begins[number] + np.searchsorted(times, from_us[rows], "left")
            ends[rows] = begins[number] + np.searchsorted(times, until_us[rows], "right")
    counts[:] = np.where(is_known, np.maximum(ends - firsts, 0), 0)
