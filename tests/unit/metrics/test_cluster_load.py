"""What tasks took is added up by executor and host; counters that only rise become what a batch did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.metrics.cluster_load import MOST_REMEMBERED, LoadBook, homes_of, sum_transfers
from anabranch.metrics.history import BATCHES_WITH_TASKS, RunHistory
from anabranch.model.measures import MOST_PAIRS, OTHER_SLOTS, BatchMeasures, ExecutorSample
from anabranch.state import open_store
from unit.cli.builders import batch
from unit.engine.test_run_progress import MANY, SOME, measure
from unit.metrics.measured import EXECUTORS, reader, slot
from unit.metrics.told_clusters import LOAD_HOLDS, REPLACED_EVERY, KeptOfCluster, make_tasks


def test_utilisation_is_processor_time_over_the_batch_s_time_on_all_cores() -> None:
    measured = LoadBook().add([reader(), slot(0, "1"), slot(1, "2")], EXECUTORS, batch_seconds=2.0)
    first, second = measured.executors
    assert (first.executor, first.tasks, first.cpu_seconds, first.starting_seconds) == ("1", 2, 0.75, 0.05)
    assert first.utilisation == pytest.approx(0.8 / (2.0 * 2))
    assert second.utilisation == pytest.approx(0.3 / (2.0 * 2))
    assert measured.cpu_seconds == pytest.approx(1.1)
    assert measured.utilisation == pytest.approx(1.1 / (2.0 * 4))
    assert measured.measuring_share == pytest.approx(0.001 / 1.1)


def test_executors_without_tasks_count_among_the_cores() -> None:
    assert LoadBook().add([slot(0, "1")], EXECUTORS, 1.0).utilisation == pytest.approx(0.3 / 4)


def test_bytes_between_slots_are_bytes_between_their_executors_and_hosts() -> None:
    tasks = [reader(0, "1"), reader(1, "2", sent=7), slot(0, "1"), slot(1, "2")]
    measured = LoadBook().add(tasks, EXECUTORS, 1.0)
    assert measured.executor_bytes == {("1", "1"): 1_000, ("1", "2"): 1_000, ("2", "1"): 7, ("2", "2"): 7}
    assert measured.host_bytes[("10.0.0.2", "10.0.0.1")] == 7


def test_bytes_can_be_counted_for_homes_that_slots_do_not_have() -> None:
    tasks = [reader(0, "1"), slot(0, "1"), slot(1, "2")]
    assert sum_transfers(tasks, {**homes_of(tasks), (1, 1): "1"}) == {("1", "1"): 2_000}


def test_counters_of_a_process_and_a_host_are_told_as_their_differences() -> None:
    book = LoadBook()
    before = book.add([slot(0, "1", sample=ExecutorSample(10.0, 1, 5_000, 9_000))], EXECUTORS, 1.0)
    assert (before.executors[0].process_cpu_seconds, before.hosts[0].network_sent_bytes) == (0.0, 0)
    # Tasks of a batch end in any order: the largest of their samples is the last.
    tasks = [
        slot(0, "1", sample=ExecutorSample(12.5, 2, 5_700, 9_100)),
        slot(1, "1", sample=ExecutorSample(11.0, 2, 5_600, 9_050)),
    ]
    now = book.add(tasks, EXECUTORS, 1.0)
    assert now.executors[0].process_cpu_seconds == 2.5
    assert (now.hosts[0].network_sent_bytes, now.hosts[0].network_received_bytes) == (700, 100)
    assert now.executors[0].busy_seconds == pytest.approx(2.5 + 0.5 + 0.1)


def test_counters_that_began_anew_take_nothing_away() -> None:
    book = LoadBook()
    book.add([slot(0, "1", sample=ExecutorSample(10.0, 1, 5_000, 9_000))], EXECUTORS, 1.0)
    now = book.add([slot(0, "1", sample=ExecutorSample(1.0, 1, 5, 9))], EXECUTORS, 1.0)
    assert (now.executors[0].process_cpu_seconds, now.hosts[0].network_sent_bytes) == (0.0, 0)


def test_the_quickest_of_several_connections_is_the_latency_and_is_remembered() -> None:
    book = LoadBook()
    tried = [replace(slot(n, "1"), latency_seconds={"10.0.0.2": 0.001 * (n + 1), "10.0.0.1": 0.1}) for n in range(2)]
    assert book.add(tried, EXECUTORS, 1.0).latency_seconds == {("10.0.0.1", "10.0.0.2"): 0.001}
    assert book.add([slot(0, "1")], EXECUTORS, 1.0).latency_seconds == {("10.0.0.1", "10.0.0.2"): 0.001}


def test_a_batch_reads_again_what_it_wrote() -> None:
    operators = {"count": 0.2, "join": 0.05}
    tasks = [reader(), replace(slot(0, "1"), operator_cpu_seconds=operators), replace(slot(2, "2"), meets=True)]
    tasks[1] = replace(tasks[1], run_reads={"hot": (2, 50), "store": (1, 7)})
    tasks[2] = replace(tasks[2], run_reads={"replica": (1, 9), "hot": (1, 5)})
    measured = LoadBook().add(tasks, EXECUTORS, 1.0)
    written = json.dumps(measured.to_json())
    again = BatchMeasures.from_json(json.loads(written))
    assert json.dumps(again.to_json()) == written
    assert again.tasks[1].operator_cpu_seconds == operators
    assert again.tasks[1].run_reads == {"hot": (2, 50), "store": (1, 7)} and again.tasks[0].run_reads == {}
    assert again.run_reads == {"hot": (3, 55), "replica": (1, 9), "store": (1, 7)}
    assert [task.meets for task in again.tasks] == [False, False, True]
    assert again.tasks[0].sent_bytes == {(1, 0): 1_000, (1, 1): 1_000}
    assert again.executors == measured.executors


def test_many_pairs_of_slots_are_told_together_and_no_byte_is_lost() -> None:
    tasks = [reader(number, slots=50, sent=100 + number) for number in range(10)]
    measured = LoadBook().add(tasks, EXECUTORS, 1.0)
    named = [target for task in measured.tasks for target in task.sent_bytes if target != OTHER_SLOTS]
    assert len(named) == MOST_PAIRS
    assert sum(task.all_sent_bytes for task in measured.tasks) == sum(task.all_sent_bytes for task in tasks)
    assert sum(task.all_sent_rows for task in measured.tasks) == 10 * 50 * 10


def test_executors_that_come_and_go_are_forgotten() -> None:
    book = LoadBook()
    for number in range(MOST_REMEMBERED + 100):
        gone = replace(slot(0, "1", sample=ExecutorSample(1.0)), executor=str(number), host=str(number))
        book.add([replace(gone, latency_seconds={"elsewhere": 1.0})], EXECUTORS, 1.0)
    assert {len(kept) for kept in (book._executors, book._hosts, book._latencies)} == {MOST_REMEMBERED}


def test_any_number_of_batches_on_executors_that_come_and_go_take_the_memory_of_a_few(tmp_path: Path) -> None:
    kept, seen = KeptOfCluster(open_store(tmp_path)), []
    for number in range(MANY):
        kept.add(number)
        if number + 1 in (SOME, MANY):
            seen.append(measure(*kept.parts))
    (some, some_bytes), (many, many_bytes) = seen
    assert many <= some + 200
    assert many_bytes < 1.1 * some_bytes
    assert kept.run.progress.totals.cpu_seconds > 0
    assert kept.moved > MANY // REPLACED_EVERY / 2 and kept.changed > MANY // LOAD_HOLDS / 2, "there was much to forget"


def test_memory_keeps_the_tasks_of_the_last_batches_and_the_executors_of_all() -> None:
    history, book = RunHistory(0.0), LoadBook()
    for number in range(BATCHES_WITH_TASKS + 5):
        history.add(batch(number, measures=book.add(make_tasks(number), EXECUTORS, 0.5)), number)
    kept = [timed.progress.measures for timed in history.recent]
    assert [bool(measures and measures.tasks) for measures in kept] == [False] * 5 + [True] * BATCHES_WITH_TASKS
    assert all(measures and len(measures.executors) == 2 for measures in kept)
