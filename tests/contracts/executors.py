"""What every implementation of ``Executors`` promises: one is let go, another comes, and who is gone stays away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from anabranch.errors import EngineError
from anabranch.model.cluster import Executors

WaitsUntil = Callable[[Callable[[], bool]], float]
"""Returns the seconds that it took until a condition held."""


def change_executors(executors: Executors, wait_until: WaitsUntil) -> dict[str, Any]:
    """Let one of three go and ask for another; return what was seen, as plain JSON data."""
    wait_until(lambda: len(executors.list()) == 3)
    first = [executor.id for executor in executors.list()]
    executors.decommission([first[1]])
    leaving = [executor.id for executor in executors.list() if executor.is_leaving]
    gone_seconds = wait_until(lambda: first[1] not in [executor.id for executor in executors.list()])
    stayed = [executor.id for executor in executors.list()]
    executors.request(3)
    looks = [executors.list()]

    def all_came() -> bool:
        looks.append(executors.list())
        return len(looks[-1]) == 3

    come_seconds = wait_until(all_came)
    cold = [executor.id for executor in looks[-1] if not executor.is_warm]
    warm_seconds = wait_until(lambda: all(executor.is_warm for executor in executors.list()))
    # Fewer than are there ends none of them.
    executors.request(2)
    executors.request(3)
    refusals = []
    for end in (executors.kill, executors.decommission):
        try:
            end([first[1]])
        except EngineError as error:
            refusals.append(str(error))
    listed = executors.list()
    return {
        "first": first,
        "leaving": leaving,
        "stayed": stayed,
        "cold": cold,
        "after": [executor.id for executor in listed],
        "leaving_after": [executor.id for executor in listed if executor.is_leaving],
        "refusals": refusals,
        "hosts": [executor.host for executor in listed],
        "cores": [executor.cores for executor in listed],
        "obstacles": list(executors.describe().obstacles),
        "figures": {"gone_seconds": gone_seconds, "come_seconds": come_seconds, "warm_seconds": warm_seconds},
    }


def measure_listing(executors: Executors) -> float:
    """Return how many milliseconds a look takes."""
    began = time.perf_counter()
    for _ in range(100):
        executors.list()
    return (time.perf_counter() - began) * 10


def assert_changed_as_promised(changed: dict[str, Any]) -> None:
    """Check what was seen."""
    assert changed["first"] == ["0", "1", "2"]
    # One that goes quickly is not seen leaving.
    assert changed["leaving"] in (["1"], [])
    assert changed["stayed"] == ["0", "2"]
    # Ids do not come back.
    assert changed["after"] == ["0", "2", "3"] and changed["leaving_after"] == []
    # Others may be cold, too: those that came after the first of all.
    assert "3" in changed["cold"]
    assert len(changed["refusals"]) == 2
    for refused in changed["refusals"]:
        assert "no executor 1 that stays; those that do are 0, 2, 3" in refused
    assert all(changed["hosts"]) and min(changed["cores"]) >= 1
    assert changed["obstacles"] == []
