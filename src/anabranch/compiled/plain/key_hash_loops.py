"""Plain twin of ``key_hash_loops``."""

from __future__ import annotations

import numpy as np
import polars as pl
import polars_hash as plh
from numpy.typing import NDArray


def hash_integers(numbers: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """Fill in the XXH64, with seed 0, of each number as decimal text."""
    texts = pl.Series("number", numbers).cast(pl.String).to_frame()
    hashes[:] = texts.select(plh.col("number").nchash.xxhash64()).to_series().to_numpy()
