"""Spark's own part of a checkpoint: one file a batch in each of two logs, and the query's id.

An offset is written before its batch runs, a commit when all is done. Who runs batches without Spark writes the same.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.errors import CheckpointError
from anabranch.state.split_log import BEFORE_FIRST
from anabranch.state.store import Store

OFFSETS, COMMITS = "spark/offsets", "spark/commits"
SPARK_LOGS = (OFFSETS, COMMITS)
"""Spark names the entries of its logs by batch number, with a checksum file ``.<number>.crc`` beside each."""
METADATA = "spark/metadata"

NOTHING_READ: dict[str, Any] = {"entry": BEFORE_FIRST, "spark": []}
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


def last_batches(store: Store) -> tuple[int, int]:
    """Return the last batch that was begun, and the last that is done; -1 if there is none."""
    return _last_batch(store, OFFSETS), _last_batch(store, COMMITS)


def read_trigger_time(store: Store, batch: int) -> float | None:
    """Return when Spark began to make this batch, in seconds since 1970; None if the log does not say."""
    try:
        metadata = json.loads(store.read(f"{OFFSETS}/{batch}").decode().splitlines()[1])
        return float(metadata["batchTimestampMs"]) / 1000.0
    except (OSError, ValueError, KeyError, IndexError):
        return None


def read_offset(store: Store, batch: int) -> dict[str, Any]:
    """Return where all sources stand after a batch: our split log's entry, and the offsets of Spark's own sources."""
    if batch < 0:
        return NOTHING_READ
    file = f"{OFFSETS}/{batch}"
    try:
        lines = store.read(file).decode().splitlines()
    except FileNotFoundError as error:
        msg = f"{store.url}/{file} is missing: Spark's part of the checkpoint is damaged; restore it from a copy"
        raise CheckpointError(msg) from error
    # Line 0 is the log's version, line 1 the batch's metadata, then one line a source.
    entry, others = BEFORE_FIRST, []
    for line in lines[2:]:
        try:
            data = json.loads(line)
        except ValueError:
            data = None
        if isinstance(data, dict) and set(data) == {"entry"}:
            entry = data["entry"]
        else:
            others.append(line)
    return {"entry": entry, "spark": others}


def write_offset(store: Store, batch: int, entry: int, moment: float) -> None:
    """Write down that a batch begins, and where in the split log it ends."""
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": round(moment * 1000), "conf": {}}
    lines = ["v1", *(json.dumps(line, separators=(",", ":")) for line in (metadata, {"entry": entry}))]
    store.write(f"{OFFSETS}/{batch}", "\n".join(lines).encode())


def write_commit(store: Store, batch: int, kept_batches: int) -> None:
    """Write down that a batch is done, and forget those that nobody goes back to."""
    store.write(f"{COMMITS}/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    old = [file for log in SPARK_LOGS for number, file in list_log(store, log) if number < batch - kept_batches]
    store.delete(old)


def open_query(store: Store) -> str:
    """Return the id of the query that the logs are of; a new one has a new id."""
    if not _has_id(store):
        store.write(METADATA, json.dumps({"id": str(uuid.uuid4())}, separators=(",", ":")).encode())
    return str(json.loads(store.read(METADATA))["id"])


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
