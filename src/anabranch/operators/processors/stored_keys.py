"""What the state has of the keys of a batch, as Python values, where they are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from anabranch.eventtime.key_clocks import Times
from anabranch.eventtime.timers import (
    NO_TIMER_US,
    TIMER_COLUMNS,
    TIMER_LIST,
    TimerDomain,
    Timers,
    first_timer_us,
    from_us,
    watermark_from_us,
)
from anabranch.model import HASH
from anabranch.operators.keyed.single_rows import KeyedRows
from anabranch.operators.processors.declared_state import KeyState, StateField

_MOST_ITEMS_A_KEY = 8
"""Lists that have no more on average are turned into Python values all at once, which is many times faster."""


class StoredKeys:
    """The state and the timers of each key of a batch."""

    def __init__(self, batch: KeyedRows, fields: Mapping[str, StateField]) -> None:
        self._batch = batch
        self._fields = fields
        self._columns: dict[str, pl.Series] = {}
        self._values: dict[str, list[Any] | None] = {}
        self._keys = batch.touched.keys.drop(HASH).rows(named=True)
        closed_us = batch.touched.clocks.closed_us
        # Most keys have the same one, and making a moment of it takes longer than looking it up.
        moments = {us: watermark_from_us(us) for us in np.unique(closed_us).tolist()}
        self._watermarks = [moments[us] for us in closed_us.tolist()]
        self._now = from_us(batch.time.now_us)
        self._first_timers_us: dict[TimerDomain, Times] = {
            domain: first_timer_us(self.column(name, TIMER_LIST)).fill_null(NO_TIMER_US).to_numpy()
            for domain, name in TIMER_COLUMNS.items()
        }
        firsts = zip(*(times_us.tolist() for times_us in self._first_timers_us.values()), strict=True)
        self._first_us: list[dict[TimerDomain, int]] = [
            dict(zip(TIMER_COLUMNS, times_us, strict=True)) for times_us in firsts
        ]

    def column(self, name: str, dtype: pl.DataType) -> pl.Series:
        """Return what is stored in a column, by key."""
        if name not in self._columns:
            self._columns[name] = self._batch.touched.align(name, dtype)
        return self._columns[name]

    def places_with_due_timers(self) -> list[int]:
        """Return the keys of which a timer is due, whether rows came or not."""
        due = self._first_timers_us["event"] <= self._batch.touched.clocks.fire_us
        due |= self._first_timers_us["processing"] <= self._batch.time.now_us
        places: list[int] = np.flatnonzero(due).tolist()
        return places

    def key(self, place: int) -> dict[str, Any]:
        """Return the values of the key columns."""
        return self._keys[place]

    def state(self, place: int) -> KeyState:
        """Return the declared fields of a key."""
        return KeyState(self._fields, _FieldsAt(self, place))

    def timers(self, place: int) -> Timers:
        """Return the timers of a key."""
        load = partial(self._load_timers, place)
        first_us, watermark = self._first_us[place], self._watermarks[place]
        return Timers(self._keys[place], first_us, load, watermark, self._now, self._batch.has_event_time)

    def load_field(self, place: int, name: str) -> Any:
        """Return what is stored in a field of a key."""
        return self._load(place, name, self._fields[name].stored_type)

    def _load_timers(self, place: int, domain: TimerDomain) -> list[dict[str, Any]]:
        return self._load(place, TIMER_COLUMNS[domain], TIMER_LIST) or []

    def _load(self, place: int, name: str, dtype: pl.DataType) -> Any:
        column = self.column(name, dtype)
        if name not in self._values:
            self._values[name] = column.to_list() if _is_small(column) else None
        values = self._values[name]
        if values is not None:
            return values[place]
        found = column[place]
        return found if found is None else found.to_list()


class _FieldsAt:
    """The stored fields of the key at one place."""

    __slots__ = ("_place", "_stored")

    def __init__(self, stored: StoredKeys, place: int) -> None:
        self._stored = stored
        self._place = place

    def __getitem__(self, name: str) -> Any:
        return self._stored.load_field(self._place, name)


def _is_small(column: pl.Series) -> bool:
    if not isinstance(column.dtype, pl.List):
        return True
    return int(column.list.len().sum()) <= _MOST_ITEMS_A_KEY * len(column)
