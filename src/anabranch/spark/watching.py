"""What a slot sees of its load: rows by bucket, hot keys, and a sample to judge strategies on."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasketches
import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import HASH
from anabranch.routing import buckets_of

_MOST_SAMPLED_ROWS = 50_000
"""Rows a slot looks at for hot keys: enough for a key with a hundredth of the rows to be known within a few percent."""
_MOST_SKETCHED_KEYS = 4_096
_SKETCH_LG_SIZE = 10
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
    stride = max(round(1 / watch.sample_rate), -(-rows.height // _MOST_SAMPLED_ROWS))
    seen = rows.gather_every(stride).group_by(HASH, maintain_order=True).agg(pl.len().alias(ROWS), pl.first(*keys))
    seen = seen.sort(ROWS, HASH, descending=[True, False])
    sketch = datasketches.frequent_strings_sketch(_SKETCH_LG_SIZE)
    top = seen.head(_MOST_SKETCHED_KEYS)
    for key, count in zip(top[HASH].to_list(), top[ROWS].to_list(), strict=True):
        sketch.update(f"{key:016x}", count)
    return {
        "buckets": [int(count) for count in bucket_rows],
        "stride": stride,
        "sketch": base64.b64encode(sketch.serialize()).decode(),
        "sample": _encode(_thin_out(seen, stride)),
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


def _thin_out(seen: pl.DataFrame, stride: int) -> pl.DataFrame:
    """Keep the hottest keys, and of the others a few that stand for all."""
    hot, tail = seen.head(_TAIL_KEYS), seen.slice(_TAIL_KEYS)
    scaled = pl.col(ROWS).cast(pl.Float64) * stride
    if tail.is_empty():
        return hot.with_columns(scaled)
    few = tail.gather_every(-(-tail.height // _TAIL_KEYS))
    weight = float(tail[ROWS].sum()) / float(few[ROWS].sum())
    return pl.concat([hot.with_columns(scaled), few.with_columns(scaled * weight)])


def _encode(frame: pl.DataFrame) -> str:
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return base64.b64encode(buffer.getvalue()).decode()


def _decode(text: str) -> pl.DataFrame:
    return pl.read_ipc(io.BytesIO(base64.b64decode(text)))
