"""The files of a checkpoint's history, and how they are read.

Numbers of events rise over all drivers, and a file is named by the epoch of its writer and by the number of its first
event. An event counts unless a later file begins at or before its number: so what a driver wrote after another took
over does not count, and what lies in two files for a moment counts once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anabranch.errors import StateDamaged
from anabranch.model.events import HistoryRecord
from anabranch.state.checksums import check_document, seal_document
from anabranch.state.store import Store

FOLDER = "history"
ENDLESS = 1 << 62

FileForm = Literal["records", "summary", "events"]
"""*records* are batches as earlier versions wrote them, without numbers; *summary*: batches are summed up in it."""

_ENDINGS: dict[FileForm, str] = {"records": ".jsonl", "summary": ".summary.jsonl", "events": ".events.jsonl"}
_FORMS: tuple[FileForm, ...] = ("records", "summary", "events")
_FILE = re.compile(rf"{FOLDER}/(\d+)-(\d+)(\.summary|\.events)?\.jsonl")


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file of a checkpoint's history."""

    epoch: int
    """Of the driver that wrote it, or the first part of it."""
    first: int
    """The number of its first event."""
    form: FileForm
    bytes: int = 0

    @property
    def name(self) -> str:
        """Its name in the store."""
        return f"{FOLDER}/{self.epoch:08d}-{self.first:012d}{_ENDINGS[self.form]}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, and what it says, or what is wrong with it."""

    text: bytes
    body: Any
    """``StateDamaged`` if the line is not whole."""
    is_last: bool
    """Whether nothing follows it, not even its own end."""

    @property
    def record(self) -> HistoryRecord | None:
        """The event; None if it cannot be read, or only by a version to come."""
        return None if isinstance(self.body, StateDamaged) else HistoryRecord.from_json(self.body)

    @property
    def number(self) -> int | None:
        """The event's number, of whatever kind it is."""
        return None if isinstance(self.body, StateDamaged) else self.body.get("number")


def list_files(store: Store) -> list[HistoryFile]:
    """Return the files of a history in the order of their events."""
    found = []
    for entry in store.list(FOLDER):
        if match := _FILE.fullmatch(entry.name):
            form = next(form for form in _FORMS if _ENDINGS[form] == f"{match[3] or ''}.jsonl")
            found.append(HistoryFile(int(match[1]), int(match[2]), form, entry.bytes))
    return sorted(found, key=lambda file: (file.epoch, file.first, _FORMS.index(file.form)))


def find_limits(files: Sequence[HistoryFile]) -> list[int]:
    """Return by file the number from which on its events do not count, because a later file has them."""
    limits, limit = [], ENDLESS
    for file in reversed(files):
        limits.append(limit)
        if file.form != "records":
            limit = min(limit, file.first)
    return limits[::-1]


def read_history(store: Store, after: int | None = None) -> Iterator[HistoryRecord]:
    """Yield all events that are kept, oldest first, or those with higher numbers only; half lines are left out.

    Whoever writes meanwhile disturbs nobody: a file that is gone was summed up or is too old, and all are listed again.
    """
    position, is_first = -1 if after is None else after, True
    while True:
        files = list_files(store)
        for file, limit in zip(files, find_limits(files), strict=True):
            if file.form == "records":
                # They rise within one driver only, and nobody adds to them.
                if is_first and after is None:
                    yield from _records_of(store, file) or ()
                continue
            if limit <= position + 1:
                continue
            records = _records_of(store, file)
            if records is None:
                break
            for record in records:
                if position < record.number < limit:
                    position = record.number
                    yield record
        else:
            return
        is_first = False


def read_lines(store: Store, file: HistoryFile) -> list[Line]:
    """Return the lines of a file; raise ``FileNotFoundError`` if it is gone."""
    texts = store.read(file.name).split(b"\n")
    found = []
    for number, text in enumerate(texts):
        if text:
            try:
                body = check_document(text, f"{store.url}/{file.name}, line {number + 1},")
            except StateDamaged as error:
                body = error
            found.append(Line(text, body, number + 1 == len(texts)))
    return found


def write_line(record: HistoryRecord) -> bytes:
    """Return an event as a line with its end."""
    return seal_document(record.to_json()) + b"\n"


def problems_with_history(store: Store) -> Iterator[tuple[str, str]]:
    """Yield (file, what is wrong with it) of lines that are damaged.

    The end of a file may be missing: its driver was killed while it wrote.
    """
    for file in list_files(store):
        try:
            lines = read_lines(store, file)
        except FileNotFoundError:
            continue  # It was too old since it was listed.
        for line in lines:
            if isinstance(line.body, StateDamaged) and not line.is_last:
                yield file.name, str(line.body)


def _records_of(store: Store, file: HistoryFile) -> list[HistoryRecord] | None:
    """Return the events of a file; None if it is gone."""
    try:
        return [record for line in read_lines(store, file) if (record := line.record) is not None]
    except FileNotFoundError:
        return None
