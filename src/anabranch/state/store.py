"""Files by name: the one door through which state touches a disk or an object store."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from anabranch.errors import CheckpointError
from anabranch.state.durable_files import TEMPORARY_PREFIX, append, make_folder, write_whole
from anabranch.state.objects import (
    REMOTE_SCHEMES,
    create_object,
    delete_objects,
    is_url,
    list_objects,
    open_objects,
    path_of_file_url,
    put_object,
    read_object,
)

_REFUSALS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)
"""What a file system says of a place that is no good, whatever is written to it."""


class AlreadyExists(CheckpointError):
    """A file was to be created, and one of that name is there."""


class StoreFull(CheckpointError):
    """There is no room for another file; everything written before is intact."""


class StoreUnusable(CheckpointError):
    """A place does not take or give files as it is: no such folder, no permission, no credentials, no answer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a store."""

    name: str
    bytes: int
    modified_seconds: float


class Store(Protocol):
    """Named files below one root. Names are relative, with slashes; a file is visible only when it is complete."""

    @property
    def url(self) -> str:
        """What ``open_store`` takes to open the same store again, in another process too."""
        ...

    def read(self, name: str) -> bytes:
        """Return a file's bytes, or raise ``FileNotFoundError``."""
        ...

    def exists(self, name: str) -> bool: ...

    def create(self, name: str, content: bytes) -> None:
        """Make a file that must not be there yet: of several callers one succeeds, the others get ``AlreadyExists``.

        The file survives a power failure once this returns."""
        ...

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        """Make or replace a file that survives as ``create``'s do. Of several writers of a name the last wins.

        It holds the pieces one after the other."""
        ...

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file, or make it; only one may do so at a time.

        On a local disk a reader may see a part of it, and a power failure may take it back; an object is written anew.
        """
        ...

    def list(self, prefix: str) -> Sequence[Entry]:
        """Return the files below a folder, at any depth, sorted by name; none if there is no such folder."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; one that is gone already is no error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what has it. Atomic on a local disk, a copy on an object store."""
        ...

    def local_path(self, name: str) -> Path | None:
        """Return where the file lies on this host's file system, or None if it does not."""
        ...

    def abandoned(self, prefix: str) -> Sequence[Entry]:
        """Return what writers that died left behind, half-written and invisible to ``list``."""
        ...


def open_store(url_or_path: str | Path) -> Store:
    """Open a store at a local path or a URL: file://, s3://, gs://, az:// (and memory:// within one process).

    Credentials of object stores come from the environment, as ``obstore`` reads them.
    """
    text = str(url_or_path)
    scheme = urlsplit(text).scheme if is_url(text) else ""
    if scheme == "":
        return LocalStore(Path(text).expanduser().absolute())
    if scheme == "file":
        return LocalStore(Path(path_of_file_url(text, CheckpointError)))
    if scheme in REMOTE_SCHEMES:
        return RemoteStore(text.rstrip("/"))
    accepted = ", ".join(f"{name}://" for name in ("file", *REMOTE_SCHEMES))
    msg = f"cannot keep files at {text}: unknown scheme {scheme!r}; use a local path or one of {accepted}"
    raise CheckpointError(msg)


def check_usable(store: Store) -> None:
    """Raise ``CheckpointError`` if it is plain that no files can be kept there; changes nothing."""
    path = store.local_path("any")
    if path is None:
        # Whoever may not even list files has no credentials, or those of somebody else.
        store.list("epochs")
        return
    there = _nearest(path.parent)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise _explain_refusal(path.parent, OSError())


