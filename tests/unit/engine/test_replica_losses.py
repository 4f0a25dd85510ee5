"""What is told of slots that lost their homes: for how long there were no results, and what they read where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.engine.batches.replicas.heirs import Heirs
from anabranch.engine.batches.replicas.losses import LossBook
from anabranch.model import BatchProgress
from anabranch.model.cluster import Home
from anabranch.model.events import SlotRecovery
from anabranch.model.measures import BatchMeasures, TaskMeasure
from unit.cli.builders import batch as make_batch


def batch(number: int, *tasks: TaskMeasure) -> BatchProgress:
    return replace(make_batch(number), measures=BatchMeasures(tasks=tasks))


def task(slot: int, host: str, **reads: tuple[int, int]) -> TaskMeasure:
    return TaskMeasure(1, slot, f"of {host}", host, 0.1, 0.1, 0, run_reads=reads)


def test_time_without_results_is_told_in_seconds_and_in_batches_of_the_usual_pace() -> None:
    book = LossBook()
    assert book.settle(batch(0), 10.0, None) is None
    for number in (1, 2, 3):
        assert book.settle(batch(number), 10.0 + 2 * number, 8.0 + 2 * number) is None
    book.note({(1, 0): Home("1", "b")}, Heirs({(1, 0): "0"}, {(1, 0): "a"}, {}), 21.0)
    told = book.settle(batch(4), 25.0, 16.0)
    assert told is not None
    assert (told.seconds, told.silent_seconds, told.batches) == (4.0, 9.0, 3.5)
    assert "results of batch 4 came 4.00 s after that was found, 9.00 s after those of the batch before" in told.reason
    assert "3.5 batches more would have had results" in told.reason
    # What a loss took is not how long batches usually take.
    assert book.settle(batch(5), 27.0, 25.0) is None
    book.note({(1, 0): Home("0", "a")}, Heirs({}, {}, {}), 28.0)
    again = book.settle(batch(6), 29.0, 27.0)
    assert again is not None and again.batches == 0


def test_a_loss_in_the_first_batch_knows_no_pace() -> None:
    book = LossBook()
    book.note({(1, 0): Home("1", "b")}, Heirs({}, {}, {}), 21.0)
    told = book.settle(batch(0), 25.0, None)
    assert told is not None and (told.seconds, told.silent_seconds, told.batches) == (4.0, None, None)


def test_each_slot_is_told_with_where_it_went_and_where_its_runs_were() -> None:
    book = LossBook()
    lost = {(1, slot): Home("1", "b") for slot in range(3)}
    book.note(lost, Heirs({}, {(1, 0): "a"}, {(1, 1): "c"}), 0.0)
    tasks = (
        task(0, "a", replica=(3, 30)),
        task(1, "c", replica=(2, 20), store=(1, 10)),
        task(3, "a", hot=(9, 90)),
    )
    told = book.settle(batch(1, *tasks), 1.0, None)
    assert told is not None
    assert told.slots == (
        SlotRecovery(1, 0, "b", "a", replica_runs=3, replica_bytes=30),
        SlotRecovery(1, 1, "b", "c", replica_runs=2, replica_bytes=20, store_runs=1, store_bytes=10),
        SlotRecovery(1, 2, "b"),
    )
    assert (
        "of 3 slots 1 went on from replicas on a, 1 from replicas on c that may lack something, 1 had none"
        in told.reason
    )


def test_slots_that_leave_an_executor_which_is_to_go_are_no_loss() -> None:
    book = LossBook()
    book.note({}, Heirs({(1, 0): "0"}, {(1, 0): "a"}, {}), 0.0)
    assert book.settle(batch(1), 1.0, 0.5) is None


@pytest.mark.parametrize("second", [{(1, 0): "c"}, {}])
def test_a_second_loss_in_the_same_batch_counts_from_the_first_and_goes_by_the_second(
    second: dict[tuple[int, int], str],
) -> None:
    book = LossBook()
    lost = {(1, 0): Home("1", "b")}
    book.note(lost, Heirs({}, {(1, 0): "a"}, {}), 1.0)
    book.note(lost, Heirs({}, second, {}), 3.0)
    told = book.settle(batch(1), 5.0, None)
    assert told is not None and told.seconds == 4.0
    assert ("on c" in told.reason, "had none" in told.reason) == (bool(second), not second)
