from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import resource
import signal
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from anabranch.errors import CheckpointError
from anabranch.state import AlreadyExists, Store, StoreFull, open_store
from unit.state.builders import PROCESSES


def test_what_is_written_is_read(store: Store) -> None:
    store.write("a/b.bin", b"first")
    store.write("a/b.bin", memoryview(b"second"))
    assert store.read("a/b.bin") == b"second"
    assert store.exists("a/b.bin")


def test_a_missing_file_raises_file_not_found(store: Store) -> None:
    assert not store.exists("a/b.bin")
    with pytest.raises(FileNotFoundError):
        store.read("a/b.bin")


def test_a_second_creation_is_refused_and_changes_nothing(store: Store) -> None:
    store.create("commits/0.json", b"first")
    with pytest.raises(AlreadyExists):
        store.create("commits/0.json", b"second")
    assert store.read("commits/0.json") == b"first"


def test_listing_goes_deep_and_is_sorted(store: Store) -> None:
    for name in ("b/2", "b/1", "b/c/3", "bb/4"):
        store.write(name, name.encode())
    listed = store.list("b")
    assert [(entry.name, entry.bytes) for entry in listed] == [("b/1", 3), ("b/2", 3), ("b/c/3", 5)]
    assert store.list("nothing") == []


def test_deleting_what_is_gone_deletes_the_rest(store: Store) -> None:
    store.write("a", b"1")
    store.write("c", b"1")
    store.delete(["a", "b", "c"])
    assert not store.exists("a")
    assert not store.exists("c")


def test_renaming_moves_the_content_and_replaces_the_target(store: Store) -> None:
    store.write("a", b"new")
    store.write("deep/b", b"old")
    store.rename("a", "deep/b")
    assert store.read("deep/b") == b"new"
    assert not store.exists("a")


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../outside", "a/../../outside"])
def test_names_outside_the_root_are_refused(store: Store, name: str) -> None:
    with pytest.raises(ValueError, match="no name of a file"):
        store.write(name, b"")


def test_a_store_opens_again_by_its_url_and_after_pickling(store: Store) -> None:
    store.write("a", b"1")
    assert open_store(store.url).read("a") == b"1"
    assert pickle.loads(pickle.dumps(store)).read("a") == b"1"


def test_only_local_files_have_a_path(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}").local_path("a") == tmp_path / "a"
    assert open_store("memory://x").local_path("a") is None


def test_a_file_url_with_spaces_names_the_real_folder(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}/two%20words").local_path("a") == tmp_path / "two words" / "a"


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=r"unknown scheme 'ftp'.*s3://"):
        open_store("ftp://host/path")


def test_a_file_url_with_a_host_is_refused() -> None:
    with pytest.raises(CheckpointError, match="three slashes"):
        open_store("file://home/me")


def _create_in_a_race(root: str, barrier: Barrier, racer: int, rounds: int, wins: multiprocessing.Queue[int]) -> None:
    store = open_store(root)
    for number in range(rounds):
        barrier.wait()
        try:
            store.create(f"commits/{number}", f"{racer}".encode() * 20_000)
        except AlreadyExists:
            continue
        wins.put(number)


def test_of_racing_processes_exactly_one_creates_each_file(tmp_path: Path) -> None:
    racers, rounds = 3, 40
    barrier = PROCESSES.Barrier(racers)
    wins = PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=_create_in_a_race, args=(str(tmp_path), barrier, racer, rounds, wins))
        for racer in range(racers)
    ]
    for process in processes:
        process.start()
    won = sorted(wins.get(timeout=60) for _ in range(rounds))
    for process in processes:
        process.join()
    assert won == list(range(rounds))
    assert wins.empty()
    store = open_store(tmp_path)
    for number in range(rounds):
        # Whole and of one writer.
        content = store.read(f"commits/{number}")
        assert len(content) == 20_000
        assert len(set(content)) == 1


def _write_until_killed(root: str) -> None:
    store = open_store(root)
    number = 0
    while True:
        store.write(f"state/{number}", bytes(2_000_000))
        number += 1


def test_a_killed_writer_leaves_no_half_written_file_in_sight(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(3):
        process = PROCESSES.Process(target=_write_until_killed, args=(str(tmp_path),))
        process.start()
        while not store.list("state"):
            process.join(0.01)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert {entry.bytes for entry in store.list("state")} == {2_000_000}
        store.delete([entry.name for entry in store.list("state")])


def test_what_a_killed_writer_left_is_listed_as_abandoned(local_store: Store) -> None:
    local_store.write("state/a", b"1")
    path = local_store.local_path("state/.tmp-dead")
    assert path is not None
    path.write_bytes(b"half")
    assert [entry.name for entry in local_store.list("state")] == ["state/a"]
    assert [entry.name for entry in local_store.abandoned("state")] == ["state/.tmp-dead"]


def _no_space(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("method", ["create", "write"])
def test_a_full_disk_is_named_and_leaves_nothing_behind(
    local_store: Store, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    local_store.write("commits/0", b"intact")
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(StoreFull, match=r"no space left .* commits/1 \(3 bytes\); what was committed is intact"):
        getattr(local_store, method)("commits/1", b"new")
    monkeypatch.undo()
    assert [entry.name for entry in local_store.list("commits")] == ["commits/0"]
    assert local_store.abandoned("commits") == []


def test_a_file_larger_than_the_limit_leaves_nothing_behind(local_store: Store) -> None:
    """The kernel itself stops this write half-way, as a disk that fills up does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(OSError, match="too large"):
            local_store.write("state/big", bytes(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert local_store.list("state") == []
    assert local_store.abandoned("state") == []


def test_a_file_system_without_links_is_refused_with_the_reason(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(CheckpointError, match="has no hard links"):
        local_store.create("commits/0", b"")
