"""What the progress of a batch says of strategies: which keys go by, and how all of them do."""

from __future__ import annotations

import json

import polars as pl
import pytest

import anabranch as ab
from anabranch.model import BatchProgress
from anabranch.routing import make_strategy, strategy_names
from anabranch.testing import FlowTester

EVERY_BATCH = ab.Balance(fewest_rows_a_slot=1, trigger=ab.BalanceTrigger(every_rows=1, smallest_improvement=0.01))
SKEWED = [{"key": key} for key in [*range(200), *[7] * 300]]


def start(**routings: object) -> FlowTester:
    flow = ab.Flow("told")
    stream = flow.read(ab.memory(schema={"key": pl.Int64}))
    for name, routing in routings.items():
        balance = None if name == "fixed" else EVERY_BATCH
        stream.key_by("key", routing=routing, balance=balance).agg(n=ab.count(), name=name).write(  # type: ignore[arg-type]
            ab.console(), name=name
        )
    return FlowTester(flow, slots=4, local_merge=False)


def test_progress_says_what_keys_go_by_and_how_every_strategy_would_do() -> None:
    flow = start(planned="auto", named="modulo", fixed="modulo")
    first = flow.add(SKEWED).run().progress
    # Who is not balanced is not watched.
    assert first.strategies == {"planned": "plan", "named": "modulo"}
    whole = {name for name in strategy_names() if not make_strategy(name).splits_keys}
    assert set(first.scores) == {"planned", "named"}
    assert whole <= set(first.scores["planned"])
    modulo = [0] * 4
    for row in SKEWED:
        modulo[row["key"] % 4] += 1
    assert first.scores["named"]["modulo"] == pytest.approx(max(modulo) / (len(SKEWED) / 4))
    even = flow.add([{"key": key} for key in range(400)]).run().progress
    assert even.scores["named"]["modulo"] == pytest.approx(1.0)


def test_keys_that_go_by_their_hash_had_what_hash_is_scored() -> None:
    progress = start(planned="auto").add(SKEWED).run().progress
    assert progress.max_over_mean is not None and progress.max_over_mean > 2
    assert progress.scores["planned"]["hash"] == pytest.approx(progress.max_over_mean)


def test_progress_tells_of_another_strategy_once_keys_go_by_it() -> None:
    flow = start(named="hash")
    assert flow.add(SKEWED).run().progress.strategies == {"named": "hash"}
    flow.ctl("strategy", name="modulo")
    told = [flow.add(SKEWED).run().progress.strategies["named"] for _ in range(3)]
    assert told[-1] == "modulo"


def test_what_is_told_of_strategies_outlives_its_process() -> None:
    progress = start(planned="auto").add(SKEWED).run().progress
    assert progress.strategies and progress.scores and progress.sampled_rows
    again = BatchProgress.from_json(json.loads(json.dumps(progress.to_json())))
    assert (again.strategies, again.scores) == (progress.strategies, progress.scores)
    old = {name: value for name, value in progress.to_json().items() if name not in ("strategies", "scores")}
    assert BatchProgress.from_json(old).strategies == {}
