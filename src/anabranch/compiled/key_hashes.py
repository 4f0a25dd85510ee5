"""Hashes of integers, as keys have them, and of their neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS, Hashes
from anabranch.compiled.plain import key_hash_loops as plain_loops

_LARGEST, _SMALLEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def add_to_integers(numbers: NDArray[np.int64], step: int) -> NDArray[np.int64]:
    """Return sums; those that would be too large or too small are the largest or the smallest integer."""
    step = max(min(step, _LARGEST), _SMALLEST)
    if step >= 0:
        return np.where(numbers > _LARGEST - step, _LARGEST, numbers + step)
    return np.where(numbers < _SMALLEST - step, _SMALLEST, numbers + step)


def hash_numbers(numbers: NDArray[np.int64]) -> Hashes:
    """Return the hash of each number, the one that it has as a key."""
    hashes = np.empty(len(numbers), np.uint64)
    if len(numbers) < WORTH_COMPILED_CODE_ROWS:
        plain_loops.hash_integers(numbers, hashes)
        return hashes
    from anabranch.compiled.key_hash_loops import hash_integers

    hash_integers(np.ascontiguousarray(numbers), hashes)
    return hashes
