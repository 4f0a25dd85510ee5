"""Small random streams, and a driver that feeds them to a kernel as the engine would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, HASH, ORDER, Kernel, OperatorTime
from unit.operators.memory_state import MemoryState

SECOND_US = 1_000_000
EPOCH = datetime(1970, 1, 1)

SCHEMA: dict[str, pl.DataType] = {
    "key": pl.Int64(),
    "name": pl.String(),
    "ts": pl.Datetime("ms"),
    "whole": pl.Int32(),
    "real": pl.Float64(),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a test stream; time in seconds, ``real`` dyadic so that sums are exact."""

    key: int
    seconds: int
    whole: int | None = None
    real: float | None = None

    @property
    def time_us(self) -> int:
        return self.seconds * SECOND_US


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one batch, cut into splits, and the watermark after which it runs."""

    splits: tuple[tuple[Row, ...], ...]
    watermark_seconds: int
    now_us: int = 0

    def placed_rows(self) -> list[tuple[int, Row]]:
        """Return (order, row) in the order of the stream."""
        return [((s << 36) | r, row) for s, split in enumerate(self.splits) for r, row in enumerate(split)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a kernel (or the oracle) emitted in one batch."""

    rows: list[dict[str, Any]]
    late_rows: int


rows_strategy = st.builds(
    Row,
    key=st.integers(0, 5),
    seconds=st.integers(-20, 60),
    whole=st.none() | st.integers(-100, 100),
    real=st.none() | st.integers(-400, 400).map(lambda quarters: quarters / 4),
)
batches_strategy = st.lists(
    st.builds(
        Batch,
        splits=st.lists(st.lists(rows_strategy, max_size=12).map(tuple), max_size=3).map(tuple),
        watermark_seconds=st.integers(-20, 60),
    ),
    min_size=1,
    max_size=12,
)

moments_strategy = st.lists(st.booleans(), max_size=12)
"""Which of the first batches fire by the watermark that they leave."""


def times_of(
    batches: Sequence[Batch], first_hop: bool, drain: bool = True, at_once: Sequence[bool] = ()
) -> list[OperatorTime]:
    """Return the time of each batch, and of a last one without rows that drains the flow.

    ``at_once`` says which of the first batches fire by the watermark that they leave, the next batch's; others fire by
    the one that they began with.
    """
    watermarks_us = np.maximum.accumulate([batch.watermark_seconds * SECOND_US for batch in batches]).tolist()
    times = []
    fired_us = BEGINNING_OF_TIME
    for number, batch in enumerate(batches):
        rises = number < len(at_once) and at_once[number]
        fire_us = watermarks_us[min(number + rises, len(batches) - 1)]
        closed_us = watermarks_us[number] if first_hop else fired_us
        times.append(OperatorTime(number, closed_us, fire_us, batch.now_us, fired_us))
        fired_us = fire_us
    if drain:
        closed_us = watermarks_us[-1] if first_hop else fired_us
        times.append(OperatorTime(len(batches), closed_us, END_OF_TIME, 0, fired_us))
    return times


def to_frame(rows: Sequence[tuple[int, Row]]) -> pl.DataFrame:
    """Return rows as the engine hands them to ``prepare``."""
    columns: dict[str, list[Any]] = {name: [] for name in [*SCHEMA, ORDER]}
    for order, row in rows:
        columns["key"].append(row.key)
        columns["name"].append(f"name-{row.key}")
        columns["ts"].append(EPOCH + timedelta(seconds=row.seconds))
        columns["whole"].append(row.whole)
        columns["real"].append(row.real)
        columns[ORDER].append(order)
    return pl.DataFrame(columns, schema={**SCHEMA, ORDER: pl.Int64()})


def run_kernel(
    kernel: Kernel,
    batches: Sequence[Batch],
    times: Sequence[OperatorTime],
    combined: bool,
    state: MemoryState | None = None,
    note: Callable[[OperatorTime], None] | None = None,
) -> list[Outcome]:
    """Feed a stream to a kernel on one slot; ``note`` is told of every batch when it is over."""
    state = state or MemoryState()
    combined = combined and kernel.mergeable
    outcomes = []
    schema = kernel.output_schema(SCHEMA)
    padded = [*batches, Batch((), 0)][: len(times)]
    for batch, time in zip(padded, times, strict=True):
        received = []
        late_rows = 0
        placed = batch.placed_rows()
        for ordinal in range(len(batch.splits)):
            frame = to_frame([(order, row) for order, row in placed if order >> 36 == ordinal])
            prepared = kernel.prepare(frame, time)
            late_rows += prepared.late_rows
            sent = kernel.combine(prepared.frame) if combined else prepared.frame
            # Few hashes for many keys: collisions must not matter.
            received.append(sent.with_columns((pl.col("key") % 3).cast(pl.UInt64).alias(HASH)))
        fired = kernel.advance(received, combined, state, time)
        if fired.frame.height:
            assert dict(fired.frame.schema) == schema
        outcomes.append(Outcome(fired.frame.to_dicts(), late_rows + fired.late_rows))
        if note is not None:
            note(time)
    return outcomes
