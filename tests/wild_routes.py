"""Routes made by chance: any base route, keys moved and split, rows split."""

from __future__ import annotations

import random
from collections.abc import Sequence

from anabranch.model import BucketMap, RoutingTable
from anabranch.routing import (
    BaseRoute,
    BipartiteRoute,
    BucketRoute,
    GridRoute,
    ModuloRoute,
    RangeRoute,
    RingRoute,
    Routes,
    WeightRoute,
)
from anabranch.routing.strategies.splitters import ChoiceSplitter

BUCKETS = 32
MOST_SLOTS = 5


def make_wild_routes(
    chance: random.Random,
    hashes: Sequence[int],
    *,
    splittable: bool,
    by_value: bool,
    most_slots: int = MOST_SLOTS,
    spreadable: bool = True,
) -> Routes:
    """Return routes that chance made; ``by_value``: keys are whole numbers, and routes may go by them.

    ``spreadable``: where keys may be split, any may be, and not only those that a table names.
    """
    slots = chance.randint(1, most_slots)
    # Not always: where windows overlap, only whole keys may wait for their end.
    splittable = splittable and chance.random() < 0.5
    placements = {}
    for key in chance.sample(list(hashes), chance.randint(0, len(hashes))):
        owners = chance.sample(range(slots), chance.randint(1, slots) if splittable else 1)
        weights = [chance.randint(1, 9) for _ in owners]
        placements[key] = {slot: weight / sum(weights) for slot, weight in zip(owners, weights, strict=True)}
    base = _make_base(chance, slots, by_value)
    splitter = ChoiceSplitter(slots) if splittable and spreadable and chance.random() < 0.3 else None
    return Routes(base, RoutingTable.of(placements), splitter)


def make_wild_deal(chance: random.Random, most_slots: int = MOST_SLOTS, *, by_key: bool = True) -> BaseRoute:
    """Return routes for rows of joins that chance made; ``by_key``: only rows with equal keys need to meet."""
    slots = chance.randint(1, most_slots)
    if chance.random() < 0.5:
        return BipartiteRoute(slots, chance.randint(1, 3) if by_key else 1)
    rows = chance.randint(1, slots)
    return GridRoute(slots, rows, chance.randint(1, slots // rows))


def _make_base(chance: random.Random, slots: int, by_value: bool) -> BaseRoute:
    if by_value and chance.random() < 0.3:
        if chance.random() < 0.5:
            return ModuloRoute(slots)
        return RangeRoute("integer", tuple(sorted(chance.randrange(40) for _ in range(slots - 1))))
    kind = chance.randrange(8)
    if kind == 0:
        return RingRoute.over(slots, BUCKETS, 4)
    if kind == 1:
        return WeightRoute.of_powers([chance.randint(1, 5) for _ in range(slots)])
    if kind == 2:
        return ModuloRoute(slots, of_values=False)
    return BucketRoute(BucketMap(slots, tuple(chance.randrange(slots) for _ in range(BUCKETS))))
