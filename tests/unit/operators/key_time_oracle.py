"""Windows under watermarks of their own, in plain Python, one row at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, Clock, OperatorTime, WindowSpec
from unit.operators.oracle import Placed

Emitted = tuple[int, int, int, str, list[Placed]]
"""(start, end, key, emission, rows)."""


def _group_of(key: Any) -> Any:
    """Return the group of keys that are forgotten together: whole numbers have three hashes in tests of kernels."""
    return key % 3 if isinstance(key, int) else key


@dataclass
class KeyTimeOracle:
    """Tumbling and sliding windows; ``shared`` says the watermark of a key where it does not follow its own rows."""

    window: WindowSpec
    clock: Clock
    shared: Callable[[int, OperatorTime], tuple[int, int]] | None = None
    """(fired, closed) of a key."""
    watermarks: dict[int, int] = field(default_factory=dict)
    spoke: dict[int, int] = field(default_factory=dict)
    windows: dict[tuple[int, int], list[Placed]] = field(default_factory=lambda: defaultdict(list))
    changed: set[tuple[int, int]] = field(default_factory=set)
    forgotten: dict[int, int] = field(default_factory=dict)
    """By hash, the highest watermark that was dropped; few keys have few hashes, each a group of its own."""

    def advance(self, rows: Sequence[Placed], time: OperatorTime) -> tuple[list[Emitted], int, int]:
        """Return what is emitted, the number of late rows, and of those of them that changed a result."""
        keys = sorted({key for _, key in self.windows} | {placed[3].key for placed in rows} | set(self.watermarks))
        emitted: list[Emitted] = []
        late = updated = 0
        for key in keys:
            of_key = [placed for placed in rows if placed[3].key == key]
            found = self._advance_key(key, of_key, time)
            emitted += found[0]
            late += found[1]
            updated += found[2]
        self._forget_silent(time)
        return emitted, late, updated

    def _forget_silent(self, time: OperatorTime) -> None:
        idle, remembered = self.clock.idle_us, self.clock.forget_us or self.clock.idle_us
        if self.shared is not None or idle is None or remembered is None or remembered > time.now_us:
            return
        lateness = self.window.lateness_us if self.window.late == "update" else 0
        for key, watermark in list(self.watermarks.items()):
            over = watermark + lateness
            # Where the floor has passed a clock, the key is not known any more.
            known = watermark > time.floor_us or self._has_open(key)
            if known and max(over, self.spoke[key]) + remembered <= time.now_us:
                group = _group_of(key)
                self.forgotten[group] = max(over, self.forgotten.get(group, over))
                self._drop(key)

    def _has_open(self, key: int) -> bool:
        return any(of == key for _, of in self.windows)

    def _drop(self, key: int) -> None:
        del self.watermarks[key]
        for place in [place for place in self.windows if place[1] == key]:
            del self.windows[place]

    def _advance_key(self, key: int, rows: Sequence[Placed], time: OperatorTime) -> tuple[list[Emitted], int, int]:
        fired, closed, fire = self._times(key, rows, time)
        emitted = self._emit(key, fired, closed, "final")
        before = {place for place in self.windows if place[1] == key}
        late = updated = 0
        again: set[tuple[int, int]] = set()
        limit = closed - self.window.lateness_us if self.window.late == "update" else closed
        for placed in rows:
            starts = self._starts(placed[0])
            if all(self._end(start) <= closed for start in starts):
                late += 1
                updated += any(self._end(start) > limit for start in starts)
            for start in starts:
                if self._end(start) > limit:
                    self.windows[start, key].append(placed)
                    self.changed.add((start, key))
                    if self._end(start) <= closed:
                        again.add((start, key))
        finals = self._emit(key, closed, fire, "final")
        emitted += finals
        for place in sorted(again):
            emission = "update" if place in before else "final"
            emitted.append((place[0], self._end(place[0]), key, emission, list(self.windows[place])))
        emitted += self._emit_early(key, fired, closed, fire)
        if fire == END_OF_TIME:
            fire = max([closed, *(end for _, end, *_ in finals)])
        self.watermarks[key] = fire
        for place in [place for place in self.windows if place[1] == key]:
            if self._end(place[0]) <= fire - (self.window.lateness_us if self.window.late == "update" else 0):
                del self.windows[place]
        return emitted, late, updated

    def _times(self, key: int, rows: Sequence[Placed], time: OperatorTime) -> tuple[int, int, int]:
        if self.shared is not None:
            fired, closed = self.shared(key, time)
            return fired, closed, max(closed, time.fire_us)
        fired = self.watermarks.get(key, BEGINNING_OF_TIME)
        if fired <= time.floor_us and not self._has_open(key):
            fired = self.forgotten.get(_group_of(key), BEGINNING_OF_TIME)
        closed = max(fired, time.floor_us)
        fire = max([closed, *(placed[0] - self.clock.delay_us for placed in rows)])
        if rows:
            self.spoke[key] = time.now_us
        if self.clock.idle_us is not None and self.spoke[key] + self.clock.idle_us <= time.now_us:
            fire = END_OF_TIME
        return fired, closed, END_OF_TIME if time.drains else fire

    def _emit(self, key: int, after: int, until: int, emission: str) -> list[Emitted]:
        due = sorted(start for start, k in self.windows if k == key and after < self._end(start) <= until)
        return [(start, self._end(start), key, emission, list(self.windows[start, key])) for start in due]

    def _emit_early(self, key: int, fired: int, closed: int, fire: int) -> list[Emitted]:
        interval = self.window.early_us
        if interval is None:
            return []
        before = closed if self.shared is None else fired
        if before // interval >= fire // interval:
            return []
        chosen = {place for place in self.changed if place[1] == key}
        self.changed -= chosen
        return [row for row in self._emit(key, fire, END_OF_TIME, "early") if (row[0], key) in chosen]

    def _starts(self, time_us: int) -> list[int]:
        slide, offset = self.window.slide_us, self.window.offset_us
        start = (time_us - offset) // slide * slide + offset
        starts = []
        while start + self.window.size_us > time_us:
            starts.append(start)
            start -= slide
        return starts

    def _end(self, start: int) -> int:
        return start + self.window.size_us


@dataclass
class Session:
    """Rows less than a gap apart, and what was emitted of them."""

    gap_us: int
    rows: list[Placed]
    came: list[Placed] = field(default_factory=list)
    """Those of ``rows`` that this batch brought."""
    pending: bool = True
    emitted: bool = False
    changed: bool = True

    @property
    def start(self) -> int:
        return min(placed[0] for placed in self.rows)

    @property
    def end(self) -> int:
        return max(placed[0] for placed in self.rows) + self.gap_us

    def meets(self, other: Session) -> bool:
        return self.start < other.end and other.start < self.end

    def merged(self, other: Session) -> Session:
        pending, emitted = self.pending or other.pending, self.emitted or other.emitted
        changed = self.changed or other.changed
        return Session(self.gap_us, self.rows + other.rows, self.came + other.came, pending, emitted, changed)


@dataclass
class KeyTimeSessions(KeyTimeOracle):
    """Sessions; two meet as soon as their intervals overlap, and any two are compared."""

    sessions: dict[int, list[Session]] = field(default_factory=lambda: defaultdict(list))

    def _advance_key(self, key: int, rows: Sequence[Placed], time: OperatorTime) -> tuple[list[Emitted], int, int]:
        fired, closed, fire = self._times(key, rows, time)
        lateness = self.window.lateness_us
        emitted = self._close(key, closed)
        self._forget(key, closed - lateness)
        late = updated = 0
        for session in self._united(key, [Session(self.window.size_us, [placed], [placed]) for placed in rows]):
            if session.came and session.end <= closed:
                late += len(session.came)
                updated += len(session.came) if session.end > closed - lateness else 0
        self._forget(key, closed - lateness)
        finals = self._close(key, fire)
        emitted += self._show(key, closed if self.shared is None else fired, fire)
        if fire == END_OF_TIME:
            fire = max([closed, *(end for _, end, *_ in finals)])
        self.watermarks[key] = fire
        self._forget(key, fire - lateness)
        for session in self.sessions[key]:
            session.came = []
        return emitted + finals, late, updated

    def _has_open(self, key: int) -> bool:
        return bool(self.sessions[key])

    def _drop(self, key: int) -> None:
        del self.watermarks[key]
        self.sessions[key] = []

    def _united(self, key: int, fresh: list[Session]) -> list[Session]:
        for session in fresh:
            touching = [other for other in self.sessions[key] if other.meets(session)]
            apart = [other for other in self.sessions[key] if not other.meets(session)]
            for other in touching:
                session = session.merged(other)  # noqa: PLW2901
            self.sessions[key] = [*apart, session]
        return self.sessions[key]

    def _close(self, key: int, until: int) -> list[Emitted]:
        ended = [session for session in self.sessions[key] if session.pending and session.end <= until]
        emitted: list[Emitted] = []
        for session in ended:
            emission = "update" if session.emitted else "final"
            emitted.append((session.start, session.end, key, emission, list(session.rows)))
            session.pending, session.emitted = False, True
        return emitted

    def _show(self, key: int, before: int, fire: int) -> list[Emitted]:
        interval = self.window.early_us
        if interval is None or before // interval >= fire // interval:
            return []
        shown = [session for session in self.sessions[key] if session.changed and session.end > fire]
        for session in self.sessions[key]:
            session.changed = False
        return [(session.start, session.end, key, "early", list(session.rows)) for session in shown]

    def _forget(self, key: int, limit: int) -> None:
        self.sessions[key] = [session for session in self.sessions[key] if session.end > limit]


def as_rows(emitted: Sequence[Emitted], shape: Callable[[list[Placed]], dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what was emitted as sorted tuples: start, end, key, emission, values."""
    return sorted(
        (start, end, key, emission, tuple(shape(rows).values())) for start, end, key, emission, rows in emitted
    )
