from __future__ import annotations

import pytest

from anabranch.errors import CheckpointError, Fenced, StateDamaged
from anabranch.state import INITIAL_BATCH, Checkpoint, Lease, Owner, Store, take_epoch
from unit.state.builders import Clock, commit_batches, manifest, run_files, unwindowed


def take_over(store: Store) -> Lease:
    return take_epoch(store, Owner.this_process(), Clock(), takeover=True)


def test_a_new_checkpoint_has_no_latest_batch(checkpoint: Checkpoint) -> None:
    assert checkpoint.latest() is None
    assert checkpoint.batches() == []


def test_the_latest_commit_is_found_by_another_driver(checkpoint: Checkpoint) -> None:
    committed = commit_batches(checkpoint, 3)
    another = Checkpoint(checkpoint.store)
    assert another.latest() == committed[-1] == checkpoint.latest()
    assert another.batches() == [0, 1, 2]
    assert another.load(1) == committed[1]


def test_initial_state_comes_before_batch_0(checkpoint: Checkpoint) -> None:
    checkpoint.commit(manifest(INITIAL_BATCH))
    checkpoint.commit(manifest(0))
    assert Checkpoint(checkpoint.store).batches() == [-1, 0]


@pytest.mark.parametrize("batch", [0, 3, -1, 7])
def test_a_batch_that_does_not_follow_is_refused(checkpoint: Checkpoint, batch: int) -> None:
    commit_batches(checkpoint, 2)
    with pytest.raises(CheckpointError, match=f"batch {batch} cannot follow 1"):
        checkpoint.commit(manifest(batch))


def test_the_first_batch_must_be_the_first(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match="batch 5 cannot follow nothing"):
        checkpoint.commit(manifest(5))


def test_a_commit_that_is_tried_again_stands_once(checkpoint: Checkpoint) -> None:
    first = checkpoint.commit(manifest(0, created_at=1.0))
    again = checkpoint.commit(manifest(0, created_at=2.0))
    assert again == first
    assert checkpoint.batches() == [0]


def test_a_committed_batch_is_recognised_by_its_offsets(checkpoint: Checkpoint) -> None:
    committed = commit_batches(checkpoint, 2)
    assert checkpoint.find_replay(2, None, None) is None
    assert checkpoint.find_replay(1, {"entry": 0}, {"entry": 1}) == committed[1]
    assert checkpoint.find_replay(0, {"entry": -1}, {"entry": 0}) == committed[0]


def test_other_offsets_for_a_committed_batch_stop_the_flow(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 2)
    with pytest.raises(CheckpointError, match=r"batch 1 was committed with offsets .* Spark now gives it"):
        checkpoint.find_replay(1, {"entry": 0}, {"entry": 99})
    with pytest.raises(CheckpointError, match="batch 1 was committed with offsets"):
        checkpoint.commit(manifest(1, end_offset={"entry": 99}))


def test_offsets_are_compared_as_they_are_stored(checkpoint: Checkpoint) -> None:
    checkpoint.commit(manifest(0, start_offset=None, end_offset={"at": (1, 2)}))
    assert Checkpoint(checkpoint.store).find_replay(0, None, {"at": (1, 2)}) is not None


def test_a_driver_that_wakes_up_late_is_fenced_before_it_commits(checkpoint: Checkpoint) -> None:
    old = take_over(checkpoint.store)
    checkpoint.commit(manifest(0, epoch=old.epoch))
    take_over(checkpoint.store)
    with pytest.raises(Fenced, match="a newer driver has taken the next one"):
        checkpoint.commit(manifest(1, epoch=old.epoch))
    assert Checkpoint(checkpoint.store).batches() == [0]


class SleepyStore:
    """A store whose driver falls asleep right before it creates a commit."""

    def __init__(self, store: Store, while_asleep: object) -> None:
        self._store = store
        self._while_asleep = while_asleep

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def create(self, name: str, content: bytes) -> None:
        if name.startswith("commits/"):
            self._while_asleep()  # type: ignore[operator]
        self._store.create(name, content)


def test_a_commit_made_in_the_last_moment_is_taken_by_the_newer_driver(store: Store) -> None:
    old = take_over(store)
    runs = [run_files(store, 0, old.epoch).write(unwindowed([(1, 1)]))]
    newer = Checkpoint(store)
    epochs = []

    def another_driver_starts() -> None:
        epochs.append(take_over(store).epoch)
        assert newer.latest() is None

    sleepy: Store = SleepyStore(store, another_driver_starts)  # type: ignore[assignment]
    with pytest.raises(Fenced):
        Checkpoint(sleepy).commit(manifest(0, runs, old.epoch))
    # The newer driver did the batch, too, but the older one's manifest stands and names its files.
    standing = newer.commit(manifest(0, [], epochs[0]))
    assert standing.epoch == old.epoch
    assert standing.levels[0].runs == (tuple(runs),)
    assert newer.latest() == standing
    newer.commit(manifest(1, runs, epochs[0]))


def test_a_commit_that_comes_too_late_loses(store: Store) -> None:
    old = take_over(store)

    def another_driver_commits() -> None:
        epoch = take_over(store).epoch
        Checkpoint(store).commit(manifest(0, epoch=epoch))

    sleepy: Store = SleepyStore(store, another_driver_commits)  # type: ignore[assignment]
    with pytest.raises(Fenced, match="batch 0 was committed by epoch 2, this driver has epoch 1"):
        Checkpoint(sleepy).commit(manifest(0, epoch=old.epoch))
    assert Checkpoint(store).load(0).epoch == 2


def test_a_batch_that_is_not_there_names_those_that_are(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 3)
    with pytest.raises(CheckpointError, match=r"no manifest of batch 9 .* there are batches 0 to 2"):
        checkpoint.load(9)


def test_a_damaged_manifest_says_where_to_go_back_to(checkpoint: Checkpoint) -> None:
    commit_batches(checkpoint, 3)
    checkpoint.store.write("commits/000000000002.json", b'{"half')
    with pytest.raises(StateDamaged, match=r"commits/000000000002.json cannot be read.*state rollback --to 1"):
        Checkpoint(checkpoint.store).latest()


def test_a_commit_does_not_list_the_folder(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_batches(checkpoint, 1)
    listed: list[str] = []
    monkeypatch.setattr(type(checkpoint.store), "list", lambda self, prefix: listed.append(prefix))
    checkpoint.commit(manifest(1))
    assert listed == []


def test_sources_are_forgotten_when_they_leave_the_retention(store: Store) -> None:
    checkpoint = Checkpoint(store, kept_batches=2)
    files = run_files(store, batch=0)
    merged = files.write(unwindowed([(1, 1)]), [files.write(unwindowed([(1, 1)]))])
    kept = [len(list(checkpoint.commit(manifest(batch, [merged])).files())) for batch in range(3)]
    assert kept == [2, 2, 1]
