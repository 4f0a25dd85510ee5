"""The driver killed with −9, at named moments and at any: nothing is lost and nothing is counted twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from anabranch.engine.faults import MOMENTS
from lab.disturbing import kill_at, kill_at_random
from lab.drivers import assert_same_results, committed, finish, results

SEED = 42
KILLS = 11
FAULTS = (
    # One batch that is begun again and again, and one that is published again.
    ("before-job", 1),
    ("in-slot-after-state", 1),
    ("after-job", 1),
    ("before-manifest", 1),
    ("after-manifest", 1),
    ("between-sinks", 2),
    ("after-publish", 3),
)
COMMITTED = ("after-manifest", "between-sinks", "after-publish")
"""The moments at which the batch is there already."""


def test_a_driver_killed_at_every_fault_point_and_at_random_moments_leaves_the_undisturbed_output(
    folder: Path, undisturbed: dict[str, Any]
) -> None:
    kills = 0
    assert {moment for moment, _ in FAULTS} == set(MOMENTS)
    for moment, batch in FAULTS:
        kill_at(folder, moment, batch)
        kills += 1
        assert committed(folder)[-1] == (batch if moment in COMMITTED else batch - 1), moment
    chance = random.Random(SEED)
    while kills < KILLS:
        kills += kill_at_random(folder, chance)
    finish(folder)
    assert_same_results(results(folder), undisturbed)
