"""Buckets on a ring, and maps that change size with few moves."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from anabranch.model import BucketMap, RouteError
from anabranch.routing.hashing import mix

DEFAULT_POINTS_A_SLOT = 128
"""Points of a slot on the ring; the arcs of a slot then differ from the mean by about 9 % (one over the root)."""

_BUCKET_SEED, _POINT_SEED = 101, 102


def ring_map(members: Iterable[int], buckets: int, points_a_slot: int = DEFAULT_POINTS_A_SLOT) -> BucketMap:
    """Return the map in which each bucket belongs to the next point of a member slot, clockwise on the ring of hashes.

    A member more takes buckets from all others and none moves between those; a member less gives its own away.
    """
    slots = np.array(sorted(set(members)), np.uint64)
    if not len(slots) or points_a_slot < 1:
        msg = f"a ring of {len(slots)} slots with {points_a_slot} points each owns nothing; give at least one of both"
        raise RouteError(msg)
    ordinals = np.arange(points_a_slot, dtype=np.uint64)
    numbers = np.repeat(slots << np.uint64(32), points_a_slot) + np.tile(ordinals, len(slots))
    points = mix(numbers, _POINT_SEED)
    order = np.argsort(points, kind="stable")
    places = mix(np.arange(buckets, dtype=np.uint64), _BUCKET_SEED)
    next_points = np.searchsorted(points[order], places) % len(points)
    owners = slots[order[next_points] // points_a_slot]
    return BucketMap(int(slots[-1]) + 1, tuple(int(owner) for owner in owners))


def resize_map(bucket_map: BucketMap, slots: int) -> BucketMap:
    """Return the map over another number of slots in which slots own equally many buckets, give or take one.

    Only those buckets move that must: the ones of slots that go, and as many as a new slot's fair share.
    """
    if slots < 1 or slots > bucket_map.buckets:
        msg = f"{bucket_map.buckets} buckets can't be dealt to {slots} slots; give 1 to {bucket_map.buckets}"
        raise RouteError(msg)
    owned: list[list[int]] = [[] for _ in range(max(slots, bucket_map.slots))]
    for bucket, slot in enumerate(bucket_map.slot_of):
        owned[slot].append(bucket)
    fair, more = divmod(bucket_map.buckets, slots)
    # Whoever owns most keeps the one bucket more: that moves the fewest.
    keepers = sorted(range(slots), key=lambda slot: (-len(owned[slot]), slot))[:more]
    quota = [fair + (slot in keepers) for slot in range(slots)]
    homeless = sorted(b for slot, mine in enumerate(owned) for b in mine[quota[slot] if slot < slots else 0 :])
    slot_of = list(bucket_map.slot_of)
    for slot in range(slots):
        lacking = quota[slot] - len(owned[slot])
        for _ in range(lacking):
            slot_of[homeless.pop()] = slot
    return BucketMap(slots, tuple(slot_of))
