"""What processors and ordered streams have stored, read without the code that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from anabranch.eventtime.timers import EVENT_TIMERS, PROCESSING_TIMERS
from anabranch.model import Clock
from anabranch.operators.keyed.keyed_state import ClockedKeys
from anabranch.operators.keyed.single_rows import drop_engine_columns
from anabranch.operators.processors.reorder_buffer import HELD

_TIMERS = {EVENT_TIMERS: "event_timers", PROCESSING_TIMERS: "processing_timers"}


class StoredProcessor:
    """Reads the state of a processor.

    What a field has by default is the processor's to know, and is stored as null: that is what is shown.
    """

    meeting = None

    def __init__(self, structure: Mapping[str, Any], clock: Clock) -> None:
        """``structure`` is what ``Kernel.structure`` returned."""
        self._keys = tuple(structure["keys"])
        self._clock = clock
        self._fields = tuple(structure.get("fields", ()))
        self._holds = structure["kind"] == "ordered" or bool(structure.get("ordered"))
        self._hands_on = structure["kind"] == "ordered"

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return one row a key that has something left."""
        return self._rows_of_keys(runs).stored(runs)

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots: each key is on one."""
        return self._rows_of_keys(stored).unite(stored)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the fields of every key, and how many timers (and rows) wait; of an ordered stream, the rows."""
        if self._hands_on:
            waiting = stored.select(HELD).drop_nulls()
            return drop_engine_columns(waiting.explode(HELD).unnest(HELD)) if waiting.height else pl.DataFrame()
        counts = _TIMERS | ({HELD: "waiting_rows"} if self._holds else {})
        known = {name: label for name, label in counts.items() if name in stored.columns}
        return stored.select(
            *self._keys,
            *(name for name in self._fields if name in stored.columns),
            *(pl.col(name).list.len().fill_null(0).cast(pl.Int64).alias(label) for name, label in known.items()),
        )

    def _rows_of_keys(self, frames: list[pl.DataFrame]) -> ClockedKeys:
        """Return what knows such rows; runs that were written before a field was added lack its column."""
        types = {name: dtype for rows in frames for name, dtype in rows.schema.items()}
        named = [*_TIMERS, *([HELD] if self._holds else []), *self._fields]
        return ClockedKeys(self._keys, self._clock, {name: types[name] for name in named if name in types})
