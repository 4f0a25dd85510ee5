"""Timers of a key: sorted while the key is worked on, a column of the state between batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import polars as pl
from sortedcontainers import SortedSet

from anabranch.eventtime import parse_duration

TimerDomain = Literal["event", "processing"]

EVENT_TIMERS, PROCESSING_TIMERS = "__event_timers", "__processing_timers"
"""List of (at, tag), sorted: what waits for the watermark, and what for the wall clock; null where nothing does."""

TIMER_LIST = pl.List(pl.Struct({"at": pl.Int64(), "tag": pl.String()}))
TIMER_COLUMNS: dict[TimerDomain, str] = {"event": EVENT_TIMERS, "processing": PROCESSING_TIMERS}

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


NO_TIMER_US = 2**63 - 1
"""Stands for the time of the first timer where none is set."""


def first_timer_us(timers: pl.Series) -> pl.Series:
    """Return by key the time of the first timer; null if none is set."""
    return timers.list.first().struct.field("at")


def to_us(moment: Any) -> int:
    """Return microseconds since 1970; a datetime that has no zone is in UTC."""
    if not isinstance(moment, datetime):
        msg = f"a time is a datetime, got {type(moment).__name__}: add a timedelta to a row's time"
        raise TypeError(msg)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return int((moment - _EPOCH) // _MICROSECOND)


def from_us(moment_us: int) -> datetime:
    """Return the moment in UTC, without a zone."""
    return _EPOCH + timedelta(microseconds=moment_us)


def watermark_from_us(watermark_us: int) -> datetime | None:
    """Return a watermark as a moment; None for the beginning and the end of time, which no calendar has."""
    try:
        return from_us(watermark_us)
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that went off.

    Examples:
        >>> class Silence(ab.Processor):
        ...     def on_time(self, row, state, timers):
        ...         timers.cancel_all()
        ...         timers.at(row["ts"] + timedelta(seconds=30), tag="silent")
        ...
        ...     def on_timer(self, timer: ab.Timer, state, timers):
        ...         yield {"tag": timer.tag, "since": timer.time.second}
        >>> keyed = readings.watermark("ts").key_by("sensor")
        >>> collect(keyed.process(Silence(), schema={"sensor": pl.Int64, "tag": pl.String, "since": pl.Int64}))
        [(1, 'silent', 44), (2, 'silent', 32)]
    """

    time: datetime
    """What it was set for, in UTC."""
    tag: str = ""
    domain: TimerDomain = "event"
    key: Mapping[str, Any] = field(default_factory=dict)
    """The values of the key columns."""


NO_EVENT_TIME = (
    "the stream has no event time, so no timer can wait for it; set one by the wall clock (at_processing, "
    'after_processing, the domain processing), or call .watermark("ts") before process()'
)


