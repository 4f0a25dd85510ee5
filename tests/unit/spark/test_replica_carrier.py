"""Rounds that hang are ended: by what rounds took lately, or because somebody needs the cores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from anabranch.engine.tasks.replica_task import CopyOrder, HostReport
from anabranch.model.cluster import Executor
from anabranch.placement.replicas import CopyRound, Holdings
from anabranch.spark import replica_carrier
from anabranch.spark.replica_carrier import LEAST_LIMIT_SECONDS, ReplicaCarrier

ORDER = CopyOrder(CopyRound(), 1, {"a": Executor("0", "a", 1)}, {"0": "a"})
REPORT = HostReport("a", Holdings())
PATIENCE_SECONDS = 20.0


class Played:
    """A carrier whose jobs a test plays: they take some time, hang until they are cancelled, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cancelled = threading.Event()
        self.began = threading.Event()
        context = SimpleNamespace(cancelJobGroup=self._cancel)
        program: Any = None
        spark: Any = SimpleNamespace(sparkContext=context)
        self.carrier = ReplicaCarrier(spark, program, "flow")
        self.groups: list[str] = []
        self.outcome: Any = (REPORT,)
        monkeypatch.setattr(self.carrier, "_run", self._run)

    def _cancel(self, group: str) -> None:
        self.groups.append(group)
        self.cancelled.set()

    def _run(self, _order: CopyOrder) -> tuple[HostReport, ...]:
        self.began.set()
        if self.outcome == "hangs":
            assert self.cancelled.wait(PATIENCE_SECONDS)
            message = "Job 7 cancelled part of cancelled job group"
            raise PySparkException(message)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        found: tuple[HostReport, ...] = self.outcome
        return found


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def test_the_limit_of_a_round_is_four_times_what_rounds_took_lately_and_not_too_short() -> None:
    assert replica_carrier._find_limit(0.1) == LEAST_LIMIT_SECONDS
    assert replica_carrier._find_limit(10.0) == 40.0


def test_a_round_that_hangs_is_ended_at_its_limit_and_said_to_be(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert played.carrier.carry(ORDER).problem == ""
    monkeypatch.setattr(replica_carrier, "LEAST_LIMIT_SECONDS", 0.05)
    played.outcome = "hangs"
    carried = played.carrier.carry(ORDER)
    assert carried.reports == () and carried.problem == "a round was ended before it was over"
    assert played.groups == [played.carrier._group]


def test_the_first_round_may_take_longer_for_processes_start(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    timer = threading.Timer

    def begin(seconds: float, end: Callable[[], None]) -> threading.Timer:
        limits.append(seconds)
        return timer(seconds, end)

    monkeypatch.setattr(threading, "Timer", begin)
    played.carrier.carry(ORDER)
    played.carrier.carry(ORDER)
    assert limits == [replica_carrier.FIRST_ROUND_SECONDS, LEAST_LIMIT_SECONDS]


def test_a_round_is_ended_at_once_when_somebody_asks(played: Played) -> None:
    played.outcome = "hangs"
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(played.carrier.carry(ORDER).problem))
    thread.start()
    assert played.began.wait(PATIENCE_SECONDS)
    played.carrier.cancel()
    thread.join(PATIENCE_SECONDS)
    assert told == ["a round was ended before it was over"]


def test_what_a_round_failed_of_is_told_and_no_measure_of_rounds_to_come(played: Played) -> None:
    message = "an executor was lost"
    played.outcome = PySparkException(message)
    assert message in played.carrier.carry(ORDER).problem
    assert played.carrier._usual_seconds is None


def test_hosts_that_spark_did_not_reach_are_named(played: Played) -> None:
    played.outcome = ()
    assert played.carrier.carry(ORDER).problem == "Spark ran what was for a elsewhere"


def test_a_long_round_is_forgotten_bit_by_bit(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 20.0, 21.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    played.carrier.carry(ORDER)
    played.carrier.carry(ORDER)
    monkeypatch.undo()
    assert played.carrier._usual_seconds == pytest.approx(9.0)
