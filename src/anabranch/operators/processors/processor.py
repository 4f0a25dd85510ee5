"""Processors: what a user writes to handle a stream key by key, with state and timers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import polars as pl

from anabranch.eventtime.timers import Timer, Timers
from anabranch.operators.processors.declared_state import KeyState, StateField, collect_fields

Row = Mapping[str, Any]
Emitted = Iterable[Row] | None


@dataclass(frozen=True, slots=True)
class RowTime:
    """What ``is_late`` may know about time; all in UTC, without a zone.

    Examples:
        >>> class NothingIsLate(ab.Processor):
        ...     def is_late(self, row, time: ab.RowTime):
        ...         return time.now - time.event_time > timedelta(days=36_500)
        ...
        ...     def on_time(self, row, state, timers):
        ...         yield {"at": row["ts"].second}
        >>> keyed = readings.watermark("ts").key_by("sensor")
        >>> collect(keyed.process(NothingIsLate(), schema={"sensor": pl.Int64, "at": pl.Int64}))
        [(1, 1), (1, 5), (1, 14), (2, 2)]
    """

    event_time: datetime
    """The row's own."""
    watermark: datetime | None
    """Of the row's key, as the batch began; None before the first."""
    slot_watermark: datetime | None
    """What the watermark would be if the whole slot had one."""
    now: datetime
    """The wall clock's time of the batch."""


class _DeclaresState:
    """Collects the fields that a class declares."""

    state_fields: ClassVar[Mapping[str, StateField]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.state_fields = collect_fields(cls)


class Processor(_DeclaresState):
    """Handles rows one by one. Override what you need; what a method returns or yields are output rows, as dicts.

    State is declared by fields of the class, ``last = ab.value(pl.Float64())``, and kept per key. Nothing else may be
    remembered between calls: an object lives only as long as a task. Key columns of the output may be left out.

    Examples:
        >>> class Falls(ab.Processor):
        ...     last = ab.value(pl.Float64())
        ...
        ...     def on_time(self, row, state, timers):
        ...         if state.last is not None and row["volts"] < state.last - 10:
        ...             yield {"from": state.last, "to": row["volts"]}
        ...         state.last = row["volts"]
        >>> falls = readings.watermark("ts").key_by("sensor").process(
        ...     Falls(), schema={"sensor": pl.Int64, "from": pl.Float64, "to": pl.Float64}
        ... )
        >>> collect(falls)
        [(1, 230.0, 206.25)]
    """

    def is_late(self, row: Row, time: RowTime) -> bool:
        """Say whether a row goes to ``on_late``: by default, if its key's watermark had passed it."""
        return time.watermark is not None and time.event_time < time.watermark

    def on_time(self, row: Row, state: KeyState, timers: Timers) -> Emitted:
        """Handle a row; those of a key come by (event time, order of arrival) within a batch."""
        return None

    def on_late(self, row: Row, state: KeyState, timers: Timers) -> Emitted:
        """Handle a late row: by default, it is only counted."""
        return None

    def on_timer(self, timer: Timer, state: KeyState, timers: Timers) -> Emitted:
        """Handle a timer that went off."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class FrameTime:
    """What a ``FrameProcessor`` is told about time; moments are in UTC, without a zone.

    Examples:
        >>> class Marks(ab.FrameProcessor):
        ...     def process(self, frame, state, time: ab.FrameTime):
        ...         fired = time.timers.select("sensor", tag="tag")
        ...         once = frame.unique("sensor", maintain_order=True)
        ...         wanted = once.select("sensor", at=pl.col("ts") + timedelta(minutes=1), tag=pl.lit("later"))
        ...         return fired, None, wanted
        >>> keyed = readings.watermark("ts").key_by("sensor")
        >>> collect(keyed.process(Marks(), schema={"sensor": pl.Int64, "tag": pl.String}))
        [(1, 'later'), (2, 'later')]
    """

    now: datetime
    """The wall clock's time of the batch."""
    slot_watermark: datetime | None
    """What the watermark would be if the whole slot had one."""
    timers: pl.DataFrame
    """The timers that went off: the key columns, ``at``, ``tag``, ``domain`` (*event* or *processing*)."""


FrameOutcome = (
    tuple[pl.DataFrame | None, pl.DataFrame | None]
    | tuple[pl.DataFrame | None, pl.DataFrame | None, pl.DataFrame | None]
)


class FrameProcessor(_DeclaresState):
    """Handles all rows of a batch on a slot at once, as Polars frames: for a million rows a second and more.

    Examples:
        >>> class Totals(ab.FrameProcessor):
        ...     total = ab.value(pl.Float64(), default=0.0)
        ...
        ...     def process(self, frame, state, time):
        ...         more = frame.group_by("sensor", maintain_order=True).agg(more=pl.col("volts").sum())
        ...         after = state.join(more, on="sensor", maintain_order="left")
        ...         after = after.select("sensor", total=pl.col("total") + pl.col("more"))
        ...         return after, after
        >>> keyed = readings.watermark("ts").key_by("sensor")
        >>> collect(keyed.process(Totals(), schema={"sensor": pl.Int64, "total": pl.Float64}))
        [(1, 667.25), (2, 229.5)]
    """

    def process(self, frame: pl.DataFrame, state: pl.DataFrame, time: FrameTime) -> FrameOutcome:
        """Return output rows and new state; if timers are to be set, their frame as a third.

        ``frame`` has the stream's columns, ``late`` and ``watermark`` (of the row's key), by event time.
        ``state`` has the key columns and the declared fields, one row for each key that has rows or timers here.
        Rows of the new state take the place of their keys' old ones; keys that are not in it keep theirs.
        Timers to set have the key columns and ``at``; if you like ``tag``, ``domain``, and ``cancel`` to take one back.
        Where a timer is set for a time that has passed, ``process`` is called again with it, and without rows.
        """
        raise NotImplementedError
