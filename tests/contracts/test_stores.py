"""What a driver relies on, whichever store keeps the checkpoint."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from anabranch.errors import CheckpointError, Fenced
from anabranch.state import AlreadyExists, Checkpoint, Store, open_store
from anabranch.state.epochs import Owner, take_epoch
from anabranch.state.manifest import Manifest
from anabranch.state.store import check_usable, prove_creation
from servers.s3 import S3Server


@pytest.fixture(params=["local", "file-url", "memory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "s3":
        return open_bucket(request.getfixturevalue("s3"), monkeypatch)
    return {"local": str(tmp_path / "c"), "file-url": f"file://{tmp_path}/c", "memory": f"memory://{tmp_path}/c"}[
        request.param
    ]


def open_bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a checkpoint in a new bucket; from now on this process may reach it."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"{server.make_bucket()}/checkpoint"


@pytest.fixture
def store(url: str) -> Store:
    return open_store(url)


def make_manifest(batch: int, epoch: int, end: int | None = None) -> Manifest:
    return Manifest(
        flow="test",
        flow_structure={},
        batch=batch,
        epoch=epoch,
        query_id="query",
        start_offset={"entry": batch - 1},
        end_offset={"entry": batch if end is None else end},
    )


def test_opened_again_by_its_url_or_unpickled_it_is_the_same_store(store: Store) -> None:
    store.write("a/b", b"content")
    assert open_store(store.url).read("a/b") == b"content"
    copy: Store = pickle.loads(pickle.dumps(store))
    assert copy.read("a/b") == b"content"


def test_of_many_creators_one_wins_and_its_content_stands(store: Store) -> None:
    won: list[int] = []
    barrier = threading.Barrier(8)

    def create(number: int) -> None:
        barrier.wait()
        try:
            store.create("commits/1", f"by {number}".encode())
        except AlreadyExists:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("commits/1") == f"by {won[0]}".encode()


def test_what_is_added_to_a_file_stands_behind_what_was_there(store: Store) -> None:
    store.append("history/1", b"one\n")
    assert open_store(store.url).read("history/1") == b"one\n"
    store.append("history/1", b"two\n")
    store.write("history/2", b"zero\n")
    store.append("history/2", b"one\n")
    assert [store.read(entry.name) for entry in store.list("history")] == [b"one\ntwo\n", b"zero\none\n"]


def test_names_that_leave_the_store_are_refused(store: Store) -> None:
    for name in ("../outside", "/absolute", "", "a/../../b"):
        with pytest.raises(ValueError, match="relative"):
            store.write(name, b"")


def test_a_batch_is_committed_once_and_replayed_only_with_its_offsets(store: Store) -> None:
    lease = take_epoch(store, Owner.this_process(), lambda: 0.0)
    checkpoint = Checkpoint(store)
    assert checkpoint.latest() is None
    checkpoint.commit(make_manifest(0, lease.epoch))
    checkpoint.commit(make_manifest(1, lease.epoch))
    again = Checkpoint(store)
    assert again.batches() == [0, 1]
    assert again.find_replay(1, {"entry": 0}, {"entry": 1}) == make_manifest(1, lease.epoch)
    assert again.find_replay(2, {"entry": 1}, {"entry": 2}) is None
    with pytest.raises(CheckpointError, match="offsets"):
        again.find_replay(1, {"entry": 0}, {"entry": 5})


def test_a_driver_of_an_older_epoch_commits_nothing(store: Store) -> None:
    old = take_epoch(store, Owner.this_process(), lambda: 0.0)
    sleeper = Checkpoint(store)
    sleeper.commit(make_manifest(0, old.epoch))
    new = take_epoch(store, Owner.this_process(), lambda: 0.0, takeover=True)
    with pytest.raises(Fenced):
        sleeper.commit(make_manifest(1, old.epoch))
    with pytest.raises(Fenced):
        old.check()
    fresh = Checkpoint(store)
    assert fresh.batches() == [0]
    fresh.commit(make_manifest(1, new.epoch))
    assert Checkpoint(store).latest() == make_manifest(1, new.epoch)


def test_a_store_proves_that_of_two_creations_one_is_refused_and_keeps_nothing_of_the_proof(store: Store) -> None:
    prove_creation(store)
    assert store.list("") == []


def test_a_store_that_overwrites_in_silence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Server(overwrites=True) as server:
        store = open_store(open_bucket(server, monkeypatch))
        check_usable(store)
        with pytest.raises(CheckpointError, match=r"overwrites .* If-None-Match.*two drivers could commit"):
            prove_creation(store)
        with pytest.raises(CheckpointError, match="overwrites"):
            take_epoch(store, Owner.this_process(), lambda: 0.0)
        assert store.list("") == []
