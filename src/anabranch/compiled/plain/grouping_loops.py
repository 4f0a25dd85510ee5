"""Plain twins of ``grouping_loops``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def add_digit(packed: NDArray[np.int32], column: NDArray[np.int64], lowest: int, stride: int, span: int) -> None:
    """Append one digit to packed numbers; the column's values are whole strides above the lowest."""
    packed[:] = [
        number * span + (value - lowest) // stride
        for number, value in zip(packed.tolist(), column.tolist(), strict=True)
    ]


def count_places(packed: NDArray[np.int32], counts: NDArray[np.int64]) -> None:
    """Count the numbers, each at its place."""
    np.add.at(counts, packed, 1)


def add_to_places(packed: NDArray[np.int32], values: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
    """Add values up, each at its place, in their order."""
    np.add.at(sums, packed, values)


def raise_places(packed: NDArray[np.int32], values: NDArray[np.int64], largest: NDArray[np.int64]) -> None:
    """Keep the largest value of each place."""
    np.maximum.at(largest, packed, values)
