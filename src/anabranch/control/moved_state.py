"""How much state a change of routes moves, as far as the driver can tell beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anabranch.routing.bases import BucketRoute
from anabranch.routing.hashing import buckets_of
from anabranch.routing.keys import KeyBatch
from anabranch.routing.lookup import find_keys
from anabranch.routing.moving import moved_parts

if TYPE_CHECKING:
    from anabranch.control.balancer import OperatorLoads
    from anabranch.routing.routes import Routes


def estimate_moved_bytes(loads: OperatorLoads | None, old: Routes, new: Routes) -> float:
    """Return the bytes of state that lie on other slots under the new routes than under the old ones.

    Keys of the routing tables are counted one by one, and so are those of the sample, which stand for all others.
    A key of which nothing was seen counts as one row of state.
    """
    if loads is None or not loads.state_bytes:
        return 0.0
    named = _named_bytes(loads, old, new)
    if old.base == new.base and old.splitter == new.splitter:
        return named
    return min(named + _unnamed_bytes(loads, old, new), loads.state_bytes)


def _named_bytes(loads: OperatorLoads, old: Routes, new: Routes) -> float:
    """Return the bytes of keys that one of the routing tables names and that move."""
    keys = np.union1d(old.table.keys, new.table.keys)
    if not len(keys):
        return 0.0
    sampled = loads.sample.keys if loads.sample is not None else np.empty(0, np.uint64)
    values, rows = None, np.zeros(len(keys))
    found, positions = find_keys(keys, sampled)
    if loads.sample is not None:
        rows[found] = loads.sample.counts[positions]
        if loads.sample.values is not None and len(found) == len(keys):
            values = loads.sample.values.gather(positions)
    rows = np.maximum(rows, [loads.hot_rows.get(key, 0.0) for key in keys.tolist()])
    key_bytes = np.maximum(loads.state_bytes * rows / max(float(loads.slot_rows.sum()), 1.0), loads.bytes_a_state_row)
    if values is None and (old.needs_values or new.needs_values):
        # Where such a key is at home cannot be told from its hash: one that is named before or after moves.
        return float(key_bytes.sum())
    return float((key_bytes * moved_parts(KeyBatch(keys, values), old, new)).sum())


def _unnamed_bytes(loads: OperatorLoads, old: Routes, new: Routes) -> float:
    """Return the bytes of keys that no routing table names and that move with their base route."""
    if isinstance(old.base, BucketRoute) and isinstance(new.base, BucketRoute) and old.splitter == new.splitter:
        before, after = (np.asarray(base.bucket_map.slot_of) for base in (old.base, new.base))
        if len(before) == len(after) == len(loads.bucket_rows):
            weights = _rows_beside(loads, np.union1d(old.table.keys, new.table.keys))
            rows = float(loads.bucket_rows.sum()) or len(before)
            return loads.state_bytes * float(weights[before != after].sum()) / rows
    sample = loads.sample
    if sample is None or not len(sample) or (sample.values is None and (old.needs_values or new.needs_values)):
        # By chance a key stays where it is in one of as many cases as there are slots.
        return loads.state_bytes * (1 - 1 / max(old.slots, new.slots))
    weights = sample.counts.copy()
    named, _ = find_keys(sample.keys, np.union1d(old.table.keys, new.table.keys))
    weights[named] = 0.0
    moved = float((weights * moved_parts(sample.batch, old, new)).sum())
    return loads.state_bytes * moved / max(float(sample.counts.sum()), 1.0)


def _rows_beside(loads: OperatorLoads, named: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the rows of each bucket without those of the named keys; where none were seen, all count alike."""
    if not loads.bucket_rows.any():
        return np.ones(len(loads.bucket_rows))
    rows = np.array([loads.hot_rows.get(key, 0.0) for key in named.tolist()])
    beside = np.bincount(buckets_of(named, len(loads.bucket_rows)), rows, minlength=len(loads.bucket_rows))
    return np.maximum(loads.bucket_rows - beside, 0.0)
