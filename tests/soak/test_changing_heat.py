"""Long streams whose keys change their heat, under any strategy, planner and trigger: answers are those of one slot."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from anabranch.routing import strategy_names
from flows.running import LocalBench
from flows.skewed_flows import EVERY_PLANNER, TRIGGERS, SkewedFlow
from soak.amounts import SEED, SKEWED_STREAMS

STRATEGIES = ("auto", *strategy_names())


@pytest.mark.parametrize("number", range(SKEWED_STREAMS))
def test_whatever_is_chosen_never_changes_the_answer(tmp_path: Path, number: int) -> None:
    chance = random.Random(f"{SEED} {number}")
    # Planning chooses more than any strategy does: half of the streams are planned.
    strategy = STRATEGIES[0 if number % 2 else number // 2 % len(STRATEGIES)]
    planner, trigger = chance.choice(EVERY_PLANNER), chance.choice(sorted(TRIGGERS))
    flow = SkewedFlow(chance.getrandbits(32), strategy, planner, trigger, batches=60, rows=3_000)
    bench = LocalBench(tmp_path)
    try:
        got = flow.check(bench, bench.new_checkpoint())
        assert strategy != "auto" or flow.merges or any(entry.changes for entry in got.progress), "nothing changed"
    except AssertionError as error:
        pytest.fail(f"with ANABRANCH_SOAK_SEED={SEED}: {flow}: {error}")
