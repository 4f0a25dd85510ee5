"""Flows made by chance, many of them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed

from flows.random_flows import HELD_KINDS, KINDS, OWN_TIME_KINDS, SEEDS, check, make_random_flow
from flows.running import FlowBench
from soak.amounts import FLOWS, SEED


@pytest.mark.parametrize("kind", [*KINDS, *HELD_KINDS, *OWN_TIME_KINDS])
@hypothesis_seed(SEED)
@settings(
    max_examples=max(1, FLOWS // len([*KINDS, *HELD_KINDS, *OWN_TIME_KINDS])),
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=SEEDS)
def test_a_random_flow_answers_as_the_oracle(bench: FlowBench, kind: str, seed: int) -> None:
    try:
        check(bench, make_random_flow(kind, seed))
    except AssertionError as error:
        pytest.fail(f"with ANABRANCH_SOAK_SEED={SEED}: {make_random_flow(kind, seed)}: {error}")
