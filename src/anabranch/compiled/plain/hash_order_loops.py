"""Plain twins of ``hash_order_loops``: what ``hash_order`` uses where there are few rows."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
_Number = TypeVar("_Number", bound=np.generic)


def order_hashes(hashes: Hashes) -> tuple[NDArray[np.integer], Hashes, bool]:
    """Return a stable order of hashes, and the hashes in it; the plain way is open for all."""
    order = np.argsort(hashes, kind="stable")
    return order, hashes[order], True


def find_hashes(hashes: Hashes, wanted: Hashes, found: NDArray[np.bool_]) -> NDArray[np.integer]:
    """Return where sorted hashes are among sorted, unique wanted ones, and mark those of the wanted that were found."""
    if not len(hashes) or not len(wanted):
        return np.empty(0, np.int64)
    first: NDArray[np.int64] = np.searchsorted(hashes, wanted, side="left").astype(np.int64)
    np.equal(hashes[np.minimum(first, len(hashes) - 1)], wanted, out=found)
    first, there = first[found], wanted[found]
    has_next = first + 1 < len(hashes)
    if not (hashes[first[has_next] + 1] == there[has_next]).any():
        # Every hash is there once: that is one search instead of two.
        return first
    counts = np.searchsorted(hashes, there, side="right") - first
    # For each match: where its stretch begins, plus its place in the stretch.
    place_in_stretch = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    positions: NDArray[np.int64] = np.repeat(first, counts) + place_in_stretch
    return positions


def merge_two(some: Hashes, others: Hashes) -> Hashes:
    """Return the hashes of two sorted arrays, sorted, each once."""
    return np.union1d(some, others)


def order_numbers(numbers: NDArray[np.int32], edges: NDArray[np.int64]) -> NDArray[np.integer]:
    """Return a stable order of numbers, and fill in where each number begins in it."""
    order = np.argsort(numbers, kind="stable")
    edges[:] = np.searchsorted(numbers[order], np.arange(len(edges)))
    return order


def take_values(values: NDArray[_Number], order: NDArray[np.integer], taken: NDArray[_Number]) -> None:
    """Put values into an order."""
    taken[:] = values[order]
