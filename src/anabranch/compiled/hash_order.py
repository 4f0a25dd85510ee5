"""Sorting and searching hashes of keys: where there are many, by compiled code that relies on how even they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.plain import hash_order_loops as plain
from anabranch.model import HASH

Hashes = plain.Hashes
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
    given = np.ascontiguousarray(hashes)
    order, ordered, is_done = _loops_for(len(given)).order_hashes(given)
    if not is_done:
        order, ordered, _ = plain.order_hashes(given)
    return order, ordered


def take_in_order(values: NDArray[_Number], order: NDArray[np.integer]) -> NDArray[_Number]:
    """Return values in an order that ``order_by_hash`` found."""
    taken = np.empty(len(order), values.dtype)
    _loops_for(len(order)).take_values(values, order, taken)
    return taken


def order_by_number(numbers: NDArray[np.int32], count: int) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Return the stable order of numbers below ``count``, and where in it each of them begins, and the last ends."""
    edges = np.zeros(count + 1, np.int64)
    order: NDArray[np.integer] = _loops_for(len(numbers)).order_numbers(np.ascontiguousarray(numbers), edges)
    return order, edges


def is_rising(numbers: NDArray[np.integer]) -> bool:
    """Say whether no number, such as a hash, is smaller than the one before it."""
    return bool((numbers[1:] >= numbers[:-1]).all())


def merge_hashes(some: Hashes, others: Hashes) -> Hashes:
    """Return the hashes of two sorted arrays, sorted, each once."""
    loops = _loops_for(len(some) + len(others))
    merged: Hashes = loops.merge_two(np.ascontiguousarray(some), np.ascontiguousarray(others))
    return merged


def unite_hashes(pieces: Sequence[Hashes]) -> Hashes:
    """Return the hashes of sorted arrays, sorted, each once."""
    return reduce(merge_hashes, pieces, np.empty(0, np.uint64))


def find_wanted(hashes: Hashes, wanted: Hashes) -> tuple[NDArray[np.integer], NDArray[np.bool_]]:
    """Return where sorted hashes are among the wanted (sorted and unique), and which of the wanted were found."""
    found = np.zeros(len(wanted), np.bool_)
    # Where few are wanted, a search for each takes less than a walk through all.
    loops = plain if len(hashes) > _SEARCH_STEPS * len(wanted) else _loops_for(len(hashes))
    positions: NDArray[np.integer] = loops.find_hashes(
        np.ascontiguousarray(hashes), np.ascontiguousarray(wanted), found
    )
    return positions, found


def is_among(hashes: Hashes, wanted: Hashes) -> NDArray[np.bool_]:
    """Say of each hash whether it is among the wanted ones (sorted)."""
    among = np.zeros(len(hashes), np.bool_)
    if wanted.size and is_rising(hashes):
        among[find_wanted(hashes, wanted)[0]] = True
    elif wanted.size:
        places = np.minimum(np.searchsorted(wanted, hashes), wanted.size - 1)
        np.equal(wanted[places], hashes, out=among)
    return among


def _loops_for(rows: int) -> Any:
    """Return compiled loops where they are worth loading and rows can be counted in 32 bits, else their plain twins."""
    if not WORTH_COMPILED_CODE_ROWS <= rows <= _MOST_ROWS:
        return plain
    from anabranch.compiled import hash_order_loops

    return hash_order_loops
