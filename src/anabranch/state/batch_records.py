"""What every batch did, for as long as an operator may ask: one record a line, in files that are only added to.

Nothing that a flow computes depends on them. So they are not forced to the disk after every batch, a record that cannot
be written does not stop the flow, and one that a crash cut short is left out when they are read.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.model import BatchProgress, BatchRecord
from anabranch.state.checksums import check_document, seal_document
from anabranch.state.store import Store

logger = logging.getLogger("anabranch")

FOLDER = "history"
DEFAULT_KEPT_RECORDS = 100_000
FILE_BYTES = 256 * 1024
"""A file that has reached it is closed; old ones are removed as a whole."""
REMOTE_SECONDS = 5.0
"""Objects cannot be added to, only written anew: there, records are gathered for so long."""

_KIND, _VERSION = "batch", 1
_FILE = re.compile(rf"{FOLDER}/(\d+)-(\d+)\.jsonl")


class BatchRecords:
    """Writes the records of one driver.

    Each driver has files of its own, so that nothing is ever added behind a line that another one left unfinished.
    """

    def __init__(
        self,
        store: Store,
        epoch: int,
        kept_records: int = DEFAULT_KEPT_RECORDS,
        *,
        file_bytes: int = FILE_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._epoch = epoch
        self._kept_records = kept_records
        self._file_bytes = file_bytes
        self._monotonic = monotonic
        self._waits_seconds = 0.0 if store.local_path(FOLDER) is not None else REMOTE_SECONDS
        self._lock = threading.Lock()
        self._files: deque[tuple[int, str]] | None = None
        """(first batch, name) of all that may have to go one day, oldest first; listed with the first record."""
        self._open: str | None = None
        self._open_bytes = 0
        self._gathered: list[bytes] = []
        self._gathered_since = 0.0
        self._has_failed = False

    def add(self, progress: BatchProgress, ended_at: float) -> None:
        """Keep the record of a batch."""
        line = _encode(BatchRecord(self._epoch, ended_at, progress))
        with self._lock:
            if self._open is None:
                self._begin_file(progress.batch)
            if not self._gathered:
                self._gathered_since = self._monotonic()
            self._gathered.append(line)
            full = self._open_bytes + sum(map(len, self._gathered)) >= self._file_bytes
            if full or self._monotonic() - self._gathered_since >= self._waits_seconds:
                self._write_gathered()
            if full:
                self._open = None
                self._expire(progress.batch)

    def flush(self) -> None:
        """Write what was gathered."""
        with self._lock:
            self._write_gathered()

    def _begin_file(self, batch: int) -> None:
        self._open, self._open_bytes = f"{FOLDER}/{self._epoch:08d}-{max(batch, 0):012d}.jsonl", 0
        if self._files is None:
            self._files = deque()
            with self._tolerated():
                self._files.extend(_list_files(self._store))
        self._files.append((batch, self._open))

    def _write_gathered(self) -> None:
        if self._open is None or not self._gathered:
            return
        content = b"".join(self._gathered)
        # Whatever comes of it, memory stays small, and nothing is added behind half a line.
        self._gathered = []
        self._open_bytes += len(content)
        with self._tolerated():
            self._store.append(self._open, content)

    def _expire(self, batch: int) -> None:
        """Remove files all of whose records are older than those that are kept."""
        assert self._files is not None
        doomed = []
        while len(self._files) > 1 and self._files[1][0] <= batch - self._kept_records:
            doomed.append(self._files.popleft()[1])
        with self._tolerated():
            self._store.delete(doomed)

    @contextlib.contextmanager
    def _tolerated(self) -> Iterator[None]:
        """Tell once of what the store refuses, and go on with a new file: half a line may stand in the open one."""
        try:
            yield
        except (CheckpointError, OSError) as error:
            self._open = None
            if not self._has_failed:
                place = f"{self._store.url}/{FOLDER}"
                logger.warning(
                    "records of batches cannot be kept in %s: %s; the flow goes on without them", place, error
                )
            self._has_failed = True


def read_records(store: Store) -> Iterator[BatchRecord]:
    """Yield all records that are kept, oldest first; lines that are not whole are left out."""
    for _, name in _list_files(store):
        for _, body in _read_lines(store, name):
            if not isinstance(body, StateDamaged) and (record := _decode(body)) is not None:
                yield record


def problems_with_records(store: Store) -> Iterator[tuple[str, str]]:
    """Yield (file, what is wrong with it) of lines that are damaged.

    The end of a file may be missing: its driver was killed while it wrote.
    """
    for _, name in _list_files(store):
        for is_last, body in _read_lines(store, name):
            if isinstance(body, StateDamaged) and not is_last:
                yield name, str(body)


def _list_files(store: Store) -> list[tuple[int, str]]:
    found = [(match, entry.name) for entry in store.list(FOLDER) if (match := _FILE.fullmatch(entry.name))]
    return [(int(match[2]), name) for match, name in sorted(found, key=lambda pair: (int(pair[0][1]), int(pair[0][2])))]


def _read_lines(store: Store, name: str) -> Iterator[tuple[bool, Any]]:
    """Yield by line whether nothing follows it, not even its own end, and what it says, or what is wrong with it."""
    try:
        lines = store.read(name).split(b"\n")
    except FileNotFoundError:
        return  # It was too old since it was listed.
    for number, line in enumerate(lines):
        if line:
            try:
                body = check_document(line, f"{store.url}/{name}, line {number + 1},")
            except StateDamaged as error:
                body = error
            yield number + 1 == len(lines), body


def _encode(record: BatchRecord) -> bytes:
    return seal_document({"kind": _KIND, "version": _VERSION, **record.to_json()}) + b"\n"


def _decode(body: Any) -> BatchRecord | None:
    """Return the record; None for one of another kind, or of a version to come."""
    return BatchRecord.from_json(body) if (body["kind"], body["version"]) == (_KIND, _VERSION) else None
