"""A strategy that is named decides where the very first row goes, on the shared session."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.state import Checkpoint, open_store
from anabranch.state.inspect import find_level
from anabranch.state.runs import RunFiles, WriteName
from flows.running import FlowBench, frames_of, reading

SLOTS = 4
WEIGHTS = [55.0, 25.0, 15.0, 5.0]
ROUTINGS: dict[str, Any] = {
    "modulo": "modulo",
    "ranges": "ranges",
    "least": "least-key",
    "published": ab.NamedStrategy("least-key", sticky=True),
    "weighted": ab.NamedStrategy("weight-hash", weights=WEIGHTS),
    "strong": ab.NamedStrategy("least-key", powers=[3, 1, 1, 1]),
    "heads": "d-choices",
}


def keys_by_slot(checkpoint: str, batch: int, operator: str) -> list[list[int]]:
    """Return the keys whose state lies on each slot."""
    store = open_store(checkpoint)
    level = find_level(Checkpoint(store).load(batch), operator)
    files = RunFiles(store, "state", WriteName(0, batch, 0, "test"))
    return [sorted({key for ref in refs for key in files.read(ref)["key"].to_list()}) for refs in level.runs]


def test_every_named_strategy_routes_the_very_first_row(bench: FlowBench) -> None:
    chance = np.random.default_rng(8)
    # Even keys, most of them small: neither modulo nor even ranges of values would spread them as hashes do.
    keys = [2 * int(key) for key in chance.geometric(0.01, 3_000)]
    rows = [reading(key, second / 10) for second, key in enumerate(keys)]
    flow, sinks = ab.Flow("named"), {}
    source = flow.read(ab.memory(*frames_of([rows[:2_000], rows[2_000:]])))
    for name, routing in ROUTINGS.items():
        stream = source.key_by("key", routing=routing, balance=None).agg(n=ab.count(), name=name)
        sinks[name] = ab.to_memory()
        stream.write(sinks[name])
    checkpoint = bench.new_checkpoint()
    progress = bench.run_flow(
        flow, list(sinks.values()), checkpoint=checkpoint, slots=SLOTS, drain=False, local_merge=False
    ).progress
    assert [entry.changes for entry in progress] == [()] * len(progress)
    placed = {name: keys_by_slot(checkpoint, 0, name) for name in ROUTINGS}
    first = set(keys[:2_000])
    for name, by_slot in placed.items():
        assert set().union(*by_slot) == first, name
    counts = {name: [len(found) for found in by_slot] for name, by_slot in placed.items()}

    assert all(key % SLOTS == slot for slot, found in enumerate(placed["modulo"]) for key in found)
    ends = [(found[0], found[-1]) for found in placed["ranges"]]
    assert all(last < following for (_, last), (following, _) in pairwise(ends))
    held = pl.Series(keys[:2_000])
    rows_of = [int(held.is_in(found).sum()) for found in placed["ranges"]]
    assert rows_of == pytest.approx([500] * SLOTS, abs=60)
    for name in ("least", "published"):
        assert max(counts[name]) - min(counts[name]) <= 1
    assert np.array(counts["weighted"]) / len(first) == pytest.approx(np.array(WEIGHTS) / 100, abs=0.1)
    assert counts["strong"][0] == pytest.approx(len(first) / 2, abs=2)
    # A key of the head is on several slots at once.
    assert sum(counts["heads"]) > len(first)

    expected = pl.Series("key", keys).value_counts().sort("key").rows()
    for name, sink in sinks.items():
        last = pl.concat([frame for _, frame in sink.batches()]).group_by("key").agg(pl.col("n").max()).sort("key")
        assert last.rows() == expected, name
