"""The keys that have most of many rows, in memory that does not depend on how many keys there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS

TABLE_SIZE = 4096
MOST_KEYS = TABLE_SIZE * 3 // 4
_CELLS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class KeyCounts:
    """Keys with their rows, hottest first, ties by hash: equal rows must give equal counts."""

    rows: int
    """All that were counted."""
    keys: NDArray[np.uint64]
    counts: NDArray[np.int64]
    """No more than the key has, and at most ``error`` less."""
    places: NDArray[np.int64]
    """Of each key, a place at which it was seen."""
    error: int
    """A key that is missing has no more rows: at most 2 / ``MOST_KEYS`` of all, and 0 where there are few keys."""

    @property
    def estimates(self) -> NDArray[np.int64]:
        """The rows of each key, if it was there from the beginning, as hot ones are; never less than it has."""
        return self.counts + self.error


def count_keys(chunks: Iterable[tuple[NDArray[np.uint64], NDArray[np.int64]]], rows: int) -> KeyCounts:
    """Count the keys of rows that come as (hashes, places), ``rows`` of them in all.

    After Misra and Gries: a table of counters, and when it is full, the middle one of all counts is taken from each, so
    that half of them are free again (as in Apache DataSketches, whose Python face takes one key a call). Few rows
    are counted exactly: loading the compiled code takes longer.
    """
    if rows < WORTH_COMPILED_CODE_ROWS:
        return _count_few(list(chunks))
    from anabranch.compiled.heavy_hitter_loops import count_hashes

    keys = np.zeros(TABLE_SIZE, np.uint64)
    counts, places = np.zeros(TABLE_SIZE, np.int64), np.zeros(TABLE_SIZE, np.int64)
    active, error = 0, 0
    for hashes, where in chunks:
        active, error = count_hashes(np.ascontiguousarray(hashes), where, keys, counts, places, active, error)
    held = counts > 0
    return _order(rows, keys[held], counts[held], places[held], int(error))


def may_be_hot(chunks: Iterable[NDArray[np.uint64]], rows: float) -> bool:
    """Say whether some key may have as many rows; if not, none has.

    Keys share cells, so that a cell has the rows of its hottest key at least: to look at it costs a tenth of counting.
    """
    cells = np.zeros(_CELLS, np.int64)
    for hashes in chunks:
        cells += np.bincount((hashes & np.uint64(_CELLS - 1)).view(np.int64), minlength=_CELLS)
    return bool(cells.max() >= rows)


def _count_few(chunks: list[tuple[NDArray[np.uint64], NDArray[np.int64]]]) -> KeyCounts:
    hashes = np.concatenate([np.empty(0, np.uint64), *(hashes for hashes, _ in chunks)])
    places = np.concatenate([np.empty(0, np.int64), *(places for _, places in chunks)])
    keys, firsts, counts = np.unique(hashes, return_index=True, return_counts=True)
    return _order(len(hashes), keys, counts, places[firsts], 0)


def _order(
    rows: int, keys: NDArray[np.uint64], counts: NDArray[np.int64], places: NDArray[np.int64], error: int
) -> KeyCounts:
    order = np.lexsort((keys, -counts))
    return KeyCounts(rows, keys[order], counts[order], places[order], error)
