"""A durable log of what each batch reads: entry n names the splits, so that a replay reads the same rows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import CheckpointError, StateDamaged
from anabranch.model import Split
from anabranch.state.checksums import check_document, seal_document
from anabranch.state.store import AlreadyExists, Store

BEFORE_FIRST = -1

_FOLDER = "sources"
_UNSEALED = b'{"number"'
"""How entries began before they had checksums."""
_FILE = re.compile(rf"{_FOLDER}/(\d+)\.json")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What one step of the source reads. A tick reads nothing; a drain reads nothing and ends event time."""

    number: int
    splits: tuple[tuple[int, Split], ...] = ()
    """(source, split) pairs, sources by their number in the checkpoint; a split's place here is its ordinal."""
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    drain: bool = False
    waiting_rows: int | None = None
    """Rows that sources had besides, as far as they can tell."""
    planned_at: float | None = None
    """When sources were asked, by the wall clock in seconds; None in entries of earlier versions."""

    def encode(self) -> bytes:
        """Return the text of the log file."""
        return seal_document(
            {
                "number": self.number,
                "splits": [[source, split] for source, split in self.splits],
                "positions": self.positions,
                "problems": list(self.problems),
                "drain": self.drain,
                "waiting_rows": self.waiting_rows,
                "planned_at": self.planned_at,
            }
        )

    @classmethod
    def decode(cls, text: bytes, file: str) -> LogEntry:
        """Read what ``encode`` wrote, in this version or in one without checksums; ``file`` is named in errors."""
        try:
            data = json.loads(text) if text.startswith(_UNSEALED) else check_document(text, file)
            return cls(
                number=data["number"],
                splits=tuple((source, split) for source, split in data["splits"]),
                positions=data["positions"],
                problems=tuple(data["problems"]),
                drain=data["drain"],
                waiting_rows=data.get("waiting_rows"),
                planned_at=data.get("planned_at"),
            )
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{file} cannot be read ({type(error).__name__}: {error}): it is damaged"
            raise StateDamaged(msg) from error


class SplitLog:
    """The log's files in the checkpoint, ``sources/<n>.json``, each written once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, number: int) -> LogEntry | None:
        """Return entry n, or None if it was never planned."""
        file = _file(number)
        if not self._store.exists(file):
            return None
        return LogEntry.decode(self._store.read(file), f"{self._store.url}/{file}")

    def load(self, number: int) -> LogEntry:
        """Return an entry that was planned; raise ``CheckpointError`` if it is not there, or not whole.

        Without it nobody knows what was read: to go on would mean to lose rows, or to read them again.
        """
        entry = self.find(number)
        if entry is None:
            msg = f"{self._store.url}/{_file(number)} is missing: it says what a batch has read"
            raise CheckpointError(msg)
        return entry

    def between(self, after: int, to: int) -> list[LogEntry]:
        """Return the entries after one number up to another."""
        return [self.load(number) for number in range(after + 1, to + 1)]

    def append(self, entry: LogEntry) -> LogEntry:
        """Write an entry; if it is there already, what is there counts."""
        try:
            self._store.create(_file(entry.number), entry.encode())
        except AlreadyExists:
            return self.load(entry.number)
        return entry

    def forget(self, number: int) -> None:
        """Delete an entry that no kept batch can ask for again."""
        if number > BEFORE_FIRST:
            self._store.delete([_file(number)])

    def forget_unreachable(self, after: int) -> None:
        """Delete the entries behind the first one after this that is missing or damaged, and that one.

        They were planned upon what is lost: what is planned in its place may hold their splits, too.
        """
        numbers = {int(match[1]) for entry in self._store.list(_FOLDER) if (match := _FILE.fullmatch(entry.name))}
        later = sorted(number for number in numbers if number > after)
        whole = after
        while self.problem_with(whole + 1) is None:
            whole += 1
        self._store.delete([_file(number) for number in later if number > whole])

    def problem_with(self, number: int) -> str | None:
        """Return what is wrong with an entry, or None if it is there and whole, or none is needed."""
        if number == BEFORE_FIRST:
            return None
        try:
            self.load(number)
        except CheckpointError as error:
            return str(error)
        return None

    @staticmethod
    def file_of(number: int) -> str:
        """Return the name of an entry's file."""
        return _file(number)


def digest_of(entries: Sequence[LogEntry]) -> str:
    """Return a short text that differs when a batch would read other splits."""
    text = json.dumps([[entry.splits, entry.drain] for entry in entries], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _file(number: int) -> str:
    return f"{_FOLDER}/{number:012d}.json"
