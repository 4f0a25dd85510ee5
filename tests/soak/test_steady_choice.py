"""Strategies on streams that stay as they are, for ten thousand batches; and on streams that change."""

from __future__ import annotations

import pytest

from anabranch.routing import strategy_names
from benchmarks.skew.switching.table import ChangingData, make_lab, run_fixed, run_trigger
from soak.amounts import CHANGING_STREAMS, SEED, STEADY_STREAMS
from unit.control.steady_flows import SteadyFlow, count_switches


@pytest.mark.parametrize("splittable", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("number", range(STEADY_STREAMS))
def test_on_a_steady_stream_the_strategy_changes_once_at_most_in_ten_thousand_batches(
    number: int, splittable: bool
) -> None:
    batches = SteadyFlow.draw(SEED + number, splittable=splittable).run(10_000)
    assert count_switches(batches) <= 1, f"with ANABRANCH_SOAK_SEED={SEED}"


@pytest.mark.parametrize("splittable", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("changes_a_minute", [0.1, 1.0])
@pytest.mark.parametrize("number", range(CHANGING_STREAMS))
def test_switching_comes_near_the_best_fixed_strategy(number: int, changes_a_minute: float, splittable: bool) -> None:
    lab = make_lab(SEED + number, splittable=splittable)
    data = ChangingData.draw(lab, changes_a_minute, max(240.0, 90 / changes_a_minute), SEED + number)
    own = run_trigger(lab, "default", data)
    fixed = [run.settled_rows_per_second for name in strategy_names() for run in run_fixed(lab, name, data)]
    assert own.settled_rows_per_second >= 0.95 * max(fixed), f"with ANABRANCH_SOAK_SEED={SEED}"
