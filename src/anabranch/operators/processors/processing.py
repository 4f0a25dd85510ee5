"""What a user's processor makes of a batch: state and timers per key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.errors import FlowError
from anabranch.eventtime.key_clocks import LATEST, places_of
from anabranch.eventtime.timers import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    TIMER_COLUMNS,
    TIMER_LIST,
    first_timer_us,
)
from anabranch.model import ProcessSpec
from anabranch.operators.keyed.single_rows import ENGINE_COLUMNS, Done, KeyedRows
from anabranch.operators.processors.frame_processor import LATE, WATERMARK, FrameRunner
from anabranch.operators.processors.processor import FrameProcessor, Processor
from anabranch.operators.processors.processor_batch import (
    AFTER,
    ARRIVED,
    BEFORE,
    IS_LATE,
    STAGE,
    ProcessorInput,
    Runner,
)
from anabranch.operators.processors.reorder_buffer import (
    HELD,
    IN_ORDER,
    changed_by_holding,
    first_held_due_us,
    held_type,
    hold_rows,
    last_released_us,
    release_rows,
)
from anabranch.operators.processors.row_processor import RowRunner


class Processing:
    """Runs a user's processor.

    A batch goes, for each key: timers that the watermark or the clock has passed; the rows; timers that are passed
    now. With *ordered*, rows wait until the watermark has passed them, and come between the timers, by event time.
    """

    kind = "processor"

    def __init__(self, spec: ProcessSpec) -> None:
        self._processor = _check_processor(spec.processor)
        self._fields = self._processor.state_fields
        self._ordered = spec.ordered
        self._schema = dict(spec.schema)
        self._keys = spec.keys
        self.content: dict[str, pl.DataType | None] = dict.fromkeys(TIMER_COLUMNS.values(), TIMER_LIST)
        self.content |= {HELD: None} if spec.ordered else {}
        self.content |= {name: field.stored_type for name, field in self._fields.items()}
        self._runner: Runner = (
            RowRunner(self._processor, spec.keys, spec.schema)
            if isinstance(self._processor, Processor)
            else FrameRunner(self._processor, spec.keys, spec.columns, spec.schema)
        )

    def output_schema(self, columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the declared columns."""
        name = type(self._processor).__name__
        if not self._schema:
            msg = (
                f"process {name}: say which columns it emits, by schema={{'driver': pl.Int64(), 'hours': pl.Float64()}}"
            )
            raise FlowError(msg)
        for key in self._keys:
            if key in self._schema and self._schema[key] != columns[key]:
                msg = f"process {name}: schema= says that the key {key!r} is {self._schema[key]}; it is {columns[key]}"
                raise FlowError(msg)
        clashes = [field for field in self._fields if field in self._keys]
        if clashes:
            msg = f"process {name}: the field {clashes[0]!r} has the name of a key column; rename it"
            raise FlowError(msg)
        if isinstance(self._processor, FrameProcessor):
            clashes = [column for column in columns if column in (LATE, WATERMARK)]
            if clashes:
                msg = f"process {name}: the column {clashes[0]!r} is one that frames get from the engine; rename yours"
                raise FlowError(msg)
        reserved = [column for column in self._schema if column in ENGINE_COLUMNS]
        if reserved:
            msg = f"process {name}: {reserved[0]} is a name of the engine's own; choose another"
            raise FlowError(msg)
        return dict(self._schema)

    def describe(self, columns: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Return what is stored: neither the class nor its form is part of it."""
        return {
            "ordered": {name: str(dtype) for name, dtype in columns.items()} if self._ordered else None,
            "fields": {name: field.describe() for name, field in self._fields.items()},
        }

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the fields of every key, and how many timers (and rows) wait."""
        counts = {EVENT_TIMERS: "event_timers", PROCESSING_TIMERS: "processing_timers"}
        counts |= {HELD: "waiting_rows"} if self._ordered else {}
        return stored.select(
            *self._keys,
            *(pl.col(name).fill_null(field.filler) for name, field in self._fields.items()),
            *(pl.col(name).list.len().fill_null(0).cast(pl.Int64).alias(label) for name, label in counts.items()),
        )

    def do(self, batch: KeyedRows) -> Done:
        """Let the processor handle rows and timers."""
        touched, rows = batch.touched, batch.rows
        late = self._runner.find_late(batch)
        held = released = None
        given = ProcessorInput(batch, _staged(rows, late, ARRIVED))
        if self._ordered:
            in_time = rows.filter(pl.Series(~late)) if rows is not None else None
            released, held = release_rows(touched, in_time)
            given = ProcessorInput(batch, self._stages_in_order(batch, late, released))
        outcome = self._runner.run(given)
        content = dict(outcome.content)
        due_us = first_timer_us(content[EVENT_TIMERS])
        changed = outcome.changed
        reached_us = None
        if self._ordered:
            waiting = content[HELD] = hold_rows(held, len(touched), held_type(touched, rows))
            due_us = pl.select(pl.min_horizontal(due_us, first_held_due_us(waiting))).to_series()
            changed = changed | changed_by_holding(touched, held)
            reached_us = last_released_us(released, len(touched))
        return Done(
            content=content,
            due_us=due_us,
            wake_us=first_timer_us(content[PROCESSING_TIMERS]),
            changed=changed,
            results=outcome.results,
            late_rows=int(late.sum()),
            reached_us=reached_us,
        )

    def _stages_in_order(
        self, batch: KeyedRows, late: NDArray[np.bool_], released: pl.DataFrame | None
    ) -> pl.DataFrame | None:
        """Return late rows as they arrive, and others when the watermark has passed them."""
        frames = []
        if batch.rows is not None and late.any():
            arrived = _staged(batch.rows.filter(pl.Series(late)), np.ones(int(late.sum()), np.bool_), ARRIVED)
            frames += [] if arrived is None else [arrived]
        if released is not None:
            closed_us = batch.touched.clocks.closed_us[places_of(released)]
            before = released.get_column(LATEST).to_numpy() < closed_us
            stages = pl.Series(STAGE, np.where(before, BEFORE, AFTER).astype(np.int8))
            frames.append(released.with_columns(stages, pl.lit(False).alias(IS_LATE)))
        if not frames:
            return None
        columns = frames[-1].columns
        return pl.concat([frame.select(columns) for frame in frames]).sort(IN_ORDER, maintain_order=True)


def _staged(rows: pl.DataFrame | None, late: NDArray[np.bool_], stage: int) -> pl.DataFrame | None:
    if rows is None:
        return None
    return rows.with_columns(pl.lit(stage, pl.Int8).alias(STAGE), pl.Series(IS_LATE, late))


def _check_processor(given: object) -> Processor | FrameProcessor:
    if isinstance(given, Processor | FrameProcessor):
        return given
    if isinstance(given, type) and issubclass(given, Processor | FrameProcessor):
        msg = f"process: give an object, {given.__name__}(), not the class {given.__name__}"
        raise FlowError(msg)
    found = given.__name__ if isinstance(given, type) else type(given).__name__
    msg = f"process: {found} is no processor; make it a class below ab.Processor or ab.FrameProcessor"
    raise FlowError(msg)
