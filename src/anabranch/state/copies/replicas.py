"""Copies of other slots' runs in a host's memory, sent by the hosts where those slots are at home.

A second tier between the copies that a host's own slots leave (``hot``) and the store. Nothing makes room for
something newer here: the driver says what is kept, because a manifest names it, and what goes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from anabranch.model import RunRef
from anabranch.state.checksums import checksum_of
from anabranch.state.copies.hot import SHARED_MEMORY, name_copy, open_copy_folder

_BEGUN = "begun-"
"""How the name of a copy begins of which a part has arrived."""


@dataclass(frozen=True, slots=True)
class ReplicaCopies:
    """A folder of replicas, shared by the Python workers of a host.

    Nothing here is ever needed: who reads a copy compares it with the manifest, and takes the store's if it differs.
    """

    folder: Path

    def find(self, file: str) -> Path | None:
        """Return where the copy of a store's file lies, or None. Its content is for the caller to check."""
        path = self.folder / name_copy(file)
        return path if path.exists() else None

    def add(self, run: RunRef, start: int, content: bytes | memoryview, cap_bytes: int) -> str:
        """Take a stretch of a run in; return why not, or nothing. Stretches come in their order, also twice.

        With the last one the copy is checked, and is there; one that is not what the manifest says is forgotten.
        """
        final = self.folder / name_copy(run.file)
        begun = self.folder / f"{_BEGUN}{name_copy(run.file)}"
        if final.exists():
            return ""
        held_bytes = sum(size for _, size in self._list())
        try:
            if held_bytes + len(content) > measure_room(self.folder, cap_bytes, held_bytes):
                return f"replicas have {held_bytes:,} bytes here, and there is no room for {len(content):,} more"
            descriptor = os.open(begun, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if os.fstat(descriptor).st_size < start:
                    return "what comes before it has not arrived"
                os.pwrite(descriptor, content, start)
            finally:
                os.close(descriptor)
            if start + len(content) < run.bytes:
                return ""
            arrived = begun.read_bytes()
            if len(arrived) != run.bytes or checksum_of(arrived) != run.checksum:
                begun.unlink(missing_ok=True)
                return f"what arrived of {run.file} is not what its manifest says"
            # Whoever finds it finds it whole.
            os.replace(begun, final)
        except OSError as error:
            with contextlib.suppress(OSError):
                begun.unlink(missing_ok=True)
            return f"it cannot be kept in {self.folder}: {error.strerror}"
        return ""

    def drop(self, names: Iterable[str]) -> None:
        """Forget copies by the names that ``list_held`` and ``list_begun`` give them."""
        for name in names:
            for path in (self.folder / name, self.folder / f"{_BEGUN}{name}"):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def list_held(self) -> dict[str, int]:
        """Return the copies that are whole, with their bytes."""
        return {name: size for name, size in self._list() if not name.startswith((_BEGUN, "."))}

    def list_begun(self) -> dict[str, int]:
        """Return the copies of which a part has arrived, and how many bytes."""
        return {name.removeprefix(_BEGUN): size for name, size in self._list() if name.startswith(_BEGUN)}

    def _list(self) -> list[tuple[str, int]]:
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as children:
            for child in children:
                with contextlib.suppress(FileNotFoundError):
                    found.append((child.name, child.stat(follow_symlinks=False).st_size))
        return found


def open_replica_copies(
    owner: str, epoch: int, now_seconds: float, parent: Path = SHARED_MEMORY
) -> ReplicaCopies | None:
    """Open the folder for replicas of an owner and epoch; sweep those of earlier epochs. None without such memory."""
    folder = open_copy_folder(f"{owner} replicas", epoch, now_seconds, 0, [parent])
    return None if folder is None else ReplicaCopies(folder)


def measure_room(folder: Path, cap_bytes: int, held_bytes: int) -> int:
    """Return what replicas may take in all: the cap, or less where less memory is free beside what they have."""
    free_bytes: int = min(shutil.disk_usage(folder).free, psutil.virtual_memory().available)
    return min(cap_bytes, held_bytes + free_bytes)
