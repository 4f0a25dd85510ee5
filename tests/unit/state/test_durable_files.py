"""Files are there whole or not at all, and are synced with the folder that names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from anabranch.state.durable_files import fill_whole, make_folder, move_synced, write_whole


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names what is synced, in order: a file by its name at that time."""
    names: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return names


def test_a_file_is_synced_before_it_has_its_name_and_the_folder_after(tmp_path: Path, synced: list[str]) -> None:
    write_whole(tmp_path / "file", b"one", memoryview(b" and two"))
    assert (tmp_path / "file").read_bytes() == b"one and two"
    assert [name.startswith(".tmp-") for name in synced] == [True, False]
    assert synced[1] == tmp_path.name


def test_a_file_that_need_not_survive_is_not_synced(tmp_path: Path, synced: list[str]) -> None:
    write_whole(tmp_path / "file", b"content", durable=False)
    assert (tmp_path / "file").read_bytes() == b"content"
    assert synced == []


def test_a_file_that_cannot_be_filled_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "file", b"old")
    with pytest.raises(OSError, match="No space left"):
        fill_whole(tmp_path / "file", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_file_that_may_not_be_published_leaves_nothing(tmp_path: Path) -> None:
    def refuse(hidden: Path, path: Path) -> None:
        assert hidden.read_bytes() == b"content"
        raise FileExistsError

    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "file", b"content", publish=refuse)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_synced_before_it_is_moved(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "staged").write_bytes(b"rows")
    move_synced(tmp_path / "staged", tmp_path / "part")
    assert synced == ["staged"]
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_every_folder_that_is_made_is_named_in_one_that_is_synced(tmp_path: Path, synced: list[str]) -> None:
    make_folder(tmp_path / "a" / "b")
    assert sorted(synced) == sorted(["a", tmp_path.name])
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2
