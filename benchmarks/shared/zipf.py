"""Ranks that follow Zipf's law: the shares that keys have, and draws from them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def draw_zipf(rng: np.random.Generator, count: int, values: int, exponent: float) -> NDArray[np.int64]:
    """Return ranks from 0, the most frequent, to ``values`` - 1."""
    drawn = np.searchsorted(_add_up_shares(values, exponent), rng.random(count), side="right")
    return np.minimum(drawn, values - 1).astype(np.int64)


def find_shares(values: int, exponent: float) -> NDArray[np.float64]:
    """Return the share of each rank; all of them add up to 1."""
    return np.diff(_add_up_shares(values, exponent), prepend=0.0)


@lru_cache(maxsize=8)
def _add_up_shares(values: int, exponent: float) -> NDArray[np.float64]:
    cumulative = np.cumsum(np.arange(1, values + 1, dtype=np.float64) ** -exponent)
    shares: NDArray[np.float64] = cumulative / cumulative[-1]
    return shares
