"""Which files lie in a directory, in the order in which they are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase

from anabranch.connectors.filesystem.locations import list_remote_files
from anabranch.errors import SourceError
from anabranch.state.objects import is_url

_TEMPORARY_ENDINGS = (".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload", "~")


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """One file as the listing saw it; entries sort in reading order, oldest first, ties by name."""

    mtime_ns: int
    name: str
    """Relative to the listed directory, with ``/`` between its parts."""
    path: str
    size_bytes: int


def list_files(directory: str, pattern: str = "*", recursive: bool = False) -> list[FileEntry]:
    """Return the files whose name matches, oldest first, ties by name.

    Hidden names (``.``), names that start with ``_``, temporary endings and empty files are left out: an empty file
    is one whose writer has not started yet.
    """
    if is_url(directory):
        return _list_objects(directory, pattern, recursive)
    entries: list[FileEntry] = []
    open_directories = [("", directory)]
    while open_directories:
        prefix, current = open_directories.pop()
        try:
            with os.scandir(current) as scan:
                for item in scan:
                    if is_ignored(item.name):
                        continue
                    if item.is_dir():
                        if recursive:
                            open_directories.append((f"{prefix}{item.name}/", item.path))
                        continue
                    if not fnmatchcase(item.name, pattern):
                        continue
                    try:
                        stat = item.stat()
                    except FileNotFoundError:
                        continue  # Gone between listing and looking: it was never planned, so nothing is lost.
                    if stat.st_size:
                        entries.append(FileEntry(stat.st_mtime_ns, prefix + item.name, item.path, stat.st_size))
        except FileNotFoundError:
            if current == directory:
                raise missing_directory(directory) from None
        except OSError as error:
            msg = f"cannot list {current}: {error.strerror}; give the user that runs Spark read permission on it"
            raise SourceError(msg) from error
    return sorted(entries)


def _list_objects(place: str, pattern: str, recursive: bool) -> list[FileEntry]:
    try:
        return sorted(
            FileEntry(mtime_ns, name, f"{place}/{name}", size_bytes)
            for name, size_bytes, mtime_ns in list_remote_files(place, recursive)
            if size_bytes
            and not any(map(is_ignored, name.split("/")))
            and fnmatchcase(name.rsplit("/", 1)[-1], pattern)
        )
    except OSError as error:
        msg = (
            f"cannot list {place}: {error.strerror or error}; credentials, region and endpoint come from the "
            f"environment, as obstore reads them (AWS_…, GOOGLE_…, AZURE_…)"
        )
        raise SourceError(msg) from error


def would_list(directory: str, pattern: str, recursive: bool, path: str) -> bool:
    """Say whether a file would be listed if it lay at this path, whatever links lead there."""
    name = os.path.basename(path)
    if is_ignored(name) or not fnmatchcase(name, pattern):
        return False
    if is_url(directory) or is_url(path):
        folder = path.rpartition("/")[0]
        return folder == directory or (recursive and _is_below(folder, directory))
    folder = os.path.realpath(os.path.dirname(path))
    if not recursive:
        return folder == os.path.realpath(directory)
    for root in _real_roots(directory):
        inside = os.path.relpath(folder, root)
        if inside == "." or not any(is_ignored(part) for part in inside.split(os.sep)):
            return True
    return False


def _is_below(folder: str, place: str) -> bool:
    inside = folder.removeprefix(f"{place}/")
    return inside != folder and not any(map(is_ignored, inside.split("/")))


def _real_roots(directory: str) -> list[str]:
    """Return the real paths of a directory and of all directories that links below it lead to."""
    roots: list[str] = []
    waiting = [directory]
    while waiting:
        root = os.path.realpath(waiting.pop())
        if root in roots:
            continue
        roots.append(root)
        for current, folders, _ in os.walk(root):
            folders[:] = [folder for folder in folders if not is_ignored(folder)]
            waiting += [path for folder in folders if os.path.islink(path := os.path.join(current, folder))]
    return roots


def is_ignored(name: str) -> bool:
    """Say whether a name is hidden or marks a file that is still being written."""
    return name.startswith((".", "_")) or name.lower().endswith(_TEMPORARY_ENDINGS)


def missing_directory(directory: str) -> SourceError:
    """Return the error for a directory that is not there, with what lies where it should be."""
    parent = os.path.dirname(os.path.abspath(directory))
    while not os.path.isdir(parent) and parent != os.path.dirname(parent):
        parent = os.path.dirname(parent)
    try:
        found = sorted(os.listdir(parent))
    except OSError:
        found = []
    shown = ", ".join(found[:12]) + (f" … ({len(found)} in all)" if len(found) > 12 else "")
    held = f"holds {shown}" if found else "is empty"
    return SourceError(
        f"there is no directory {directory}; its nearest parent {parent} {held}; create it or correct the path"
    )


def check_directory(directory: str) -> None:
    """Raise ``SourceError`` unless the directory exists and can be listed; object stores have no empty ones."""
    if is_url(directory):
        list_files(directory)
        return
    if not os.path.exists(directory):
        raise missing_directory(directory)
    if not os.path.isdir(directory):
        name = os.path.basename(directory)
        msg = f"{directory} is a file, not a directory; give its directory, and its name as pattern={name!r}"
        raise SourceError(msg)
    if not os.access(directory, os.R_OK | os.X_OK):
        msg = f"the directory {directory} cannot be read by this user; give it read and search permission"
        raise SourceError(msg)
