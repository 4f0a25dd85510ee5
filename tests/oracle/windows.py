"""Windows and sessions, with every row kept until its windows have fired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.rows import Placed, key_of, to_moment

Shape = Callable[[Sequence[Placed]], list[dict[str, Any]]]
"""Turns the rows of a group into result rows, without keys and window."""


@dataclass
class Windows:
    """Tumbling and sliding windows."""

    keys: Sequence[str]
    shape: Shape
    size_us: int
    slide_us: int
    offset_us: int = 0
    groups: dict[tuple[int, tuple[Any, ...]], list[Placed]] = field(default_factory=lambda: defaultdict(list))

    windowed = True

    def advance(self, rows: Sequence[Placed], closed_us: int, fire_us: int) -> tuple[list[dict[str, Any]], int]:
        """Fire what closed, take the rows in, fire what is due; return results and the number of late rows."""
        results = self._fire(closed_us)
        late = 0
        for placed in rows:
            open_starts = [start for start in self._starts(placed.time_us) if start + self.size_us > closed_us]
            late += not open_starts
            for start in open_starts:
                self.groups[start, key_of(placed, self.keys)].append(placed)
        return results + self._fire(fire_us), late

    def is_due(self, watermark_us: int) -> bool:
        """Say whether something would fire under this watermark."""
        return any(start + self.size_us <= watermark_us for start, _ in self.groups)

    def _starts(self, time_us: int) -> list[int]:
        latest = (time_us - self.offset_us) // self.slide_us * self.slide_us + self.offset_us
        return [start for start in range(latest, time_us - self.size_us, -self.slide_us)]

    def _fire(self, limit_us: int) -> list[dict[str, Any]]:
        due = sorted(place for place in self.groups if place[0] + self.size_us <= limit_us)
        return [
            result
            for start, key in due
            for result in _lay_out(self, start, start + self.size_us, key, self.groups.pop((start, key)))
        ]


@dataclass
class Sessions:
    """Sessions of rows less than a gap apart; one ends a gap after its last row."""

    keys: Sequence[str]
    shape: Shape
    gap_us: int
    open: dict[tuple[Any, ...], list[list[Placed]]] = field(default_factory=dict)

    windowed = True

    def advance(self, rows: Sequence[Placed], closed_us: int, fire_us: int) -> tuple[list[dict[str, Any]], int]:
        """Fire what closed, join the rows with what is open, fire what is due.

        A row is late if the session that it belongs to, together with the rows of its own batch and all that is still
        open, has ended.
        """
        results = self._fire(closed_us)
        arrived: dict[tuple[Any, ...], list[Placed]] = defaultdict(list)
        for placed in rows:
            arrived[key_of(placed, self.keys)].append(placed)
        late = 0
        for key, fresh in arrived.items():
            together = self._cut([*fresh, *(placed for session in self.open.get(key, []) for placed in session)])
            late += sum(len(session) for session in together if self._end(session) <= closed_us)
            self.open[key] = [session for session in together if self._end(session) > closed_us]
        return results + self._fire(fire_us), late

    def is_due(self, watermark_us: int) -> bool:
        """Say whether something would fire under this watermark."""
        return any(self._end(session) <= watermark_us for sessions in self.open.values() for session in sessions)

    def _cut(self, rows: list[Placed]) -> list[list[Placed]]:
        sessions: list[list[Placed]] = []
        for placed in sorted(rows, key=lambda placed: placed.place):
            if sessions and placed.time_us < self._end(sessions[-1]):
                sessions[-1].append(placed)
            else:
                sessions.append([placed])
        return sessions

    def _end(self, session: list[Placed]) -> int:
        return session[-1].time_us + self.gap_us

    def _fire(self, limit_us: int) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for key, sessions in self.open.items():
            for session in sessions:
                if self._end(session) <= limit_us:
                    results += _lay_out(self, session[0].time_us, self._end(session), key, session)
            self.open[key] = [session for session in sessions if self._end(session) > limit_us]
        return results


def _lay_out(
    operator: Windows | Sessions, start_us: int, end_us: int, key: tuple[Any, ...], group: Sequence[Placed]
) -> list[dict[str, Any]]:
    named = dict(zip(operator.keys, key, strict=True))
    window = {"window_start": to_moment(start_us), "window_end": to_moment(end_us)}
    return [{**window, **named, **result} for result in operator.shape(group)]
