"""Processors in plain Python, one key and one row at a time: what the kernels must agree with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from anabranch.eventtime.timers import Timer
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, Clock, OperatorTime
from anabranch.operators.processors.processor import Processor
from unit.operators.oracle import Placed
from unit.operators.streams import EPOCH

NEVER = 10**15


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def microseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


class PlainState:
    """All fields of one key, as plain attributes."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.last: int | None = None
        self.rows = 0
        self.seen: list[int] = []
        self.totals: dict[str, int] = {}

    def __delattr__(self, name: str) -> None:
        setattr(self, name, getattr(PlainState(), name))


@dataclass
class PlainTimers:
    """Timers of one key as sets, searched from the beginning every time."""

    key: dict[str, Any]
    now_us: int = 0
    watermark: datetime | None = None
    waiting: dict[str, set[tuple[int, str]]] = field(default_factory=lambda: {"event": set(), "processing": set()})

    @property
    def now(self) -> datetime:
        return moment(self.now_us)

    def at(self, event_time: datetime, tag: str = "") -> None:
        self.waiting["event"].add((microseconds(event_time), tag))

    def at_processing(self, at: datetime, tag: str = "") -> None:
        self.waiting["processing"].add((microseconds(at), tag))

    def after_processing(self, duration: timedelta, tag: str = "") -> None:
        self.at_processing(self.now + duration, tag)

    def cancel(self, event_time: datetime, tag: str = "") -> None:
        self.waiting["event"].discard((microseconds(event_time), tag))

    def cancel_all(self, tag: str | None = None) -> None:
        for waiting in self.waiting.values():
            waiting -= {timer for timer in waiting if tag is None or timer[1] == tag}

    def take(self, domain: str, limit_us: int) -> Timer | None:
        due = sorted(timer for timer in self.waiting[domain] if timer[0] <= limit_us)
        if not due:
            return None
        self.waiting[domain].remove(due[0])
        return Timer(moment(due[0][0]), due[0][1], domain, self.key)  # type: ignore[arg-type]


@dataclass
class ProcessOracle:
    """A processor over all keys; ``shared`` says the watermark of a key where it does not follow its own rows."""

    processor: Processor
    clock: Clock
    ordered: bool
    shared: Callable[[int, OperatorTime], int] | None = None
    watermarks: dict[int, int] = field(default_factory=dict)
    spoke: dict[int, int] = field(default_factory=dict)
    states: dict[int, PlainState] = field(default_factory=lambda: defaultdict(PlainState))
    timers: dict[int, PlainTimers] = field(default_factory=dict)
    held: dict[int, list[Placed]] = field(default_factory=lambda: defaultdict(list))
    heard: dict[int, int] = field(default_factory=dict)
    """When a key last had a row; ``spoke`` forgets it once it was let go."""
    forgotten: dict[int, int] = field(default_factory=dict)
    """By hash, the highest watermark that was dropped; few keys have few hashes, each a group of its own."""

    def advance(self, rows: Sequence[Placed], time: OperatorTime) -> tuple[dict[int, list[dict[str, Any]]], int]:
        """Return by key what is emitted, in order, and the number of late rows."""
        emitted: dict[int, list[dict[str, Any]]] = {}
        late = 0
        for key in sorted({*self.timers, *(placed[3].key for placed in rows)}):
            of_key = sorted(placed for placed in rows if placed[3].key == key)
            out: list[dict[str, Any]] = []
            late += self._advance_key(key, of_key, time, out)
            if out:
                emitted[key] = out
        self._forget_silent(time)
        return emitted, late

    def _forget_silent(self, time: OperatorTime) -> None:
        remembered = self.clock.forget_us or self.clock.idle_us
        if self.shared is not None or self.clock.idle_us is None or remembered is None or remembered > time.now_us:
            return
        for key, watermark in list(self.watermarks.items()):
            is_over = max(watermark, self.heard[key]) + remembered <= time.now_us
            if is_over and watermark > time.floor_us and not self._holds(key):
                self.forgotten[key % 3] = max(watermark, self.forgotten.get(key % 3, watermark))
                del self.watermarks[key], self.timers[key]

    def _holds(self, key: int) -> bool:
        timers = self.timers.get(key)
        waits = timers is not None and any(timers.waiting.values())
        return waits or bool(self.held[key]) or vars(self.states[key]) != vars(PlainState())

    def _advance_key(self, key: int, rows: list[Placed], time: OperatorTime, out: list[dict[str, Any]]) -> int:
        closed, natural, forced = self._times(key, rows, time)
        fire = END_OF_TIME if forced else natural
        timers = self.timers.setdefault(key, PlainTimers({"key": key}))
        timers.now_us = time.now_us
        timers.watermark = None if closed <= BEGINNING_OF_TIME else moment(closed)
        waited = bool(timers.waiting["event"]) or bool(self.held[key])
        self._fire(key, "processing", time.now_us, out)
        late_rows = [placed for placed in rows if placed[0] < closed]
        if self.ordered:
            waiting = sorted([*self.held[key], *(placed for placed in rows if placed[0] >= closed)])
            released = [placed for placed in waiting if placed[0] < fire]
            self.held[key] = [placed for placed in waiting if placed[0] >= fire]
            self._hand_on(key, [placed for placed in released if placed[0] < closed], out)
            self._fire(key, "event", closed, out)
            for placed in late_rows:
                self._call("on_late", key, as_row(placed), out)
            self._hand_on(key, [placed for placed in released if placed[0] >= closed], out)
            natural = max([natural, *(placed[0] for placed in released)])
        else:
            self._fire(key, "event", closed, out)
            for placed in rows:
                self._call("on_late" if placed[0] < closed else "on_time", key, as_row(placed), out)
        if forced:
            fire = max([closed, *(at for at, _ in timers.waiting["event"])])
        while self._fire(key, "event", fire, out) + self._fire(key, "processing", time.now_us, out):
            pass
        self.watermarks[key] = natural
        if forced and not rows and not time.drains and waited:
            self.spoke[key] = NEVER
        return len(late_rows)

    def _times(self, key: int, rows: list[Placed], time: OperatorTime) -> tuple[int, int, bool]:
        if self.shared is not None:
            closed = self.shared(key, time)
            return closed, max(closed, BEGINNING_OF_TIME if time.drains else time.fire_us), time.drains
        known = self.watermarks.get(key, BEGINNING_OF_TIME)
        if known <= time.floor_us and not self._holds(key):
            known = self.forgotten.get(key % 3, BEGINNING_OF_TIME)
        closed = max(known, time.floor_us)
        natural = max([closed, *(placed[0] - self.clock.delay_us for placed in rows)])
        if rows:
            self.spoke[key] = self.heard[key] = time.now_us
        idle = self.clock.idle_us is not None and self.spoke[key] + self.clock.idle_us <= time.now_us
        return closed, natural, idle or time.drains

    def _hand_on(self, key: int, rows: list[Placed], out: list[dict[str, Any]]) -> None:
        for placed in rows:
            self._fire(key, "event", placed[0], out)
            self._call("on_time", key, as_row(placed), out)

    def _fire(self, key: int, domain: str, limit_us: int, out: list[dict[str, Any]]) -> int:
        fired = 0
        while (timer := self.timers[key].take(domain, limit_us)) is not None:
            self._call("on_timer", key, timer, out)
            fired += 1
        return fired

    def _call(self, method: str, key: int, given: Any, out: list[dict[str, Any]]) -> None:
        for row in getattr(self.processor, method)(given, self.states[key], self.timers[key]) or ():
            out.append({"key": key} | row)


