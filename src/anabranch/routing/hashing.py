"""A hash of keys that never changes: checkpoints depend on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import polars_hash as plh

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS
from anabranch.compiled.key_hashes import hash_numbers
from anabranch.model import BucketMap

_WHOLE_TYPES = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
GOLDEN_RATIO_64 = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ divided by the golden ratio, made odd: its multiples fill the circle as evenly as a sequence can."""


def hash_keys(frame: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """Return the UInt64 hash of each row's key.

    Keys are normalised to text or bytes first, so that neither the width of an integer nor the unit of a time matters.
    """
    if len(keys) == 1 and frame.height >= WORTH_COMPILED_CODE_ROWS and frame.schema[keys[0]] in _WHOLE_TYPES:
        column = frame.get_column(keys[0])
        if not column.null_count():
            return _hash_integers(column)
    parts = [_normalised(frame.schema[key], key) for key in keys]
    whole = parts[0] if len(parts) == 1 else pl.concat_str([p.cast(pl.String) for p in parts], separator="\x1f")
    return frame.select(plh.concat_str(whole).nchash.xxhash64()).to_series()


def _hash_integers(numbers: pl.Series) -> pl.Series:
    """Return the same hashes in less time: no column of texts is made on the way."""
    return pl.Series(numbers.name, hash_numbers(numbers.cast(pl.Int64).to_numpy()))


def buckets_of(hashes: pl.Series | npt.NDArray[np.uint64], buckets: int) -> npt.NDArray[np.int32]:
    """Return each hash's bucket; it rises with the hash, so that what is sorted by hash is sorted by bucket."""
    top = (hashes.to_numpy() if isinstance(hashes, pl.Series) else hashes) >> np.uint64(40)
    return ((top * np.uint64(buckets)) >> np.uint64(24)).astype(np.int32)


def bucket_starts(buckets: int) -> npt.NDArray[np.uint64]:
    """Return the smallest hash of each bucket."""
    tops = -(-(np.arange(buckets, dtype=np.int64) << 24) // buckets)
    return tops.astype(np.uint64) << np.uint64(40)


def slots_of(hashes: pl.Series | npt.NDArray[np.uint64], routes: BucketMap) -> npt.NDArray[np.int32]:
    """Return the slot that owns each hash."""
    return np.asarray(routes.slot_of, dtype=np.int32)[buckets_of(hashes, routes.buckets)]


def mix(hashes: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return other hashes of the same keys, one family a seed; equal numbers give equal hashes for ever.

    The steps are those that finish a SplitMix64 generator, a bijection: different hashes stay different.
    """
    offset = np.uint64((seed + 1) * int(GOLDEN_RATIO_64) % 2**64)
    mixed = hashes + offset
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def spread_over(hashes: npt.NDArray[np.uint64], choices: int) -> npt.NDArray[np.int32]:
    """Return for each hash a number below ``choices``, all of them equally likely."""
    return (((hashes >> np.uint64(32)) * np.uint64(choices)) >> np.uint64(32)).astype(np.int32)


def unit_interval(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return each hash as a number in [0, 1), in the same order."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


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
