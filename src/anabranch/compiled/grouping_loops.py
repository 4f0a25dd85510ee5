"""The compiled half of ``grouping``. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop


def _add_digit(packed: NDArray[np.int32], column: NDArray[np.int64], lowest: int, stride: int, span: int) -> None:
    """Append one digit to packed numbers; the column's values are whole strides above the lowest."""
    # A product is many times as fast as a division, and that of a whole number of strides is never far from it.
    strides = 1.0 / stride
    for i in range(len(packed)):
        packed[i] = packed[i] * span + np.int64(np.rint((column[i] - lowest) * strides))


def _count(packed: NDArray[np.int32], counts: NDArray[np.int64]) -> None:
    for i in range(len(packed)):
        counts[packed[i]] += 1


def _add(packed: NDArray[np.int32], values: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
    for i in range(len(packed)):
        sums[packed[i]] += values[i]


def _raise(packed: NDArray[np.int32], values: NDArray[np.int64], largest: NDArray[np.int64]) -> None:
    for i in range(len(packed)):
        largest[packed[i]] = max(largest[packed[i]], values[i])


add_digit = compile_loop(_add_digit)
count_places = compile_loop(_count)
add_to_places = compile_loop(_add)
raise_places = compile_loop(_raise)
