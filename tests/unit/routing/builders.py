"""Keys, tables and routes for the tests of routing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.model import BucketMap, RoutingTable
from anabranch.routing import (
    BaseRoute,
    BucketRoute,
    KeyBatch,
    KeySample,
    ModuloRoute,
    RangeRoute,
    RingRoute,
    Routes,
    WeightRoute,
    hash_keys,
)


def hashes_of(values: list[int] | NDArray[np.int64]) -> NDArray[np.uint64]:
    return hash_keys(pl.DataFrame({"key": pl.Series(values, dtype=pl.Int64)}), ["key"]).to_numpy()


def batch_of(values: list[int] | NDArray[np.int64]) -> KeyBatch:
    return KeyBatch.of(pl.DataFrame({"key": pl.Series(values, dtype=pl.Int64)}), ["key"])


def key_hash(value: int) -> int:
    return int(hashes_of([value])[0])


def with_powers(sample: KeySample, *powers: float) -> KeySample:
    """Return the sample as seen by slots of different power."""
    return replace(sample, powers=np.asarray(powers, np.float64))


# Few different keys, so that rows meet.
key_values = st.lists(st.integers(-20, 60), max_size=300)


@st.composite
def bases(draw: st.DrawFn, slots: int | None = None) -> BaseRoute:
    """Draw a base route of any kind."""
    count = draw(st.integers(1, 9)) if slots is None else slots
    kind = draw(st.sampled_from(["buckets", "ring", "modulo", "modulo-hash", "weights", "ranges"]))
    if kind == "buckets":
        owners = draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=40))
        return BucketRoute(BucketMap(count, tuple(owners)))
    if kind == "ring":
        return RingRoute.over(count, draw(st.integers(count, 64)), draw(st.integers(1, 20)))
    if kind == "weights":
        powers = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count).filter(any))
        return WeightRoute.of_powers(powers)
    if kind == "ranges":
        bounds = draw(st.lists(st.integers(-20, 60), min_size=count - 1, max_size=count - 1))
        return RangeRoute("integer", tuple(sorted(bounds)))
    return ModuloRoute(count, of_values=kind == "modulo")


@st.composite
def tables(draw: st.DrawFn, slots: int) -> RoutingTable:
    """Draw a table that places some of the keys of ``key_values``, whole or split."""
    placements = {}
    for value in draw(st.sets(st.integers(-20, 60), max_size=12)):
        owners = draw(st.sets(st.integers(0, slots - 1), min_size=1, max_size=slots))
        weights = draw(st.lists(st.integers(1, 9), min_size=len(owners), max_size=len(owners)))
        placements[key_hash(value)] = {
            slot: weight / sum(weights) for slot, weight in zip(sorted(owners), weights, strict=True)
        }
    return RoutingTable.of(placements)


@st.composite
def routes(draw: st.DrawFn) -> Routes:
    """Draw routes without a row splitter."""
    base = draw(bases())
    return Routes(base, draw(tables(base.slots)))
