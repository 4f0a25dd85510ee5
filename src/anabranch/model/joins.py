"""What a join is: its two inputs, which of their rows meet, and what becomes of a row that meets nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model.columns import SECTION
from anabranch.model.times import FLOW_CLOCK, Clock
from anabranch.model.windows import WindowSpec

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
JOIN_KINDS: tuple[JoinKind, ...] = get_args(JoinKind)

ClosedEnds = Literal["both", "left", "right", "none"]
"""Which ends of an interval of time are in it."""

LEFT, RIGHT = 0, 1
"""The inputs of a join by number."""

STORE, PROBE = 1, 2
"""What a slot does with a row of a join: keeps it for partners that will come, looks for those that came, or both."""

AT = "__at"
"""Int64 microseconds: the event time of a row, or the start of its window: what must fit for rows to meet."""

JOINED_AT = "joined_at"
"""Datetime: the event time of a result of a join."""


@dataclass(frozen=True, slots=True)
class Interval:
    """How far apart in event time two rows may be: the right one's time less the left one's, ends included."""

    least_us: int
    most_us: int


@dataclass(frozen=True, slots=True)
class Band:
    """How far apart numbers of two rows may be: the right one less the left one, ends included.

    It is as wide as the predicate that it was found in, or wider: rows are searched by it, and then held against that.
    """

    left: pl.Expr
    right: pl.Expr
    """By the names that columns have in results."""
    least: float | None
    most: float | None
    """None: without an end."""
    whole: bool
    """Whether they are integers, as times are, too; else floats."""
    single: bool = False
    """Whether floats are of single precision."""

    @property
    def is_closed(self) -> bool:
        """Whether it has both ends."""
        return self.least is not None and self.most is not None

    def of_input(self, number: int) -> pl.Expr:
        """Return the numbers of an input."""
        return self.left if number == LEFT else self.right


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One input of a join."""

    keys: tuple[str, ...]
    """In the order of the other input's; results call them as the left input does."""
    columns: Mapping[str, str]
    """What results keep of it besides the keys: their name → its own."""
    schema: Mapping[str, pl.DataType]
    """The types of keys and columns, by the names that results have."""


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Join the rows of two inputs whose keys are equal, and whose times are close enough or in the same window.

    Without keys, a predicate says which rows meet, or all do.
    """

    keeps_state_by_key: ClassVar[bool] = True

    inputs: tuple[JoinInput, JoinInput]
    how: JoinKind = "inner"
    within: Interval | None = None
    """None: rows of all times meet, unless a window says else."""
    window: WindowSpec | None = None
    time_column: str | None = None
    """None: the inputs have no event time."""
    clock: Clock = FLOW_CLOCK
    """Where keys have their own time, what both inputs say of it; how far theirs stay behind is in ``delays_us``."""
    delays_us: tuple[int, int] = (0, 0)
    """By input, how far a key's clock stays behind its latest row, where keys have their own time."""
    draws: bool = False
    """Whether a number is drawn for each row, by which routes that place rows, not keys, go."""
    predicate: pl.Expr | None = None
    """What pairs must fulfil besides, over columns by the names that results have."""
    band: Band | None = None
    """By which partners are searched, where not by equal keys."""
    near: bool = False
    """Whether keys of partners, one integer column, need not be equal: they are in the band."""
    newest: bool = False
    """Whether a left row meets the newest of its partners only, once no newer one can come: an as-of join."""

    @property
    def follows_own_time(self) -> bool:
        """Whether it is the time of the key that counts, not that of the flow."""
        return self.clock.is_kept_in_slots

    @property
    def copied(self) -> int:
        """The input of which every slot of a split key has all rows; of the other, each row is on one of the slots.

        Of near keys, rows of it are on all slots that have keys near theirs.

        Where it matters whether a row met somebody, its slot must know: such rows are not copied, if that can be
        helped. In a full join it matters of all: slots that have copies of one tell each other.
        """
        return LEFT if self.how == "right" else RIGHT

    def near_keys(self, number: int) -> tuple[int, int]:
        """Return by how much keys of partners of a row of an input are at least, and at most, more than its own."""
        assert self.band is not None and self.band.least is not None and self.band.most is not None
        least, most = int(self.band.least), int(self.band.most)
        return (least, most) if number == LEFT else (-most, -least)

    @property
    def is_bounded(self) -> bool:
        """Whether a row meets only those of some time."""
        return self.within is not None or self.window is not None

    def hold_us(self, number: int) -> int | None:
        """Return how long beyond its AT a row of an input is needed, in watermarks; None: for ever."""
        if self.window is not None:
            return self.window.size_us
        if self.within is None:
            return None
        return (self.within.most_us if number == LEFT else -self.within.least_us) + 1

    @property
    def swaps_sides(self) -> bool:
        """Whether the other input may be copied instead, key by key: no row of an inner join need know whom it met.

        Of keys that are near each other, all must have the same input copied, or rows of two of them would not meet.
        """
        return self.how == "inner" and not self.newest and not self.near

    @property
    def grows_for_ever(self) -> bool:
        """Whether nothing says when a row may go."""
        return self.within is None and self.window is None

    @property
    def keys(self) -> tuple[str, ...]:
        """What results call the keys."""
        return self.inputs[LEFT].keys


def rows_section(number: int) -> int:
    """Return the section of the state that has the rows of an input."""
    return 1 + 2 * number


def fates_section(number: int) -> int:
    """Return the section of the state that says which rows of an input met somebody after they were written."""
    return 2 + 2 * number


CLOCKS_SECTION = 5
"""The section of the state that has the clocks of keys, where each has its own."""


def is_of_input(rows: pl.DataFrame, number: int) -> NDArray[np.bool_]:
    """Say of each row of a join's state whether it is of an input."""
    sections = [rows_section(number), fates_section(number)]
    return np.isin(rows.get_column(SECTION).to_numpy(), sections)


def is_row_of_input(rows: pl.DataFrame, number: int) -> NDArray[np.bool_]:
    """Say of each row of a join's state whether it is a row of an input, and not what became of one."""
    found: NDArray[np.bool_] = rows.get_column(SECTION).to_numpy() == rows_section(number)
    return found


def is_clock_of_key(rows: pl.DataFrame) -> NDArray[np.bool_]:
    """Say of each row of a join's state whether it has the clocks of a key."""
    found: NDArray[np.bool_] = rows.get_column(SECTION).to_numpy() == CLOCKS_SECTION
    return found