@dataclass
class FramesOracle(ProcessOracle):
    """What ``ScriptedFrames`` does, key by key."""

    def _advance_key(self, key: int, rows: list[Placed], time: OperatorTime, out: list[dict[str, Any]]) -> int:
        closed, natural, forced = self._times(key, rows, time)
        fire = END_OF_TIME if forced else natural
        timers = self.timers.setdefault(key, PlainTimers({"key": key}))
        waited = bool(timers.waiting["event"]) or bool(self.held[key])
        late_rows = [placed for placed in rows if placed[0] < closed]
        handled = [placed for placed in rows if placed[0] >= closed]
        came = bool(rows)
        if self.ordered:
            waiting = sorted([*self.held[key], *handled])
            handled = [placed for placed in waiting if placed[0] < fire]
            self.held[key] = [placed for placed in waiting if placed[0] >= fire]
            natural = max([natural, *(placed[0] for placed in handled)])
            came = bool(late_rows or handled)
        limit = self._last_timer(key, closed) if forced else fire
        due = self._take_due(key, limit)
        first = True
        while (first and came) or due:
            self._process(key, handled if first else [], due, out)
            if first and came and forced:
                limit = self._last_timer(key, closed)
            first = False
            due = self._take_due(key, limit)
        self.watermarks[key] = natural
        if forced and not rows and not time.drains and waited:
            self.spoke[key] = NEVER
        return len(late_rows)

    def _process(self, key: int, rows: list[Placed], due: list[int], out: list[dict[str, Any]]) -> None:
        state, timers = self.states[key], self.timers[key]
        if due:
            latest = None if state.last is None else moment(state.last)
            found = {"rows": state.rows, "at": moment(due[-1]), "latest": latest, "count": len(state.seen)}
            out.append({"key": key} | found)
            if state.rows % 3 == 0:
                timers.at(moment(due[-1]) + timedelta(seconds=9))
        if rows:
            timers.at(moment(rows[-1][0]) + timedelta(seconds=5))
            state.last = max([rows[-1][0], *([] if state.last is None else [state.last])])
        state.rows += len(rows)
        state.seen = [] if due else [*state.seen, *(r.whole for *_, r in rows if r.whole is not None)]

    def _last_timer(self, key: int, closed: int) -> int:
        return max([closed, *(at for at, _ in self.timers[key].waiting["event"])])

    def _take_due(self, key: int, limit_us: int) -> list[int]:
        due = []
        while (timer := self.timers[key].take("event", limit_us)) is not None:
            due.append(microseconds(timer.time))
        return due


def as_row(placed: Placed) -> dict[str, Any]:
    row = placed[3]
    return {"key": row.key, "name": f"name-{row.key}", "ts": moment(placed[0]), "whole": row.whole, "real": row.real}
