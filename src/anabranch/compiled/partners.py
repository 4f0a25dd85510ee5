"""Which rows of one side of a join may meet which of the other: equal hashes, and times not too far apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS, Hashes, is_rising, order_by_hash, take_in_order
from anabranch.compiled.plain import partner_loops as plain_loops

Times = NDArray[np.int64]
Places = NDArray[np.integer]
"""Numbers of rows."""

PAIRS_AT_ONCE = 2_000_000
"""Pairs that are laid out at a time: a hot key may have as many as rows squared."""


@dataclass(frozen=True, slots=True)
class Partners:
    """By seeking row, where its partners begin among the others, and how many there are."""

    firsts: NDArray[np.int64]
    counts: NDArray[np.int64]

    def pairs(self, most: int = PAIRS_AT_ONCE) -> Iterator[tuple[Places, Places]]:
        """Yield all pairs, as places of partners and of those who seek them, about so many at a time."""
        ends = np.cumsum(self.counts)
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            # At least one row, however many partners it has.
            end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
            total = int(ends[end - 1]) - before
            if total:
                partners, seeking = np.empty(total, np.uint32), np.empty(total, np.uint32)
                _loops_for(total).lay_pairs(self.firsts[start:end], self.counts[start:end], start, partners, seeking)
                yield partners, seeking
            start = end


def find_partners(
    hashes: Hashes, times_us: Times, seeking: Hashes, at_us: Times, least_us: int, most_us: int
) -> Partners:
    """Return, for each row that seeks, the rows with its hash whose time less its own is in [least, most].

    Both sides are sorted by hash, then time.
    """
    firsts, counts = np.zeros(len(seeking), np.int64), np.zeros(len(seeking), np.int64)
    if len(hashes) and len(seeking) and least_us <= most_us:
        columns = (np.ascontiguousarray(column) for column in (hashes, times_us, seeking, at_us))
        loops = _loops_for(len(hashes) + len(seeking))
        loops.find_partners(*columns, least_us, most_us, firsts, counts)
    return Partners(firsts, counts)


def order_by_hash_and_time(hashes: Hashes, times_us: Times) -> tuple[Places, Hashes, Times]:
    """Return the order of rows by hash, then time, else as they were, and hashes and times in that order."""
    if is_rising(times_us):
        order, ordered = order_by_hash(hashes)
    else:
        # Times are spread as evenly as hashes, mostly, so two such sorts take less than one by both.
        by_time, _ = order_by_hash((times_us - times_us.min()).astype(np.uint64))
        by_hash, ordered = order_by_hash(take_in_order(hashes, by_time))
        order = take_in_order(by_time, by_hash)
    return order, ordered, take_in_order(times_us, order)


def _loops_for(rows: int) -> Any:
    """Return compiled loops where they are worth loading, else their plain twins."""
    if rows < WORTH_COMPILED_CODE_ROWS:
        return plain_loops
    from anabranch.compiled import partner_loops

    return partner_loops
