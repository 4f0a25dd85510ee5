"""Spark's own executors, as they come, go and die: slots run where they are at home, and answers stay right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.executors import assert_changed_as_promised
from lab.drivers import see

SCRIPT = Path(__file__).with_name("homes_under_test.py")
PATIENCE_SECONDS = 400.0


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one flow on one cluster went through: most of the time is Spark's to start."""
    found, printed = see(SCRIPT, tmp_path_factory.mktemp("homes"), patience_seconds=PATIENCE_SECONDS)
    print(printed)
    return found


def assert_at_home(batch: dict[str, Any]) -> None:
    assert batch["ran"].keys() == batch["homes"].keys()
    assert batch["ran"] == {slot: [home] for slot, home in sorted(batch["homes"].items())}


def test_an_executor_is_let_go_and_another_comes_with_an_id_of_its_own(seen: dict[str, Any]) -> None:
    assert_changed_as_promised(seen["changed"])
    assert seen["changed"]["cores"] == [1, 1, 1] and seen["changed"]["memory_bytes"] == 300 * 2**20


def test_a_cluster_says_what_may_be_asked_of_it(seen: dict[str, Any]) -> None:
    assert (seen["changed"]["cluster"], seen["changed"]["costs"]) == ("local-cluster", [])


def test_to_list_executors_takes_next_to_no_time(seen: dict[str, Any]) -> None:
    # It takes less than a millisecond; the machine may be busy with other tests.
    assert seen["changed"]["figures"]["list_ms"] < 20


def test_slots_of_both_levels_run_on_their_homes_in_every_batch(seen: dict[str, Any]) -> None:
    assert len(seen["steady"]) == 3
    for batch in seen["steady"]:
        assert_at_home(batch)
        assert batch["homes"] == seen["steady"][0]["homes"]
    assert set(seen["steady"][0]["homes"].values()) == {"0", "2", "3"}


def test_a_slot_runs_where_people_put_it(seen: dict[str, Any]) -> None:
    wanted, told = seen["told"]
    assert f"slot 0 of level 1 is at home on executor {wanted}" in told
    assert_at_home(seen["moved"])
    assert seen["moved"]["homes"]["1 0"] == wanted
    assert "executor" in seen["shown"]
    for refused in seen["refused"]:
        assert "refused: there is no executor and no host" in " ".join(refused.split())


def test_slots_of_a_killed_executor_go_on_elsewhere(seen: dict[str, Any]) -> None:
    killed, first = seen["killed"]
    ran = {executor for where in first["ran"].values() for executor in where}
    assert killed not in ran
    assert_at_home(seen["settled"])
    assert killed not in seen["settled"]["homes"].values()
    assert any(f"executor {killed} on" in reason and "is gone" in reason for _, reason in seen["decisions"])


def test_an_executor_that_comes_gets_slots_and_ids_do_not_come_back(seen: dict[str, Any]) -> None:
    assert "4" in seen["replaced"]["homes"].values()
    assert_at_home(seen["replaced"])


def test_no_slot_is_at_home_on_an_executor_that_was_let_go(seen: dict[str, Any]) -> None:
    released, *batches = seen["released"]
    for batch in batches:
        assert released not in batch["homes"].values()
        assert_at_home(batch)


def test_answers_are_right_whatever_happened_to_executors(seen: dict[str, Any]) -> None:
    assert seen["keys"] == 40
    assert seen["answers"] == [seen["expected"]]
