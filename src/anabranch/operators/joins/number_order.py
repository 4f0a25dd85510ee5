"""Numbers as hashes that are in the same order: runs sorted by hash are then sorted by number, and can be searched."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes
from anabranch.compiled.key_hashes import add_to_integers

_TOP_BIT = np.uint64(1 << 63)
_FIRST, _LAST = np.uint64(0), np.uint64(2**64 - 1)
_ROUNDING, _ROUNDING_OF_SINGLES = 2.0**-49, 2.0**-20
"""More than sums of floats may be off, as a part of what is added."""


def order_numbers(values: pl.Series, *, whole: bool) -> Hashes:
    """Return numbers, integers or floats, as hashes in the same order; NaN is the largest, and -0 is 0."""
    if whole:
        return _order_integers(values.to_physical().cast(pl.Int64).to_numpy())
    return _order_floats(values.cast(pl.Float64).to_numpy())


def order_bounds(
    values: pl.Series, least: float | None, most: float | None, *, whole: bool, single: bool = False
) -> tuple[Hashes, Hashes]:
    """Return the first and the last hash of numbers that are at least and at most so much more than the given ones."""
    if whole:
        integers = values.to_physical().cast(pl.Int64).to_numpy()
        ends = [None if end is None else _order_integers(add_to_integers(integers, int(end))) for end in (least, most)]
    else:
        floats = values.cast(pl.Float64).to_numpy()
        unsure = _ROUNDING_OF_SINGLES if single else _ROUNDING
        # What is too large for a float is infinite, as it is in the predicate.
        with np.errstate(over="ignore"):
            ends = [
                None if end is None else _order_floats(floats + end + sign * _slack(floats, end, unsure))
                for end, sign in ((least, -1), (most, 1))
            ]
    first, last = ends
    every = len(values)
    return (
        np.full(every, _FIRST) if first is None else first,
        np.full(every, _LAST) if last is None else last,
    )


def _order_integers(numbers: NDArray[np.int64]) -> Hashes:
    return numbers.view(np.uint64) ^ _TOP_BIT


def _order_floats(numbers: NDArray[np.float64]) -> Hashes:
    # Adding 0 makes -0 the 0 that it equals.
    bits = np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.uint64)
    return np.where(bits & _TOP_BIT, ~bits, bits | _TOP_BIT)


def _slack(numbers: NDArray[np.float64], step: float, unsure: float) -> NDArray[np.float64]:
    sizes = np.abs(numbers) + abs(step)
    return np.where(np.isfinite(sizes), sizes * unsure, 0.0)
