"""Records of batches: all that happened is there, whatever became of those who wrote it down."""

from __future__ import annotations

import itertools
import json
import logging
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.model import BatchProgress
from anabranch.state import Checkpoint, Store, open_store, verify
from anabranch.state.batch_records import FOLDER, BatchRecords, read_records
from anabranch.state.checksums import seal_document
from anabranch.state.store import LocalStore, StoreFull
from unit.cli.builders import EXCHANGE, batch
from unit.state.builders import PROCESSES


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path / "c" if request.param == "local" else f"memory://{tmp_path}/c")


def batches_in(store: Store) -> list[tuple[int, int]]:
    return [(record.epoch, record.progress.batch) for record in read_records(store)]


def full_batch(number: int) -> BatchProgress:
    """Return a batch with something in every figure."""
    return replace(
        batch(number, slot_rows=(3, 7)),
        changes=("agg: bucket 3 to slot 1",),
        problems=("a server was waited for",),
        phase_seconds={"job": 0.25, "commit": 0.125},
        watermark_us=None,
        moved_bytes=5,
        replayed=True,
    )


def test_a_record_says_all_that_the_progress_of_its_batch_said(store: Store) -> None:
    records = BatchRecords(store, epoch=3)
    records.add(full_batch(7), ended_at=12.5)
    records.flush()
    (record,) = read_records(store)
    assert (record.epoch, record.ended_at, record.progress) == (3, 12.5, full_batch(7))


def test_records_of_a_later_run_follow_those_of_the_runs_before(store: Store) -> None:
    for epoch, numbers in ((1, range(3)), (2, range(2, 5)), (10, range(5, 6))):
        records = BatchRecords(store, epoch)
        for number in numbers:
            records.add(batch(number), 0.0)
        records.flush()
    assert batches_in(store) == [(1, 0), (1, 1), (1, 2), (2, 2), (2, 3), (2, 4), (10, 5)]


def test_only_files_whose_records_are_all_too_old_go(store: Store) -> None:
    for epoch in (1, 2):
        records = BatchRecords(store, epoch, kept_records=50, file_bytes=4_000)
        for number in range((epoch - 1) * 300, epoch * 300):
            records.add(batch(number), 0.0)
        records.flush()
    kept = [number for _, number in batches_in(store)]
    assert kept == list(range(kept[0], 600))
    assert 50 <= len(kept) < 100
    assert len(store.list(FOLDER)) < 20


def test_a_store_that_cannot_be_added_to_gets_records_together(tmp_path: Path) -> None:
    store = open_store(f"memory://{tmp_path}")
    now = 0.0
    records = BatchRecords(store, 1, monotonic=lambda: now)
    for number in range(4):
        now = 2.0 * number
        records.add(batch(number), now)
        assert len(batches_in(store)) == (4 if number == 3 else 0)


def _write_for_ever(root: str, epoch: int) -> None:
    records = BatchRecords(open_store(root), epoch, file_bytes=20_000)
    for number in itertools.count():
        records.add(batch(number), 0.0)


def test_a_writer_killed_at_random_moments_leaves_whole_records_without_a_gap(tmp_path: Path) -> None:
    rng = random.Random(3)
    store = open_store(tmp_path)
    for epoch in range(1, 6):
        writer = PROCESSES.Process(target=_write_for_ever, args=(str(tmp_path), epoch))
        writer.start()
        while not any(entry.name.startswith(f"{FOLDER}/{epoch:08d}") for entry in store.list(FOLDER)):
            assert writer.is_alive()
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        writer.kill()
        writer.join()
        found = [number for writer_epoch, number in batches_in(store) if writer_epoch == epoch]
        assert found == list(range(len(found)))
        assert verify(Checkpoint(store)) == []


def test_half_a_line_at_the_end_is_left_out_and_harms_no_later_run(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = BatchRecords(store, 1)
    for number in range(3):
        first.add(batch(number), 0.0)
    (file,) = store.list(FOLDER)
    whole = store.read(file.name)
    for cut in (1, 2, 40, len(whole) // 3 - 5):
        store.write(file.name, whole[:-cut])
        assert batches_in(store) == [(1, 0), (1, 1), *([(1, 2)] if cut == 1 else [])]
        assert verify(Checkpoint(store)) == []
    BatchRecords(store, 2).add(batch(2), 0.0)
    assert batches_in(store) == [(1, 0), (1, 1), (2, 2)]


def test_a_damaged_line_is_left_out_and_found_by_verify(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    records = BatchRecords(store, 1)
    for number in range(3):
        records.add(batch(number), 0.0)
    (file,) = store.list(FOLDER)
    store.write(file.name, store.read(file.name).replace(b'"batch":1,', b'"batch":8,'))
    assert batches_in(store) == [(1, 0), (1, 2)]
    (problem,) = verify(Checkpoint(store))
    assert problem.file == file.name
    assert "line 2" in problem.detail
    assert problem.batches == ()


class FullStore(LocalStore):
    """A disk without room for the second record."""

    def append(self, name: str, content: bytes) -> None:
        if b'"batch":1,' in content:
            super().append(name, content[: len(content) // 2])
            raise StoreFull(name)
        super().append(name, content)


def test_a_full_disk_costs_records_but_does_not_stop_the_flow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FullStore(tmp_path)
    records = BatchRecords(store, 1)
    with caplog.at_level(logging.WARNING, "anabranch"):
        for number in range(4):
            records.add(batch(number), 0.0)
    assert batches_in(store) == [(1, 0), (1, 2), (1, 3)]
    assert "the flow goes on" in caplog.text
    assert verify(Checkpoint(store)) == []


def test_records_of_another_kind_and_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for body in ({"kind": "move", "version": 1}, {"kind": "batch", "version": 2}):
        store.append(f"{FOLDER}/{1:08d}-{0:012d}.jsonl", seal_document(body) + b"\n")
    BatchRecords(store, 2).add(batch(0), 0.0)
    assert batches_in(store) == [(2, 0)]


def test_what_exchanges_did_is_read_as_it_was_written() -> None:
    written = batch(3, exchanges=(EXCHANGE,))
    assert BatchProgress.from_json(json.loads(json.dumps(written.to_json()))) == written
