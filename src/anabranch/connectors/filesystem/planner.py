"""Which files, and which parts of them, the next batch reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.connectors.filesystem.bad_files import BadFile, BadFilePolicy, describe_set_aside
from anabranch.connectors.filesystem.cuts import FileMeasure, UnreadableFile, cut_file, measure_file, pass_over
from anabranch.connectors.filesystem.listing import FileEntry, list_files
from anabranch.connectors.filesystem.seen_files import SeenFiles
from anabranch.errors import SourceError
from anabranch.model import Admission, PlannedSplits, Split

_Stamp = tuple[str, int, int]
_REPLACE = "put the original back and start the flow again"


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file and where its next split begins."""

    entry: FileEntry
    next: int
    mark: str | None = None
    """What the file held when its first part was planned."""


@dataclass(slots=True)
class _Memory:
    """A position, taken apart."""

    seen: SeenFiles
    unfinished: _OpenFile | None
    unreadable: set[_Stamp]

    def forget_deleted(self, listed: list[FileEntry], now_seconds: float) -> None:
        self.seen.forget_deleted(listed, now_seconds)
        self.unreadable &= {_stamp(entry) for entry in listed}


class FilePlanner:
    """Plans the files of a directory, oldest first, each part of each file once.

    The position holds ``seen`` (16 bytes for every planned file that still exists), ``open``, the file that the last
    batch did not finish, and ``unreadable``, the files that were told of and left alone. A problem is told again until
    a position that knows of it comes back.
    """

    def __init__(
        self,
        directory: str,
        format: str,
        admission: Admission,
        *,
        pattern: str = "*",
        recursive: bool = False,
        poll_seconds: float = 0.2,
        cut_text: bool = True,
        bad_files: BadFilePolicy | None = None,
    ) -> None:
        self._directory = directory
        self._format = format
        self._admission = admission
        self._pattern = pattern
        self._recursive = recursive
        self._poll_seconds = poll_seconds
        self._cut_text = cut_text
        self._bad_files = bad_files or BadFilePolicy()
        self._passed_over: Mapping[str, str] | None = None
        self._bound: list[FileEntry] | None = None
        self._listed: list[FileEntry] = []
        self._listed_at_seconds = -math.inf
        self._without_rows: set[_Stamp] = set()
        self._last_seen = ("", SeenFiles())
        self._limit: int | None = None

    def limit_rows(self, rows: int | None) -> None:
        """Let a batch have no more than so many rows, beside the admission: as exact as ``max_rows`` is."""
        self._limit = rows

    def bound(self) -> None:
        """From now on, plan only the files that are there now."""
        self._bound = self._list()

    def more(self, position: dict[str, Any] | None) -> bool:
        """Say whether a file of the bound listing is still unread after the position.

        Files that ``plan`` found to be unreadable or without rows do not count.
        """
        state = self._read_position(position)
        if state.unfinished is not None:
            return True
        entries = self._bound if self._bound is not None else self._list()
        return any(entry not in state.seen and not self._is_passed_over(entry, state) for entry in entries)

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        """Return the splits of the next batch; raise ``SourceError`` if a half-read file is gone or another.

        A file that is set aside, or is so now, comes as a split that brings a dead letter and no rows.
        """
        state = self._read_position(position)
        entries = self._list_for(now_seconds)
        problems = _find_changes(entries, state.seen)
        admission = self._admission.within(self._limit)
        budget = _Budget(admission)
        waiting = [
            _OpenFile(entry, 0)
            for entry in entries
            if entry not in state.seen and not self._is_passed_over(entry, state)
        ]
        passed_over = self._find_passed_over(state) if waiting or state.unfinished is not None else {}
        if state.unfinished is not None:
            waiting.insert(0, state.unfinished)
            state.unfinished = None
        left_bytes = 0.0
        for file in waiting:
            if budget.is_spent():
                break
            try:
                measure = self._measure(file, state, problems, passed_over, counts_rows=admission.max_rows is not None)
            except BadFile as bad:
                budget.pass_over(file.entry, bad.reason)
                problems.append(describe_set_aside(file.entry.path, bad.reason))
                state.seen.add(file.entry)
                continue
            if measure is None:
                continue
            end = budget.take(file.entry, measure, file.next)
            if end == file.next:
                break
            state.seen.add(file.entry)
            if end < measure.length:
                state.unfinished = _OpenFile(file.entry, end, measure.mark)
                left_bytes = file.entry.size_bytes * (1 - end / measure.length)
                break
        if not budget.splits and not problems:
            return PlannedSplits((), position if position is not None else {}, rows=0, left_rows=0)
        left_bytes += sum(
            file.entry.size_bytes
            for file in waiting
            if file.entry not in state.seen and not self._is_passed_over(file.entry, state)
        )
        if self._bound is None:
            state.forget_deleted(entries, now_seconds)
        return PlannedSplits(
            tuple(budget.splits),
            self._write_position(state),
            tuple(problems),
            rows=budget.taken_rows,
            left_rows=budget.estimate_rows(left_bytes),
        )

    def _is_passed_over(self, entry: FileEntry, state: _Memory) -> bool:
        return _stamp(entry) in self._without_rows or _stamp(entry) in state.unreadable

    def _find_passed_over(self, state: _Memory) -> Mapping[str, str]:
        # Only the rest of a file that is read already can be set aside while the flow runs.
        if self._passed_over is None or state.unfinished is not None:
            self._passed_over = self._bad_files.passed_over()
        return self._passed_over

    def _measure(
        self,
        file: _OpenFile,
        state: _Memory,
        problems: list[str],
        passed_over: Mapping[str, str],
        *,
        counts_rows: bool,
    ) -> FileMeasure | None:
        """Measure a file, or pass it over with a sentence among the problems; ``BadFile`` if it is to be set aside."""
        entry = file.entry
        if entry.path in passed_over:
            raise BadFile(entry.path, passed_over[entry.path], "")
        try:
            measure = measure_file(entry, self._format, counts_rows=counts_rows, cut_text=self._cut_text)
        except FileNotFoundError:
            if file.next:
                gone = BadFile(entry.path, "was read in part and is gone", "put it back and start the flow again")
                raise self._bad_files.judge(gone) from None
            return None  # It was listed but never planned, so nothing is lost.
        except UnreadableFile as error:
            if file.next:
                damaged = BadFile(entry.path, f"was read in part and is damaged ({error})", _REPLACE)
                raise self._bad_files.judge(damaged) from None
            state.unreadable.add(_stamp(entry))
            problems.append(
                f"{entry.path} is no complete {self._format} file ({error}); "
                f"it is left alone until it changes: keep files hidden until they are complete"
            )
            return None
        except OSError as error:
            msg = f"{entry.path} cannot be read: {error.strerror}; make it readable, or name a pattern without it"
            raise SourceError(msg) from error
        if file.mark is not None and measure.mark != file.mark:
            raise self._bad_files.judge(BadFile(entry.path, "was read in part and is another file now", _REPLACE))
        if measure.length == 0:
            self._without_rows.add(_stamp(entry))
            return None
        return measure

    def _list(self) -> list[FileEntry]:
        return list_files(self._directory, self._pattern, self._recursive)

    def _list_for(self, now_seconds: float) -> list[FileEntry]:
        if self._bound is not None:
            return self._bound
        # A clock that was set back must not silence the source.
        if not 0 <= now_seconds - self._listed_at_seconds < self._poll_seconds:
            self._listed = self._list()
            self._listed_at_seconds = now_seconds
        return self._listed

    def _read_position(self, position: dict[str, Any] | None) -> _Memory:
        if not position:
            return _Memory(SeenFiles(), None, set())
        text, seen = self._last_seen
        # Mostly this is the position that was written last; decoding a large one anew takes a while.
        found = seen.copy() if text == position["seen"] else SeenFiles.from_text(position["seen"])
        unreadable = {(name, size_bytes, mtime_ns) for name, size_bytes, mtime_ns in position.get("unreadable", ())}
        unfinished = position.get("open")
        if unfinished is None:
            return _Memory(found, None, unreadable)
        entry = FileEntry(unfinished["mtime_ns"], unfinished["name"], unfinished["path"], unfinished["size"])
        return _Memory(found, _OpenFile(entry, unfinished["next"], unfinished.get("mark")), unreadable)

    def _write_position(self, state: _Memory) -> dict[str, Any]:
        self._last_seen = (state.seen.to_text(), state.seen.copy())
        position: dict[str, Any] = {"seen": self._last_seen[0]}
        if state.unreadable:
            position["unreadable"] = [list(stamp) for stamp in sorted(state.unreadable)]
        if state.unfinished is not None:
            entry = state.unfinished.entry
            position["open"] = {
                "path": entry.path,
                "name": entry.name,
                "size": entry.size_bytes,
                "mtime_ns": entry.mtime_ns,
                "next": state.unfinished.next,
                "mark": state.unfinished.mark,
            }
        return position


