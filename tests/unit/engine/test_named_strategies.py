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

SLOTS = 4
WEIGHTS = [55, 25, 15, 5]
ROUTINGS: dict[str, Any] = {
    "modulo": "modulo",
    "ranges": "ranges",
    "least": "least-key",
    "published": ab.NamedStrategy("least-key", sticky=True),
    "weighted": ab.NamedStrategy("weight-hash", weights=WEIGHTS),
    "drawn": ab.NamedStrategy("weight-random", weights=WEIGHTS),
    "strong": ab.NamedStrategy("least-key", powers=[3, 1, 1, 1]),
}


def start(routings: dict[str, Any], balance: Any = None) -> FlowTester:
    flow = ab.Flow("named")
    stream = flow.read(ab.memory(schema={"key": pl.Int64}))
    for name, routing in routings.items():
        stream.key_by("key", routing=routing, balance=balance).agg(n=ab.count(), name=name).write(
            ab.console(), name=name
        )
    return FlowTester(flow, slots=SLOTS)


def read(tester: FlowTester, keys: Iterable[int]) -> BatchProgress:
    return tester.add([{"key": key} for key in keys]).run().progress


def keys_by_slot(tester: FlowTester, operator: str) -> list[list[int]]:
    """Return the keys whose state lies on each slot of an operator after the last batch."""
    store = open_store(tester.checkpoint)
    manifest = Checkpoint(store).latest()
    assert manifest is not None
    rows = read_rows(store, find_level(manifest, operator))
    return [sorted(set(rows.filter(pl.col(SLOT) == slot)["key"])) for slot in range(SLOTS)]


@pytest.mark.parametrize("seed", [1, 2])
def test_every_named_strategy_routes_the_very_first_row(seed: int) -> None:
    # Even keys, most of them small: neither modulo nor equal ranges of values spread them as hashes do.
    chance = np.random.default_rng(seed)
    keys = [2 * int(key) for key in chance.geometric(0.01, 3_000)]
    flow = start(ROUTINGS)
    assert read(flow, keys[:2_000]).changes == ()
    assert list(open_store(flow.checkpoint).list("looks")) == []
    first = set(keys[:2_000])
    placed = {name: keys_by_slot(flow, name) for name in ROUTINGS}
    for name, by_slot in placed.items():
        assert sorted(key for found in by_slot for key in found) == sorted(first), name
    counts = {name: [len(found) for found in by_slot] for name, by_slot in placed.items()}
    assert all(key % SLOTS == slot for slot, found in enumerate(placed["modulo"]) for key in found)
    assert all(below[-1] < above[0] for below, above in pairwise(placed["ranges"]))
    assert max(counts["ranges"]) - min(counts["ranges"]) <= 2
    for name in ("least", "published"):
        assert max(counts[name]) - min(counts[name]) <= 1
    for name in ("weighted", "drawn"):
        assert np.array(counts[name]) / len(first) == pytest.approx(np.array(WEIGHTS) / 100, abs=0.1)
    assert counts["strong"][0] == pytest.approx(len(first) / 2, abs=2)
    # And later rows go the same ways, as long as nothing asks for others.
    assert read(flow, keys[2_000:]).changes == ()
    assert all(key % SLOTS == slot for slot, found in enumerate(keys_by_slot(flow, "modulo")) for key in found)


def test_by_the_published_rule_new_keys_are_placed_after_their_first_batch_and_old_ones_stay() -> None:
    old, new = list(range(40)), list(range(100, 160))
    balance = ab.Balance(fewest_rows_a_slot=1, trigger=ab.BalanceTrigger(every_rows=1, smallest_improvement=0))
    routings = {"published": ab.NamedStrategy("least-key", sticky=True), "free": "least-count"}
    flow = start(routings, balance)
    read(flow, old)
    first = keys_by_slot(flow, "published")
    assert [len(keys) for keys in first] == [10] * SLOTS
    read(flow, old + new)
    changes = read(flow, old + new).changes
    assert any("published: 60 new keys are placed by least-key sticky=true" in change for change in changes)
    read(flow, old + new)
    last = keys_by_slot(flow, "published")
    assert [len(keys) for keys in last] == [25] * SLOTS
    assert all(set(before) <= set(after) for before, after in zip(first, last, strict=True))
