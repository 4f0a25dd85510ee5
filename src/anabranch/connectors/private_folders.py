"""Temporary folders that go when their owner goes, and a broom for those of processes that were killed."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
import weakref
from pathlib import Path

PROCESS_PREFIX = "anabranch-process-"
"""Each process has one folder of this name, with its id behind it; the private folders lie in there."""

UNLOCKED_FOR_SECONDS = 3600.0
"""A process folder without a lock file is being made, unless it is as old as this."""

_LOCK_FILE = "owner.lock"

_guard = threading.Lock()
_process_folders: dict[tuple[int, str], Path] = {}
"""(process id, temporary folder) → the process's folder in there: after a fork, the child makes one of its own."""
_held_locks: list[int] = []
"""Open descriptors whose locks say that this process lives. The system lets them go, however it ends."""


class PrivateFolder:
    """A folder that is removed when this object is, or when the process ends.

    Copies share it. What travels to another process does so without it: only the maker removes the folder.
    """

    __slots__ = ("__weakref__", "_removal", "path")

    def __init__(self, purpose: str, temporary_folder: str | None = None) -> None:
        """It lies in the system's temporary folder, or in another one that is given."""
        parent = _process_folder(temporary_folder or tempfile.gettempdir())
        self.path = tempfile.mkdtemp(prefix=f"{purpose}-", dir=parent)
        self._removal = weakref.finalize(self, _remove_own, self.path, os.getpid())

    def remove(self) -> None:
        """Remove the folder now; again does nothing."""
        self._removal()

    def __copy__(self) -> PrivateFolder:
        return self

    def __deepcopy__(self, memo: object) -> PrivateFolder:
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def sweep_abandoned(temporary_folder: str, now_seconds: float) -> list[str]:
    """Remove what processes that were killed left behind, and return it.

    Whether a process lives is told by its lock rather than by its id, which containers that share a folder may share.
    """
    swept = []
    for entry in Path(temporary_folder).glob(f"{PROCESS_PREFIX}*"):
        if entry.is_dir() and not entry.is_symlink() and _is_abandoned(entry, now_seconds):
            shutil.rmtree(entry, ignore_errors=True)
            swept.append(str(entry))
    return swept


def _process_folder(temporary_folder: str) -> Path:
    pid = os.getpid()
    with _guard:
        found = _process_folders.get((pid, temporary_folder))
        # Whoever cleans up the temporary folder may have taken it away.
        if found is None or not found.is_dir():
            sweep_abandoned(temporary_folder, time.time())
            made = tempfile.mkdtemp(prefix=f"{PROCESS_PREFIX}{pid}-", dir=temporary_folder)
            found = _process_folders[pid, temporary_folder] = Path(made)
            _lock(found)
            atexit.register(_remove_own, str(found), pid)
        return found


def _lock(folder: Path) -> None:
    hidden = folder / f".{_LOCK_FILE}"
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT, 0o600)
    # Where the file system has no locks, nobody can take it for abandoned either.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _held_locks.append(descriptor)
    # A lock file that can be seen is locked: no sweeper can come in between.
    hidden.rename(folder / _LOCK_FILE)


def _is_abandoned(folder: Path, now_seconds: float) -> bool:
    try:
        descriptor = os.open(folder / _LOCK_FILE, os.O_RDWR)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return now_seconds - folder.stat().st_mtime > UNLOCKED_FOR_SECONDS
        return False
    except OSError:
        # Another user's, which is none of our business.
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _remove_own(path: str, maker_pid: int) -> None:
    # A forked child has copies of the maker's objects, which end with it and must leave the folder alone.
    if os.getpid() == maker_pid:
        shutil.rmtree(path, ignore_errors=True)