class _Budget:
    """What is left of one batch's admission."""

    def __init__(self, admission: Admission) -> None:
        self.splits: list[Split] = []
        self._rows = math.inf if admission.max_rows is None else admission.max_rows
        self._bytes = math.inf if admission.max_bytes is None else admission.max_bytes
        self._files = math.inf if admission.max_files is None else admission.max_files
        self._taken_rows = 0.0
        self._taken_bytes = 0.0

    def is_spent(self) -> bool:
        return self._rows < 1 or self._bytes < 1 or self._files < 1

    def pass_over(self, entry: FileEntry, reason: str) -> None:
        """Take a file without its rows."""
        self.splits.append(pass_over(entry, reason))
        self._files -= 1

    def take(self, entry: FileEntry, measure: FileMeasure, start: int) -> int:
        """Take as much of a file as fits; return where it stopped."""
        splits, end = cut_file(entry, measure, start, self._rows, self._bytes, at_least_one=not self.splits)
        self.splits += splits
        self._taken_rows += (end - start) * measure.rows_per_unit
        self._taken_bytes += (end - start) / measure.length * entry.size_bytes
        self._rows -= (end - start) * measure.rows_per_unit
        self._bytes -= (end - start) * measure.bytes_per_unit
        self._files -= 1
        return end

    @property
    def taken_rows(self) -> int | None:
        """About how many rows were taken; None where nobody had to count."""
        return round(self._taken_rows) if self._taken_rows else None

    def estimate_rows(self, size_bytes: float) -> int | None:
        """Return about how many rows files of so many bytes have, if they are like those that were taken."""
        if not size_bytes:
            return 0
        return round(size_bytes * self._taken_rows / self._taken_bytes) if self._taken_rows else None


def _stamp(entry: FileEntry) -> _Stamp:
    return entry.name, entry.size_bytes, entry.mtime_ns


def _find_changes(entries: list[FileEntry], seen: SeenFiles) -> list[str]:
    """Return a sentence for every planned file that changed, and remember it as it is now."""
    problems: list[str] = []
    for entry in entries:
        if seen.has_changed(entry):
            seen.add(entry)
            problems.append(
                f"{entry.path} changed after it was planned (it has {entry.size_bytes} bytes now); "
                f"what changed is not read: write new rows into new files, hidden until they are complete"
            )
    return problems
