"""What a slot sees of its load: rows by bucket, hot keys, and a sample to judge strategies on."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasketches
import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import HASH
from anabranch.model.frame_texts import frame_from_text, frame_to_text
from anabranch.routing import buckets_of

_FIRST_LOOK_ROWS = 2_000
_HOT_SHARE, _HOT_ROWS = 0.005, 10
"""A slot has a hot key if one has this part of the rows that were looked at first, and not by chance."""
_FEWEST_SAMPLED_ROWS, _MOST_SAMPLED_ROWS = 20_000, 50_000
"""Rows a slot with hot keys looks at: enough to know a key with a hundredth of the rows within a few percent.

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
    samples: bool = True
    """Whether a slot without hot keys should send a sample, too: it costs more than all the rest of the look."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What all slots of an operator saw in a batch."""

    bucket_rows: NDArray[np.int64]
    hot_rows: Mapping[int, float]
    """Key hash → its rows, as far as the sketches know them; all keys that might matter are there."""
    sample: pl.DataFrame | None
    """HASH, rows that the key stands for, and the key columns; None if no slot sent one."""
    complete: bool
    """Whether all slots that had rows sent a sample."""


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """The keys of every n-th row of a slot, hottest first, ties by hash: equal rows must give equal data."""

    stride: int
    hashes: NDArray[np.uint64]
    counts: NDArray[np.int64]
    places: NDArray[np.int64]
    """Where each key was seen first, as a row of the slot."""

    @classmethod
    def at(cls, hashes: NDArray[np.uint64], rows: float) -> _Look:
        """Look at about so many rows, and at no more than is useful."""
        stride = max(1, math.ceil(len(hashes) / min(rows, _MOST_SAMPLED_ROWS)))
        keys, firsts, counts = np.unique(hashes[::stride], return_index=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return cls(stride, keys[order], counts[order], firsts[order] * stride)

    @property
    def sees_hot_keys(self) -> bool:
        return bool(self.counts[0] >= max(_HOT_ROWS, _HOT_SHARE * self.counts.sum()))


def watch_rows(frames: Sequence[pl.DataFrame], keys: Sequence[str], watch: Watch) -> dict[str, Any]:
    """Return what is in the rows of a slot, as plain JSON data; equal rows give equal data.

    Where no key is hot, none is named: what is to be moved there are buckets, and their rows are counted, all of them.
    A sample is sent if it was asked for, or if a key is hot.
    """
    filled = [frame for frame in frames if frame.height]
    if not filled:
        return {}
    hashes = np.concatenate([frame[HASH].to_numpy() for frame in filled])
    bucket_rows = np.bincount(buckets_of(hashes, watch.buckets), minlength=watch.buckets)
    seen: dict[str, Any] = {"buckets": base64.b64encode(bucket_rows.astype("<i8").tobytes()).decode()}
    wanted = watch.sample_rate * len(hashes)
    look = _Look.at(hashes, max(wanted if watch.samples else 0, _FIRST_LOOK_ROWS))
    if look.sees_hot_keys:
        look = _Look.at(hashes, max(wanted, _FEWEST_SAMPLED_ROWS))
    names_keys = look.sees_hot_keys or look.stride == 1
    if not names_keys and not watch.samples:
        return seen
    hot_keys = _MOST_SKETCHED_KEYS if names_keys else 0
    sketch = datasketches.frequent_strings_sketch(_SKETCH_LG_SIZE)
    for key, count in zip(look.hashes[:hot_keys].tolist(), look.counts[:hot_keys].tolist(), strict=True):
        sketch.update(f"{key:016x}", count)
    places, weights = _thin_out(look.places, look.counts)
    sample = pl.concat([frame.select(HASH, *keys) for frame in filled])[places]
    return seen | {
        "stride": look.stride,
        "sketch": base64.b64encode(sketch.serialize()).decode(),
        "sample": frame_to_text(sample.with_columns(pl.Series(ROWS, weights * look.stride))),
    }


def named_keys(seen: Mapping[str, Any]) -> NDArray[np.uint64]:
    """Return the keys that a slot names in what it saw, sorted."""
    if "sketch" not in seen:
        return np.empty(0, np.uint64)
    sketch = datasketches.frequent_strings_sketch.deserialize(base64.b64decode(seen["sketch"]))
    items = sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES)
    return np.sort(np.array([int(key, 16) for key, *_ in items], np.uint64))


def merge_sightings(seen: Sequence[Mapping[str, Any]], buckets: int) -> Sighting | None:
    """Return what all slots saw together; None if no slot had rows."""
    bucket_rows = np.zeros(buckets, np.int64)
    hot_rows: dict[int, float] = {}
    samples = []
    filled = [slot for slot in seen if slot]
    for slot in filled:
        bucket_rows += np.frombuffer(base64.b64decode(slot["buckets"]), "<i8")
        if "sample" not in slot:
            continue
        sketch = datasketches.frequent_strings_sketch.deserialize(base64.b64decode(slot["sketch"]))
        # Slots have strides of their own, so their sketches are weighed, not merged.
        for key, estimate, *_ in sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES):
            hot_rows[int(key, 16)] = hot_rows.get(int(key, 16), 0.0) + float(estimate * slot["stride"])
        samples.append(frame_from_text(slot["sample"]))
    if not filled:
        return None
    return Sighting(bucket_rows, hot_rows, pl.concat(samples) if samples else None, len(samples) == len(filled))


def _thin_out(places: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Keep the hottest keys, and of the others a few that stand for all; hottest first."""
    tail = places[_TAIL_KEYS:]
    if not len(tail):
        return places, counts.astype(np.float64)
    step = -(-len(tail) // _TAIL_KEYS)
    few = counts[_TAIL_KEYS::step]
    weights = few * (counts[_TAIL_KEYS:].sum() / few.sum())
    return np.append(places[:_TAIL_KEYS], tail[::step]), np.append(counts[:_TAIL_KEYS].astype(np.float64), weights)
