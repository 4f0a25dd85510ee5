"""What a slot sees of its load: rows by bucket, hot keys, and a sample to judge strategies on."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasketches
import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import HASH
from anabranch.routing import buckets_of

_FEWEST_SAMPLED_ROWS, _MOST_SAMPLED_ROWS = 20_000, 50_000
"""Rows a slot looks at for hot keys: enough for a key with a hundredth of the rows to be known within a few percent.

From fewer, keys seem hot by chance, and a plan picks just these: slots came out 4 % fuller than it said.
"""
_SKETCH_LG_SIZE = 10
_MOST_SKETCHED_KEYS = 768
"""As many as the sketch has room for: what it says of them is exact, and the others are too small to be moved."""
_TAIL_KEYS = 1_000
"""Keys that stand for all that are not hot, when strategies are judged."""
ROWS = "__rows"


@dataclass(frozen=True, slots=True)
class Watch:
    """What a slot should look at."""

    buckets: int
    sample_rate: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """What all slots of an operator saw in a batch."""

    bucket_rows: NDArray[np.int64]
    hot_rows: Mapping[int, float]
    """Key hash → its rows, as far as the sketches know them; all keys that might matter are there."""
    sample: pl.DataFrame
    """HASH, rows that the key stands for, and the key columns."""


def watch_rows(frames: Sequence[pl.DataFrame], keys: Sequence[str], watch: Watch) -> dict[str, Any]:
    """Return what is in the rows of a slot, as plain JSON data; equal rows give equal data."""
    rows = pl.concat([frame.select(HASH, *keys) for frame in frames if frame.height] or [pl.DataFrame()])
    if rows.is_empty():
        return {}
    bucket_rows = np.bincount(buckets_of(rows[HASH], watch.buckets), minlength=watch.buckets)
    looked_at = min(max(watch.sample_rate * rows.height, _FEWEST_SAMPLED_ROWS), _MOST_SAMPLED_ROWS)
    stride = max(1, math.ceil(rows.height / looked_at))
    sampled = rows.gather_every(stride)
    hashes, firsts, counts = np.unique(sampled[HASH].to_numpy(), return_index=True, return_counts=True)
    # Ties by hash: equal rows must give equal data.
    hottest_first = np.argsort(-counts, kind="stable")
    sketch = datasketches.frequent_strings_sketch(_SKETCH_LG_SIZE)
    top = hottest_first[:_MOST_SKETCHED_KEYS]
    for key, count in zip(hashes[top].tolist(), counts[top].tolist(), strict=True):
        sketch.update(f"{key:016x}", count)
    places, weights = _thin_out(firsts[hottest_first], counts[hottest_first])
    return {
        "buckets": [int(count) for count in bucket_rows],
        "stride": stride,
        "sketch": base64.b64encode(sketch.serialize()).decode(),
        "sample": _encode(sampled[places].with_columns(pl.Series(ROWS, weights * stride))),
    }


def merge_sightings(seen: Sequence[Mapping[str, Any]], buckets: int) -> Sighting | None:
    """Return what all slots saw together; None if no slot had rows."""
    bucket_rows = np.zeros(buckets, np.int64)
    hot_rows: dict[int, float] = {}
    samples = []
    for slot in seen:
        if not slot:
            continue
        bucket_rows += np.asarray(slot["buckets"], np.int64)
        sketch = datasketches.frequent_strings_sketch.deserialize(base64.b64decode(slot["sketch"]))
        # Slots have strides of their own, so their sketches are weighed, not merged.
        for key, estimate, *_ in sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES):
            hot_rows[int(key, 16)] = hot_rows.get(int(key, 16), 0.0) + float(estimate * slot["stride"])
        samples.append(_decode(slot["sample"]))
    if not samples:
        return None
    return Sighting(bucket_rows, hot_rows, pl.concat(samples))


def _thin_out(places: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Keep the hottest keys, and of the others a few that stand for all; hottest first."""
    tail = places[_TAIL_KEYS:]
    if not len(tail):
        return places, counts.astype(np.float64)
    step = -(-len(tail) // _TAIL_KEYS)
    few = counts[_TAIL_KEYS::step]
    weights = few * (counts[_TAIL_KEYS:].sum() / few.sum())
    return np.append(places[:_TAIL_KEYS], tail[::step]), np.append(counts[:_TAIL_KEYS].astype(np.float64), weights)


def _encode(frame: pl.DataFrame) -> str:
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return base64.b64encode(buffer.getvalue()).decode()


def _decode(text: str) -> pl.DataFrame:
    return pl.read_ipc(io.BytesIO(base64.b64decode(text)))
