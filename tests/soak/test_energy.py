"""Hosts of a lab sleep while load is low: slots leave, hosts are released and come back; answers are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import driver_on, lab_of
from soak.energy_under_test import HOSTS

SCRIPT = Path(__file__).with_name("energy_under_test.py")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one flow went through."""
    folder = tmp_path_factory.mktemp("energy")
    with lab_of(HOSTS, folder / "lab") as lab, driver_on(lab, folder, SCRIPT) as process:
        assert process.wait_for("seen"), process.lines[-5:]
        (line,) = [line for line in process.lines if line.startswith("seen ")]
    found: dict[str, Any] = json.loads(line.removeprefix("seen "))
    return found


def test_slots_go_to_one_host_and_the_others_are_released_at_the_next_boundary(seen: dict[str, Any]) -> None:
    actions = [(batch, action) for batch, action, _ in seen["decisions"] if action != "home"]
    assert [action for _, action in actions][:3] == ["offload", "release", "provision"]
    (offloaded, _), (released, _) = actions[:2]
    assert released == offloaded + 1
    hosts = {batch["batch"]: batch["hosts"] for batch in seen["batches"]}
    assert len(hosts[offloaded]) == HOSTS and len(hosts[released]) == 1


def test_hosts_come_back_with_the_load_and_stay(seen: dict[str, Any]) -> None:
    assert len(seen["batches"][-1]["hosts"]) >= 2
    assert [action for _, action, _ in seen["decisions"]].count("offload") == 1


def test_every_row_is_counted_once(seen: dict[str, Any]) -> None:
    assert seen["is_right"]


def test_energy_of_every_batch_is_told(seen: dict[str, Any]) -> None:
    assert all("modelled" in batch["energy"] or "measured" in batch["energy"] for batch in seen["batches"])
