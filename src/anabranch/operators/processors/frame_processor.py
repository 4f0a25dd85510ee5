"""Run a processor that handles a slot's rows as frames."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.errors import FlowError
from anabranch.eventtime.key_clocks import Times, places_of
from anabranch.eventtime.timers import from_us, watermark_from_us
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME
from anabranch.model.frame_texts import describe_row
from anabranch.operators.keyed.keyed_state import align_by_key
from anabranch.operators.keyed.single_rows import KeyedRows, drop_engine_columns
from anabranch.operators.processors.declared_state import StateField, ValueField
from anabranch.operators.processors.frame_timers import FrameTimers
from anabranch.operators.processors.processor import FrameProcessor, FrameTime
from anabranch.operators.processors.processor_batch import FAILURES, IS_LATE, STAGE, Outcome, ProcessorInput
from anabranch.operators.processors.returned_frames import FrameError, conform, find_places

LATE, WATERMARK = "late", "watermark"
"""What rows have besides their own columns."""

MOST_ROUNDS_WITHOUT_PROGRESS = 1_000


class FrameRunner:
    """Hands a batch's rows, the state of their keys and the timers that are due to a ``FrameProcessor``."""

    def __init__(
        self,
        processor: FrameProcessor,
        keys: Sequence[str],
        columns: Mapping[str, pl.DataType],
        schema: Mapping[str, pl.DataType],
    ) -> None:
        self._processor = processor
        self._keys = tuple(keys)
        self._schema = dict(schema)
        self._no_rows = pl.DataFrame(schema={**columns, LATE: pl.Boolean(), WATERMARK: pl.Datetime("us")})

    def find_late(self, batch: KeyedRows) -> NDArray[np.bool_]:
        """Say of each row whether its key's watermark had passed it."""
        return batch.late

    def run(self, given: ProcessorInput) -> Outcome:
        """Call the processor for the rows and for what is due, and again for timers that are due at once."""
        batch = given.batch
        clocks, now_us = batch.touched.clocks, batch.time.now_us
        fields = _Fields(batch, self._keys, self._processor.state_fields)
        timers = FrameTimers(batch, self._keys)
        # Where time does not count, only what is set by now goes off: a timer that sets itself anew must not go on
        # for ever.
        limits_us = np.where(batch.is_forced, timers.last_us(), clocks.fire_us)
        due = timers.take_due(limits_us, now_us)
        results: list[pl.DataFrame] = []
        changed = np.zeros(len(batch.touched), np.bool_)
        rows, places = self._no_rows, None
        has_rows = np.zeros(len(batch.touched), np.bool_)
        if given.rows is not None:
            rows = self._as_users_know(given.rows, clocks.closed_us)
            has_rows[places_of(given.rows)] = True
        latest_us, without_progress = -END_OF_TIME, 0
        while rows.height or due.height:
            time = FrameTime(
                from_us(now_us), watermark_from_us(int(batch.time.slot_closed_us)), timers.as_users_know(due)
            )
            output, state, to_set = self._call(rows, fields.frame(places), time)
            try:
                results.append(self._conform_results(output))
                changed[fields.replace(state)] = True
                changed[timers.set(to_set)] = True
            except FrameError as error:
                raise self._complain(str(error)) from error
            changed[places_of(due)] = True
            if rows.height:
                limits_us = np.where(batch.is_forced & has_rows, timers.last_us(), limits_us)
            if due.height:
                first_us = int(due.get_column("at").min())  # type: ignore[arg-type]
                without_progress = without_progress + 1 if first_us <= latest_us else 0
                latest_us = max(latest_us, first_us)
            if without_progress > MOST_ROUNDS_WITHOUT_PROGRESS:
                raise self._complain("timers for the same time or before are set again and again; set them for later")
            due = timers.take_due(limits_us, now_us)
            rows, places = self._no_rows, np.unique(places_of(due))
        found = [frame for frame in results if frame.height]
        content = fields.columns | timers.columns()
        return Outcome(pl.concat(found) if found else pl.DataFrame(), content, changed)

    def _as_users_know(self, rows: pl.DataFrame, closed_us: Times) -> pl.DataFrame:
        watermarks_us = closed_us[places_of(rows)]
        watermark = pl.Series(WATERMARK, watermarks_us).set(pl.Series(watermarks_us <= BEGINNING_OF_TIME), None)
        late = rows.get_column(IS_LATE).alias(LATE)
        return drop_engine_columns(rows.drop(IS_LATE, STAGE)).with_columns(late, watermark.cast(pl.Datetime("us")))

    def _call(
        self, rows: pl.DataFrame, state: pl.DataFrame, time: FrameTime
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None, pl.DataFrame | None]:
        try:
            outcome: Any = self._processor.process(rows, state, time)
        except FAILURES as error:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "process"]
            where = f" (line {frames[-1].lineno} of {frames[-1].filename.rsplit('/', 1)[-1]})" if frames else ""
            complaint = self._complain(f"{type(error).__name__}: {error}{where}")
            for row in rows.head(1).iter_rows(named=True):
                complaint.add_note(f"with rows such as: {describe_row(row)}")
            raise complaint from error
        parts = (*outcome, None) if isinstance(outcome, tuple) and len(outcome) == 2 else outcome
        if not (
            isinstance(parts, tuple)
            and len(parts) == 3
            and all(part is None or isinstance(part, pl.DataFrame) for part in parts)
        ):
            found = type(outcome).__name__
            raise self._complain(f"it returned {found}; return (output rows, new state) or (output, state, timers)")
        return parts

    def _conform_results(self, output: pl.DataFrame | None) -> pl.DataFrame:
        if output is None or output.is_empty():
            return pl.DataFrame(schema=self._schema)
        return conform(output, self._schema, "the output", "as schema= says")

    def _complain(self, text: str) -> FlowError:
        return FlowError(f"processor {type(self._processor).__name__}: process: {' '.join(text.split())}")


