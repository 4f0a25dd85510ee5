"""Operators under routes that chance changes at every boundary, and what they must emit all the same."""

from __future__ import annotations

import random

import polars as pl

from anabranch.model import AggregateSpec, DistinctSpec, OperatorSpec, TopKSpec, WindowSpec
from anabranch.operators import aggregates as ab
from anabranch.operators import sketches
from anabranch.operators.kernels import make_kernel
from anabranch.routing import Routes, hash_keys
from anabranch.spark.flow_routes import Change
from unit.operators import oracle
from unit.operators.many_slots import HashKeys, ManySlots, run_on_slots
from unit.operators.streams import SECOND_US, Batch, Row, run_kernel, times_of
from wild_routes import make_wild_routes

AGGREGATES = {
    "rows": ab.count(),
    "total": ab.sum("whole"),
    "lowest": ab.min("real"),
    "average": ab.mean("real"),
    "spread": ab.variance("whole"),
    "opening": ab.first("whole"),
    "closing": ab.last("real"),
    "different": sketches.approx_distinct("whole"),
}
TUMBLING = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US, 3 * SECOND_US)
SLIDING = WindowSpec("sliding", 10 * SECOND_US, 4 * SECOND_US, SECOND_US)
EVENLY_SLIDING = WindowSpec("sliding", 12 * SECOND_US, 3 * SECOND_US)
SESSION = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US)
SPECS: dict[str, OperatorSpec] = {
    "tumbling": AggregateSpec(("key",), AGGREGATES, TUMBLING, "ts"),
    "sliding unevenly": AggregateSpec(("key",), AGGREGATES, SLIDING, "ts"),
    "sliding evenly": AggregateSpec(("key", "name"), AGGREGATES, EVENLY_SLIDING, "ts"),
    "session": AggregateSpec(("key",), AGGREGATES, SESSION, "ts"),
    "running": AggregateSpec(("key",), AGGREGATES, None, "ts"),
    "running with ttl": AggregateSpec(("key",), AGGREGATES, None, "ts", 8 * SECOND_US),
    "distinct": DistinctSpec(("key",), "ts"),
    "distinct with ttl": DistinctSpec(("key",), "ts", 8 * SECOND_US),
    "best of windows": TopKSpec(("key",), "whole", 2, True, ("real",), TUMBLING, "ts"),
    "best so far": TopKSpec(("key",), "whole", 3, False, ("real",), None, "ts"),
    "best of sessions": TopKSpec(("key",), "whole", 2, True, ("real",), SESSION, "ts"),
}
KEYS = range(6)


def hash_apart(frame: pl.DataFrame) -> pl.Series:
    """Return the hashes as the engine makes them."""
    return hash_keys(frame, ["key"])


def hash_together(frame: pl.DataFrame) -> pl.Series:
    """Return few hashes for many keys: those that collide must move together, and not get mixed up."""
    return (frame["key"] % 3).cast(pl.UInt64) * 6_148_914_691_236_517_205


def is_drained(spec: OperatorSpec) -> bool:
    """Say whether something is left to fire at the end of a stream."""
    return not isinstance(spec, DistinctSpec) and spec.window is not None


def make_changes(seed: int, spec: OperatorSpec, hashes: HashKeys, count: int) -> tuple[Routes, list[Change | None]]:
    """Return the first routes, and what chance changes at each boundary."""
    chance = random.Random(seed)
    keys = hashes(pl.DataFrame({"key": pl.Series(KEYS, dtype=pl.Int64)})).unique().to_list()
    # Keys that share a hash move together: their values must not take them apart.
    by_value = hashes is hash_apart and len(spec.keys) == 1
    splittable = make_kernel(spec).splittable

    def routes() -> Routes:
        return make_wild_routes(chance, keys, splittable=splittable, by_value=by_value)

    first = routes()
    changes = [
        None if chance.random() < 0.2 else Change(routes(), chance.choice(["state", "window"])) for _ in range(count)
    ]
    return first, changes


def long_stream(chance: random.Random, count: int = 40) -> list[Batch]:
    """Return a stream whose time goes on, long enough for many runs to be merged."""
    made = []
    for number in range(count):
        rows = [
            Row(chance.choice(KEYS), 2 * number + chance.randrange(-6, 6), chance.randrange(-9, 9), chance.random())
            for _ in range(chance.randrange(14))
        ]
        cut = chance.randrange(len(rows) + 1)
        made.append(Batch((tuple(rows[:cut]), tuple(rows[cut:])), 2 * number - 4))
    return made


def check_long_stream(spec: OperatorSpec, seed: int, damages: bool = False) -> ManySlots:
    """Fail unless forty batches under wild routes emit what one slot emits; ``damages`` merged runs, too."""
    chance = random.Random(seed)
    batches = long_stream(chance)
    times = times_of(batches, first_hop=chance.random() < 0.5, drain=is_drained(spec))
    first, changes = make_changes(seed, spec, hash_apart, len(times))
    slots = ManySlots(spec, first, hash_apart)

    def damage(at: ManySlots) -> None:
        for refs in at.runs.values():
            at.files.damaged |= {ref.file for ref in refs if ref.made_from and chance.random() < 0.5}

    got = run_on_slots(slots, batches, times, True, changes, damage if damages else None)
    oracle.assert_same(got, run_kernel(make_kernel(spec), batches, times, True))
    return slots
