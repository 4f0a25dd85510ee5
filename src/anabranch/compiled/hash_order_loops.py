"""The compiled half of ``hash_order``. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop

_DIGIT_BITS = 11
_DIGIT_VALUES = 1 << _DIGIT_BITS
_MOST_MOVES_A_ROW = 32


def _order(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint32], NDArray[np.uint64], bool]:
    """Return a stable order of hashes, and the hashes in it; false if they are too unlike hashes to be done this way.

    Two passes put them in the order of their first 22 bits that differ at all. Hashes are spread so evenly that few
    rows are left to change places after that.
    """
    count = len(hashes)
    lowest, highest = hashes[0], hashes[0]
    for i in range(count):
        lowest = min(lowest, hashes[i])
        highest = max(highest, hashes[i])
    span = highest - lowest
    shift = np.uint64(0)
    while span >> shift >= np.uint64(1 << (2 * _DIGIT_BITS)):
        shift += np.uint64(1)
    high_shift = shift + np.uint64(_DIGIT_BITS)
    mask = np.uint64(_DIGIT_VALUES - 1)
    low_starts = np.zeros(_DIGIT_VALUES + 1, np.int64)
    high_starts = np.zeros(_DIGIT_VALUES + 1, np.int64)
    for i in range(count):
        offset = hashes[i] - lowest
        low_starts[((offset >> shift) & mask) + np.uint64(1)] += 1
        high_starts[((offset >> high_shift) & mask) + np.uint64(1)] += 1
    for digit in range(_DIGIT_VALUES):
        low_starts[digit + 1] += low_starts[digit]
        high_starts[digit + 1] += high_starts[digit]
    half_hashes, half_order = np.empty(count, np.uint64), np.empty(count, np.uint32)
    for i in range(count):
        digit = ((hashes[i] - lowest) >> shift) & mask
        place = low_starts[digit]
        low_starts[digit] = place + 1
        half_hashes[place] = hashes[i]
        half_order[place] = i
    ordered, order = np.empty(count, np.uint64), np.empty(count, np.uint32)
    for i in range(count):
        digit = ((half_hashes[i] - lowest) >> high_shift) & mask
        place = high_starts[digit]
        high_starts[digit] = place + 1
        ordered[place] = half_hashes[i]
        order[place] = half_order[i]
    moves = 0
    for i in range(1, count):
        this, row = ordered[i], order[i]
        place = i
        while place > 0 and ordered[place - 1] > this:
            ordered[place] = ordered[place - 1]
            order[place] = order[place - 1]
            place -= 1
        ordered[place] = this
        order[place] = row
        moves += i - place
        if moves > _MOST_MOVES_A_ROW * count:
            return order, ordered, False
    return order, ordered, True


def _find(hashes: NDArray[np.uint64], wanted: NDArray[np.uint64], found: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Return where sorted hashes are among sorted, unique wanted ones, and mark those of the wanted that were found."""
    positions = np.empty(len(hashes), np.uint32)
    count, i, j = 0, 0, 0
    while i < len(hashes) and j < len(wanted):
        # No branch that a processor could guess wrong: which side is smaller is as good as chance.
        same = hashes[i] == wanted[j]
        positions[count] = i
        found[j] |= same
        passed = hashes[i] > wanted[j]
        count += same
        i += not passed
        j += passed
    return positions[:count]


def _merge(some: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hashes of two sorted arrays, sorted, each once."""
    merged = np.empty(len(some) + len(others), np.uint64)
    count, i, j = 0, 0, 0
    while i < len(some) or j < len(others):
        from_some = j == len(others) or (i < len(some) and some[i] <= others[j])
        this = some[i] if from_some else others[j]
        i += from_some
        j += not from_some
        merged[count] = this
        # One that is the same as the last is written over by the next.
        count += count == 0 or merged[count - 1] != this
    return merged[:count]


def _order_numbers(numbers: NDArray[np.int32], edges: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return a stable order of numbers, and fill in where each number begins in it."""
    for i in range(len(numbers)):
        edges[numbers[i] + 1] += 1
    for number in range(len(edges) - 1):
        edges[number + 1] += edges[number]
    starts = edges.copy()
    order = np.empty(len(numbers), np.uint32)
    for i in range(len(numbers)):
        order[starts[numbers[i]]] = i
        starts[numbers[i]] += 1
    return order


def _take(values: NDArray[np.generic], order: NDArray[np.integer], taken: NDArray[np.generic]) -> None:
    """Put values into an order; column by column, because several at once do not fit into a processor's cache."""
    for i in range(len(order)):
        taken[i] = values[order[i]]


order_hashes = compile_loop(_order)
find_hashes = compile_loop(_find)
merge_two = compile_loop(_merge)
order_numbers = compile_loop(_order_numbers)
take_values = compile_loop(_take)
