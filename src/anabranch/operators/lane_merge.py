"""The merge before the exchange that holds rows back: what one reader sends now, and what it keeps for later batches.

Results never depend on it. A window fires in a batch from what slots hold and from what readers held back of it, which
comes with that batch and is told apart from the batch's own rows: those are too late for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.eventtime import next_window_end_us
from anabranch.eventtime.windows import last_end_until_us
from anabranch.model import WINDOW, OperatorTime, SlotState, WindowSpec
from anabranch.model.exchanges import HoldingKernel, HoldSpec
from anabranch.operators.compaction import compact


@dataclass(frozen=True, slots=True)
class LaneTally:
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
    tally: LaneTally
    next_due_us: int | None
    """The end of the first window that waits for rows which are still held."""
    wake_us: int | None
    """When, by the wall clock, what is still held must be sent."""


def merge_in_lane(
    kernel: HoldingKernel,
    window: WindowSpec | None,
    hold: HoldSpec | None,
    state: SlotState,
    arrived: Sequence[pl.DataFrame],
    rows_read: int,
    tally: LaneTally,
    time: OperatorTime,
) -> Sending:
    """Merge what arrived (combined rows with HASH) into what is held, and take out what is due.

    ``state`` holds the rest as runs afterwards. Without ``hold`` everything is due.
    """
    had_some = any(run.live_rows for run in state.runs())
    closed_until_us = None if window is None else last_end_until_us(window, time.closed_us)
    held = _take_closed(state, closed_until_us)
    tally = LaneTally(tally.rows + rows_read if had_some else rows_read, tally.since_us if had_some else time.now_us)
    if hold is None or time.drains or _is_due(hold, tally, time):
        kept = state.live()
        current = [*kept, *arrived]
        if kept:
            state.replace(kept[0].clear())
    elif hold.predicate is not None:
        current = _take_chosen(kernel, hold.predicate, state, arrived, closed_until_us)
    else:
        current = _keep_open(kernel, state, arrived, closed_until_us)
    runs = state.runs()
    if not runs:
        tally = LaneTally()
    return Sending(
        held=kernel.unite(held) if held else None,
        current=_unite(kernel, current),
        tally=tally,
        next_due_us=_next_due_us(window, state, time),
        wake_us=tally.since_us + hold.delay_us if runs and hold is not None and hold.delay_us is not None else None,
    )


def _is_due(hold: HoldSpec, tally: LaneTally, time: OperatorTime) -> bool:
    if hold.count_rows is not None and tally.rows >= hold.count_rows:
        return True
    return hold.delay_us is not None and time.now_us - tally.since_us >= hold.delay_us


def _take_closed(state: SlotState, closed_until_us: int | None) -> list[pl.DataFrame]:
    """Take out what is part of a window that has closed by the start of this batch."""
    if closed_until_us is None:
        return []
    rows = state.due(closed_until_us)
    state.drop_due(closed_until_us)
    return rows


def _take_chosen(
    kernel: HoldingKernel,
    predicate: pl.Expr,
    state: SlotState,
    arrived: Sequence[pl.DataFrame],
    closed_until_us: int | None,
) -> list[pl.DataFrame]:
    rows = _unite(kernel, [*state.live(), *arrived])
    if rows is None:
        return []
    chosen = kernel.values(rows).select(predicate).to_series().fill_null(value=False)
    if closed_until_us is not None:
        chosen |= rows.get_column(WINDOW) < closed_until_us
    keep = state.replace if state.runs() else state.append
    keep(rows.filter(~chosen))
    return [rows.filter(chosen)] if chosen.any() else []


def _keep_open(
    kernel: HoldingKernel, state: SlotState, arrived: Sequence[pl.DataFrame], closed_until_us: int | None
) -> list[pl.DataFrame]:
    """Keep what arrived, but for rows of which some windows have closed: slots must know which ones."""
    rows = _unite(kernel, arrived)
    if rows is None:
        return []
    sent: list[pl.DataFrame] = []
    if closed_until_us is not None:
        partly_late = rows.get_column(WINDOW) < closed_until_us
        if partly_late.any():
            sent, rows = [rows.filter(partly_late)], rows.filter(~partly_late)
    state.append(rows)
    compact(state, kernel.unite)
    return sent


def _unite(kernel: HoldingKernel, frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    some = [frame for frame in frames if frame.height]
    return kernel.unite(some) if some else None


def _next_due_us(window: WindowSpec | None, state: SlotState, time: OperatorTime) -> int | None:
    starts = [run.min_window for run in state.runs() if run.min_window is not None]
    if window is None or not starts:
        return None
    return next_window_end_us(window, min(starts), max(time.closed_us, time.fire_us))
