"""Copies of runs on the executor's own host, so that state far away is fetched once."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.state.durable_files import write_whole

SHARED_MEMORY = Path("/dev/shm")
DEFAULT_CAP_BYTES = 512 * 2**20
FORGOTTEN_AFTER_SECONDS = 24 * 3600.0
"""Copies of a flow that nobody touched for so long are swept by the next flow that starts on the host."""


@dataclass(frozen=True, slots=True)
class HotCopies:
    """A folder of copies, shared by the Python workers of a host; the least recently used make room for new ones.

    Workers may be those of several executors, and of several hosts if these share the folder. Nothing here is ever
    needed: a copy that is missing, damaged or too large is fetched from the store.
    """

    folder: Path
    cap_bytes: int

    def find(self, file: str) -> Path | None:
        """Return where the copy of a store's file lies, or None. Its content is for the caller to check."""
        path = self.folder / name_copy(file)
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def put(self, file: str, content: bytes | memoryview) -> None:
        """Keep a copy if there is room for it, or can be made."""
        if len(content) > self.cap_bytes or not self._make_room(len(content)):
            return
        # No room after all, or the folder was swept: a later batch goes without.
        with contextlib.suppress(OSError):
            write_whole(self.folder / name_copy(file), content, durable=False)

    def _make_room(self, wanted_bytes: int) -> bool:
        copies = []
        try:
            with os.scandir(self.folder) as children:
                for child in children:
                    with contextlib.suppress(FileNotFoundError):
                        facts = child.stat(follow_symlinks=False)
                        copies.append((facts.st_mtime, facts.st_size, child.path))
        except OSError:
            return False
        room = self.cap_bytes - sum(size for _, size, _ in copies)
        for _, size, path in sorted(copies):
            if room >= wanted_bytes:
                break
            Path(path).unlink(missing_ok=True)
            room += size
        return True


def open_hot_copies(
    flow: str,
    epoch: int,
    now_seconds: float,
    cap_bytes: int = DEFAULT_CAP_BYTES,
    parents: Sequence[Path] = (SHARED_MEMORY,),
) -> HotCopies | None:
    """Open the folder of a flow and epoch, below the first parent with room for it; None if there is none.

    Sweeps what earlier epochs of the flow left, and what other flows left a day ago. The folder is private to the
    user; one of that name that belongs to somebody else is not touched.
    """
    folder = open_copy_folder(flow, epoch, now_seconds, cap_bytes, parents)
    return None if folder is None else HotCopies(folder, cap_bytes)


def open_copy_folder(
    owner: str, epoch: int, now_seconds: float, free_bytes: int, parents: Sequence[Path] = (SHARED_MEMORY,)
) -> Path | None:
    """Open a private folder in memory, for copies of one owner and epoch; None where so many bytes are not free."""
    for parent in parents:
        try:
            if shutil.disk_usage(parent).free < free_bytes:
                continue
            home = parent / f"anabranch-{os.geteuid()}"
            mine = home / name_copy(owner)
            folder = mine / f"{epoch:08d}"
            for level in (home, mine, folder):
                _make_private(level)
            _sweep(home, mine, epoch, now_seconds)
        except OSError:
            continue
        return folder
    return None


def _make_private(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.lstat()
    # /dev/shm is everybody's: a folder or link that another user put there first must not get our state.
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        msg = f"{folder} is not a private folder of this user"
        raise PermissionError(msg)


def _sweep(home: Path, mine: Path, epoch: int, now_seconds: float) -> None:
    for folder in mine.iterdir():
        if folder.name.isdigit() and int(folder.name) < epoch:
            shutil.rmtree(folder, ignore_errors=True)
    for other in home.iterdir():
        if other != mine and now_seconds - _last_touched(other) > FORGOTTEN_AFTER_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def _last_touched(folder: Path) -> float:
    try:
        return max(path.lstat().st_mtime for path in [folder, *folder.rglob("*")])
    except FileNotFoundError:
        # Another process, maybe of another host, is at work there: then it is not forgotten.
        return math.inf


def name_copy(name: str) -> str:
    """Return the file name under which a copy lies."""
    # The checksum tells apart names that differ only in the characters a file name cannot have.
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[-150:]}-{zlib.crc32(name.encode()):08x}"
