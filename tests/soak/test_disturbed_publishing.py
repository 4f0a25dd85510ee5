"""Drivers that die, fail and pause at random lines of a publication."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from anabranch.connectors.retry import ServerAway
from contracts.disturbed_publishing import (
    KINDS,
    Place,
    find_server,
    run_failing,
    run_killed,
    run_paused,
    run_paused_start,
    run_undisturbed,
    steps_of_start,
)
from soak.amounts import SECONDS_A_KIND, SEED


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_as_undisturbed_wherever_a_driver_is_disturbed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    print(f"ANABRANCH_SOAK_SEED={SEED}")
    chance = random.Random(f"{SEED} {kind}")
    server = find_server(kind, request)
    made = 0

    def make() -> Place:
        nonlocal made
        made += 1
        folder = tmp_path / str(made)
        folder.mkdir()
        return KINDS[kind](server, folder)

    expected, steps = run_undisturbed(make())
    assert len(expected) > 4
    steps_before = steps_of_start(make())
    deadline = time.monotonic() + SECONDS_A_KIND
    while time.monotonic() < deadline:
        how = chance.choice(["killed", "failed", "away", "paused", "paused", "paused in its start"])
        taken = steps_before if how == "paused in its start" else steps
        # Lines in loops are many, and should not be all that is tried.
        line = chance.choice(list(dict.fromkeys(taken)))
        at = chance.choice([number for number, step in enumerate(taken, start=1) if step == line])
        broken, restarted = chance.random() < 0.5, chance.random() < 0.5
        if how == "killed":
            found = run_killed(make(), at)
        elif how == "paused":
            found = run_paused(make(), at, broken=broken, restarted=restarted)
        elif how == "paused in its start":
            found = run_paused_start(make(), at)
        else:
            found = run_failing(make(), at, OSError if how == "failed" else ServerAway)
        assert found == expected, f"{how} at step {at}, {line}, {broken=}, {restarted=}"
