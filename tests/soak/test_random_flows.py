"""Hundreds of flows made by chance; ``ANABRANCH_SOAK_FLOWS`` says how many, ``ANABRANCH_SOAK_SEED`` which."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed

from spark.random_flows import HELD_KINDS, KINDS, OWN_TIME_KINDS, SEEDS, check, make_random_flow
from spark.running import FlowBench

FLOWS = int(os.environ.get("ANABRANCH_SOAK_FLOWS", "350"))
SEED = int(os.environ.get("ANABRANCH_SOAK_SEED", random.SystemRandom().randrange(2**32)))


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
