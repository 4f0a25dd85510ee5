"""What the operators must answer, in plain Python, one row at a time."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from anabranch.model import BEGINNING_OF_TIME, CountWindowSpec, OperatorTime, WindowSpec
from unit.operators.streams import EPOCH, Batch, Outcome, Row

Placed = tuple[int, int, int, Row]
"""(time, batch, order, row): sorts as ties are decided."""


def place(batch_number: int, batch: Batch) -> list[Placed]:
    return [(row.time_us, batch_number, order, row) for order, row in batch.placed_rows()]


def aggregate(rows: Sequence[Placed]) -> dict[str, Any]:
    """Compute every aggregate of the tests over the rows of one group."""
    ordered = [row for *_, row in sorted(rows, key=lambda placed: placed[:3])]
    wholes = [row.whole for row in ordered if row.whole is not None]
    reals = [row.real for row in ordered if row.real is not None]
    return {
        "rows": len(ordered),
        "values": len(wholes),
        "total": sum(wholes) if wholes else None,
        "lowest": min(reals, default=None),
        "highest": max(wholes, default=None),
        "average": statistics.fmean(reals) if reals else None,
        "spread": statistics.variance(reals) if len(reals) > 1 else None,
        "deviation": statistics.pstdev(wholes) if wholes else None,
        "opening": wholes[0] if wholes else None,
        "closing": reals[-1] if reals else None,
    }


def best(rows: Sequence[Placed], k: int, descending: bool) -> list[dict[str, Any]]:
    """Return the best rows by ``whole`` with their rank."""
    competing = [placed for placed in rows if placed[3].whole is not None]
    competing.sort(key=lambda p: (-p[3].whole if descending else p[3].whole, *p[:3]))  # type: ignore[operator]
    return [
        {"rank": rank, "whole": row.whole, "real": row.real} for rank, (*_, row) in enumerate(competing[:k], start=1)
    ]


@dataclass
class WindowedOracle:
    """Tumbling and sliding windows."""

    window: WindowSpec
    groups: dict[tuple[int, int], list[Placed]] = field(default_factory=lambda: defaultdict(list))

    def advance(self, rows: list[Placed], time: OperatorTime) -> tuple[list[tuple[int, int, int, list[Placed]]], int]:
        """Return (start, end, key, rows) of what fired, and the number of late rows."""
        fired = self._fire(time.closed_us)
        late = 0
        for placed in rows:
            starts = [s for s in self._starts(placed[0]) if s + self.window.size_us > time.closed_us]
            late += not starts
            for start in starts:
                self.groups[start, placed[3].key].append(placed)
        return fired + self._fire(time.fire_us), late

    def _starts(self, time_us: int) -> list[int]:
        start = (time_us - self.window.offset_us) // self.window.slide_us * self.window.slide_us + self.window.offset_us
        starts = []
        while start + self.window.size_us > time_us:
            starts.append(start)
            start -= self.window.slide_us
        return starts

    def _fire(self, limit_us: int) -> list[tuple[int, int, int, list[Placed]]]:
        due = [place for place in self.groups if place[0] + self.window.size_us <= limit_us]
        return [(s, s + self.window.size_us, key, self.groups.pop((s, key))) for s, key in due]


@dataclass
class SessionOracle:
    """Sessions of rows less than a gap apart."""

    gap_us: int
    open: dict[int, list[list[Placed]]] = field(default_factory=lambda: defaultdict(list))

    def advance(self, rows: list[Placed], time: OperatorTime) -> tuple[list[tuple[int, int, int, list[Placed]]], int]:
        fired = self._fire(time.closed_us)
        for placed in rows:
            self.open[placed[3].key].append([placed])
        late = 0
        for key, sessions in self.open.items():
            merged = self._merge([placed for session in sessions for placed in session])
            late += sum(len(session) for session in merged if self._end(session) <= time.closed_us)
            self.open[key] = [session for session in merged if self._end(session) > time.closed_us]
        return fired + self._fire(time.fire_us), late

    def _merge(self, rows: list[Placed]) -> list[list[Placed]]:
        sessions: list[list[Placed]] = []
        for placed in sorted(rows, key=lambda p: p[:3]):
            if sessions and placed[0] < self._end(sessions[-1]):
                sessions[-1].append(placed)
            else:
                sessions.append([placed])
        return sessions

    def _end(self, session: list[Placed]) -> int:
        return max(placed[0] for placed in session) + self.gap_us

    def _fire(self, limit_us: int) -> list[tuple[int, int, int, list[Placed]]]:
        fired = []
        for key, sessions in self.open.items():
            fired += [(s[0][0], self._end(s), key, s) for s in sessions if self._end(s) <= limit_us]
            self.open[key] = [s for s in sessions if self._end(s) > limit_us]
        return fired


def run_windows(
    oracle: WindowedOracle | SessionOracle, batches: Sequence[Batch], times: Sequence[OperatorTime], shape: Any
) -> list[Outcome]:
    """Return what windows emit per batch; ``shape`` turns the rows of a group into a list of results."""
    outcomes = []
    for number, time in enumerate(times):
        rows = place(number, batches[number]) if number < len(batches) else []
        fired, late = oracle.advance(rows, time)
        results = [
            {
                "window_start": EPOCH + timedelta(microseconds=start),
                "window_end": EPOCH + timedelta(microseconds=end),
                "key": key,
                **result,
            }
            for start, end, key, group in fired
            for result in shape(group)
        ]
        outcomes.append(Outcome(results, late))
    return outcomes


def run_running(
    batches: Sequence[Batch], times: Sequence[OperatorTime], ttl_us: int | None, in_event_time: bool, shape: Any
) -> list[Outcome]:
    """Return what running aggregates emit per batch."""
    groups: dict[int, list[Placed]] = {}
    seen: dict[int, int] = {}
    outcomes = []
    for number, (batch, time) in enumerate(zip(batches, times, strict=False)):
        cutoff_us = BEGINNING_OF_TIME * 2
        if ttl_us is not None:
            cutoff_us = (time.closed_us if in_event_time else time.now_us) - ttl_us
        fresh: dict[int, list[Placed]] = defaultdict(list)
        for placed in place(number, batch):
            fresh[placed[3].key].append(placed)
        results = []
        for key, rows in fresh.items():
            latest_us = max(p[0] for p in rows) if in_event_time else time.now_us
            if key in seen and seen[key] >= cutoff_us:
                groups[key] += rows
                seen[key] = max(seen[key], latest_us)
            else:
                groups[key], seen[key] = list(rows), latest_us
            results += [{"key": key, **result} for result in shape(groups[key])]
        outcomes.append(Outcome(results, 0))
    return outcomes


@dataclass
class CountWindowOracle:
    """Windows of so many rows of a key, row by row."""

    size_rows: int
    slide_rows: int
    open: dict[int, dict[int, list[Placed]]] = field(default_factory=lambda: defaultdict(dict))
    """Key → number of a window → its rows so far."""
    begun: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Key → how many windows it began."""
    rows: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Key → its rows since the last drain."""

    def advance(self, rows: list[Placed], time: OperatorTime) -> list[tuple[int, int, list[Placed]]]:
        """Return (number, key, rows) of the windows that are full, or of all at a drain."""
        fired = []
        for placed in sorted(rows, key=lambda p: p[1:3]):
            key = placed[3].key
            if self.rows[key] % self.slide_rows == 0:
                self.open[key][self.begun[key]] = []
                self.begun[key] += 1
            self.rows[key] += 1
            for number, held in list(self.open[key].items()):
                held.append(placed)
                if len(held) == self.size_rows:
                    fired.append((number, key, self.open[key].pop(number)))
        if time.drains:
            fired += [(number, key, held) for key, opened in self.open.items() for number, held in opened.items()]
            self.open.clear()
            self.rows.clear()
        return fired


def run_count_windows(
    window: CountWindowSpec, batches: Sequence[Batch], times: Sequence[OperatorTime], shape: Any
) -> list[Outcome]:
    """Return what count windows emit per batch."""
    counting = CountWindowOracle(window.size_rows, window.slide_rows)
    outcomes = []
    for number, time in enumerate(times):
        rows = place(number, batches[number]) if number < len(batches) else []
        fired = counting.advance(rows, time)
        results = [{"window": window, "key": key, **result} for window, key, held in fired for result in shape(held)]
        outcomes.append(Outcome(results, 0))
    return outcomes


def run_distinct(
    batches: Sequence[Batch], times: Sequence[OperatorTime], ttl_us: int | None, in_event_time: bool
) -> list[Outcome]:
    """Return the rows that pass ``distinct`` per batch."""
    passed: dict[int, int] = {}
    outcomes = []
    for number, (batch, time) in enumerate(zip(batches, times, strict=False)):
        cutoff_us = BEGINNING_OF_TIME * 2
        if ttl_us is not None:
            cutoff_us = (time.closed_us if in_event_time else time.now_us) - ttl_us
        rows = place(number, batch)
        in_time = [p for p in rows if not in_event_time or p[0] >= cutoff_us]
        by_time = sorted(in_time, key=lambda p: p[:3] if in_event_time else p[1:3])
        results = []
        known = {key for key, seen_us in passed.items() if seen_us >= cutoff_us}
        for time_us, _, _, row in by_time:
            if row.key not in known:
                known.add(row.key)
                passed[row.key] = time_us if in_event_time else time.now_us
                results.append(
                    {
                        "key": row.key,
                        "name": f"name-{row.key}",
                        "ts": EPOCH + timedelta(seconds=row.seconds),
                        "whole": row.whole,
                        "real": row.real,
                    }
                )
        outcomes.append(Outcome(results, len(rows) - len(in_time)))
    return outcomes


def assert_same(got: Sequence[Outcome], expected: Sequence[Outcome]) -> None:
    """Compare per batch, rows in any order, floats within 1e-9."""
    assert [o.late_rows for o in got] == [o.late_rows for o in expected]
    for number, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        left, right = (sorted((_rounded(row) for row in o.rows), key=repr) for o in (mine, theirs))
        assert left == right, f"batch {number}"


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    # Adding 0.0 turns -0.0 into 0.0.
    return {name: round(v, 9) + 0.0 if isinstance(v, float) else v for name, v in sorted(row.items())}
