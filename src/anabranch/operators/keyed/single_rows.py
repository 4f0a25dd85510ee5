"""What operators share that get every row by itself, and keep one row a key under a clock of whatever level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import hashes_of
from anabranch.eventtime.key_clocks import LATEST, PLACE, Times, latest_by_group, places_of, read_clocks
from anabranch.model import (
    BATCH,
    BEGINNING_OF_TIME,
    END_OF_TIME,
    HASH,
    ORDER,
    TIME,
    Clock,
    Fired,
    OperatorTime,
    Prepared,
    RunRef,
    SlotState,
    Standing,
)
from anabranch.operators.aggregates.checks import check_columns
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.keyed.keyed_state import DUE, KeyedState, TouchedKeys
from anabranch.operators.keyed.known_keys import place_keys, touched_hashes

ENGINE_COLUMNS = (BATCH, HASH, LATEST, ORDER, PLACE, TIME)


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """The keys that a batch touches on a slot, and the rows that came for them."""

    touched: TouchedKeys
    rows: pl.DataFrame | None
    """With HASH, PLACE, LATEST, BATCH and ORDER, in the order of (LATEST, ORDER)."""
    time: OperatorTime
    is_forced: NDArray[np.bool_]
    """By key: what waits for event time is done now, because the flow drains or the key fell silent."""
    has_event_time: bool = True
    """Whether rows have a time of their own; else LATEST is the wall clock's."""

    @property
    def late(self) -> NDArray[np.bool_]:
        """Say of each row whether the watermark of its key had passed it as the batch began."""
        if self.rows is None:
            return np.empty(0, np.bool_)
        late: NDArray[np.bool_] = (
            self.rows.get_column(LATEST).to_numpy() < self.touched.clocks.closed_us[places_of(self.rows)]
        )
        return late


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """What an operator made of a batch; series and arrays are by key."""

    content: Mapping[str, pl.Series]
    due_us: pl.Series
    wake_us: pl.Series
    changed: NDArray[np.bool_]
    results: pl.DataFrame
    late_rows: int
    late: pl.DataFrame | None = None
    reached_us: Times | None = None
    """The time that a key has reached by what was done before the watermark got there."""


