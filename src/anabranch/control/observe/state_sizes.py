"""How much state a slot has, by bucket and by hot key: measured where it is, added up on the driver."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import HASH, Kernel
from anabranch.model.loads import StateSizes
from anabranch.routing.hashing import bucket_starts, buckets_of
from anabranch.state.runs import RunDamaged, RunFiles, to_table
from anabranch.state.sizes import measure_between, measure_rows
from anabranch.state.slots import RunsOfSlot


def measure_state(
    state: RunsOfSlot,
    files: RunFiles,
    kernel: Kernel,
    passed_us: int,
    buckets: int,
    keys: NDArray[np.uint64],
) -> dict[str, Any]:
    """Return how much state the slot has, as plain JSON data; ``keys``, sorted, are looked at one by one.

    Of these, what is found in several runs is merged first, as if they were handed over. The rest of a bucket is what
    its rows in all runs have: a key with rows in several of them counts with each.
    """
    starts = bucket_starts(buckets)
    after = keys[keys < np.uint64(2**64 - 1)] + np.uint64(1)
    cuts = np.unique(np.concatenate((starts, keys, after)))
    sizes = measure_between(state.runs(), files, cuts)
    sizes[np.searchsorted(cuts, keys)] = 0
    bucket_bytes = np.bincount(buckets_of(cuts, buckets), sizes, buckets)
    key_bytes = _measure_keys(state, kernel, passed_us, keys)
    bucket_bytes += np.bincount(buckets_of(keys, buckets), key_bytes, buckets)
    return {"buckets": _pack(bucket_bytes), "keys": _pack(keys), "key_bytes": _pack(key_bytes)}


def merge_sizes(measured: Sequence[Mapping[str, Any]], slots: int, buckets: int) -> StateSizes | None:
    """Return what the slots measured together, parts of one key added up; None unless all of them did."""
    if len(measured) < slots:
        return None
    bucket_bytes = np.zeros(buckets)
    key_bytes: dict[int, float] = {}
    for slot in measured:
        bucket_bytes += _unpack(slot["buckets"], np.int64)
        numbers = zip(_unpack(slot["keys"], np.uint64).tolist(), _unpack(slot["key_bytes"], np.int64), strict=True)
        for key, size in numbers:
            key_bytes[key] = key_bytes.get(key, 0.0) + float(size)
    return StateSizes(bucket_bytes, key_bytes)


def _measure_keys(state: RunsOfSlot, kernel: Kernel, passed_us: int, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    sizes = np.zeros(len(keys), np.int64)
    # A damaged run is for those to complain of who need its rows.
    with suppress(RunDamaged):
        found = state.lookup(pl.Series(keys, dtype=pl.UInt64))
        if found:
            rows = kernel.stored(found, passed_us)
            places = np.searchsorted(keys, rows.get_column(HASH).to_numpy())
            sizes += np.bincount(places, measure_rows(to_table(rows)), len(keys)).astype(np.int64)
    return sizes


def _pack(numbers: NDArray[Any]) -> str:
    kind = "<u8" if numbers.dtype == np.uint64 else "<i8"
    return base64.b64encode(numbers.astype(kind).tobytes()).decode()


def _unpack(text: str, kind: type[np.generic]) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), np.dtype(kind).newbyteorder("<"))
