"""Flows made by chance answer as the oracle does."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from flows.random_flows import HELD_KINDS, KINDS, OWN_TIME_KINDS, SEEDS, check, make_random_flow
from flows.running import FlowBench


# Always the same examples, so that a failure repeats; no shrinking, because every try is a whole flow on Spark.
@pytest.mark.parametrize("kind", [*KINDS, *HELD_KINDS, *OWN_TIME_KINDS])
@settings(
    max_examples=2,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=SEEDS)
def test_a_random_flow_answers_as_the_oracle(bench: FlowBench, kind: str, seed: int) -> None:
    check(bench, make_random_flow(kind, seed))
