"""A strategy that is named decides where the very first row goes, and new keys later on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.model import BatchProgress
from anabranch.state import Checkpoint, open_store
from anabranch.state.inspect import SLOT, find_level, read_rows
from anabranch.testing import FlowTester
from flows.running import FlowBench

SLOTS = 4
FIRST_ROWS = 2_000
WEIGHTS = [55, 25, 15, 5]
ROUTINGS: dict[str, Any] = {
    "modulo": "modulo",
    "ranges": "ranges",
    "least": "least-key",
    "published": ab.NamedStrategy("least-key", sticky=True),
    "weighted": ab.NamedStrategy("weight-hash", weights=WEIGHTS),
    "drawn": ab.NamedStrategy("weight-random", weights=WEIGHTS),
    "strong": ab.NamedStrategy("least-key", powers=[3, 1, 1, 1]),
    "heads": "d-choices",
}


def keys_by_slot(checkpoint: str, operator: str, batch: int | None = None) -> list[list[int]]:
    """Return the keys whose state lies on each slot of an operator after a batch, or the last one."""
    store = open_store(checkpoint)
    committed = Checkpoint(store)
    manifest = committed.latest() if batch is None else committed.load(batch)
    assert manifest is not None
    rows = read_rows(store, find_level(manifest, operator))
    return [sorted(set(rows.filter(pl.col(SLOT) == slot)["key"])) for slot in range(SLOTS)]


def route_first_rows(bench: FlowBench, keys: list[int], local_merge: bool) -> dict[str, list[list[int]]]:
    """Run two batches under every routing; return what slots have after the first, by routing.

    Fails unless every routing answers right, keeps a key where it is, and is as its definition says.
    """
    frames = [pl.DataFrame({"key": some}) for some in (keys[:FIRST_ROWS], keys[FIRST_ROWS:])]
    flow, sinks = ab.Flow("named"), {}
    source = flow.read(ab.memory(*frames))
    for name, routing in ROUTINGS.items():
        stream = source.key_by("key", routing=routing, balance=None).agg(n=ab.count(), name=name)
        sinks[name] = ab.to_memory()
        stream.write(sinks[name])
    checkpoint = bench.new_checkpoint()
    progress = bench.run_flow(
        flow, list(sinks.values()), checkpoint=checkpoint, slots=SLOTS, drain=False, local_merge=local_merge
    ).progress
    assert [entry.changes for entry in progress] == [()] * len(progress)
    assert list(open_store(checkpoint).list("looks")) == []
    first = set(keys[:FIRST_ROWS])
    placed = {name: keys_by_slot(checkpoint, name, 0) for name in ROUTINGS}
    for name, by_slot in placed.items():
        assert set().union(*by_slot) == first, name
    counts = {name: [len(found) for found in by_slot] for name, by_slot in placed.items()}
    assert all(sum(found) == len(first) for name, found in counts.items() if name != "heads")
    assert all(below[-1] < above[0] for below, above in pairwise(placed["ranges"]))
    for name in ("least", "published"):
        assert max(counts[name]) - min(counts[name]) <= 1
    for name in ("weighted", "drawn"):
        assert np.array(counts[name]) / len(first) == pytest.approx(np.array(WEIGHTS) / 100, abs=0.1)
    assert counts["strong"][0] == pytest.approx(len(first) / 2, abs=2)
    # Later rows go the same ways, as long as nothing asks for others.
    for by_slot in (placed["modulo"], keys_by_slot(checkpoint, "modulo")):
        assert all(key % SLOTS == slot for slot, found in enumerate(by_slot) for key in found)
    expected = pl.Series("key", keys).value_counts().sort("key").rows()
    for name, sink in sinks.items():
        last = pl.concat([frame for _, frame in sink.batches()]).group_by("key").agg(pl.col("n").max()).sort("key")
        assert last.rows() == expected, name
    return placed


def draw_keys(seed: int) -> list[int]:
    """Return even keys, most of them small: neither modulo nor equal ranges of values spread them as hashes do."""
    return [2 * int(key) for key in np.random.default_rng(seed).geometric(0.01, 3_000)]


def test_every_named_strategy_routes_the_very_first_row(bench: FlowBench) -> None:
    keys = draw_keys(8)
    placed = route_first_rows(bench, keys, local_merge=False)
    held = pl.Series(keys[:FIRST_ROWS])
    rows_of = [int(held.is_in(found).sum()) for found in placed["ranges"]]
    assert rows_of == pytest.approx([500] * SLOTS, abs=60)
    # A key of the head is on several slots at once.
    assert sum(map(len, placed["heads"])) > len(set(keys[:FIRST_ROWS]))


@pytest.mark.parametrize("seed", [1, 2])
def test_every_named_strategy_routes_the_first_that_readers_have_merged(bench: FlowBench, seed: int) -> None:
    placed = route_first_rows(bench, draw_keys(seed), local_merge=True)
    # To whoever gets it, every key weighs the same.
    counts = [len(found) for found in placed["ranges"]]
    assert max(counts) - min(counts) <= 2


def read(tester: FlowTester, keys: Iterable[int]) -> BatchProgress:
    return tester.add([{"key": key} for key in keys]).run().progress


def test_by_the_published_rule_new_keys_are_placed_after_their_first_batch_and_old_ones_stay() -> None:
    old, new = list(range(40)), list(range(100, 160))
    balance = ab.Balance(fewest_rows_a_slot=1, trigger=ab.BalanceTrigger(every_rows=1, smallest_improvement=0))
    flow = ab.Flow("named")
    stream = flow.read(ab.memory(schema={"key": pl.Int64}))
    for name, routing in {"published": ab.NamedStrategy("least-key", sticky=True), "free": "least-count"}.items():
        counts = stream.key_by("key", routing=routing, balance=balance).agg(n=ab.count(), name=name)
        counts.write(ab.console(), name=name)
    tester = FlowTester(flow, slots=SLOTS)
    read(tester, old)
    first = keys_by_slot(tester.checkpoint, "published")
    assert [len(keys) for keys in first] == [10] * SLOTS
    read(tester, old + new)
    changes = read(tester, old + new).changes
    assert any("published: 60 new keys are placed by least-key sticky=true" in change for change in changes)
    read(tester, old + new)
    last = keys_by_slot(tester.checkpoint, "published")
    assert [len(keys) for keys in last] == [25] * SLOTS
    assert all(set(before) <= set(after) for before, after in zip(first, last, strict=True))
