"""Rows of keys that share watermarks by group, as they wait where they were read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import polars as pl

from anabranch.compiled.hash_order import hashes_of
from anabranch.eventtime.key_clocks import Times, latest_by_group, shared_times
from anabranch.model import BEGINNING_OF_TIME, WINDOW, OperatorTime, SlotState
from anabranch.operators.aggregates.partials import concatenate, sort_as_run
from anabranch.operators.windows.key_time_kernel import ClockedKernel


class ClockedLanes(ClockedKernel, ABC):
    """What kernels of keys with shared watermarks do for rows that wait: readers know these watermarks, too."""

    meets_by_interval: ClassVar[bool]

    def hold(self, combined: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with their place in time as the WINDOW."""
        return combined.with_columns(pl.col(self._places[0]).alias(WINDOW))

    def unite_held(self, held: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a place and key."""
        merged = self._merge_held(concatenate(held))
        return sort_as_run(self.hold(merged).select(held[0].columns))

    def release(self, held: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they were combined."""
        return held.drop(WINDOW)

    def must_go_until_us(self, time: OperatorTime) -> int:
        """Return the place below which rows have to be sent if theirs is the group that is furthest ahead."""
        closed_us = np.array([BEGINNING_OF_TIME]) if time.shared is None else time.shared.closed_us
        return int(self._held_until_us(closed_us).max())

    def must_go(self, held: pl.DataFrame, time: OperatorTime) -> pl.Series:
        """Say of each row whether the watermark of its group has reached it."""
        _, closed_us = shared_times(self._clock, time, hashes_of(held))
        return pl.Series(held.get_column(WINDOW).to_numpy() < self._held_until_us(closed_us))

    def next_held_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return the first place of a row that waits; which group it is of, and when that is due, readers find out."""
        return min((run.min_window for run in state.runs() if run.min_window is not None), default=None)

    def with_held(self, stored: list[pl.DataFrame], runs: list[pl.DataFrame]) -> pl.DataFrame:
        """Return what every key has open."""
        return self._with_waited(self.unite(stored) if stored else None, self.unite_held(runs))

    def group_latest_us(self, combined: pl.DataFrame) -> dict[int, int]:
        """Return the latest event time of each group that rows came for."""
        return latest_by_group(self._with_latest(combined), self._clock.groups)

    def _as_open(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(self._run_columns)

    @abstractmethod
    def _held_until_us(self, closed_us: Times) -> Times:
        """Return the place below which something has closed, or may be late, under a watermark."""

    @abstractmethod
    def _merge_held(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Merge combined rows."""

    @abstractmethod
    def _with_latest(self, combined: pl.DataFrame) -> pl.DataFrame:
        """Return combined rows with LATEST."""
