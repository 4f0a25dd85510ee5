"""What planners are told of a batch: rows and state of buckets, and of the keys that are watched one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing import LevelLoads
from anabranch.model import BucketMap
from anabranch.model.loads import BucketLoads, KeyLoads
from anabranch.routing.bases.base_routes import BucketRoute
from anabranch.routing.hashing import buckets_of
from anabranch.routing.keys import KeyBatch

if TYPE_CHECKING:
    from anabranch.control.decide.balancer import OperatorLoads
    from anabranch.routing.routes import Routes

_MOST_WATCHED_KEYS = 1_000
_SMALLEST_WATCHED_SHARE = 0.002
"""Keys below this part of a slot's fair share are left to their buckets, unless the routing table names them."""


def measure_level(loads: OperatorLoads, routes: Routes) -> LevelLoads:
    """Return what a batch says of buckets and of the keys that are worth watching, for planners."""
    assert isinstance(routes.base, BucketRoute)
    buckets: BucketMap = routes.base.bucket_map
    if len(loads.bucket_rows) != buckets.buckets:
        # Slots count the buckets of the routes that they have: those of other routes are known from the sample only.
        assert loads.sample is not None
        of_sample = buckets_of(loads.sample.keys, buckets.buckets)
        bucket_rows = np.bincount(of_sample, loads.sample.counts, minlength=buckets.buckets).astype(np.float64)
        loads = replace(loads, bucket_rows=bucket_rows)
    total = float(loads.slot_rows.sum())
    smallest = _SMALLEST_WATCHED_SHARE * total / routes.slots
    by_load = sorted(loads.hot_rows.items(), key=lambda item: (-item[1], item[0]))
    watched = dict(by_load[:_MOST_WATCHED_KEYS])
    watched = {key: rows for key, rows in watched.items() if rows >= smallest}
    for key in np.unique(routes.table.keys).tolist():
        watched[key] = loads.hot_rows.get(key, 0.0)
    keys = np.array(sorted(watched), np.uint64)
    key_rows = np.array([watched[key] for key in keys.tolist()], np.float64)
    key_buckets = buckets_of(keys, buckets.buckets)
    bucket_bytes, key_bytes = _find_bytes(loads, keys, key_rows, key_buckets)
    return LevelLoads(
        BucketLoads(buckets, loads.bucket_rows, bucket_bytes),
        KeyLoads(
            keys,
            key_rows,
            key_bytes,
            routes.base.slots_of(KeyBatch(keys)),
            splittable=np.full(len(keys), loads.splittable),
        ),
        key_buckets,
    )


def _find_bytes(
    loads: OperatorLoads, keys: NDArray[np.uint64], key_rows: NDArray[np.float64], key_buckets: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the state of each bucket, and of each of some keys; what was not measured is shared out by rows."""
    sizes = loads.sizes
    if sizes is None or not sizes.fit(len(loads.bucket_rows)):
        bytes_a_row = loads.state_bytes / max(float(loads.slot_rows.sum()), 1.0)
        return loads.bucket_rows * bytes_a_row, key_rows * bytes_a_row
    measured = np.array([sizes.key_bytes.get(key, -1.0) for key in keys.tolist()])
    of_bucket = sizes.bucket_bytes[key_buckets] * key_rows / np.maximum(loads.bucket_rows[key_buckets], 1.0)
    return sizes.bucket_bytes, np.where(measured < 0, of_bucket, measured)
