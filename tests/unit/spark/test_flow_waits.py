"""The waits of all processes of a flow, as its driver sees them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.connectors.waits import begin_wait, end_wait
from anabranch.model.waits import Wait
from anabranch.spark.flow_waits import FlowWaits
from anabranch.spark.split_source import ControlFolder


class FakeAccumulator:
    """Adds up in this process."""

    def __init__(self, value: Any, parameter: Any) -> None:
        self.value = value
        self._parameter = parameter

    def add(self, term: Any) -> None:
        self.value = self._parameter.addInPlace(self.value, term)


class FakeContext:
    def accumulator(self, value: Any, parameter: Any) -> FakeAccumulator:
        return FakeAccumulator(value, parameter)


@pytest.fixture
def folder(tmp_path: Path) -> ControlFolder:
    return ControlFolder(str(tmp_path))


@pytest.fixture
def waits(folder: ControlFolder) -> FlowWaits:
    waits = FlowWaits(folder)
    waits.open(FakeContext())  # type: ignore[arg-type]
    return waits


def test_waits_of_all_processes_are_seen_each_place_once_and_the_longest_first(
    waits: FlowWaits, folder: ControlFolder
) -> None:
    folder.show_waits("planner", [Wait("Kafka", "no answer", 200.0)])
    folder.show_waits("task-7", [Wait("redis://cache", "refused", 150.0)])
    folder.show_waits("task-8", [Wait("redis://cache", "refused", 100.0)])
    with waits.noted():
        begin_wait("postgresql://db", "refused")
        *others, own = waits.current
        end_wait("postgresql://db")
    assert own.place == "postgresql://db"
    assert others == [Wait("redis://cache", "refused", 100.0), Wait("Kafka", "no answer", 200.0)]
    folder.show_waits("planner", [])
    waits.begin_batch()
    assert waits.current == (), "a batch begins without the waits of tasks that were killed"


def test_what_tasks_waited_for_comes_back_when_they_are_over(waits: FlowWaits) -> None:
    def task(batches: Iterator[int]) -> Iterator[int]:
        for batch in batches:
            begin_wait("redis://cache", "refused", seconds_ago=float(batch))
            assert [wait.place for wait in waits.current] == ["redis://cache"]
            end_wait("redis://cache")
            yield batch

    assert list(waits.in_tasks.telling(task)(iter([3]))) == [3]
    assert list(waits.in_tasks.telling(task)(iter([5]))) == [5]
    (past,) = waits.take_past()
    assert (past.place, past.reason, round(past.seconds)) == ("redis://cache", "refused", 5)
    assert waits.take_past() == ()


def test_a_task_that_fails_while_it_waits_leaves_no_wait_behind(waits: FlowWaits) -> None:
    def task(batches: Iterator[int]) -> Iterator[int]:
        begin_wait("redis://cache", "refused")
        raise ValueError
        yield from batches

    with pytest.raises(ValueError):
        list(waits.in_tasks.telling(task)(iter([1])))
    assert waits.current == ()
    assert waits.take_past() == ()


def test_waits_of_other_processes_are_logged_when_they_begin_and_when_they_are_over(
    waits: FlowWaits, folder: ControlFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "anabranch.waits")
    folder.show_waits("planner", [Wait("Kafka", "no answer", 0.0)])
    waits.log_others()
    waits.log_others()
    folder.show_waits("planner", [])
    waits.log_others()
    waits.log_others()
    begun, over = [record.getMessage() for record in caplog.records]
    assert begun == "Kafka is out of reach (no answer): waiting for it"
    assert over.startswith("Kafka is back after ")


def test_a_folder_on_another_host_is_no_problem(tmp_path: Path) -> None:
    elsewhere = ControlFolder(str(tmp_path / "elsewhere"))
    elsewhere.show_waits("task-1", [Wait("redis://cache", "refused", 0.0)])
    assert elsewhere.waits() == []
