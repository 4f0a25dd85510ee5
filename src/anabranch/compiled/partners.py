"""Which rows of one side of a join may meet which of the other: equal hashes, and times not too far apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS, Hashes
from anabranch.compiled.plain import partner_loops as plain_loops

Times = NDArray[np.int64]
Places = NDArray[np.int64]

PAIRS_AT_ONCE = 2_000_000
"""Pairs that are laid out at a time: a hot key may have as many as rows squared."""


@dataclass(frozen=True, slots=True)
class Partners:
    """By seeking row, where its partners begin among the others, and how many there are."""

    firsts: Places
    counts: Places

    def pairs(self, most: int = PAIRS_AT_ONCE) -> Iterator[tuple[Places, Places]]:
        """Yield all pairs, as places of partners and of those who seek them, about so many at a time."""
        ends = np.cumsum(self.counts)
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            # At least one row, however many partners it has.
            end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
            counts = self.counts[start:end]
            total = int(counts.sum())
            if total:
                seeking = np.repeat(np.arange(start, end), counts)
                place_in_stretch = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
                yield self.firsts[seeking] + place_in_stretch, seeking
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
        _find(len(hashes) + len(seeking))(*columns, least_us, most_us, firsts, counts)
    return Partners(firsts, counts)


def _find(rows: int) -> Callable[..., None]:
    if rows < WORTH_COMPILED_CODE_ROWS:
        return plain_loops.find_partners
    from anabranch.compiled import partner_loops

    return partner_loops.find_partners