def prove_creation(store: Store) -> None:
    """Raise ``CheckpointError`` if a store overwrites what was to be created: two drivers could commit one batch.

    Object stores are tried, with two small objects of one name that are taken away again: some that speak S3 take no
    notice of conditions. A file system links a file to a name only if that is free, or says that it cannot.
    """
    if store.local_path("any") is not None:
        return
    name = f"epochs/probe-{secrets.token_hex(8)}"
    # The store's library asks again when an answer is lost, and is told then that its own file is there.
    with contextlib.suppress(AlreadyExists):
        store.create(name, b"first")
    try:
        store.create(name, b"second")
        msg = (
            f"{store.url} overwrites what was to be created if absent (S3's If-None-Match: *): two drivers could "
            "commit one batch; update the store to a version with conditional writes, or put the checkpoint elsewhere"
        )
        raise CheckpointError(msg)
    except AlreadyExists:
        pass
    finally:
        store.delete([name])


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Files below a directory, made visible by link or rename after an fsync."""

    root: Path

    @property
    def url(self) -> str:
        return str(self.root)

    def read(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def exists(self, name: str) -> bool:
        return self._path(name).exists()

    def create(self, name: str, content: bytes) -> None:
        self._write(name, (content,), self._link)

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        self._write(name, pieces)

    def append(self, name: str, content: bytes) -> None:
        path = self._path(name)
        with self._explained(name, len(content)):
            make_folder(path.parent)
            append(path, content)

    def list(self, prefix: str) -> Sequence[Entry]:
        return [entry for entry in self._walk(prefix) if not _is_temporary(entry.name)]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def rename(self, source: str, target: str) -> None:
        path = self._path(target)
        make_folder(path.parent)
        os.replace(self._path(source), path)

    def local_path(self, name: str) -> Path | None:
        return self._path(name)

    def abandoned(self, prefix: str) -> Sequence[Entry]:
        return [entry for entry in self._walk(prefix) if _is_temporary(entry.name)]

    def _path(self, name: str) -> Path:
        return self.root / _checked(name)

    def _write(
        self,
        name: str,
        pieces: Sequence[bytes | memoryview],
        publish: Callable[[Path, Path], object] | None = None,
    ) -> None:
        path = self._path(name)
        with self._explained(name, sum(map(len, pieces))):
            try:
                write_whole(path, *pieces, publish=publish)
            except FileNotFoundError:
                make_folder(path.parent)
                write_whole(path, *pieces, publish=publish)

    @contextlib.contextmanager
    def _explained(self, name: str, size: int) -> Iterator[None]:
        """Say in words of ours that a file cannot be written."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                msg = (
                    f"no space left at {self.root} for {name} ({size:,} bytes); what was committed is intact: "
                    "free some space and start again"
                )
                raise StoreFull(msg) from error
            if error.errno in _REFUSALS:
                raise _explain_refusal(self.root, error) from error
            raise

    def _link(self, temporary: Path, path: Path) -> None:
        try:
            os.link(temporary, path)
        except FileExistsError as error:
            msg = f"{path} exists already"
            raise AlreadyExists(msg) from error
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            msg = (
                f"the file system of {self.root} has no hard links; without them two drivers could commit one batch: "
                "put the checkpoint on another file system or an object store"
            )
            raise CheckpointError(msg) from error

    def _walk(self, prefix: str) -> Sequence[Entry]:
        found: list[Entry] = []
        folders = [self._path(prefix) if prefix.strip("/") else self.root]
        while folders:
            try:
                with os.scandir(folders.pop()) as children:
                    for child in children:
                        if child.is_dir(follow_symlinks=False):
                            folders.append(Path(child.path))
                            continue
                        # A file may vanish between the listing and the look at it.
                        with contextlib.suppress(FileNotFoundError):
                            facts = child.stat()
                            name = Path(child.path).relative_to(self.root).as_posix()
                            found.append(Entry(name, facts.st_size, facts.st_mtime))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                raise _explain_refusal(self.root, error) from error
        return sorted(found, key=lambda entry: entry.name)


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest folder above it that is there."""
    return next((place for place in (path, *path.parents) if os.path.lexists(place)), path)


def _explain_refusal(root: Path, error: OSError) -> StoreUnusable:
    """Return what is wrong with a folder that refuses a file."""
    there = _nearest(root)
    if not there.is_dir():
        found = f"{there} is a file, not a folder"
    elif isinstance(error, PermissionError) or not os.access(there, os.W_OK | os.X_OK):
        found = f"{there} may not be written by this user"
    else:
        found = str(error)
    return StoreUnusable(f"no files can be kept at {root}: {found}; name a folder that can be made and written")


class RemoteStore:
    """Objects below a URL, through ``obstore``; the store's own conditional put makes creation happen once."""

    def __init__(self, url: str) -> None:
        self._url = url
        with self._explained():
            self._handle: Any = open_objects(url)

    def __reduce__(self) -> tuple[type[RemoteStore], tuple[str]]:
        return RemoteStore, (self._url,)

    @property
    def url(self) -> str:
        return self._url

    def read(self, name: str) -> bytes:
        with self._explained():
            return read_object(self._handle, _checked(name))

    def exists(self, name: str) -> bool:
        try:
            with self._explained():
                obstore.head(self._handle, _checked(name))
        except FileNotFoundError:
            return False
        return True

    def create(self, name: str, content: bytes) -> None:
        try:
            with self._explained():
                create_object(self._handle, _checked(name), content)
        except AlreadyExistsError as error:
            msg = f"{self._url}/{name} exists already"
            raise AlreadyExists(msg) from error

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        with self._explained():
            put_object(self._handle, _checked(name), *pieces)

    def append(self, name: str, content: bytes) -> None:
        try:
            before = self.read(name)
        except FileNotFoundError:
            before = b""
        self.write(name, before, content)

    def list(self, prefix: str) -> Sequence[Entry]:
        folder = prefix.strip("/")
        with self._explained():
            return sorted(
                (
                    Entry(item["path"], item["size"], item["last_modified"].timestamp())
                    for item in list_objects(self._handle, folder)
                ),
                key=lambda entry: entry.name,
            )

    def delete(self, names: Iterable[str]) -> None:
        with self._explained():
            delete_objects(self._handle, [_checked(name) for name in names])

    def rename(self, source: str, target: str) -> None:
        with self._explained():
            obstore.rename(self._handle, _checked(source), _checked(target))

    def local_path(self, name: str) -> Path | None:
        return None

    def abandoned(self, prefix: str) -> Sequence[Entry]:
        return []

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what a store refuses in words of ours; that a file is there, or is not, is for the caller."""
        try:
            yield
        except (FileNotFoundError, AlreadyExistsError):
            raise
        except BaseError as error:
            # What follows the first line is for those who wrote the library.
            reason = str(error).strip().splitlines()[0]
            msg = (
                f"{self._url} cannot be used: {reason}; see that bucket and region are right, and that credentials are "
                "in the environment: AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_NAME …"
            )
            raise StoreUnusable(msg) from error


def _checked(name: str) -> str:
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/"):
        msg = f"{name!r} is no name of a file in a store: names are relative and stay below its root"
        raise ValueError(msg)
    return name


def _is_temporary(name: str) -> bool:
    return PurePosixPath(name).name.startswith(TEMPORARY_PREFIX)
