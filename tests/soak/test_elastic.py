"""Real executors that follow a load: four times as much and back, one step each way, and answers stay right.

Also under a load that is around the threshold for five minutes: then nothing changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.drivers import see
from soak.threshold_under_test import ELASTICITY, LIVE_SECONDS

pytestmark = pytest.mark.soak
"""On two cores that other tests keep busy, loads are not what they are said to be."""

SCRIPT = Path(__file__).with_name("elastic_under_test.py")
THRESHOLD_SCRIPT = Path(__file__).with_name("threshold_under_test.py")
PATIENCE_SECONDS = 400.0
THRESHOLD = ELASTICITY.upper


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one flow went through: most of the time is that of executors to start."""
    return see(SCRIPT, tmp_path_factory.mktemp("elastic"), patience_seconds=PATIENCE_SECONDS)[0]


def decided(seen: dict[str, Any], *actions: str) -> list[tuple[int, str]]:
    return [(batch, action) for batch, action, sender, _ in seen["decisions"] if action in actions]


def test_executors_are_asked_for_in_one_step_and_given_back_after_their_slots_have_left(seen: dict[str, Any]) -> None:
    asked = decided(seen, "provision", "offload", "release", "keep")
    actions = [action for _, action in asked]
    # A batch that has rows of both loads may let one executor too many stay at first.
    assert actions in (["provision", "offload", "release"], ["provision", *["offload", "release"] * 2])
    assert all(sender == "elasticity" for _, action, sender, _ in seen["decisions"] if action in dict(asked).values())
    assert seen["after"]["reconfigurations"] == 1 + actions.count("offload")
    # How much tasks cost besides their rows depends on how busy the machine is.
    before, grown, after = (len(seen[when]["executors"]) for when in ("before", "grown", "after"))
    assert (before, after) == (1, 1) and grown > 1


def test_growth_is_decided_within_three_batches(seen: dict[str, Any]) -> None:
    (asked, _), *_ = decided(seen, "provision")
    usual = sorted(batch["rows"] for batch in seen["batches"][1:4])[1]
    first_high = next(batch["batch"] for batch in seen["batches"][1:] if batch["rows"] > 2.5 * usual)
    assert asked <= first_high + 3


def test_executors_get_slots_only_when_they_are_warm(seen: dict[str, Any]) -> None:
    cold = [look for look in seen["looks"] if not all(look["executors"].values())]
    assert cold, "nobody saw an executor that had just come"
    for look in seen["looks"]:
        assert all(look["executors"].get(home, True) for home in look["homes"]), look


def test_slots_follow_executors_up_and_down_and_have_left_before_an_executor_goes(seen: dict[str, Any]) -> None:
    assert seen["grown"]["slots"] == len(seen["grown"]["homes"]) == len(seen["grown"]["executors"])
    assert seen["after"]["slots"] == 1 and len(seen["after"]["homes"]) == 1
    offloaded, released = decided(seen, "offload"), decided(seen, "release")
    # A flow that has two slots from the beginning needs no more of them for two executors.
    resized_down = [batch for batch, _ in decided(seen, "resize") if batch >= offloaded[0][0]]
    assert resized_down == [batch for batch, _ in offloaded]
    assert [batch for batch, _ in released] == [batch + 1 for batch, _ in offloaded]


def test_the_flow_never_stops_and_counts_every_row_once(seen: dict[str, Any]) -> None:
    assert seen["is_right"]
    assert seen["runs"] == 1
    assert sum(batch["rows"] for batch in seen["batches"]) == seen["rows"]
    assert not any(batch["replayed"] for batch in seen["batches"])


def test_a_load_around_the_threshold_changes_nothing_once_it_has_settled(tmp_path: Path) -> None:
    seen, _ = see(THRESHOLD_SCRIPT, tmp_path, patience_seconds=PATIENCE_SECONDS + LIVE_SECONDS)
    # Else nothing was tried.
    assert min(seen["busy"]) < THRESHOLD < max(seen["busy"]), seen["busy"]
    assert seen["decisions"] == [], seen
    settled, after = seen["settled"], seen["after"]
    assert (after["wanted"], after["reconfigurations"]) == (settled["wanted"], settled["reconfigurations"])
    assert after["slots"] == settled["slots"]
    assert seen["is_right"] and seen["runs"] == 1
