"""How files are written: whole or not at all, and so that a power failure does not take them back."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TEMPORARY_PREFIX = ".tmp-"
"""How the name of a file begins that is being written; one of a writer that died is swept by it."""


def write_whole(
    path: Path,
    *pieces: bytes | memoryview,
    publish: Callable[[Path, Path], object] | None = None,
    durable: bool = True,
) -> None:
    """Write a file of these pieces under a hidden name, and publish it under its own: replacing, unless told otherwise.

    It survives a power failure once this returns, unless it need not. The folder must be there.
    """
    fill_whole(path, lambda file: file.writelines(pieces), publish=publish, durable=durable)


def fill_whole(
    path: Path,
    fill: Callable[[BinaryIO], object],
    *,
    hidden: Path | None = None,
    publish: Callable[[Path, Path], object] | None = None,
    durable: bool = True,
) -> None:
    """Write a file as ``write_whole`` does, with what ``fill`` writes into it."""
    # Nobody else's name: another process that writes the same file at the same time would empty it.
    temporary = hidden or path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            fill(file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        (publish or os.replace)(temporary, path)
        if durable:
            # The directory entry, too, must survive: a commit that a power failure undoes was none.
            sync_folder(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            temporary.unlink()


def move_synced(source: str | Path, target: str | Path) -> None:
    """Give a file another name, once its content would survive; the name survives after ``sync_folder``."""
    with open(source, "rb") as file:
        os.fsync(file.fileno())
    os.replace(source, target)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, so that they survive a power failure."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Let the names in a folder survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file, or make it: a reader may see a part, and a power failure may take it back."""
    with path.open("ab") as file:
        file.write(content)
