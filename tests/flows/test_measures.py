"""Tasks in this process are measured: what they took, what they were given and what they sent to whom."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.model import BatchProgress
from anabranch.model.measures import TaskMeasure

ROWS = 3_000


def run(flow: ab.Flow, folder: Path, **settings: Any) -> tuple[LocalRun, list[BatchProgress]]:
    local = LocalRun(flow, make_settings(checkpoint=str(folder), trigger="available-now", **settings))
    return local, local.run_to_end()


def count_twice() -> ab.Flow:
    flow = ab.Flow("twice")
    frames = [pl.DataFrame({"key": [(row * 7) % 500 for row in range(ROWS)]}) for _ in range(2)]
    counts = flow.read(ab.memory(*frames, max_frames=1)).key_by("key").agg(rows=ab.count(), name="count")
    counts.key_by("rows").agg(keys=ab.count(), name="recount").write(ab.to_memory())
    return flow


def by_id(progress: BatchProgress) -> dict[tuple[int, int], TaskMeasure]:
    assert progress.measures is not None
    return {task.id: task for task in progress.measures.tasks}


def test_every_task_of_every_batch_is_measured_once(tmp_path: Path) -> None:
    _, batches = run(count_twice(), tmp_path, slots=3)
    assert len(batches) == 2
    for progress in batches:
        assert sorted(by_id(progress)) == [(0, 0), *((level, slot) for level in (1, 2) for slot in range(3))]
        assert progress.measures is not None
        assert {(task.executor, task.host) for task in progress.measures.tasks} == {("driver", "localhost")}
        assert [load.executor for load in progress.measures.executors] == ["driver"]


def test_what_a_slot_received_is_what_others_sent_to_it(tmp_path: Path) -> None:
    _, batches = run(count_twice(), tmp_path, slots=3)
    for progress in batches:
        tasks = by_id(progress)
        assert tasks[0, 0].rows == ROWS
        for id_, task in tasks.items():
            assert task.received_bytes == sum(other.sent_bytes.get(id_, 0) for other in tasks.values())
            if id_[0] > 0:
                assert task.rows == sum(other.sent_rows.get(id_, 0) for other in tasks.values())
        first = [tasks[1, slot].rows for slot in range(3)]
        assert tuple(first) == progress.slot_rows
        assert sum(first) == 500


def test_state_bytes_of_slots_are_those_of_the_manifest(tmp_path: Path) -> None:
    local, batches = run(count_twice(), tmp_path, slots=3)
    assert sum(task.state_bytes for task in by_id(batches[-1]).values()) == batches[-1].state_bytes > 0
    local.close()


def test_processor_time_counts_work_and_not_waiting(tmp_path: Path) -> None:
    def work(frame: pl.DataFrame) -> pl.DataFrame:
        time.sleep(0.3)
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        return frame

    flow = ab.Flow("busy")
    rows = flow.read(ab.memory(pl.DataFrame({"key": [1, 2, 3]}))).map_batches(work, schema={"key": pl.Int64})
    rows.key_by("key").agg(rows=ab.count()).write(ab.to_memory())
    _, batches = run(flow, tmp_path, slots=1)
    measures = batches[0].measures
    assert measures is not None
    reader = by_id(batches[0])[0, 0]
    assert 0.1 <= reader.cpu_seconds < 0.3 < reader.wall_seconds
    assert measures.cpu_seconds >= 0.1
    assert measures.utilisation == pytest.approx(measures.cpu_seconds / batches[0].batch_seconds)


@pytest.mark.parametrize("parallelism", ["operator-set", "operator"])
def test_what_exchanges_take_is_told_apart_from_steps(tmp_path: Path, parallelism: str) -> None:
    def work(frame: pl.DataFrame) -> pl.DataFrame:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        return frame

    flow, schema = ab.Flow("exchanging"), {"key": pl.Int64}
    frame = pl.DataFrame({"key": pl.int_range(100_000, eager=True)})
    rows = flow.read(ab.memory(frame)).map_batches(work, schema=schema).map_batches(work, schema=schema)
    rows.key_by("key", exchange="routed").agg(rows=ab.count()).write(ab.to_memory())
    _, batches = run(flow, tmp_path, slots=1, parallelism=parallelism)
    tasks = by_id(batches[0])
    # The second step has a level of its own under operator parallelism, and rows go there through an exchange.
    senders = [task for task in tasks.values() if task.all_sent_bytes]
    assert len(senders) == {"operator-set": 1, "operator": 2}[parallelism]
    for task in tasks.values():
        assert 0 < task.exchange_seconds < task.cpu_seconds
    for task in senders:
        assert task.exchange_seconds < task.cpu_seconds - 0.1


def test_operators_that_share_slots_are_told_apart(tmp_path: Path) -> None:
    flow = ab.Flow("beside")
    rows = flow.read(ab.memory(pl.DataFrame({"key": [1, 2, 3], "other": [1, 1, 2]})))
    rows.key_by("key").agg(rows=ab.count(), name="by-key").write(ab.to_memory())
    rows.key_by("other").agg(rows=ab.count(), name="by-other").write(ab.to_memory())
    _, batches = run(flow, tmp_path, slots=2)
    for slot in range(2):
        task = by_id(batches[0])[1, slot]
        assert set(task.operator_cpu_seconds) == {"by-key", "by-other"}
        assert 0 < sum(task.operator_cpu_seconds.values()) <= task.cpu_seconds
    assert by_id(batches[0])[0, 0].operator_cpu_seconds == {}


def test_parts_of_split_keys_meet_in_tasks_of_their_own(tmp_path: Path) -> None:
    flow, start = ab.Flow("split"), datetime(2026, 1, 1)
    frame = pl.DataFrame({"key": [row % 50 for row in range(ROWS)], "ts": [start] * ROWS})
    rows = flow.read(ab.memory(frame)).watermark("ts", delay="1s").key_by("key", routing="pkg", exchange="routed")
    counts = rows.window("10s").agg(rows=ab.count(), name="count")
    counts.key_by("rows").agg(keys=ab.count(), name="recount").write(ab.to_memory())
    _, batches = run(flow, tmp_path, slots=3, drain=True)
    tasks = by_id(batches[0])
    meeting = [task for task in tasks.values() if task.meets]
    assert [task.id for task in meeting] == [(1, 3), (1, 4), (1, 5)]
    for task in meeting:
        assert task.received_bytes == sum(other.sent_bytes.get(task.id, 0) for other in tasks.values()) > 0
        assert {level for level, _ in task.sent_bytes} == {2}


def test_the_history_has_tasks_executors_and_hosts_of_every_batch(tmp_path: Path) -> None:
    local, batches = run(count_twice(), tmp_path, slots=2)
    local.close()
    told = ab.history(tmp_path, kind="batch")
    assert told["cpu_seconds"].to_list() == pytest.approx(
        [p.measures.cpu_seconds for p in batches if p.measures], abs=1e-4
    )
    tasks = told.select("batch", "tasks").explode("tasks").unnest("tasks")
    assert tasks.select("batch", "level", "slot").rows() == [
        (batch, *id_) for batch in (0, 1) for id_ in sorted(by_id(batches[batch]))
    ]
    assert tasks.filter(level=0)["rows"].to_list() == [ROWS, ROWS]
    executors = told.select("batch", "executors").explode("executors").unnest("executors")
    assert executors["executor"].to_list() == ["driver", "driver"]
    assert local.run.progress.totals.cpu_seconds == pytest.approx(told["cpu_seconds"].sum(), abs=1e-3)


def test_show_tells_what_the_last_batch_took(tmp_path: Path) -> None:
    local, batches = run(count_twice(), tmp_path, slots=2)
    reply = local.run.submit(Command("1", "show", None, {}))
    assert batches[-1].measures is not None
    assert reply.data["measures"] == batches[-1].measures.to_json()
    assert len(reply.data["measures"]["tasks"]["level"]) == 5
    local.close()


def test_measuring_takes_little_of_what_it_measures(tmp_path: Path) -> None:
    _, batches = run(count_twice(), tmp_path, slots=2)
    for progress in batches:
        assert progress.measures is not None
        assert 0 < progress.measures.measuring_share < 0.1, "tasks of some milliseconds; larger ones are far below 1 %"
