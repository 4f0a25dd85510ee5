"""Plain twins of ``heavy_hitter_loops``: the table is a dictionary, laid out at the end as it comes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Held = dict[int, tuple[int, int]]
"""Key → its count and its place."""


def purge(
    keys: NDArray[np.uint64], counts: NDArray[np.int64], places: NDArray[np.int64], active: int
) -> tuple[int, int]:
    """Take the middle count from all, drop the keys that have nothing left; return how many are left, and the count."""
    left, middle = _purged(read_table(keys, counts, places))
    _write_table(left, keys, counts, places)
    return len(left), middle


def count_hashes(
    hashes: NDArray[np.uint64],
    rows: NDArray[np.int64],
    keys: NDArray[np.uint64],
    counts: NDArray[np.int64],
    places: NDArray[np.int64],
    active: int,
    error: int,
) -> tuple[int, int]:
    """Count hashes, whose places are given, into a table of which three quarters may be used."""
    held = read_table(keys, counts, places)
    for key, row in zip(hashes.tolist(), rows.tolist(), strict=True):
        if key not in held and len(held) == len(keys) * 3 // 4:
            held, taken = _purged(held)
            error += taken
        count, place = held.get(key, (0, row))
        held[key] = (count + 1, place)
    _write_table(held, keys, counts, places)
    return len(held), error


def read_table(keys: NDArray[np.uint64], counts: NDArray[np.int64], places: NDArray[np.int64]) -> Held:
    """Return what a table holds, wherever in it."""
    rows = zip(keys.tolist(), counts.tolist(), places.tolist(), strict=True)
    return {key: (count, place) for key, count, place in rows if count > 0}


def _purged(held: Held) -> tuple[Held, int]:
    middle = sorted(count for count, _ in held.values())[len(held) // 2]
    return {key: (count - middle, place) for key, (count, place) in held.items() if count > middle}, middle


def _write_table(held: Held, keys: NDArray[np.uint64], counts: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    counts[:] = 0
    for row, (key, (count, place)) in enumerate(held.items()):
        keys[row], counts[row], places[row] = key, count, place
