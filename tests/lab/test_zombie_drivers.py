"""A driver that slept while another one took its place wakes up and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.disturbing import put_to_sleep, snapshot
from lab.drivers import assert_same_results, driver, finish, results


@pytest.mark.parametrize(
    ("moment", "kept"),
    # The last would remove batches that its successor, which keeps more, can be asked to go back to.
    [("in-commit", 10), ("after-manifest", 10), ("after-publish", 2)],
)
def test_a_driver_that_wakes_up_after_another_one_took_over_is_fenced(
    folder: Path, undisturbed: dict[str, Any], moment: str, kept: int
) -> None:
    environment = {"UNDER_TEST_STOP": f"{moment}:3", "UNDER_TEST_KEPT": str(kept)}
    with driver(folder, environment=environment, log="sleeper") as sleeper:
        assert sleeper.wait_for("stopping")
        family = put_to_sleep(sleeper)
        finish(folder)
        assert_same_results(results(folder), undisturbed)
        before = snapshot(folder)
        for member in family:
            member.resume()
        assert sleeper.wait() == 3, sleeper.lines[-3:]
        assert any(line.startswith("failed Fenced") for line in sleeper.lines), "\n".join(sleeper.lines)
    assert snapshot(folder) == before
