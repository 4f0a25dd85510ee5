"""A hash of keys that never changes: checkpoints depend on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import polars_hash as plh

from anabranch.model import BucketMap


def hash_keys(frame: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """Return the UInt64 hash of each row's key.

    Keys are normalised to text or bytes first, so that neither the width of an integer nor the unit of a time matters.
    """
    parts = [_normalised(frame.schema[key], key) for key in keys]
    whole = parts[0] if len(parts) == 1 else pl.concat_str([p.cast(pl.String) for p in parts], separator="\x1f")
    return frame.select(plh.concat_str(whole).nchash.xxhash64()).to_series()


def buckets_of(hashes: pl.Series, buckets: int) -> npt.NDArray[np.int32]:
    """Return each hash's bucket; it rises with the hash, so that what is sorted by hash is sorted by bucket."""
    top = hashes.to_numpy() >> np.uint64(40)
    return ((top * np.uint64(buckets)) >> np.uint64(24)).astype(np.int32)


def slots_of(hashes: pl.Series, routes: BucketMap) -> npt.NDArray[np.int32]:
    """Return the slot that owns each hash."""
    return np.asarray(routes.slot_of, dtype=np.int32)[buckets_of(hashes, routes.buckets)]


def _normalised(dtype: pl.DataType, key: str) -> pl.Expr:
    column = pl.col(key)
    if dtype == pl.Binary:
        return column.bin.encode("hex")
    if isinstance(dtype, pl.Datetime):
        return column.dt.timestamp("us").cast(pl.String)
    if isinstance(dtype, pl.Duration):
        return column.dt.total_microseconds().cast(pl.String)
    if isinstance(dtype, pl.Time):
        return column.cast(pl.Int64).cast(pl.String)
    return column.cast(pl.String)
