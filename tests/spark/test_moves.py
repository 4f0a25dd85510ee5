"""Whatever moves, splits and merges while the stream runs: the answers are those of a single slot."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.spark.driver import Driver
from anabranch.spark.settings import make_settings
from anabranch.spark.spec import FlowProgram
from oracle import assert_same_batches
from spark.running import FlowBench
from spark.test_transparency import BATCHES, answers, make_flow
from spark.wild_steering import BUCKETS, WildSteering

__all__ = ["answers"]

KEYS = sorted({row["key"] for batch in BATCHES for row in batch})


@pytest.mark.parametrize("seed", range(6))
def test_random_moves_at_every_boundary_do_not_change_the_answers(
    bench: FlowBench, answers: list[Any], seed: int
) -> None:
    flow, sinks = make_flow()
    settings = make_settings(
        checkpoint=bench.new_checkpoint(),
        trigger="available-now",
        drain=True,
        slots=2,
        buckets=BUCKETS,
        local_merge=seed % 2 == 0,
    )
    steered: list[WildSteering] = []

    def steer(program: FlowProgram) -> WildSteering:
        steered.append(WildSteering(seed, program, KEYS))
        return steered[0]

    driver = Driver(flow, settings, bench.spark, make_steering=steer)
    driver.start()
    driver.wait()
    (steering,) = steered
    for sink, answer in zip(sinks, answers, strict=True):
        assert_same_batches(sink.batches(), answer.batches)
    assert steering.done
    assert steering.handed_bytes > 0
