"""Rounds of copying that end early, on Spark itself: what its exceptions are is not for a test to make up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.engine.tasks.replica_task import CopyOrder, HostReport
from anabranch.model.cluster import Executor
from anabranch.placement.replicas import CopyRound
from anabranch.spark.replica_carrier import ReplicaCarrier

ORDER = CopyOrder(CopyRound(), 1, {"a": Executor("0", "a", 1)}, {"0": "a"})
PATIENCE_SECONDS = 60.0


def _hang(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(PATIENCE_SECONDS)
    yield from batches


def _fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    message = "no room left in /dev/shm"
    raise OSError(message)
    yield from batches


def _carrier(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, work: Any) -> tuple[ReplicaCarrier, threading.Event]:
    program: Any = None
    carrier, began = ReplicaCarrier(spark, program, "flow"), threading.Event()

    def run(_order: CopyOrder) -> tuple[HostReport, ...]:
        spark.sparkContext.setJobGroup(carrier._group, "a round", interruptOnCancel=True)
        began.set()
        spark.range(1, numPartitions=1).mapInArrow(work, "id bigint").collect()
        return ()

    monkeypatch.setattr(carrier, "_run", run)
    return carrier, began


def test_a_round_that_is_ended_is_told_in_words_of_ours(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    carrier, began = _carrier(spark, monkeypatch, _hang)
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(carrier.carry(ORDER).problem))
    thread.start()
    assert began.wait(PATIENCE_SECONDS)
    while not told and thread.is_alive():
        # The job may not have been handed in yet, and what is not there cannot be cancelled.
        carrier.cancel()
        time.sleep(0.1)
    thread.join(PATIENCE_SECONDS)
    assert told == ["a round was ended before it was over"]


def test_a_round_that_fails_is_told_in_its_last_words(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    carrier, _ = _carrier(spark, monkeypatch, _fail)
    problem = carrier.carry(ORDER).problem
    assert "no room left in /dev/shm" in problem
    assert "\tat " not in problem
