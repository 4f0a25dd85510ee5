"""Fill gaps with loads laid out in a line: the way to place many keys without looking at each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """What goes into which gap: items by number, each whole (share 1) or in pieces whose shares sum to 1."""

    items: NDArray[np.int64]
    gaps: NDArray[np.int64]
    shares: NDArray[np.float64]


def lay_out(amounts: NDArray[np.float64], gaps: NDArray[np.float64], crumb: float) -> Pieces:
    """Fill the gaps one by one with the items in their order, cutting an item where a gap ends.

    Nothing of ``crumb`` or less is cut off: it stays with its neighbour. What is too much for all gaps together goes
    into the last one; the caller knows that it is rounding.
    """
    ends = np.cumsum(amounts)
    begins = ends - amounts
    edges = np.cumsum(gaps)
    last_gap = len(gaps) - 1
    first = np.minimum(np.searchsorted(edges, begins, "right"), last_gap)
    final = np.maximum(np.minimum(np.searchsorted(edges, ends, "left"), last_gap), first)
    shares = np.ones(len(amounts))
    cut = np.flatnonzero(final > first)
    if not len(cut):
        return Pieces(np.arange(len(amounts)), first, shares)
    # Only items across an edge are measured by differences of sums; whole ones keep their exact share of 1.
    rows = [_cut(float(begins[i]), float(ends[i]), edges[first[i] : final[i]], crumb) for i in cut]
    whole = np.flatnonzero(final <= first)
    return Pieces(
        np.concatenate((whole, *(np.full(len(kept), item) for item, (kept, _) in zip(cut, rows, strict=True)))),
        np.concatenate((first[whole], *(kept + first[item] for item, (kept, _) in zip(cut, rows, strict=True)))),
        np.concatenate((shares[whole], *(pieces for _, pieces in rows))),
    )


def _cut(
    begin: float, end: float, edges: NDArray[np.float64], crumb: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return which of the pieces between the edges are more than crumbs, and their shares."""
    amounts = np.diff(np.clip(np.concatenate(([begin], edges, [end])), begin, end))
    kept = np.flatnonzero(amounts > crumb)
    if not len(kept):
        kept = np.array([int(np.argmax(amounts))])
    return kept, amounts[kept] / amounts[kept].sum()


def lay_out_whole(amounts: NDArray[np.float64], gaps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the gap of each item: the one in which it begins, so that a gap overflows by less than one item."""
    begins = np.cumsum(amounts) - amounts
    edges = np.cumsum(gaps)
    return np.minimum(np.searchsorted(edges, begins, "right"), len(gaps) - 1)
