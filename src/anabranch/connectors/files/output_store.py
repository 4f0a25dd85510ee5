"""Where part files stand: a local directory or a folder of an object store."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.connectors.files.staged_frames import drop_staged, fetch_staged, is_url
from anabranch.errors import SinkError

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class Shelf(Protocol):
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


def open_shelf(place: str) -> Shelf:
    """Return the shelf at a path or URL."""
    if not is_url(place):
        return LocalShelf(place)
    import obstore

    try:
        return RemoteShelf(obstore.store.from_url(place), place)
    except Exception as error:
        msg = f"{place} cannot be opened as an object store: {error}; use a local path, s3://, gs:// or az://"
        raise SinkError(msg) from error


class LocalShelf:
    """Files in a directory, which is made when the first one is written."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        """Return all names in order."""
        return sorted(os.listdir(self._directory)) if os.path.isdir(self._directory) else []

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None if there is no such file."""
        return fetch_staged(os.path.join(self._directory, name))

    def write(self, name: str, content: bytes) -> None:
        """Write a hidden file and rename it."""
        target = os.path.join(self._directory, name)
        hidden = self._hidden(name)
        try:
            os.makedirs(self._directory, exist_ok=True)
            with open(hidden, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, target)
            self.settle()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(hidden)
            raise cannot_write(target, error) from error

    def take(self, staged: str, name: str) -> None:
        """Rename a staged file, or copy it from another file system."""
        if is_url(staged):
            self.write(name, fetch_staged(staged) or b"")
            drop_staged(staged)
            return
        target = os.path.join(self._directory, name)
        try:
            os.makedirs(self._directory, exist_ok=True)
            with open(staged, "rb") as file:
                os.fsync(file.fileno())
            os.replace(staged, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise cannot_write(target, error) from error
            self._copy(staged, target)

    def _copy(self, staged: str, target: str) -> None:
        hidden = self._hidden(os.path.basename(target))
        try:
            with open(staged, "rb") as reader, open(hidden, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                os.fsync(writer.fileno())
            os.replace(hidden, target)
            self.settle()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(hidden)
            raise cannot_write(target, error) from error
        drop_staged(staged)

    def _hidden(self, name: str) -> str:
        # Nobody else's: another driver that writes the same file at the same time would empty it.
        return os.path.join(self._directory, f".{name}.{secrets.token_hex(4)}.tmp")

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._directory, name))

    def settle(self) -> None:
        """Sync the directory, so that its names survive a power cut."""
        if not os.path.isdir(self._directory):
            return
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class RemoteShelf:
    """Objects of a store; each is put in one request, so readers see whole ones."""

    def __init__(self, store: ObjectStore, place: str) -> None:
        self._store = store
        self._place = place

    def names(self) -> list[str]:
        """Return all names in order."""
        import obstore

        found = [str(item["path"]) for items in obstore.list(self._store) for item in items]
        return sorted(name for name in found if "/" not in name)

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes, None if there is no such object."""
        import obstore

        try:
            return bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Put an object."""
        import obstore

        try:
            obstore.put(self._store, name, content)
        except Exception as error:
            raise cannot_write(f"{self._place}/{name}", error) from error

    def take(self, staged: str, name: str) -> None:
        """Upload a staged file and delete it."""
        self.write(name, fetch_staged(staged) or b"")
        drop_staged(staged)

    def remove(self, name: str) -> None:
        """Delete an object, if it is there."""
        import obstore

        with contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def settle(self) -> None:
        """Do nothing: a store that has answered has kept it."""


def cannot_write(target: str, error: Any) -> SinkError:
    """Return the error for a target that takes no file."""
    reason = getattr(error, "strerror", None) or str(error)
    return SinkError(f"cannot write {target}: {reason}; see that files can be made there, and start again")
