"""Operators under routes that chance changes at every boundary, and what they must emit all the same."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import polars as pl

from anabranch.control.decisions import RouteChange
from anabranch.model import (
    AggregateSpec,
    Clock,
    CountWindowSpec,
    DistinctSpec,
    OperatorSpec,
    OperatorTime,
    OrderSpec,
    ProcessSpec,
    TopKSpec,
    WindowSpec,
    spreads_any_key,
)
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates import sketches
from anabranch.operators.kernels import make_kernel
from anabranch.routing import Routes, hash_keys
from unit.operators import oracle
from unit.operators.many_slots import HashKeys, ManySlots, run_on_slots
from unit.operators.memory_state import MemoryState
from unit.operators.processors_under_test import FRAME_OUTPUT, OUTPUT, Scripted, ScriptedFrames
from unit.operators.streams import SCHEMA, SECOND_US, Batch, Outcome, Row, run_kernel, times_of
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
KEY_CLOCK = Clock("key", 2 * SECOND_US)
UPDATED: dict[str, Any] = {"late": "update", "lateness_us": 6 * SECOND_US}
AGAIN = replace(TUMBLING, early_us=3 * SECOND_US, **UPDATED)
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
    "windows by key": AggregateSpec(("key",), AGGREGATES, SLIDING, "ts", clock=KEY_CLOCK),
    "windows by key, updated": AggregateSpec(("key", "name"), AGGREGATES, AGAIN, "ts", clock=KEY_CLOCK),
    "windows by group": AggregateSpec(("key",), AGGREGATES, replace(TUMBLING, late="side"), "ts", clock=Clock("group")),
    "windows updated": AggregateSpec(("key",), AGGREGATES, replace(SLIDING, **UPDATED), "ts"),
    "best of windows by key": TopKSpec(("key",), "whole", 2, True, ("real",), AGAIN, "ts", clock=KEY_CLOCK),
    "windows by slot": AggregateSpec(("key",), AGGREGATES, TUMBLING, "ts", clock=Clock("slot")),
    "sessions by key": AggregateSpec(("key",), AGGREGATES, SESSION, "ts", clock=KEY_CLOCK),
    "sessions by key, updated": AggregateSpec(("key",), AGGREGATES, replace(SESSION, **UPDATED), "ts", clock=KEY_CLOCK),
    "early sessions by key": AggregateSpec(
        ("key",), AGGREGATES, replace(SESSION, early_us=3 * SECOND_US), "ts", clock=KEY_CLOCK
    ),
    "sessions updated": AggregateSpec(("key", "name"), AGGREGATES, replace(SESSION, **UPDATED), "ts"),
    "sessions, late rows aside": AggregateSpec(("key",), AGGREGATES, replace(SESSION, late="side"), "ts"),
    "best of sessions by key": TopKSpec(("key",), "whole", 2, True, ("real",), SESSION, "ts", clock=KEY_CLOCK),
    "count windows": AggregateSpec(("key",), AGGREGATES, None, "ts", count_window=CountWindowSpec(5, 5)),
    "sliding count windows": AggregateSpec(("key",), AGGREGATES, None, None, count_window=CountWindowSpec(6, 4)),
    "processor": ProcessSpec(("key",), Scripted(), SCHEMA, OUTPUT, "ts"),
    "processor by key": ProcessSpec(("key",), Scripted(), SCHEMA, OUTPUT, "ts", KEY_CLOCK),
    "processor by key, in order": ProcessSpec(("key",), Scripted(), SCHEMA, OUTPUT, "ts", KEY_CLOCK, ordered=True),
    "processor of frames": ProcessSpec(("key",), ScriptedFrames(), SCHEMA, FRAME_OUTPUT, "ts", KEY_CLOCK),
    "in order": OrderSpec(("key",), "ts"),
    "in order by key": OrderSpec(("key", "name"), "ts", KEY_CLOCK, "side"),
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
    if isinstance(spec, ProcessSpec | OrderSpec):
        return True
    return isinstance(spec, AggregateSpec | TopKSpec) and (spec.window is not None or spec.count_window is not None)


def make_changes(
    seed: int, spec: OperatorSpec, hashes: HashKeys, count: int
) -> tuple[Routes, list[RouteChange | None]]:
    """Return the first routes, and what chance changes at each boundary."""
    chance = random.Random(seed)
    keys = hashes(pl.DataFrame({"key": pl.Series(KEYS, dtype=pl.Int64)})).unique(maintain_order=True).to_list()
    # Keys that share a hash move together: their values must not take them apart.
    by_value = hashes is hash_apart and len(spec.keys) == 1
    kernel = make_kernel(spec)
    may_split = {"splittable": kernel.meeting is not None, "spreadable": spreads_any_key(kernel)}

    def routes() -> Routes:
        return make_wild_routes(chance, keys, by_value=by_value, **may_split)

    first = routes()
    changes = [
        None if chance.random() < 0.2 else RouteChange(routes(), chance.choice(["state", "window"]))
        for _ in range(count)
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


def check_long_stream(
    spec: OperatorSpec, seed: int, damages: bool = False, count: int = 40, reads: bool = False
) -> ManySlots:
    """Fail unless so many batches under wild routes emit what one slot emits.

    ``damages`` merged runs, too; ``reads`` what is held after every batch, which must be what one slot holds.
    """
    chance = random.Random(seed)
    batches = long_stream(chance, count)
    first_hop, at_once = chance.random() < 0.5, [chance.random() < 0.5 for _ in batches]
    times = times_of(batches, first_hop, is_drained(spec), at_once)
    first, changes = make_changes(seed, spec, hash_apart, len(times))
    slots = ManySlots(spec, first, hash_apart)
    kernel, state = make_kernel(spec), MemoryState()
    held_by_many, held_by_one = [], []

    def damage(at: ManySlots) -> None:
        for refs in at.runs.values():
            at.files.damaged |= {ref.file for ref in refs if ref.made_from and chance.random() < 0.5}

    def read_many(time: OperatorTime) -> None:
        held_by_many.append(Outcome(slots.values(time).to_dicts(), 0))

    def read_one(time: OperatorTime) -> None:
        live = state.live()
        values = kernel.values(kernel.unite([kernel.stored(live, time.fire_us)])) if live else pl.DataFrame()
        held_by_one.append(Outcome(values.to_dicts(), 0))

    disturb, notes = damage if damages else None, (read_many, read_one) if reads else (None, None)
    got = run_on_slots(slots, batches, times, True, changes, disturb, notes[0])
    oracle.assert_same(got, run_kernel(kernel, batches, times, True, state, notes[1]))
    oracle.assert_same(held_by_many, held_by_one)
    return slots