class Timers:
    """The timers of one key. Each goes off once; one that is set again for the same time and tag is the same timer.

    Examples:
        >>> class Reminder(ab.Processor):
        ...     def on_time(self, row, state, timers: ab.Timers):
        ...         if not timers.pending():
        ...             timers.at(row["ts"] + timedelta(minutes=1), tag="remind")
        ...
        ...     def on_timer(self, timer, state, timers: ab.Timers):
        ...         yield {"at": timer.time.second}
        >>> keyed = readings.watermark("ts").key_by("sensor")
        >>> collect(keyed.process(Reminder(), schema={"sensor": pl.Int64, "at": pl.Int64}))
        [(1, 1), (2, 2)]
    """

    __slots__ = ("_changed", "_first_us", "_has_event_time", "_key", "_load", "_sets", "now", "watermark")

    def __init__(
        self,
        key: Mapping[str, Any],
        first_us: Mapping[TimerDomain, int],
        load: Callable[[TimerDomain], Iterable[Mapping[str, Any]]],
        watermark: datetime | None,
        now: datetime,
        has_event_time: bool = True,
    ) -> None:
        """``load`` returns what is stored; it is asked only if a timer is due, or looked at."""
        self._has_event_time = has_event_time
        self._key = key
        self._first_us = first_us
        self._load = load
        self._sets: dict[TimerDomain, SortedSet[tuple[int, str]]] = {}
        self._changed: set[TimerDomain] = set()
        self.watermark = watermark
        """The key's watermark as the batch began, in UTC; None before the first."""
        self.now = now
        """The wall clock's time of the batch, in UTC."""

    def at(self, event_time: datetime, tag: str = "") -> None:
        """Call ``on_timer`` once the key's watermark reaches this event time; in this batch, if it has."""
        if not self._has_event_time:
            raise TypeError(NO_EVENT_TIME)
        self._add("event", to_us(event_time), tag)

    def at_processing(self, moment: datetime, tag: str = "") -> None:
        """Call ``on_timer`` once the wall clock reaches this moment (UTC, unless it has a zone)."""
        self._add("processing", to_us(moment), tag)

    def after_processing(self, duration: str | timedelta, tag: str = "") -> None:
        """Call ``on_timer`` so long after this batch's ``now``: ``"30s"``, or a timedelta."""
        self._add("processing", to_us(self.now) + parse_duration(duration, "after_processing"), tag)

    def cancel(self, event_time: datetime, tag: str = "") -> None:
        """Forget the timer for this event time and tag, if it is set."""
        self._discard("event", to_us(event_time), tag)

    def cancel_processing(self, moment: datetime, tag: str = "") -> None:
        """Forget the timer for this moment of the wall clock and this tag, if it is set."""
        self._discard("processing", to_us(moment), tag)

    def cancel_all(self, tag: str | None = None) -> None:
        """Forget all timers of the key, or all with this tag."""
        for domain in TIMER_COLUMNS:
            for at, found in list(self._sorted(domain)):
                if tag is None or found == tag:
                    self._discard(domain, at, found)

    def pending(self) -> list[Timer]:
        """Return what is set, event time first, in the order in which it will go off."""
        return [self._timer(domain, at, tag) for domain in TIMER_COLUMNS for at, tag in self._sorted(domain)]

    # -- for the engine --------------------------------------------------------------------------------------------

    def pop_due(self, domain: TimerDomain, limit_us: int) -> tuple[int, Timer] | None:
        """Take out the first timer that is set for the limit or before."""
        if domain not in self._sets and self._first_us[domain] > limit_us:
            return None
        timers = self._sorted(domain)
        if not timers or timers[0][0] > limit_us:
            return None
        at, tag = timers.pop(0)
        self._changed.add(domain)
        return at, self._timer(domain, at, tag)

    def last_us(self, domain: TimerDomain) -> int | None:
        """Return the time of the last timer that is set."""
        timers = self._sorted(domain)
        return timers[-1][0] if timers else None

    def changes(self) -> dict[TimerDomain, list[dict[str, Any]] | None]:
        """Return what must be stored anew."""
        return {
            domain: [{"at": at, "tag": tag} for at, tag in self._sets[domain]] or None
            for domain in TIMER_COLUMNS
            if domain in self._changed
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _timer(self, domain: TimerDomain, at: int, tag: str) -> Timer:
        # A copy: what is done to it must not reach the key.
        return Timer(from_us(at), tag, domain, dict(self._key))

    def _sorted(self, domain: TimerDomain) -> SortedSet[tuple[int, str]]:
        found = self._sets.get(domain)
        if found is None:
            stored = self._load(domain)
            found = self._sets[domain] = SortedSet((timer["at"], timer["tag"]) for timer in stored)
        return found

    def _add(self, domain: TimerDomain, at: int, tag: Any) -> None:
        if not isinstance(tag, str):
            msg = f"a timer's tag is a string, got {type(tag).__name__}"
            raise TypeError(msg)
        timers = self._sorted(domain)
        if (at, tag) not in timers:
            timers.add((at, tag))
            self._changed.add(domain)

    def _discard(self, domain: TimerDomain, at: int, tag: str) -> None:
        timers = self._sorted(domain)
        if (at, tag) in timers:
            timers.discard((at, tag))
            self._changed.add(domain)
