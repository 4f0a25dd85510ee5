"""Drivers and executors killed with −9 while keys move at every boundary: the output is that of one slot."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anabranch.routing.phases import PhasedRoutes
from anabranch.state import Manifest
from lab.disturbing import kill_at, kill_at_random, moving
from lab.drivers import assert_same_results, committed, driver, finish, manifests, results
from lab.executors import IMPATIENT, LOCAL_CLUSTER, Traps, cluster_arguments, executor_of

SEED = 23
SPLITTING_SEED = 36
"""One that shares out keys which have their own time just before the driver is killed."""


def hands_over(batches: Iterable[Manifest]) -> bool:
    """Say whether state was on its way to another slot after one of the batches."""
    return any(level.handoffs for manifest in batches for level in manifest.levels)


def splits(manifest: Manifest, operator: str | None = None) -> bool:
    """Say whether slots share keys in the batch after this one, those of an operator or of any."""
    return any(
        PhasedRoutes.from_json(level.routes).splits
        for level in manifest.levels
        if operator is None or level.operator == operator
    )


def test_a_driver_killed_while_keys_move_leaves_the_output_of_one_slot(
    folder: Path, undisturbed: dict[str, Any]
) -> None:
    # Handoffs are written, and nobody knows of them: the batch is run again, with other moves.
    kill_at(folder, "before-manifest", 2, moving(SPLITTING_SEED))
    assert committed(folder)[-1] == 1
    # They are committed, and the next driver takes them in.
    kill_at(folder, "after-manifest", 4, moving(SPLITTING_SEED + 1))
    assert hands_over([manifests(folder)[4]])
    assert splits(manifests(folder)[4], "own"), "keys that have their own time are shared from here on"
    kill_at_random(folder, random.Random(SEED), moving(SEED + 2))
    finish(folder, environment=moving(SEED + 3))
    assert_same_results(results(folder), undisturbed)
    assert hands_over(manifests(folder).values())


def test_executors_killed_while_keys_move_and_are_shared_leave_the_output_of_one_slot(
    folder: Path, undisturbed: dict[str, Any]
) -> None:
    traps = Traps(folder)
    environment = moving(SEED) | {"UNDER_TEST_TRAPS": str(traps.folder)}
    disturbed = []
    with driver(folder, *cluster_arguments(LOCAL_CLUSTER, *IMPATIENT), environment=environment) as process:
        for number, batches in ((1, 4), (2, 7)):
            assert process.wait_for("batch ", batches), process.lines[-3:]
            traps.arm(number, "first-wait")
            worker = traps.wait_until_sprung(number, process)
            disturbed.append(process.batches)
            executor_of(worker).send_signal(signal.SIGKILL)
            traps.let_go(number)
        assert process.wait() == 0, process.lines[-3:]
    assert traps.left() == []
    assert_same_results(results(folder), undisturbed)
    found = manifests(folder)
    # What a batch begins with is in the manifest before it.
    assert any(splits(found[batch - 1]) for batch in disturbed)
    assert hands_over(found[batch + step] for batch in disturbed for step in (-1, 0))
