"""How much state a change of routes moves, as far as the driver can tell beforehand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.control.observe.join_loads import JoinLoads
from anabranch.control.observe.loads import OperatorLoads
from anabranch.model.joins import LEFT, RIGHT
from anabranch.routing.bases.base_routes import BaseRoute, BucketRoute
from anabranch.routing.bases.drawn import DrawnRoute, draw_rows
from anabranch.routing.hashing import buckets_of, mix
from anabranch.routing.keys import KeyBatch
from anabranch.routing.lookup import find_keys
from anabranch.routing.moving import count_new_slots, moved_parts
from anabranch.routing.routes import Routes

_ROWS_TRIED = 1_024
"""Rows by which it is judged how many of all have other places."""


def estimate_moved_bytes(loads: OperatorLoads | None, old: Routes, new: Routes) -> float:
    """Return the bytes of state that lie on other slots under the new routes than under the old ones.

    Keys of the routing tables are counted one by one, and so are those of the sample, which stand for all others.
    A key of which nothing was seen counts as one row of state.
    """
    if loads is None or not loads.state_bytes:
        return 0.0
    if isinstance(old.base, DrawnRoute) or isinstance(new.base, DrawnRoute):
        return loads.state_bytes * _moved_share(old.base, new.base)
    named = min(_named_bytes(loads, old, new), loads.state_bytes)
    if old.base == new.base and old.splitter == new.splitter:
        return named
    return min(named + _unnamed_bytes(loads, old, new), loads.state_bytes)


def _moved_share(old: BaseRoute, new: BaseRoute) -> float:
    """Return how much is written for other slots, as a part of all state, where rows have places of their own."""
    if not (isinstance(old, DrawnRoute) and isinstance(new, DrawnRoute)):
        return 1.0
    hashes, draws = mix(np.arange(_ROWS_TRIED, dtype=np.uint64), 0), draw_rows(_ROWS_TRIED, 0, 0)
    most, stored, came = max(old.slots, new.slots), 0, 0
    for number in (LEFT, RIGHT):
        before, after = (
            rows * most + slots for rows, slots in (base.places_of(number, hashes, draws).stored for base in (old, new))
        )
        stored += len(before)
        came += int((~np.isin(after, before)).sum())
    return came / stored


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
    key_bytes = _find_key_bytes(loads, keys, rows)
    if values is None and (old.needs_values or new.needs_values):
        # Where such a key is at home cannot be told from its hash: one that is named before or after moves.
        return float(key_bytes.sum())
    batch = KeyBatch(keys, values)
    parts = moved_parts(batch, old, new)
    if loads.join is None:
        return float((key_bytes * parts).sum())
    return float(_joined_bytes(loads.join, batch, old, new, key_bytes, parts).sum())


def _joined_bytes(
    join: JoinLoads,
    keys: KeyBatch,
    old: Routes,
    new: Routes,
    key_bytes: NDArray[np.float64],
    parts: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the bytes of a join's keys that are written for other slots: moved rows once, copies for each new slot."""
    copied_bytes, was_shared = np.zeros(len(keys)), np.zeros(len(keys), np.bool_)
    for place, key in enumerate(keys.hashes.tolist()):
        was, is_now = (join.copied_under(routes, key) for routes in (old, new))
        copied_bytes[place] = join.state_bytes_of(key)[is_now]
        was_shared[place] = was != is_now
    copied_bytes = np.minimum(copied_bytes, key_bytes)
    came = count_new_slots(keys, old, new)
    slots = np.bincount(new.operation_slots(keys)[0], minlength=len(keys))
    # What was shared out so far is sent by each slot to all others.
    return np.where(was_shared, copied_bytes * (slots - 1), (key_bytes - copied_bytes) * parts + copied_bytes * came)


def _unnamed_bytes(loads: OperatorLoads, old: Routes, new: Routes) -> float:
    """Return the bytes of keys that no routing table names and that move with their base route."""
    if isinstance(old.base, BucketRoute) and isinstance(new.base, BucketRoute) and old.splitter == new.splitter:
        before, after = (np.asarray(base.bucket_map.slot_of) for base in (old.base, new.base))
        if len(before) == len(after) == len(loads.bucket_rows):
            listed = np.union1d(old.table.keys, new.table.keys)
            return float(_bucket_bytes_beside(loads, listed)[before != after].sum())
    sample = loads.sample
    if sample is None or not len(sample) or (sample.values is None and (old.needs_values or new.needs_values)):
        # By chance a key stays where it is in one of as many cases as there are slots.
        return loads.state_bytes * (1 - 1 / max(old.slots, new.slots))
    weights = sample.counts.copy()
    named, _ = find_keys(sample.keys, np.union1d(old.table.keys, new.table.keys))
    weights[named] = 0.0
    moved = float((weights * moved_parts(sample.batch, old, new)).sum())
    return loads.state_bytes * moved / max(float(sample.counts.sum()), 1.0)


def _find_key_bytes(
    loads: OperatorLoads, keys: NDArray[np.uint64], sampled_rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the state of some keys: as measured, or else as large a part as their rows are, and at least one row."""
    rows = np.maximum(sampled_rows, [loads.hot_rows.get(key, 0.0) for key in keys.tolist()])
    by_rows = loads.state_bytes * rows / max(float(loads.slot_rows.sum()), 1.0)
    measured = {} if loads.sizes is None else loads.sizes.key_bytes
    known = np.array([measured.get(key, -1.0) for key in keys.tolist()])
    return np.where(known >= 0, known, np.maximum(by_rows, loads.bytes_a_state_row))


def _bucket_bytes_beside(loads: OperatorLoads, named: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the state of each bucket without that of the named keys; what was not measured is shared out by rows."""
    count = len(loads.bucket_rows)
    if loads.sizes is not None and loads.sizes.fit(count):
        of_buckets = loads.sizes.bucket_bytes
    else:
        rows = loads.bucket_rows if loads.bucket_rows.any() else np.ones(count)
        of_buckets = loads.state_bytes * rows / rows.sum()
    of_named = np.bincount(buckets_of(named, count), _find_key_bytes(loads, named, np.zeros(len(named))), count)
    return np.maximum(of_buckets - of_named, 0.0)