class RowsWork(Protocol):
    """What one operator makes of rows that it gets as they came."""

    @property
    def kind(self) -> str:
        """Its kind, as checkpoints know it."""
        ...

    @property
    def content(self) -> Mapping[str, pl.DataType | None]:
        """The columns that it keeps of a key; a type of None is that of whatever is stored there."""
        ...

    def output_schema(self, columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that it emits for rows with these; raise ``FlowError`` if it cannot."""
        ...

    def describe(self, columns: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Return what else a checkpoint depends on, as plain JSON data."""
        ...

    def do(self, batch: KeyedRows) -> Done:
        """Take the rows of a batch, and do what is due, key by key."""
        ...

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return stored rows as a person would read them."""
        ...


class SingleRowsKernel:
    """A kernel that gets rows as they came, and keeps one row a key under a clock of whatever level."""

    mergeable = False
    meeting = None

    def __init__(self, keys: Sequence[str], time_column: str | None, clock: Clock, work: RowsWork) -> None:
        self._keys = tuple(keys)
        self._time_column = time_column
        self._clock = clock
        self._work = work
        self._rows_of_keys = KeyedState(keys, clock, work.content)

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        return self._work.output_schema(self._check_input(input_schema))

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        clock = self._clock
        per = {"per": clock.per, "groups": clock.groups if clock.per == "group" else None}
        return {
            "kind": self._work.kind,
            "keys": {key: str(input_schema[key]) for key in self._keys},
            "clock": per | {"idle": clock.idle_us is not None},
            **self._work.describe(self._check_input(input_schema)),
        }

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep all columns of the rows; which are late is known only where their keys' watermarks are."""
        at_us = pl.lit(time.now_us, pl.Int64)
        if self._time_column is not None:
            at_us = pl.col(self._time_column).dt.timestamp("us")
        return Prepared(frame.with_columns(at_us.alias(LATEST)).drop(TIME, strict=False))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows: nothing can be merged before they are seen one by one."""
        return prepared

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Take the rows in, do what is due, key by key."""
        batch = self._gather(received, state, time)
        if batch is None:
            return self._fired(pl.DataFrame(), None, state, time)
        done = self._work.do(batch)
        written = self._store(batch, done, state)
        fired = self._fired(done.results, written, state, time)
        if time.drains and done.reached_us is not None:
            fired = replace(fired, reached_us=_latest(done.reached_us))
        rows = batch.rows
        if rows is None or not batch.has_event_time:
            return fired
        at_us = rows.get_column(LATEST).to_numpy()
        return replace(
            fired,
            late_rows=done.late_rows,
            late=done.late,
            slot_late_rows=int((at_us < int(time.slot_closed_us)).sum()),
            latest_us=int(at_us.max()),
            group_latest_us=latest_by_group(rows, self._clock.groups) if self._clock.per == "group" else None,
        )

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept of keys that come here whole, with their time."""
        state.adopt(handed)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return one row a key that has something left."""
        return self._rows_of_keys.stored(runs)

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots: each key is on one."""
        return self._rows_of_keys.unite(stored)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return what ``stored`` gave as a person would read it."""
        return self._work.values(stored)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check_input(self, schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that rows have for users."""
        check_columns(schema, self._keys, "the key", self._time_column)
        return {name: dtype for name, dtype in schema.items() if name not in ENGINE_COLUMNS}

    def _gather(self, received: list[pl.DataFrame], state: SlotState, time: OperatorTime) -> KeyedRows | None:
        """Return the keys that there is something to do for; None if there are none."""
        frames = [frame for frame in received if frame.height]
        rows = concatenate(frames).with_columns(pl.lit(time.batch, pl.Int64).alias(BATCH)) if frames else None
        hashes = touched_hashes(rows, self._rows_of_keys.find_due(state, time))
        if not hashes.size:
            return None
        loaded = self._rows_of_keys.load(state, hashes, time)
        if loaded is None and rows is None:
            return None
        keys, known, rows = place_keys(self._keys, loaded, rows)
        if keys.is_empty():
            return None
        clocks = read_clocks(self._clock, time, hashes_of(keys), known, rows)
        if rows is not None:
            rows = rows.sort(LATEST, ORDER, maintain_order=True)
        is_forced = clocks.fire_us == END_OF_TIME
        return KeyedRows(TouchedKeys(keys, known, clocks), rows, time, is_forced, self._time_column is not None)

    def _store(self, batch: KeyedRows, done: Done, state: SlotState) -> pl.DataFrame | None:
        clocks, rows = batch.touched.clocks, batch.rows
        clock_us = np.where(batch.is_forced, clocks.closed_us, clocks.fire_us)
        changed = done.changed
        spoke_us = clocks.spoke_us
        if self._clock.per == "key":
            came = np.zeros(len(batch.touched), np.bool_)
            if rows is not None:
                places = places_of(rows)
                came[places] = True
                np.maximum.at(clock_us, places, rows.get_column(LATEST).to_numpy() - self._clock.delay_us)
            if done.reached_us is not None:
                clock_us = np.maximum(clock_us, done.reached_us)
            # A silent key is let go once; it counts as silent again only after it has spoken.
            waited = batch.touched.align(DUE, pl.Int64()).is_not_null().to_numpy()
            let_go = batch.is_forced & ~came & waited & (not batch.time.drains)
            spoke_us = np.where(let_go, END_OF_TIME + spoke_us, spoke_us)
            changed = changed | came
        touched = replace(batch.touched, clocks=replace(clocks, spoke_us=spoke_us))
        return self._rows_of_keys.write(
            state, touched, done.content, done.due_us, done.wake_us, clock_us, changed, batch.time
        )

    def _fired(
        self, results: pl.DataFrame, written: pl.DataFrame | None, state: SlotState, time: OperatorTime
    ) -> Fired:
        forgotten_us = self._rows_of_keys.forget(state, written, time)
        return Fired(
            results,
            forgotten_us=forgotten_us or None,
            next_due_us=self._rows_of_keys.next_due_us(state, time),
            wake_us=self._rows_of_keys.wake_us(state, time),
        )


def drop_engine_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows as users know them."""
    return rows.drop(ENGINE_COLUMNS, strict=False)


def _latest(times_us: Times) -> int | None:
    latest_us = int(times_us.max())
    return latest_us if latest_us > BEGINNING_OF_TIME else None


def no_times(count: int) -> pl.Series:
    """Return a time of null for every key."""
    return pl.Series([None], dtype=pl.Int64).new_from_index(0, count)
