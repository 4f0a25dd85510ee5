"""Plain twin of ``top_k_loops``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mark_best(values: NDArray[Any], ends: NDArray[np.int64], k: int, marks: NDArray[np.bool_]) -> None:
    """Mark the values of each group that are as large as its k-th largest, or larger."""
    for group, marked in zip(np.split(values, ends[:-1]), np.split(marks, ends[:-1]), strict=True):
        if len(group):
            marked[:] = group >= np.sort(group)[-min(k, len(group))]
