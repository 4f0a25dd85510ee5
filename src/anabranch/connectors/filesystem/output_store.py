"""Where part files stand: a local directory or a folder of an object store."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from anabranch.connectors.filesystem.staged_frames import drop_staged, fetch_staged
from anabranch.errors import SinkError
from anabranch.state.durable_files import fill_whole, move_synced, sync_folder
from anabranch.state.objects import delete_objects, is_url, list_objects, open_objects, put_object, read_object


class OutputStore(Protocol):
    """A flat set of named files; a file is there whole or not at all."""

    def names(self) -> list[str]:
        """Return all names in order; none if the place does not exist yet."""
        ...

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file, durably."""
        ...

    def take(self, staged: str, name: str) -> None:
        """Move a staged file here."""
        ...

    def remove(self, name: str) -> None: ...

    def settle(self) -> None:
        """Make what was taken and removed durable."""
        ...


def open_output_store(place: str) -> OutputStore:
    """Return the store at a path or URL."""
    if not is_url(place):
        return LocalOutputStore(place)
    try:
        return RemoteOutputStore(open_objects(place), place)
    except Exception as error:
        msg = f"{place} cannot be opened as an object store: {error}; use a local path, s3://, gs:// or az://"
        raise SinkError(msg) from error


class LocalOutputStore:
    """Files in a directory, which is made when the first one is written."""

    def __init__(self, directory: str, *, durable: bool = True) -> None:
        """Files survive a power failure, unless nobody could find them afterwards."""
        self._directory = directory
        self._durable = durable

    def names(self) -> list[str]:
        """Return all names in order."""
        return sorted(os.listdir(self._directory)) if os.path.isdir(self._directory) else []

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None if there is no such file."""
        return fetch_staged(os.path.join(self._directory, name))

    def write(self, name: str, content: bytes) -> None:
        """Write a hidden file and rename it."""
        self._fill(name, lambda file: file.write(content))

    def take(self, staged: str, name: str) -> None:
        """Rename a staged file, or copy it from another file system."""
        if is_url(staged):
            self.write(name, fetch_staged(staged) or b"")
            drop_staged(staged)
            return
        target = os.path.join(self._directory, name)
        try:
            os.makedirs(self._directory, exist_ok=True)
            (move_synced if self._durable else os.replace)(staged, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise cannot_write(target, error) from error
            self._fill(name, lambda file: _copy(staged, file))
            drop_staged(staged)

    def _fill(self, name: str, fill: Callable[[BinaryIO], object]) -> None:
        target = Path(self._directory, name)
        try:
            os.makedirs(self._directory, exist_ok=True)
            hidden = target.with_name(f".{name}.{secrets.token_hex(4)}.tmp")
            fill_whole(target, fill, hidden=hidden, durable=self._durable)
        except OSError as error:
            raise cannot_write(str(target), error) from error

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._directory, name))

    def settle(self) -> None:
        """Sync the directory, so that its names survive a power cut."""
        if self._durable and os.path.isdir(self._directory):
            sync_folder(Path(self._directory))


class RemoteOutputStore:
    """Objects of a store; each is put in one request, so readers see whole ones."""

    def __init__(self, store: Any, place: str) -> None:
        self._store = store
        self._place = place

    def names(self) -> list[str]:
        """Return all names in order."""
        found = [str(item["path"]) for item in list_objects(self._store)]
        return sorted(name for name in found if "/" not in name)

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes, None if there is no such object."""
        try:
            return read_object(self._store, name)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Put an object."""
        try:
            put_object(self._store, name, content)
        except Exception as error:
            raise cannot_write(f"{self._place}/{name}", error) from error

    def take(self, staged: str, name: str) -> None:
        """Upload a staged file and delete it."""
        self.write(name, fetch_staged(staged) or b"")
        drop_staged(staged)

    def remove(self, name: str) -> None:
        """Delete an object, if it is there."""
        delete_objects(self._store, [name])

    def settle(self) -> None:
        """Do nothing: a store that has answered has kept it."""


def _copy(staged: str, file: BinaryIO) -> None:
    with open(staged, "rb") as reader:
        shutil.copyfileobj(reader, file, 1 << 20)


def cannot_write(target: str, error: Any) -> SinkError:
    """Return the error for a target that takes no file."""
    reason = getattr(error, "strerror", None) or str(error)
    return SinkError(f"cannot write {target}: {reason}; see that files can be made there, and start again")
