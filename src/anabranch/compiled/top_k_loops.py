"""The compiled half of ``top_k``. Importing this takes as long as importing Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop


def _mark_best(values: NDArray[Any], ends: NDArray[np.int64], k: int, marks: NDArray[np.bool_]) -> None:
    """Mark the values of each group that are as large as its k-th largest, or larger."""
    largest = np.empty(k, values.dtype)
    start = 0
    for end in ends:
        kept = 0
        for i in range(start, end):
            value = values[i]
            if kept == k and value <= largest[k - 1]:
                continue
            # Largest first: the new one goes where it belongs, and the smallest is lost if there are too many.
            place = kept if kept < k else k - 1
            while place > 0 and largest[place - 1] < value:
                largest[place] = largest[place - 1]
                place -= 1
            largest[place] = value
            kept = min(kept + 1, k)
        for i in range(start, end):
            marks[i] = values[i] >= largest[kept - 1]
        start = end


mark_best = compile_loop(_mark_best)
