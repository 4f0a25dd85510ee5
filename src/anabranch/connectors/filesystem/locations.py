"""Where files lie: in a local directory, or below a URL of an object store; and how they are opened there."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError

from anabranch.errors import FlowError
from anabranch.state.objects import REMOTE_SCHEMES, is_url, list_objects, open_objects, path_of_file_url

_BUFFER_BYTES = 1 << 20


def name_place(path: str | os.PathLike[str], way_out: str) -> str:
    """Return a directory as its whole path, or as its URL; raise ``FlowError`` with a way out for one out of reach."""
    place = os.fspath(path)
    scheme = urlsplit(place).scheme if is_url(place) else ""
    if not scheme:
        return os.path.abspath(os.path.expanduser(place) if place.startswith("~") else place)
    if scheme == "file":
        return os.path.abspath(path_of_file_url(place, FlowError))
    if scheme in REMOTE_SCHEMES:
        return place.rstrip("/")
    known = ", ".join(f"{name}://" for name in ("file", *REMOTE_SCHEMES) if name != "memory")
    msg = (
        f"{place} is out of reach: files are opened by Python, which knows local paths and {known}, but no "
        f"{scheme}://; give the path where it is mounted, or {way_out}"
    )
    raise FlowError(msg)


def open_file(path: str) -> BinaryIO:
    """Open a file for reading; raise ``OSError`` as ``open`` does, wherever it lies."""
    if not is_url(path):
        return open(path, "rb")
    return io.BufferedReader(_RemoteBytes(path), _BUFFER_BYTES)


def is_out_of_reach(error: Exception) -> bool:
    """Say whether it is the disk or the store that failed: what is wrong within a file, Arrow says without a number."""
    return isinstance(error, OSError) and error.errno is not None


def size_of(file: BinaryIO) -> int:
    """Return how many bytes an open file has, and leave it at its beginning."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size_bytes


def list_remote_files(place: str, recursive: bool) -> Iterator[tuple[str, int, int]]:
    """Yield name, bytes and time of change, in nanoseconds, of what lies below a URL; raise ``OSError``."""
    root, folder = _divide(place)
    store = _open_root(root)
    with _told_as_os_errors():
        items = list_objects(store, folder, recursive=recursive)
    for item in items:
        name = item["path"].removeprefix(f"{folder}/") if folder else item["path"]
        yield name, item["size"], int(item["last_modified"].timestamp() * 1_000_000) * 1000


class _RemoteBytes(io.RawIOBase):
    """The bytes of an object, fetched range by range."""

    def __init__(self, path: str) -> None:
        root, self._name = _divide(path)
        self._store = _open_root(root)
        with _told_as_os_errors():
            self._size_bytes = obstore.head(self._store, self._name)["size"]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, target: Any) -> int:
        length = min(len(target), self._size_bytes - self._position)
        if length <= 0:
            return 0
        with _told_as_os_errors():
            held = obstore.get_range(self._store, self._name, start=self._position, length=length)
        found = memoryview(held).nbytes
        memoryview(target).cast("B")[:found] = memoryview(held).cast("B")
        self._position += found
        return found


def _divide(url: str) -> tuple[str, str]:
    """Return a URL's bucket, and what is within it."""
    scheme, _, rest = url.partition("://")
    bucket, _, name = rest.partition("/")
    return f"{scheme}://{bucket}", name


@lru_cache(maxsize=64)
def _open_root(root: str) -> Any:
    # One client a bucket and process: it keeps its connections, and its credentials fresh.
    with _told_as_os_errors():
        return open_objects(root)


@contextlib.contextmanager
def _told_as_os_errors() -> Iterator[None]:
    """Turn what a store says into the errors that local files have, which every caller knows."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, ValueError) as error:
        raise OSError(errno.EIO, " ".join(str(error).split())[:500]) from error
