"""What kinds of windows differ in where the state of a key lies together: panes or sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime.key_clocks import KeyClocks, Times
from anabranch.eventtime.lateness import Judged
from anabranch.model import OperatorTime


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What became of the keys of a batch when its rows came and time went on."""

    judged: Judged
    results: list[pl.DataFrame]
    rows: pl.DataFrame | None
    """What is open, or may be changed by late rows, with its PLACE."""
    last_end_us: Times
    """By key, the end of the last window that was emitted; where there is none, the beginning of time."""


class Windower(Protocol):
    """One kind of windows: what of a key is open, what is due, and what becomes of it as rows come and time goes on.

    State rows are what a key has open, one row each. Rows of a batch, known or arrived, have the PLACE of their key.
    """

    @property
    def places(self) -> tuple[str, ...]:
        """The Int64 columns that say where in time a state row is; the first is null in a row with nothing open."""
        ...

    @property
    def flags(self) -> tuple[str, ...]:
        """The Boolean columns beside them."""
        ...

    @property
    def meets_by_interval(self) -> bool:
        """Whether rows at different places may belong to one window."""
        ...

    def describe(self) -> dict[str, object]:
        """Return its kind and its windows as plain JSON data: checkpoints compare it."""
        ...

    def place_rows(self, time_column: str) -> list[pl.Expr]:
        """Return what rows must carry to be combined."""
        ...

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into partial rows, with their places and the number of ROWS behind each."""
        ...

    def with_latest(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows that came, combined or not, with all places and with LATEST."""
        ...

    def take(
        self, known: pl.DataFrame | None, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime
    ) -> Taken:
        """Fire, take rows in, and fire again; known are the rows that have something open."""
        ...

    def finish_open(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return results so far of partial rows."""
        ...

    def is_kept(self, rows: pl.DataFrame, clock_us: Times) -> NDArray[np.bool_]:
        """Say of each row whether it is needed, or a late row may need it, under its key's clock."""
        ...

    def is_due(self, rows: pl.DataFrame, after_us: Times, until_us: Times | int) -> NDArray[np.bool_]:
        """Say of each row whether something is to be done when its key's clock rises from one time to another."""
        ...

    def is_waiting(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        """Say of each row whether something of it is still to be emitted; asked where keys have their own clocks."""
        ...

    def next_ends_us(self, rows: pl.DataFrame, passed_us: Times) -> Times:
        """Return the next ends after a time of the windows of those rows that have one."""
        ...

    def held_until_us(self, closed_us: Times) -> Times:
        """Return the place below which something has closed, or may be late, under a watermark."""
        ...

    def merge_combined(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return combined rows, merged as far as they can be."""
        ...

    def merge_open(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """Return state rows that have something open, merged as far as they can be."""
        ...
