"""Spark's own part of a checkpoint: one file a batch in each of two logs, and the query's id."""

from __future__ import annotations

import json
import re
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.state.store import Store

OFFSETS, COMMITS = "spark/offsets", "spark/commits"
SPARK_LOGS = (OFFSETS, COMMITS)
"""Spark names the entries of its logs by batch number, with a checksum file ``.<number>.crc`` beside each."""
METADATA = "spark/metadata"

_LOG_ENTRY = re.compile(r"(\d+)|\.(\d+)\.crc")
_CHECKSUM = ".crc"
_VERSION = re.compile(r"v\d+")


def list_log(store: Store, log: str) -> Iterator[tuple[int, str]]:
    """Yield (batch, file) of all that a log holds, checksum files included."""
    for entry in store.list(log):
        match = _LOG_ENTRY.fullmatch(entry.name.removeprefix(f"{log}/"))
        if match:
            yield int(match[1] or match[2]), entry.name


def problem_with_log(store: Store, log: str, batch: int) -> str | None:
    """Return what is wrong with a batch's entry, or None if Spark can read it."""
    file = f"{log}/{batch}"
    if not store.exists(file):
        return f"{store.url}/{file} is missing"
    try:
        version, first, *sources = store.read(file).decode().splitlines()
        whole = bool(_VERSION.fullmatch(version)) and isinstance(json.loads(first), dict)
    except ValueError:
        whole = False
    if not whole or (log == OFFSETS and not sources) or not _is_as_checked(store, file):
        return f"{store.url}/{file} is damaged"
    return None


def find_problem(store: Store, latest: int) -> str | None:
    """Return what keeps Spark from going on behind a batch, the latest that is committed; None if nothing does."""
    planned, done = (_last_batch(store, log) for log in SPARK_LOGS)
    if planned < 0:
        # All of it is gone: Spark asks for every batch again, and manifests and split log answer.
        return None
    # Spark reads the last two offsets; and it may have died before it wrote down that the last batch was done: then it
    # asks for it again.
    wanted = [(OFFSETS, batch) for batch in range(max(min(latest, planned) - 1, 0), max(latest, planned) + 1)]
    wanted += [(COMMITS, batch) for batch in range(max(planned - 1, done, 0), max(planned, done + 1))]
    problems = (problem_with_log(store, log, batch) for log, batch in wanted)
    return next((problem for problem in problems if problem is not None), None)


def drop_orphans(store: Store) -> None:
    """Remove checksum files of entries that are gone, and those that are none themselves.

    Spark would take the first for those of another query, and stop at the others; without one, it checks nothing.
    """
    for log in SPARK_LOGS:
        files = list(list_log(store, log))
        there = {batch for batch, file in files if not file.endswith(_CHECKSUM)}
        checks = [(batch, file) for batch, file in files if file.endswith(_CHECKSUM)]
        store.delete([file for batch, file in checks if batch not in there or _read_checksums(store, file) is None])


def _is_as_checked(store: Store, file: str) -> bool:
    """Say whether an entry is what Spark's checksum file says, if there is one that says anything."""
    folder, _, name = file.rpartition("/")
    known = _read_checksums(store, f"{folder}/.{name}{_CHECKSUM}")
    if known is None:
        return True
    content = store.read(file)
    pieces = [content[start : start + known.piece_bytes] for start in range(0, len(content), known.piece_bytes)]
    return tuple(map(zlib.crc32, pieces)) == known.pieces


@dataclass(frozen=True, slots=True)
class _Checksums:
    """What a checksum file of Hadoop's says: the CRC-32 of every piece of the file beside it."""

    piece_bytes: int
    pieces: tuple[int, ...]


def _read_checksums(store: Store, file: str) -> _Checksums | None:
    """Return what a checksum file says; None if there is none, or if it is none."""
    try:
        content = store.read(file)
    except FileNotFoundError:
        return None
    if len(content) < 8 or len(content) % 4 or not content.startswith(b"crc\0"):
        return None
    piece_bytes, *pieces = struct.unpack(f">{len(content) // 4 - 1}I", content[4:])
    return _Checksums(piece_bytes, tuple(pieces)) if piece_bytes else None


def _last_batch(store: Store, log: str) -> int:
    return max((batch for batch, file in list_log(store, log) if not file.endswith(_CHECKSUM)), default=-1)


def mend_metadata(store: Store, query_id: str) -> bool:
    """Write the query's id anew if it alone is lost; say whether it was. Spark refuses logs without it."""
    if _last_batch(store, OFFSETS) < 0 or _has_id(store):
        return False
    store.delete([f"{METADATA.replace('/', '/.')}.crc"])
    store.write(METADATA, json.dumps({"id": query_id}, separators=(",", ":")).encode())
    return True


def _has_id(store: Store) -> bool:
    try:
        return bool(uuid.UUID(json.loads(store.read(METADATA))["id"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return False