class _Fields:
    """The declared fields of a batch's keys: as stored, by key, and as frames for users."""

    def __init__(self, batch: KeyedRows, keys: tuple[str, ...], fields: Mapping[str, StateField]) -> None:
        self._touched = batch.touched
        self._keys = keys
        self._fields = fields
        self.columns = {name: batch.touched.align(name, field.stored_type) for name, field in fields.items()}
        """As stored: null where a field has its default, or nothing in it."""

    def frame(self, places: NDArray[np.int64] | None) -> pl.DataFrame:
        """Return the state of all keys of the batch, or of those at the places."""
        rows = self._touched.keys.select(self._keys).with_columns(
            column.alias(name) for name, column in self.columns.items()
        )
        rows = rows.with_columns(pl.col(name).fill_null(field.filler) for name, field in self._fields.items())
        return rows if places is None else rows[places]

    def replace(self, state: pl.DataFrame | None) -> NDArray[np.int64]:
        """Take new state in and return the places of its keys."""
        if state is None or state.is_empty():
            return np.empty(0, np.int64)
        wanted = {key: self._touched.keys.schema[key] for key in self._keys}
        wanted |= {name: field.stored_type for name, field in self._fields.items()}
        rows = conform(state, wanted, "the new state", "as declared")
        places = find_places(rows, self._touched.keys, self._keys, "the new state")
        if np.bincount(places).max() > 1:
            msg = "the new state has several rows for one key; give one row a key"
            raise FrameError(msg)
        for name, field in self._fields.items():
            given = rows.select(_without_defaults(name, field)).to_series()
            self.columns[name] = align_by_key(given, places, len(self._touched), field.stored_type, self.columns[name])
        return places


def _without_defaults(name: str, field: StateField) -> pl.Expr:
    """Return a field as it is stored: null stands for its default, or for nothing in it."""
    column = pl.col(name)
    if not isinstance(field, ValueField):
        return pl.when(column.list.len() > 0).then(column)
    if field.dtype.is_nested():
        return column
    return pl.when(column.ne_missing(field.filler)).then(column)
