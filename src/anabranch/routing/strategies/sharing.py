"""Share rows out among slots as evenly as their choices allow, without a loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MOST_SWEEPS = 8
"""Sweeps over all choices; the counts are as even as they get after three or four."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """How many rows of each group go where, and what every slot has then."""

    to_low: NDArray[np.int64]
    """[low, high] → the rows of that pair of slots that go to the lower one."""
    head_parts: tuple[NDArray[np.int64], ...]
    """By head key, the rows for each of its slots."""
    slot_rows: NDArray[np.int64]


def share_out(
    pair_rows: NDArray[np.int64],
    head_rows: Sequence[int],
    head_slots: Sequence[NDArray[np.int64]],
    slot_rows: NDArray[np.int64],
) -> Shared:
    """Share the rows of each pair of slots, and of each head key among its slots, so that slots end up even.

    ``pair_rows[low, high]`` counts the rows that may go to either. Group by group the shares are set to what is best
    given all others, until nothing changes, so equal counts give equal shares.
    """
    slots = len(slot_rows)
    loads = slot_rows.astype(np.int64)
    to_low = (pair_rows + 1) >> 1
    parts = [np.zeros(len(own), np.int64) for own in head_slots]
    rounds = _disjoint_rounds(pair_rows, slots)
    for low, high in rounds:
        loads[low] += to_low[low, high]
        loads[high] += pair_rows[low, high] - to_low[low, high]
    for _ in range(_MOST_SWEEPS):
        changed = False
        for low, high in rounds:
            rows, before = pair_rows[low, high], to_low[low, high]
            # What the two slots have without this pair; the odd row goes to the lower slot.
            gap = (loads[high] - rows + before) - (loads[low] - before)
            after = np.clip((gap + rows + 1) >> 1, 0, rows)
            step = after - before
            if step.any():
                changed = True
                to_low[low, high] = after
                loads[low] += step
                loads[high] -= step
        for head, (count, own) in enumerate(zip(head_rows, head_slots, strict=True)):
            without = loads[own] - parts[head]
            filled = fill(without, count)
            changed |= bool((filled != parts[head]).any())
            loads[own] = without + filled
            parts[head] = filled
        if not changed:
            break
    return Shared(to_low, tuple(parts), loads)


def fill(levels: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return how many of the rows each vessel gets, poured in where the level is lowest; the rest to the first ones."""
    order = np.argsort(levels, kind="stable")
    rising = levels[order]
    numbers = np.arange(1, len(levels) + 1)
    sums = np.cumsum(rising)
    # Raising the first k vessels to the level of the k-th takes this many rows.
    raised = int(np.searchsorted(rising * numbers - sums, rows, side="right"))
    level, odd = divmod(rows + int(sums[raised - 1]), raised)
    parts = np.zeros(len(levels), np.int64)
    wet = np.sort(order[:raised])
    parts[wet] = level - levels[wet]
    parts[wet[:odd]] += 1
    return parts


def interleave(parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a sequence in which each index comes as often as its part says, as evenly spread as possible."""
    indexes = np.repeat(np.arange(len(parts)), parts)
    starts = np.cumsum(parts) - parts
    ordinals = np.arange(len(indexes)) - starts[indexes]
    return indexes[np.argsort((ordinals + 0.5) / parts[indexes], kind="stable")]


def _disjoint_rounds(pair_rows: NDArray[np.int64], slots: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the pairs that have rows, in rounds of pairs that share no slot and so can be set at once.

    Two pairs with the same sum modulo the slots can't share one slot without sharing both.
    """
    low, high = np.nonzero(pair_rows)
    turns = _halving_order((low + high) % slots, slots)
    order = np.argsort(turns, kind="stable")
    cuts = np.flatnonzero(np.diff(turns[order])) + 1
    return [(low[rows], high[rows]) for rows in np.split(order, cuts) if len(rows)]


def _halving_order(sums: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Return a rank for each sum below ``slots``: 0, 1/2, 1/4, 3/4, 1/8 … of the slots come in this order.

    Neighbouring rounds would pass rows on from slot to slot, and be even only after as many sweeps as there are slots.
    """
    places = (sums << 16) // slots
    ranks = np.zeros_like(places)
    for bit in range(16):
        ranks |= ((places >> bit) & 1) << (15 - bit)
    return ranks
