"""Whatever strategies, planners and triggers choose while the heat of keys changes: answers are those of one slot."""

from __future__ import annotations

from itertools import cycle

import pytest

from anabranch.routing import Routes, strategy_names
from flows.running import FlowBench
from flows.skewed_flows import BUCKETS, EVERY_PLANNER, TRIGGERS, SkewedFlow

NAMED = [
    SkewedFlow(100 + seed, strategy, planner, trigger)
    for seed, (strategy, planner, trigger) in enumerate(
        zip(strategy_names(), cycle(EVERY_PLANNER), cycle(TRIGGERS), strict=False)
    )
]


@pytest.mark.parametrize("planner", EVERY_PLANNER)
def test_plans_at_every_trigger_change_routes_and_never_the_answer(bench: FlowBench, planner: str) -> None:
    told = []
    for seed, trigger in enumerate(TRIGGERS, len(TRIGGERS) * EVERY_PLANNER.index(planner)):
        flow = SkewedFlow(seed, "auto", planner, trigger)
        changes = [change for entry in flow.check(bench, bench.new_checkpoint()).progress for change in entry.changes]
        assert any(TRIGGERS[trigger][1] in change for change in changes), flow
        told += changes
    # Where a named strategy leads, a plan may never be carried out, but not in all of them.
    assert any(f"{planner} moves" in change for change in told)


@pytest.mark.parametrize("flow", NAMED, ids=str)
def test_every_named_strategy_has_routes_of_its_own_and_never_changes_the_answer(
    bench: FlowBench, flow: SkewedFlow
) -> None:
    checkpoint = bench.new_checkpoint()
    flow.check(bench, checkpoint)
    routes = flow.find_routes(checkpoint)
    assert routes.by == flow.strategy
    by_hash = flow.find_slots(Routes.even(flow.slots, BUCKETS))
    assert (flow.find_slots(routes) == by_hash) is (flow.strategy == "hash")
