"""Writing a checkpoint's history: events are added at its end, old files are summed up, the oldest go.

Nothing that a flow computes depends on it. So it is not forced to the disk after every event, an event that cannot be
written does not stop the flow, and one that a crash cut short is left out when it is read.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from anabranch.errors import CheckpointError, Fenced
from anabranch.model.events import Event, HistoryRecord
from anabranch.state.event_files import (
    FOLDER,
    HistoryFile,
    Line,
    find_limits,
    list_files,
    read_lines,
    write_line,
)
from anabranch.state.event_summaries import sum_up
from anabranch.state.store import Store

logger = logging.getLogger("anabranch")

DEFAULT_KEPT_RECORDS = 100_000
DEFAULT_KEPT_SUMMARY_BYTES = 16_000_000
FILE_BYTES = 256 * 1024
"""A file that has reached it is closed; old ones are summed up or removed as a whole."""
REMOTE_SECONDS = 5.0
"""Objects cannot be added to, only written anew: there, events are gathered for so long."""


class EventLog:
    """Writes the events of one driver behind those of the drivers before it.

    Each driver has files of its own, so that nothing is ever added behind a line that another one left unfinished.
    """

    def __init__(
        self,
        store: Store,
        epoch: int,
        check_lease: Callable[[], None],
        kept_records: int = DEFAULT_KEPT_RECORDS,
        kept_summary_bytes: int = DEFAULT_KEPT_SUMMARY_BYTES,
        *,
        file_bytes: int = FILE_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``check_lease`` raises ``Fenced`` if another driver has the checkpoint: then this one writes no more."""
        self._store = store
        self._epoch = epoch
        self._check_lease = check_lease
        self._kept_records = kept_records
        self._kept_summary_bytes = kept_summary_bytes
        self._file_bytes = file_bytes
        self._monotonic = monotonic
        self._waits_seconds = 0.0 if store.local_path(FOLDER) is not None else REMOTE_SECONDS
        self._lock = threading.RLock()
        self._files: list[HistoryFile] = []
        """All that there are, in their order; the last one is written to."""
        self._next_number: int | None = None
        """None until it is known what the drivers before have written."""
        self._adopted: tuple[HistoryFile, bytes] | None = None
        """A small file of the driver before, whose lines are written anew in front of the first own ones."""
        self._is_open = False
        self._gathered: list[bytes] = []
        self._gathered_since = 0.0
        self._has_failed = False
        self._is_fenced = False

    def read_tail(self) -> list[HistoryRecord]:
        """Return the last events of the drivers before, those of one file, oldest first."""
        found: list[HistoryRecord] = []
        with self._lock, self._tolerated():
            found = self._find_end()
        return found

    def add(self, events: Sequence[Event], at: float) -> list[HistoryRecord]:
        """Keep events, all or none of which are seen by readers of a local disk; return them with their numbers.

        Returned is nothing where numbers are not known, because the store gives no answer.
        """
        with self._lock:
            if self._next_number is None:
                with self._tolerated():
                    self._find_end()
            if self._next_number is None:
                return []
            first = self._next_number
            records = [HistoryRecord(self._epoch, first + index, at, event) for index, event in enumerate(events)]
            self._next_number += len(records)
            if not self._is_fenced:
                self._gather(first, b"".join(map(write_line, records)))
            return records

    def flush(self) -> None:
        """Write what was gathered."""
        with self._lock:
            self._write_gathered()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _find_end(self) -> list[HistoryRecord]:
        """Find out behind which event to go on, and return the last ones."""
        files, lines, last = list_files(self._store), list[Line](), 0
        for file, limit in zip(reversed(files), reversed(find_limits(files)), strict=True):
            lines = self._read(file, limit)
            last = max([last, file.first if file.form != "records" else 0, *(_number_of(line) + 1 for line in lines)])
            if lines:
                is_small = file.bytes < self._file_bytes // 2
                if file is files[-1] and file.form == "events" and file.epoch < self._epoch and is_small:
                    self._adopted = file, b"".join(line.text + b"\n" for line in lines)
                break
        self._files, self._next_number = files, last
        return [record for line in lines if (record := line.record) is not None]

    def _gather(self, first: int, content: bytes) -> None:
        if not self._is_open:
            self._begin_file(first)
        if not self._gathered:
            self._gathered_since = self._monotonic()
        self._gathered.append(content)
        full = self._files[-1].bytes + sum(map(len, self._gathered)) >= self._file_bytes
        if full or self._monotonic() - self._gathered_since >= self._waits_seconds:
            self._write_gathered()
        if full and self._is_open:
            self._is_open = False
            self._retire()

    def _begin_file(self, first: int) -> None:
        if self._adopted is not None:
            first = self._adopted[0].first
        self._files.append(HistoryFile(self._epoch, first, "events"))
        self._is_open = True

    def _write_gathered(self) -> None:
        if not self._is_open or not self._gathered:
            return
        content = b"".join(self._gathered)
        # Whatever comes of it, memory stays small, and nothing is added behind half a line.
        self._gathered = []
        file = self._files[-1]
        with self._tolerated():
            self._check_lease()
            if self._adopted is None:
                self._store.append(file.name, content)
            else:
                content = self._adopted[1] + content
                # As a whole: a part of it would hide what it is a copy of.
                self._store.write(file.name, content)
                self._store.delete([self._adopted[0].name])
                self._files.remove(self._adopted[0])
                self._adopted = None
            self._files[-1] = replace(file, bytes=file.bytes + len(content))

    def _retire(self) -> None:
        """Sum up, or remove, files all of whose events are older than those that are kept."""
        with self._tolerated():
            self._check_lease()
            assert self._next_number is not None
            oldest = self._next_number - self._kept_records
            while (place := self._find_retired(oldest)) is not None:
                self._sum_up(place)
            summaries = [file for file in self._files if file.form == "summary"]
            while summaries and sum(file.bytes for file in summaries) > self._kept_summary_bytes:
                self._store.delete([summaries[0].name])
                self._files.remove(summaries.pop(0))

    def _find_retired(self, oldest: int) -> int | None:
        place = next((place for place, file in enumerate(self._files) if file.form != "summary"), len(self._files))
        return place if place + 1 < len(self._files) and self._files[place + 1].first <= oldest else None

    def _sum_up(self, place: int) -> None:
        """Put what is left of a file behind the summary before it, or make it one; then the file goes."""
        file = self._files[place]
        if file.form == "events":
            before = self._files[place - 1] if place else None
            summary = sum_up(self._read(file, self._files[place + 1].first))
            if before is None or before.form != "summary" or before.bytes + len(summary) > self._file_bytes:
                self._files.insert(place, replace(file, form="summary", bytes=len(summary)))
                place += 1
            else:
                earlier = b"".join(line.text + b"\n" for line in self._read(before, file.first))
                summary = earlier + summary
                self._files[place - 1] = replace(before, bytes=len(summary))
            self._store.write(self._files[place - 1].name, summary)
        self._store.delete([file.name])
        del self._files[place]

    def _read(self, file: HistoryFile, limit: int) -> list[Line]:
        try:
            return _counting(read_lines(self._store, file), limit)
        except FileNotFoundError:
            return []

    @contextlib.contextmanager
    def _tolerated(self) -> Iterator[None]:
        """Tell once of what the store refuses, and go on with a new file: half a line may stand in the open one."""
        try:
            yield
        except Fenced:
            # Whoever has the checkpoint now goes on with the history, too; the engine finds out by itself.
            self._is_fenced = True
        except (CheckpointError, OSError) as error:
            self._is_open, self._adopted = False, None
            if not self._has_failed:
                place = f"{self._store.url}/{FOLDER}"
                logger.warning("the history cannot be kept in %s: %s; the flow goes on without it", place, error)
            self._has_failed = True


def _counting(lines: Iterable[Line], limit: int) -> list[Line]:
    """Return the lines that are whole, and of which no later file has the event."""
    return [line for line in lines if not isinstance(line.body, Exception) and _number_of(line) < limit]


def _number_of(line: Line) -> int:
    """Return an event's number; batches of earlier versions go by that of the batch."""
    number = line.number
    return number if number is not None else int(line.body.get("progress", {}).get("batch", 0))
