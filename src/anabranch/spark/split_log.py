"""A durable log of what each batch reads: entry n names the splits, so that a replay reads the same rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.model import Split, SplitPlanner
from anabranch.state.store import AlreadyExists, Store

BEFORE_FIRST = -1


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What one step of the source reads. A tick reads nothing; a drain reads nothing and ends event time."""

    number: int
    splits: tuple[tuple[int, Split], ...] = ()
    """(source, split) pairs; a split's place in this tuple is its ordinal."""
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    drain: bool = False

    def to_json(self) -> str:
        """Return the text of the log file."""
        return json.dumps(
            {
                "number": self.number,
                "splits": [[source, split] for source, split in self.splits],
                "positions": self.positions,
                "problems": list(self.problems),
                "drain": self.drain,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> LogEntry:
        """Read what ``to_json`` wrote."""
        data = json.loads(text)
        return cls(
            number=data["number"],
            splits=tuple((source, split) for source, split in data["splits"]),
            positions=data["positions"],
            problems=tuple(data["problems"]),
            drain=data["drain"],
        )


class SplitLog:
    """The log's files in the checkpoint, ``sources/<n>.json``, each written once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self, number: int) -> LogEntry | None:
        """Return entry n, or None if it was never planned."""
        name = _file(number)
        return LogEntry.from_json(self._store.read(name)) if self._store.exists(name) else None

    def between(self, after: int, to: int) -> list[LogEntry]:
        """Return the entries after one number up to another."""
        entries = [self.load(number) for number in range(after + 1, to + 1)]
        return [entry for entry in entries if entry is not None]

    def append(self, entry: LogEntry) -> LogEntry:
        """Write an entry; if it is there already, what is there counts."""
        try:
            self._store.create(_file(entry.number), entry.to_json().encode())
        except AlreadyExists:
            existing = self.load(entry.number)
            if existing is not None:
                return existing
        return entry

    def forget(self, number: int) -> None:
        """Delete an entry that no kept batch can ask for again."""
        if number > BEFORE_FIRST:
            self._store.delete([_file(number)])


@dataclass(frozen=True, slots=True)
class StepRequest:
    """What the driver asks of the source besides data: an empty batch after an entry, a drain, a stop."""

    tick_after: int | None = None
    drain: bool = False


class SplitSteps:
    """Decides the next entry: data first, then a tick that was asked for, then the drain at the end."""

    def __init__(
        self, log: SplitLog, planners: Sequence[SplitPlanner], *, drain_at_end: bool, most_entries: int | None = None
    ) -> None:
        self._log = log
        self._planners = list(planners)
        self._drain_at_end = drain_at_end
        self._most_entries = most_entries
        self._bounded = False
        self._planned_entries = 0

    def bound(self) -> None:
        """Read what is there now and nothing that comes later."""
        self._bounded = True
        for planner in self._planners:
            planner.bound()

    def next_after(self, number: int, request: StepRequest, now_seconds: float) -> int:
        """Return the number of the entry to read after this one, or this one if there is nothing to do."""
        if self._log.load(number + 1) is not None:
            return number + 1
        current = self._log.load(number)
        positions = dict(current.positions) if current is not None else {}
        may_plan = self._most_entries is None or self._planned_entries < self._most_entries
        splits: list[tuple[int, Split]] = []
        problems: list[str] = []
        for index, planner in enumerate(self._planners if may_plan else ()):
            planned = planner.plan(positions.get(str(index)), now_seconds)
            problems += planned.problems
            if planned.splits or planned.problems:
                positions[str(index)] = planned.position
            splits += [(index, split) for split in planned.splits]
        drained = current is not None and current.drain
        if splits:
            self._planned_entries += 1
            entry = LogEntry(number + 1, tuple(splits), positions, tuple(problems))
        elif request.tick_after == number:
            entry = LogEntry(number + 1, (), positions, tuple(problems))
        elif not drained and (request.drain or (self._bounded and self._drain_at_end)):
            entry = LogEntry(number + 1, (), positions, tuple(problems), drain=True)
        else:
            return number
        return self._log.append(entry).number


def digest_of(entries: Sequence[LogEntry]) -> str:
    """Return a short text that differs when a batch would read other splits."""
    text = json.dumps([[entry.splits, entry.drain] for entry in entries], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def pack(entries: Sequence[LogEntry], tasks: int) -> list[list[tuple[int, int, Split]]]:
    """Deal the splits of a batch to at most this many tasks, as (ordinal, source, split), evenly by bytes.

    Splits of a partition that follow each other stay together where that is fair: whoever reads one of them goes on
    with the next without asking anew. Of all others the large ones come first, each to the task that has least. A
    task's splits are in their own order: equal entries give equal tasks.
    """
    numbered = [
        (ordinal, source, split)
        for ordinal, (source, split) in enumerate(pair for entry in entries for pair in entry.splits)
    ]
    count = max(1, min(tasks, len(numbered)))
    packed: list[list[tuple[int, int, Split]]] = [[] for _ in range(count)]
    loads = [0.0] * count
    in_line = [item for item in numbered if item[2].get("partition")]
    in_line.sort(key=lambda item: (item[1], item[2]["partition"], item[0]))
    share = max(1.0, sum(map(_bytes_of, in_line)) / count)
    before = 0.0
    for item in in_line:
        # All splits laid end to end and cut into equal shares; each goes where its middle lies.
        task = min(count - 1, int((before + _bytes_of(item) / 2) / share))
        packed[task].append(item)
        loads[task] += _bytes_of(item)
        before += _bytes_of(item)
    alone = [item for item in numbered if not item[2].get("partition")]
    for item in sorted(alone, key=lambda item: (-_bytes_of(item), item[0])):
        lightest = loads.index(min(loads))
        packed[lightest].append(item)
        loads[lightest] += _bytes_of(item)
    return [sorted(items, key=lambda item: item[0]) for items in packed if items]


def _bytes_of(item: tuple[int, int, Split]) -> float:
    return float(item[2].get("bytes", 1))


def _file(number: int) -> str:
    return f"sources/{number:012d}.json"
