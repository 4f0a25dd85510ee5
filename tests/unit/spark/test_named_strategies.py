"""A strategy that is named decides where the very first row goes, and new keys later on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from in_process import FlowHere

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


def make_flow(folder: Path, frames: list[list[int]], routings: dict[str, Any], balance: Any = None) -> FlowHere:
    source = ab.memory(*[pl.DataFrame({"key": pl.Series(keys, dtype=pl.Int64)}) for keys in frames])

    def write() -> ab.Flow:
        flow = ab.Flow("named")
        stream = flow.read(source)
        for name, routing in routings.items():
            keyed = stream.key_by("key", routing=routing, balance=balance)
            keyed.agg(n=ab.count(), name=name).write(ab.to_memory())
        return flow

    return FlowHere(write, folder / "checkpoint", slots=SLOTS)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_named_strategy_routes_the_very_first_row(tmp_path: Path, seed: int) -> None:
    # Even keys, most of them small: neither modulo nor equal ranges of values spread them as hashes do.
    chance = np.random.default_rng(seed)
    keys = [2 * int(key) for key in chance.geometric(0.01, 3_000)]
    flow = make_flow(tmp_path, [keys[:2_000], keys[2_000:]], ROUTINGS)
    assert flow.step().changes == ()
    assert list(flow.checkpoint.store.list("looks")) == []
    first = set(keys[:2_000])
    placed = {name: flow.keys_by_slot(name) for name in ROUTINGS}
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
    assert flow.step().changes == ()
    assert all(key % SLOTS == slot for slot, found in enumerate(flow.keys_by_slot("modulo")) for key in found)


def test_by_the_published_rule_new_keys_are_placed_after_their_first_batch_and_old_ones_stay(tmp_path: Path) -> None:
    old, new = list(range(40)), list(range(100, 160))
    balance = ab.Balance(fewest_rows_a_slot=1, trigger=ab.BalanceTrigger(every_rows=1, smallest_improvement=0))
    routings = {"published": ab.NamedStrategy("least-key", sticky=True), "free": "least-count"}
    frames = [old, old + new, old + new, old + new]
    flow = make_flow(tmp_path, frames, routings, balance)
    flow.step()
    first = flow.keys_by_slot("published")
    assert [len(keys) for keys in first] == [10] * SLOTS
    flow.step()
    changes = flow.step().changes
    assert any("published: 60 new keys are placed by least-key sticky=true" in change for change in changes)
    flow.step()
    last = flow.keys_by_slot("published")
    assert [len(keys) for keys in last] == [25] * SLOTS
    assert all(set(before) <= set(after) for before, after in zip(first, last, strict=True))
