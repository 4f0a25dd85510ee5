"""Objects of a store below a URL, through ``obstore``: what state, sources and sinks ask of one.

What a store says is raised as it comes: each caller knows what its own users can do about it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
from obstore import store as obstore_kinds

REMOTE_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")

_memory_stores: dict[str, obstore_kinds.MemoryStore] = {}


def is_url(path: str) -> bool:
    """Say whether a path names an object store, or a file by its URL, rather than a local file."""
    return "://" in path


def path_of_file_url(url: str, refusal: type[Exception]) -> str:
    """Return the local path that a URL of a file names; raise the refusal for one on another host."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        msg = f"{url} names the host {parts.netloc!r}; file URLs have three slashes: file:///{parts.netloc}…"
        raise refusal(msg)
    return unquote(parts.path)


def open_objects(url: str) -> Any:
    """Return ``obstore``'s handle on the objects below a URL; credentials come from the environment."""
    if url.startswith("memory:"):
        # One store a URL, so that a store opened twice has one content, as everywhere else.
        return _memory_stores.setdefault(url, obstore_kinds.MemoryStore())
    return obstore_kinds.from_url(url)


def read_object(handle: Any, name: str) -> bytes:
    """Return an object's bytes, or raise ``FileNotFoundError``."""
    return obstore.get(handle, name).bytes().to_bytes()


def put_object(handle: Any, name: str, *pieces: bytes | memoryview) -> None:
    """Make or replace an object, in one request: readers see the old one or the new one."""
    obstore.put(handle, name, pieces[0] if len(pieces) == 1 else b"".join(pieces))


def create_object(handle: Any, name: str, content: bytes) -> None:
    """Make an object if there is none; of several callers one succeeds, the others get ``AlreadyExistsError``."""
    obstore.put(handle, name, content, mode="create")


def list_objects(handle: Any, folder: str = "", *, recursive: bool = True) -> Sequence[Any]:
    """Return path, size and time of change of all objects below a folder, or of those that lie right in it."""
    if recursive:
        return [item for page in obstore.list(handle, folder or None) for item in page]
    return list(obstore.list_with_delimiter(handle, folder or None)["objects"])


def delete_objects(handle: Any, names: Iterable[str]) -> None:
    """Remove objects; one that is gone already is no error."""
    doomed = list(names)
    try:
        obstore.delete(handle, doomed[0] if len(doomed) == 1 else doomed)
    except FileNotFoundError:
        # Some stores stop at the first object that is gone; then the rest are deleted one by one.
        for name in doomed:
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(handle, name)
