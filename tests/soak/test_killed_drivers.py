"""Drivers killed again and again, and put to sleep."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lab.disturbing import kill_at_random, put_to_sleep, snapshot
from lab.drivers import assert_same_results, driver, finish, results, write_input
from soak.amounts import KILLS, KILLS_A_RUN, SEED

PATIENCE_SECONDS = 3600.0


@pytest.mark.parametrize("run", range(-(-KILLS // KILLS_A_RUN)))
def test_a_driver_killed_again_and_again_leaves_the_undisturbed_output(tmp_path: Path, run: int) -> None:
    print(f"ANABRANCH_SOAK_SEED={SEED}")
    chance = random.Random(SEED + run)
    kills = min(KILLS_A_RUN, KILLS - run * KILLS_A_RUN)
    # Each life ends after a few batches at most, so there must be enough of them for all kills.
    files, rows, seed = 4 * kills + 10, chance.choice([20, 200, 2000]), chance.randrange(10**6)
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for folder in (disturbed, undisturbed):
        write_input(folder, files, rows, seed)
    for _ in range(kills):
        kill_at_random(disturbed, chance)
    finish(disturbed, patience_seconds=PATIENCE_SECONDS)
    finish(undisturbed, patience_seconds=PATIENCE_SECONDS)
    assert_same_results(results(disturbed), results(undisturbed))


@pytest.mark.parametrize(
    "moment", ["before-job", "after-job", "before-manifest", "in-commit", "after-manifest", "after-publish"]
)
def test_a_driver_that_slept_at_any_moment_is_fenced(tmp_path: Path, moment: str) -> None:
    undisturbed = tmp_path / "undisturbed"
    for folder in (tmp_path / "disturbed", undisturbed):
        write_input(folder, 12, 100, SEED % 10**6)
    finish(undisturbed)
    folder = tmp_path / "disturbed"
    with driver(folder, environment={"UNDER_TEST_STOP": f"{moment}:3"}, log="sleeper") as sleeper:
        assert sleeper.wait_for("stopping")
        family = put_to_sleep(sleeper)
        finish(folder)
        assert_same_results(results(folder), results(undisturbed))
        before = snapshot(folder)
        for member in family:
            member.resume()
        assert sleeper.wait() == 3
    assert snapshot(folder) == before
