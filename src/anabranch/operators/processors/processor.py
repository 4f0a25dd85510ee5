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
    """What ``is_late`` may know about time; all in UTC, without a zone."""

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
    """What a ``FrameProcessor`` is told about time; moments are in UTC, without a zone."""

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
    """Handles all rows of a batch on a slot at once, as Polars frames: for a million rows a second and more."""

    def process(self, frame: pl.DataFrame, state: pl.DataFrame, time: FrameTime) -> FrameOutcome:
        """Return output rows and new state; if timers are to be set, their frame as a third.

        ``frame`` has the stream's columns, ``late`` and ``watermark`` (of the row's key), by event time.
        ``state`` has the key columns and the declared fields, one row for each key that has rows or timers here.
        Rows of the new state take the place of their keys' old ones; keys that are not in it keep theirs.
        Timers to set have the key columns and ``at``; if you like ``tag``, ``domain``, and ``cancel`` to take one back.
        Where a timer is set for a time that has passed, ``process`` is called again with it, and without rows.
        """
        raise NotImplementedError
