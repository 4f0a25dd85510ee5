"""Sorting and searching hashes of keys: where there are many, by compiled code that relies on how even they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import HASH

Hashes = NDArray[np.uint64]
_Number = TypeVar("_Number", bound=np.generic)

WORTH_COMPILED_CODE_ROWS = 1 << 16
"""Below it, loading the compiled code takes a process longer than it saves."""
_MOST_ROWS = 2**32 - 1
_SEARCH_STEPS = 24
"""What a search in one of millions of hashes costs, in steps of a walk through all of them."""


def hashes_of(rows: pl.DataFrame) -> Hashes:
    """Return the hashes of rows."""
    hashes: Hashes = rows.get_column(HASH).to_numpy()
    return hashes


def sort_by_hash(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows by hash, those of equal hashes in their old order."""
    hashes = hashes_of(rows)
    if is_rising(hashes):
        return rows
    order, _ = order_by_hash(hashes)
    return rows.rechunk()[order]


def order_by_hash(hashes: Hashes) -> tuple[NDArray[np.integer], Hashes]:
    """Return the stable order of the hashes, and the hashes in that order."""
    if WORTH_COMPILED_CODE_ROWS <= len(hashes) <= _MOST_ROWS:
        from anabranch.compiled.hash_order_loops import order_hashes

        compiled_order: NDArray[np.integer]
        compiled_order, ordered, is_done = order_hashes(np.ascontiguousarray(hashes))
        if is_done:
            return compiled_order, ordered
    order = np.argsort(hashes, kind="stable")
    return order, hashes[order]


def take_in_order(values: NDArray[_Number], order: NDArray[np.integer]) -> NDArray[_Number]:
    """Return values in an order that ``order_by_hash`` found."""
    if len(order) < WORTH_COMPILED_CODE_ROWS:
        few: NDArray[_Number] = values[order]
        return few
    from anabranch.compiled.hash_order_loops import take_values

    taken = np.empty(len(order), values.dtype)
    take_values(values, order, taken)
    return taken


def order_by_number(numbers: NDArray[np.int32], count: int) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Return the stable order of numbers below ``count``, and where in it each of them begins, and the last ends."""
    if WORTH_COMPILED_CODE_ROWS <= len(numbers) <= _MOST_ROWS:
        from anabranch.compiled.hash_order_loops import order_numbers

        edges = np.zeros(count + 1, np.int64)
        return order_numbers(np.ascontiguousarray(numbers), edges), edges
    order = np.argsort(numbers, kind="stable")
    return order, np.searchsorted(numbers[order], np.arange(count + 1))


def is_rising(hashes: Hashes) -> bool:
    """Say whether no hash is smaller than the one before it."""
    return bool((hashes[1:] >= hashes[:-1]).all())


def merge_hashes(some: Hashes, others: Hashes) -> Hashes:
    """Return the hashes of two sorted arrays, sorted, each once."""
    if len(some) + len(others) >= WORTH_COMPILED_CODE_ROWS:
        from anabranch.compiled.hash_order_loops import merge_two

        merged: Hashes = merge_two(np.ascontiguousarray(some), np.ascontiguousarray(others))
        return merged
    return np.union1d(some, others)


def unite_hashes(pieces: Sequence[Hashes]) -> Hashes:
    """Return the hashes of sorted arrays, sorted, each once."""
    return reduce(merge_hashes, pieces, np.empty(0, np.uint64))


def find_wanted(hashes: Hashes, wanted: Hashes) -> tuple[NDArray[np.integer], NDArray[np.bool_]]:
    """Return where sorted hashes are among the wanted (sorted and unique), and which of the wanted were found."""
    found = np.zeros(len(wanted), np.bool_)
    if not len(hashes) or not len(wanted):
        return np.empty(0, np.int64), found
    if len(hashes) < WORTH_COMPILED_CODE_ROWS or len(hashes) > min(_SEARCH_STEPS * len(wanted), _MOST_ROWS):
        return _search_wanted(hashes, wanted, found)
    from anabranch.compiled.hash_order_loops import find_hashes

    positions: NDArray[np.integer] = find_hashes(np.ascontiguousarray(hashes), np.ascontiguousarray(wanted), found)
    return positions, found


def _search_wanted(
    hashes: Hashes, wanted: Hashes, found: NDArray[np.bool_]
) -> tuple[NDArray[np.integer], NDArray[np.bool_]]:
    first: NDArray[np.int64] = np.searchsorted(hashes, wanted, side="left").astype(np.int64)
    np.equal(hashes[np.minimum(first, len(hashes) - 1)], wanted, out=found)
    first, there = first[found], wanted[found]
    has_next = first + 1 < len(hashes)
    if not (hashes[first[has_next] + 1] == there[has_next]).any():
        # Every hash is there once: that is one search instead of two.
        return first, found
    counts = np.searchsorted(hashes, there, side="right") - first
    # For each match: where its stretch begins, plus its place in the stretch.
    place_in_stretch = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + place_in_stretch, found


def is_among(hashes: Hashes, wanted: Hashes) -> NDArray[np.bool_]:
    """Say of each hash whether it is among the wanted ones (sorted)."""
    among = np.zeros(len(hashes), np.bool_)
    if wanted.size and is_rising(hashes):
        among[find_wanted(hashes, wanted)[0]] = True
    elif wanted.size:
        places = np.minimum(np.searchsorted(wanted, hashes), wanted.size - 1)
        np.equal(wanted[places], hashes, out=among)
    return among
