from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.model import StagedFile
from anabranch.state import Checkpoint, Store, WriteName
from anabranch.state.repair import verify
from anabranch.state.retention import Retention
from unit.state.builders import commit_batches, manifest, run_files, unwindowed


def files_in(store: Store, folder: str = "state") -> set[str]:
    return {entry.name for entry in store.list(folder)}


def write_batch(store: Store, batch: int, epoch: int = 1) -> str:
    return run_files(store, batch, epoch).write(unwindowed([(batch, epoch)])).file


def test_files_of_kept_batches_stay_and_the_others_go(store: Store) -> None:
    checkpoint = Checkpoint(store, kept_batches=3)
    retention = Retention(checkpoint)
    for batch in range(8):
        # Every batch rewrites its state and stages one result.
        ref = run_files(store, batch).write(unwindowed([(1, batch)]))
        staged = StagedFile(WriteName(1, batch, 0, "beef").file("results/0", 0, ".parquet"), 1, 1, 0)
        store.write(staged.file, b"x")
        committed = checkpoint.commit(manifest(batch, [ref], sinks={0: (staged,)}))
        retention.advance(committed)
        kept = range(max(batch - 2, 0), batch + 1)
        assert checkpoint.batches() == Checkpoint(store).batches() == list(kept)
        assert len(files_in(store)) == len(files_in(store, "results")) == len(kept)
    assert verify(checkpoint) == []


def test_a_file_named_by_old_and_new_batches_stays(store: Store) -> None:
    checkpoint = Checkpoint(store, kept_batches=2)
    commit_batches(checkpoint, 6)
    swept = Retention(checkpoint).advance(checkpoint.load(5))
    assert swept.batches == (0, 1, 2, 3)
    assert swept.files == ()
    assert len(files_in(store)) == 6
    assert verify(checkpoint) == []


def test_what_a_compaction_merged_stays_while_it_can_rebuild(store: Store) -> None:
    checkpoint = Checkpoint(store, kept_batches=2)
    retention = Retention(checkpoint)
    runs = [run_files(store, 0).write(unwindowed([(1, 1)]))]
    retention.advance(checkpoint.commit(manifest(0, runs)))
    runs = [run_files(store, 1).write(unwindowed([(1, 1)]), runs)]
    counts = []
    for batch in range(1, 5):
        retention.advance(checkpoint.commit(manifest(batch, runs)))
        counts.append(len(files_in(store)))
    # Named by the batches 1 and 2, which are kept until batch 4 is committed.
    assert counts == [2, 2, 2, 1]


def test_advancing_lists_no_folder(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = commit_batches(checkpoint, 2)
    retention = Retention(checkpoint)
    listed: list[str] = []
    monkeypatch.setattr(type(checkpoint.store), "list", lambda self, prefix: listed.append(prefix))
    retention.advance(committed[-1])
    assert listed == []


def test_a_sweep_removes_what_failed_attempts_left(store: Store) -> None:
    checkpoint = Checkpoint(store)
    commit_batches(checkpoint, 2, epoch=2)
    named = files_in(store)
    older_epoch, failed_attempt = write_batch(store, 1, epoch=1), write_batch(store, 0, epoch=2)
    running = write_batch(store, 2, epoch=2)
    may_still_be_committed = write_batch(store, 2, epoch=1)
    of_a_newer_driver = write_batch(store, 1, epoch=3)
    store.write("state/notes.txt", b"somebody's own")
    swept = Retention(checkpoint).sweep(epoch=2, now_seconds=0.0)
    assert set(swept.files) == {older_epoch, failed_attempt}
    assert files_in(store) == named | {running, may_still_be_committed, of_a_newer_driver, "state/notes.txt"}


def test_a_sweep_before_the_first_commit_removes_nothing(store: Store) -> None:
    write_batch(store, 0)
    assert Retention(Checkpoint(store)).sweep(epoch=2, now_seconds=0.0).files == ()


def test_a_sweep_takes_away_old_half_written_files(local_store: Store) -> None:
    commit_batches(Checkpoint(local_store), 1)
    folder = local_store.local_path("state/0/0")
    assert folder is not None
    half: Path = folder / ".tmp-0123"
    half.write_bytes(b"half")
    retention = Retention(Checkpoint(local_store))
    written = half.stat().st_mtime
    assert retention.sweep(1, written + 60).files == ()
    assert retention.sweep(1, written + 4000).files == ("state/0/0/.tmp-0123",)
    assert not half.exists()


def test_a_crash_between_manifest_and_files_leaves_only_files_that_a_sweep_finds(store: Store) -> None:
    checkpoint = Checkpoint(store, kept_batches=1)
    for batch in range(3):
        ref = run_files(store, batch).write(unwindowed([(1, batch)]))
        checkpoint.commit(manifest(batch, [ref]))
    # The manifests are gone, the files not yet.
    store.delete(["commits/000000000000.json", "commits/000000000001.json"])
    reopened = Checkpoint(store, kept_batches=1)
    assert len(Retention(reopened).sweep(1, 0.0).files) == 2
    assert verify(reopened) == []


def test_an_old_manifest_that_is_broken_does_not_stop_retention(store: Store) -> None:
    checkpoint = Checkpoint(store, kept_batches=1)
    commit_batches(checkpoint, 2)
    store.write("commits/000000000000.json", b"{")
    reopened = Checkpoint(store, kept_batches=1)
    Retention(reopened).sweep(1, 0.0)
    assert reopened.batches() == [1]
    assert verify(reopened) == []


def test_a_kept_manifest_that_cannot_be_read_stops_no_flow_and_its_files_stay_until_it_has_expired(
    store: Store,
) -> None:
    checkpoint = Checkpoint(store, kept_batches=3)
    commit_batches(checkpoint, 5)
    store.write("commits/000000000003.json", b"{")
    reopened = Checkpoint(store, kept_batches=3)
    retention = Retention(reopened)
    before = {entry.name for entry in store.list("state")}
    assert retention.sweep(epoch=1, now_seconds=0.0).files == ()
    assert {entry.name for entry in store.list("state")} == before
    assert reopened.batches() == [2, 3, 4]
    for batch in range(5, 8):
        retention.advance(reopened.commit(manifest(batch)))
    assert reopened.batches() == [5, 6, 7]
    Retention(Checkpoint(store, kept_batches=3)).sweep(epoch=1, now_seconds=0.0)
    assert list(store.list("state")) == []
