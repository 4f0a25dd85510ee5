"""The merge before the exchange that holds rows back: what one reader sends now, and what it keeps for later batches.

Results never depend on it. A window fires in a batch from what slots hold and from what readers held back of it, which
comes with that batch and is told apart from the batch's own rows: those are too late for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.model import WINDOW, OperatorTime, SlotState
from anabranch.model.exchanges import HoldingKernel, HoldSpec
from anabranch.operators.compaction import compact


@dataclass(frozen=True, slots=True)
class BufferTally:
    """How much a reader holds, and since when."""

    rows: int = 0
    """Rows that were read into it."""
    since_us: int = 0
    """When, by the wall clock, the oldest of them was read."""


@dataclass(frozen=True, slots=True)
class Sending:
    """What a reader sends in a batch, and what is known of the rest."""

    held: pl.DataFrame | None
    """Rows of earlier batches, of windows that have closed since: those fire with them."""
    current: pl.DataFrame | None
    """Everything else, as if it had been read now."""
    tally: BufferTally
    next_due_us: int | None
    """The end of the first window that waits for rows which are still held."""
    wake_us: int | None
    """When, by the wall clock, what is still held must be sent."""


def merge_in_buffer(
    kernel: HoldingKernel,
    hold: HoldSpec | None,
    state: SlotState,
    arrived: Sequence[pl.DataFrame],
    rows_read: int,
    tally: BufferTally,
    time: OperatorTime,
) -> Sending:
    """Merge what arrived (combined rows with HASH) into what is held, and take out what is due.

    ``state`` holds the rest as runs afterwards. Without ``hold`` everything is due.
    """
    had_some = any(run.live_rows for run in state.runs())
    held = _take_due(kernel, state, time)
    came = [kernel.hold(frame) for frame in arrived if frame.height]
    tally = BufferTally(tally.rows + rows_read if had_some else rows_read, tally.since_us if had_some else time.now_us)
    if hold is None or time.drains or _is_due(hold, tally, time):
        kept = state.live()
        current = _unite(kernel, [*kept, *came])
        if kept:
            state.replace(kept[0].clear())
    elif hold.predicate is not None:
        current = _take_chosen(kernel, hold.predicate, state, came, time)
    else:
        current = _keep_open(kernel, state, came, time)
    runs = state.runs()
    if not runs:
        tally = BufferTally()
    return Sending(
        held=_release(kernel, held),
        current=_release(kernel, current),
        tally=tally,
        next_due_us=kernel.next_held_due_us(state, time) if runs else None,
        wake_us=tally.since_us + hold.delay_us if runs and hold is not None and hold.delay_us is not None else None,
    )


def _is_due(hold: HoldSpec, tally: BufferTally, time: OperatorTime) -> bool:
    if hold.count_rows is not None and tally.rows >= hold.count_rows:
        return True
    return hold.delay_us is not None and time.now_us - tally.since_us >= hold.delay_us


def _take_due(kernel: HoldingKernel, state: SlotState, time: OperatorTime) -> pl.DataFrame | None:
    """Take out what slots must know by the start of this batch."""
    until_us = kernel.must_go_until_us(time)
    if until_us is None:
        return None
    due = state.due(until_us)
    if not due:
        return None
    if kernel.meets_by_interval:
        # What meets a row that has to go, goes with it as one row.
        rows = kernel.unite_held(state.live())
        chosen = _must_go(kernel, rows, time)
        state.replace(rows.filter(~chosen))
    else:
        rows = kernel.unite_held(due)
        state.drop_due(until_us)
        chosen = _must_go(kernel, rows, time)
        if not chosen.all():
            state.append(rows.filter(~chosen))
    return rows.filter(chosen) if chosen.any() else None


def _take_chosen(
    kernel: HoldingKernel, predicate: pl.Expr, state: SlotState, came: list[pl.DataFrame], time: OperatorTime
) -> pl.DataFrame | None:
    rows = _unite(kernel, [*state.live(), *came])
    if rows is None:
        return None
    chosen = kernel.values(rows).select(predicate).to_series().fill_null(value=False) | _must_go(kernel, rows, time)
    keep = state.replace if state.runs() else state.append
    keep(rows.filter(~chosen))
    return rows.filter(chosen) if chosen.any() else None


def _keep_open(
    kernel: HoldingKernel, state: SlotState, came: list[pl.DataFrame], time: OperatorTime
) -> pl.DataFrame | None:
    """Keep what came, but for rows that slots must know at once: of some of their windows, it may be late."""
    rows = _unite(kernel, came)
    if rows is None:
        return None
    chosen = _must_go(kernel, rows, time)
    sent = rows.filter(chosen) if chosen.any() else None
    state.append(rows.filter(~chosen) if sent is not None else rows)
    compact(state, kernel.unite_held)
    return sent


def _must_go(kernel: HoldingKernel, rows: pl.DataFrame, time: OperatorTime) -> pl.Series:
    until_us = kernel.must_go_until_us(time)
    if until_us is None:
        return pl.repeat(value=False, n=rows.height, eager=True)
    below = rows.get_column(WINDOW) < until_us
    exactly = kernel.must_go(rows, time) if below.any() else None
    return below if exactly is None else below & exactly


def _unite(kernel: HoldingKernel, frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    some = [frame for frame in frames if frame.height]
    return kernel.unite_held(some) if some else None


def _release(kernel: HoldingKernel, rows: pl.DataFrame | None) -> pl.DataFrame | None:
    return None if rows is None or rows.is_empty() else kernel.release(rows)
