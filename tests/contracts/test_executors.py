"""Executors that tests play keep what Spark's own do; those are tried in ``tests/lab/test_homes.py``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.engine.batches.slot_homes import OneProcess
from anabranch.errors import EngineError
from contracts.executors import assert_changed_as_promised, change_executors
from flows.played_executors import PlayedExecutors

MOST_LOOKS = 100


def look_until(condition: Callable[[], bool]) -> float:
    for _ in range(MOST_LOOKS):
        if condition():
            return 0.0
    raise AssertionError(f"not within {MOST_LOOKS} looks")


def test_played_executors_come_and_go_as_those_of_spark_do() -> None:
    assert_changed_as_promised(change_executors(PlayedExecutors(3), look_until))


def test_the_one_process_of_local_mode_refuses_all_that_and_says_why() -> None:
    alone = OneProcess(2)
    for refused in (lambda: alone.request(3), lambda: alone.kill(["driver"]), lambda: alone.decommission(["driver"])):
        with pytest.raises(EngineError, match="run the flow on a cluster"):
            refused()
    assert [executor.id for executor in alone.list()] == ["driver"]
