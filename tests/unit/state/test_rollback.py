from __future__ import annotations

import pytest

from anabranch.errors import CheckpointError, Fenced, StateDamaged
from anabranch.model import StagedFile
from anabranch.state import Checkpoint, Owner, Store, take_epoch
from anabranch.state.retention import Retention
from anabranch.state.rollback import roll_back
from anabranch.state.split_log import SplitLog
from unit.state.builders import Clock, commit_batches, manifest, run_files, unwindowed

HERE = Owner.this_process()


def test_a_batch_becomes_the_latest_again(checkpoint: Checkpoint) -> None:
    committed = commit_batches(checkpoint, 5)
    rollback = roll_back(checkpoint, 2, HERE, Clock())
    assert rollback.to == checkpoint.latest() == Checkpoint(checkpoint.store).latest() == committed[2]
    assert rollback.undone_batches == (3, 4)
    assert checkpoint.store.exists("commits/rolled-back/00000001/000000000004.json")


def test_the_flow_goes_on_from_there(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 5)
    rollback = roll_back(checkpoint, 2, HERE, Clock())
    lease = take_epoch(checkpoint.store, HERE, Clock())
    assert lease.epoch == rollback.epoch + 1
    assert checkpoint.find_replay(3, None, None) is None
    checkpoint.commit(manifest(3, epoch=lease.epoch, end_offset={"entry": 33}))
    assert Checkpoint(checkpoint.store).batches() == [0, 1, 2, 3]


def test_spark_forgets_the_later_offsets_and_nothing_else(checkpoint: Checkpoint) -> None:
    store = checkpoint.store
    commit_batches(checkpoint, 12)
    roll_back(checkpoint, 9, HERE, Clock())
    for log in ("offsets", "commits"):
        left = {entry.name.rsplit("/", 1)[1] for entry in store.list(f"spark/{log}")}
        assert left == {str(batch) for batch in range(10)} | {f".{batch}.crc" for batch in range(10)}
    assert store.exists("spark/metadata")
    assert store.exists("spark/sources/0/9")


def test_sinks_are_told_what_to_take_back(checkpoint: Checkpoint) -> None:
    staged = [StagedFile(f"results/0/{batch}.parquet", 1, 1, 0) for batch in range(3)]
    for batch in range(3):
        checkpoint.commit(manifest(batch, sinks={0: (staged[batch],)}))
    rollback = roll_back(checkpoint, 0, HERE, Clock())
    assert rollback.undone_results == {1: {0: (staged[1],)}, 2: {0: (staged[2],)}}


def test_a_broken_later_manifest_does_not_stop_the_way_back(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 3)
    checkpoint.store.write("commits/000000000002.json", b"{")
    reopened = Checkpoint(checkpoint.store)
    rollback = roll_back(reopened, 1, HERE, Clock())
    assert rollback.undone_batches == (2,)
    assert rollback.undone_results == {}
    assert reopened.latest() == reopened.load(1)


def test_a_batch_that_is_not_kept_is_refused_with_those_that_are(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match="it has none"):
        roll_back(checkpoint, 1, HERE, Clock())
    commit_batches(checkpoint, 3)
    with pytest.raises(CheckpointError, match=r"cannot return to batch 7 .* it keeps 0 to 2"):
        roll_back(checkpoint, 7, HERE, Clock())


def test_a_damaged_batch_is_refused_and_nothing_moves(checkpoint: Checkpoint) -> None:
    committed = commit_batches(checkpoint, 4)
    checkpoint.store.delete([list(committed[2].files())[-1].file])
    with pytest.raises(StateDamaged, match=r"cannot return to batch 2: .* the newest intact batch is 1"):
        roll_back(checkpoint, 2, HERE, Clock())
    assert Checkpoint(checkpoint.store).batches() == [0, 1, 2, 3]


def test_a_running_driver_is_not_rolled_back_under_its_feet(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 2)
    take_epoch(checkpoint.store, HERE, Clock())
    with pytest.raises(Fenced, match="is in use"):
        roll_back(checkpoint, 0, HERE, Clock())
    assert checkpoint.batches() == [0, 1]


def test_a_driver_that_was_taken_over_is_fenced(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 2)
    lease = take_epoch(checkpoint.store, HERE, Clock())
    roll_back(checkpoint, 0, HERE, Clock(), takeover=True)
    with pytest.raises(Fenced):
        Checkpoint(checkpoint.store).commit(manifest(1, epoch=lease.epoch))


@pytest.mark.parametrize("steps", range(8))
def test_a_rollback_that_was_cut_short_is_finished_by_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    commit_batches(Checkpoint(store), 4)
    left = [steps]

    def counting(name: str) -> None:
        original = getattr(type(store), name)

        def step(self: Store, *arguments: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return original(self, *arguments)

        monkeypatch.setattr(type(store), name, step)

    for name in ("rename", "delete", "create"):
        counting(name)
    with pytest.raises(KeyboardInterrupt):
        roll_back(Checkpoint(store), 1, HERE, Clock())
        # More steps are allowed than there are.
        raise KeyboardInterrupt
    monkeypatch.undo()
    batches = Checkpoint(store).batches()
    assert batches == list(range(len(batches)))
    roll_back(Checkpoint(store), 1, HERE, Clock(), takeover=True)
    assert Checkpoint(store).batches() == [0, 1]
    assert len(store.list("spark/offsets")) == len(store.list("spark/commits")) == 4


def test_files_of_undone_batches_are_swept_once_their_batch_is_committed_again(store: Store) -> None:
    checkpoint = Checkpoint(store)
    commit_batches(checkpoint, 3)
    epoch = roll_back(checkpoint, 0, HERE, Clock()).epoch
    for batch in (1, 2):
        ref = run_files(store, batch, epoch + 1).write(unwindowed([(1, 1)]))
        take_epoch(store, HERE, Clock(), takeover=True)
        checkpoint.commit(manifest(batch, [ref], epoch=epoch + batch))
    swept = Retention(checkpoint).sweep(epoch + 2, 0.0)
    assert sorted(file.split("-")[1] for file in swept.files) == ["b000000000001", "b000000000002"]


def test_a_batch_that_spark_has_forgotten_is_refused_before_anything_changes(checkpoint: Checkpoint) -> None:
    store = checkpoint.store
    commit_batches(checkpoint, 6)
    store.delete([f"spark/{log}/{batch}" for log in ("offsets", "commits") for batch in range(3)])
    before = {entry.name for folder in ("commits", "spark", "epochs", "sources") for entry in store.list(folder)}
    with pytest.raises(CheckpointError, match=r"spark/offsets/1 is missing; the newest intact batch is 5"):
        roll_back(checkpoint, 2, HERE, Clock())
    assert {
        entry.name for folder in ("commits", "spark", "epochs", "sources") for entry in store.list(folder)
    } == before


def test_a_batch_whose_entry_of_the_split_log_is_gone_is_refused(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 4)
    SplitLog(checkpoint.store).forget(2)
    with pytest.raises(StateDamaged, match=r"sources/000000000002.json is missing.* the newest intact batch is 3"):
        roll_back(checkpoint, 2, HERE, Clock())


def test_entries_that_were_planned_upon_a_lost_one_are_forgotten(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 6)
    log = SplitLog(checkpoint.store)
    log.forget(4)
    roll_back(checkpoint, 2, HERE, Clock())
    assert [number for number in range(20) if log.find(number) is not None] == [0, 1, 2, 3]
