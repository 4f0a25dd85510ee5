"""Which splits a batch reads: the next entry of the split log, and how its splits are dealt to tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anabranch.engine.batches.reading_levels import ALL_FIRST
from anabranch.model import Hold, LimitsRows, PlannedSplits, Split, SplitPlanner
from anabranch.state.split_log import BEFORE_FIRST, LogEntry, SplitLog


@dataclass(frozen=True, slots=True)
class StepRequest:
    """What the driver asks of the source besides data: an empty batch after an entry, a drain, sources that wait."""

    tick_after: int | None = None
    drain: bool = False
    holds: tuple[Hold, ...] = ()
    """The slowest first."""
    max_rows: int | None = None
    """All sources together are to bring no more rows than this, in each of the next entries."""


class SplitSteps:
    """Decides the next entry: data first, then a tick that was asked for, then the drain at the end."""

    def __init__(
        self,
        log: SplitLog,
        planners: Mapping[int, SplitPlanner],
        *,
        drain_at_end: bool,
        most_entries: int | None = None,
    ) -> None:
        self._log = log
        self._planners = dict(sorted(planners.items()))
        self._drain_at_end = drain_at_end
        self._most_entries = most_entries
        self._bounded = False
        self._planned_entries = 0
        self._behind: set[int] = set()

    def bound(self) -> None:
        """Read what is there now and nothing that comes later."""
        self._bounded = True
        for planner in self._planners.values():
            planner.bound()

    def next_after(self, number: int, request: StepRequest, now_seconds: float) -> int:
        """Return the number of the entry to read after this one, or this one if there is nothing to do."""
        if self._log.find(number + 1) is not None:
            return number + 1
        current = None if number == BEFORE_FIRST else self._log.load(number)
        known = current.positions if current is not None else {}
        # Where a source stood that was dropped is forgotten.
        positions = {source: known[source] for source in map(str, self._planners) if source in known}
        may_plan = self._most_entries is None or self._planned_entries < self._most_entries
        splits: list[tuple[int, Split]] = []
        problems: list[str] = []
        left: list[int | None] = []
        for source, planned in self._plan_sources(positions, request, now_seconds) if may_plan else ():
            problems += planned.problems
            if planned.splits or planned.problems:
                positions[str(source)] = planned.position
            splits += [(source, split) for split in planned.splits]
            left.append(planned.left_rows)
        drained = current is not None and current.drain
        entry = LogEntry(
            number + 1,
            tuple(splits),
            positions,
            tuple(problems),
            waiting_rows=_sum_known(left) if left else None,
            planned_at=now_seconds,
        )
        if splits:
            self._planned_entries += 1
        elif request.tick_after == number:
            pass
        elif not drained and (request.drain or (self._bounded and self._drain_at_end)):
            entry = replace(entry, drain=True)
        else:
            return number
        return self._log.append(entry).number

    def _plan_sources(
        self, positions: Mapping[str, dict[str, Any]], request: StepRequest, now_seconds: float
    ) -> list[tuple[int, PlannedSplits]]:
        """Return what each source has next, by their numbers, without those that wait for others to catch up."""
        holds = {hold.source: hold for hold in request.holds if hold.source in self._planners}
        # Before a drain, as before the end, everything is read that there is: nothing may come too late for it.
        ends = self._bounded or request.drain
        found: dict[int, PlannedSplits] = {}
        coming: set[int] = set()
        # What sources that have little do not take of their shares is left for those that had more than theirs.
        free = sorted((source for source in self._planners if source not in holds), key=self._behind.__contains__)
        may_read = [ends or not _waits(hold, (), now_seconds, ends=False) for hold in holds.values()]
        shares = _Shares(request.max_rows, len(free) + sum(may_read))
        for source in (*free, *holds):
            hold = holds.get(source)
            if hold is not None and _waits(hold, coming, now_seconds, ends=ends):
                coming.add(source)
                if ends:
                    shares.pass_over()
                continue
            planner = self._planners[source]
            if isinstance(planner, LimitsRows):
                planner.limit_rows(shares.next)
            found[source] = planner.plan(positions.get(str(source)), now_seconds)
            shares.take(found[source].rows)
            (self._behind.add if found[source].left_rows else self._behind.discard)(source)
            if found[source].splits:
                coming.add(source)
        return sorted(found.items())


class _Shares:
    """How a batch's rows are shared by its sources, one after the other."""

    def __init__(self, rows: int | None, sources: int) -> None:
        self._rows = rows
        self._sources = sources

    @property
    def next(self) -> int | None:
        """What the next source may bring: its part of what is left; a row at least, or it would wait for ever."""
        return None if self._rows is None else max(1, self._rows // self._sources)

    def take(self, rows: int | None) -> None:
        """Note what a source brings; if it cannot tell, it is taken to bring its share."""
        if self._rows is not None:
            self._rows = max(0, self._rows - (self.next or 0 if rows is None else rows))
        self.pass_over()

    def pass_over(self) -> None:
        """Leave a source's share to the others."""
        self._sources -= 1


def _sum_known(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _waits(hold: Hold, coming: Collection[int], now_seconds: float, *, ends: bool) -> bool:
    """Say whether a source waits on.

    Where everything has an end, it waits for whoever has something to read now, or waits itself for somebody who has:
    so somebody always reads, or all are done.
    """
    if ends:
        return any(other in coming for other in hold.waits_for)
    return now_seconds * 1e6 < hold.until_us


def pack(
    entries: Sequence[LogEntry], tasks: int, levels: Mapping[int, int] = ALL_FIRST
) -> list[list[tuple[int, int, Split]]]:
    """Deal the splits of a batch to tasks, as (ordinal, source, split): at most so many for each level.

    ``levels`` has the sources that are read behind one. Tasks lie by level, and the first is one that reads before all.
    """
    numbered = [
        (ordinal, source, split)
        for ordinal, (source, split) in enumerate(pair for entry in entries for pair in entry.splits)
    ]
    packed: list[list[tuple[int, int, Split]]] = []
    for level in sorted({levels.get(source, 0) for _, source, _ in numbered}):
        if level and not packed:
            packed.append([])
        packed += _deal([item for item in numbered if levels.get(item[1], 0) == level], tasks)
    return packed


def _deal(numbered: Sequence[tuple[int, int, Split]], tasks: int) -> list[list[tuple[int, int, Split]]]:
    """Deal splits to at most this many tasks, evenly by bytes.

    Splits of a partition that follow each other stay together where that is fair: whoever reads one of them goes on
    with the next without asking anew. Of all others the large ones come first, each to the task that has least. A
    task's splits are in their own order: equal entries give equal tasks.
    """
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
