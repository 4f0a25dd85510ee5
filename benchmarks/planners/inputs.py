"""Loads for the planners bench: zipf keys of any number, and real topics where a data folder is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model.loads import KeyLoads
from anabranch.routing.hashing import hash_keys
from benchmarks.shared.registry import BenchError

WEIBO_FILE = "weibo_hot_hourly.parquet"
ROWS_A_KEY = 10
# A key's aggregates are one row of state, however hot it is.
STATE_BYTES_A_KEY = 64.0


@dataclass(frozen=True, slots=True, eq=False)
class PlannerInput:
    """Loads to plan for, and what they are called."""

    name: str
    loads: KeyLoads

    @property
    def keys(self) -> int:
        """The number of keys."""
        return len(self.loads)


def make_zipf(keys: int, exponent: float, slots: int, seed: int) -> PlannerInput:
    """Return zipf loads of random key hashes; each key's home is its hash modulo the slots."""
    rng = np.random.default_rng([seed, keys, round(exponent * 1000)])
    # Spread over all hashes, rising, and none twice.
    hashes = np.cumsum(rng.integers(1, 2**63 // keys, keys, dtype=np.uint64)) * np.uint64(2)
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    weights *= keys * ROWS_A_KEY / weights.sum()
    rng.shuffle(weights)
    return PlannerInput(f"zipf {exponent:g}", _with_homes(hashes, weights, slots))


def read_weibo(folder: Path, slots: int) -> PlannerInput | None:
    """Return real topics with the posts about each, counted by the hour; None where the folder has no such file."""
    path = folder / WEIBO_FILE
    if not path.exists():
        return None
    hourly = pl.read_parquet(path, columns=["day", "hour", "title", "discussCount"])
    if not hourly.height:
        msg = f"{path} has no rows; take it away, or give another data folder"
        raise BenchError(msg)
    posts = (
        hourly.drop_nulls()
        .sort("title", "day", "hour")
        .with_columns(posts=pl.col("discussCount").diff().over("title").clip(lower_bound=0))
        .group_by("title", maintain_order=True)
        .agg(pl.col("posts").sum())
        .filter(pl.col("posts") > 0)
    )
    hashes = hash_keys(posts, ["title"]).to_numpy()
    order = np.argsort(hashes, kind="stable")
    loads = posts["posts"].to_numpy().astype(np.float64)[order]
    return PlannerInput("Weibo", _with_homes(hashes[order], loads, slots))


def _with_homes(hashes: NDArray[np.uint64], loads: NDArray[np.float64], slots: int) -> KeyLoads:
    mixed = hashes ^ (hashes >> np.uint64(29))
    homes = (mixed % np.uint64(slots)).astype(np.int32)
    return KeyLoads(hashes, loads, np.full(len(hashes), STATE_BYTES_A_KEY), homes)
