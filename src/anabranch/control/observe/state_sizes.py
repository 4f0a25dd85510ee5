"""How much state a slot has, by bucket and by hot key: measured where it is, added up on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import HASH, JoinKernel, KeepsState
from anabranch.model.frame_texts import numbers_from_text, numbers_to_text
from anabranch.model.joins import LEFT, is_of_input
from anabranch.model.loads import StateSizes
from anabranch.routing.hashing import bucket_starts, buckets_of
from anabranch.state.runs import RunDamaged, RunFiles, to_table
from anabranch.state.sizes import measure_between, measure_rows
from anabranch.state.slots import RunsOfSlot


@dataclass(frozen=True, slots=True, eq=False)
class SizesReport:
    """How much state one slot has."""

    bucket_bytes: NDArray[np.int64]
    keys: NDArray[np.uint64]
    """The hashes of keys that were looked at one by one, sorted."""
    key_bytes: NDArray[np.int64]
    """What each of them has; their buckets have it, too."""
    key_left_bytes: NDArray[np.int64] | None = None
    """Of a join, what each of them has of the left input."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        data = {
            "bucket_bytes": numbers_to_text(self.bucket_bytes),
            "keys": numbers_to_text(self.keys),
            "key_bytes": numbers_to_text(self.key_bytes),
        }
        return data if self.key_left_bytes is None else data | {"key_left_bytes": numbers_to_text(self.key_left_bytes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SizesReport:
        """Read what ``to_json`` wrote."""
        return cls(
            numbers_from_text(data["bucket_bytes"], np.int64),
            numbers_from_text(data["keys"], np.uint64),
            numbers_from_text(data["key_bytes"], np.int64),
            numbers_from_text(data["key_left_bytes"], np.int64) if "key_left_bytes" in data else None,
        )


def measure_state(
    state: RunsOfSlot,
    files: RunFiles,
    kernel: KeepsState,
    passed_us: int,
    buckets: int,
    keys: NDArray[np.uint64],
) -> SizesReport:
    """Return how much state the slot has; ``keys``, sorted, are looked at one by one.

    Of these, what is found in several runs is merged first, as if they were handed over. The rest of a bucket is what
    its rows in all runs have: a key with rows in several of them counts with each.
    """
    starts = bucket_starts(buckets)
    after = keys[keys < np.uint64(2**64 - 1)] + np.uint64(1)
    cuts = np.unique(np.concatenate((starts, keys, after)))
    sizes = measure_between(state.runs(), files, cuts)
    sizes[np.searchsorted(cuts, keys)] = 0
    bucket_bytes = np.bincount(buckets_of(cuts, buckets), sizes, buckets)
    key_bytes, left_bytes = _measure_keys(state, kernel, passed_us, keys)
    bucket_bytes += np.bincount(buckets_of(keys, buckets), key_bytes, buckets)
    return SizesReport(
        bucket_bytes.astype(np.int64), keys, key_bytes, left_bytes if isinstance(kernel, JoinKernel) else None
    )


def merge_sizes(measured: Sequence[SizesReport], slots: int, buckets: int) -> StateSizes | None:
    """Return what the slots measured together, parts of one key added up; None unless all of them did."""
    if len(measured) < slots:
        return None
    bucket_bytes = np.zeros(buckets)
    key_bytes: dict[int, float] = {}
    left_bytes: dict[int, float] = {}
    for slot in measured:
        bucket_bytes += slot.bucket_bytes
        for sizes, sum_by_key in ((slot.key_bytes, key_bytes), (slot.key_left_bytes, left_bytes)):
            for key, size in zip(slot.keys.tolist(), sizes, strict=True) if sizes is not None else ():
                sum_by_key[key] = sum_by_key.get(key, 0.0) + float(size)
    return StateSizes(bucket_bytes, key_bytes, left_bytes)


def _measure_keys(
    state: RunsOfSlot, kernel: KeepsState, passed_us: int, keys: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what each key has, and what of that is of the left input of a join."""
    sizes, left_sizes = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    # A damaged run is for those to complain of who need its rows.
    with suppress(RunDamaged):
        found = state.lookup_everywhere(pl.Series(keys, dtype=pl.UInt64))
        if found:
            rows = kernel.stored(found, passed_us)
            places = np.searchsorted(keys, rows.get_column(HASH).to_numpy())
            row_sizes = measure_rows(to_table(rows))
            sizes += np.bincount(places, row_sizes, len(keys)).astype(np.int64)
            if isinstance(kernel, JoinKernel):
                of_left = is_of_input(rows, LEFT)
                left_sizes += np.bincount(places[of_left], row_sizes[of_left], len(keys)).astype(np.int64)
    return sizes, left_sizes
