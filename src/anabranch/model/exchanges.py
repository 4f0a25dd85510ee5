"""How rows of a key come together: through an exchange, merged before it, or without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import polars as pl

from anabranch.model.operations import Fired, Kernel, Standing
from anabranch.model.runs import RunRef, SlotState
from anabranch.model.times import OperatorTime

ExchangeChoice = Literal["auto", "routed", "local", "global", "ahead"]
"""*routed*: rows go to their key's slot as they are. *local*: readers merge rows of a key first. *global*: there is no
exchange, readers' partial results meet in a store. *ahead*: there is none, the source's partitions are the slots."""
EXCHANGES: tuple[str, ...] = get_args(ExchangeChoice)

ExchangeKind = Literal["routed", "local", "global", "ahead"]
"""What *auto* was decided to be."""


@dataclass(frozen=True, slots=True)
class HoldSpec:
    """How long readers keep merged rows before they send them; any condition that is set is enough.

    Whatever it says, a row is sent in the batch in which a window that holds it fires, and when the flow drains.
    """

    delay_us: int | None = None
    """By the wall clock, from when the oldest row that is held was read."""
    count_rows: int | None = None
    """Rows that were read into what one reader holds."""
    predicate: pl.Expr | None = None
    """Over keys, windows and the values so far: merged rows for which it is true."""


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """What an operator was told about its exchange. A checkpoint depends on it only where the choice is *global*."""

    choice: ExchangeChoice = "auto"
    hold: HoldSpec | None = None
    """None: what is merged is sent in the batch that read it."""
    slot_us: int | None = None
    """The length of the time slots that rows are merged in; None: as long as the windows allow."""


@dataclass(frozen=True, slots=True)
class ExchangeDecision:
    """What an operator's exchange is, and why."""

    kind: ExchangeKind
    reason: str


@dataclass(frozen=True, slots=True)
class HeldLane:
    """What one reader holds back of one operator, after a batch."""

    lane: int
    """The number of the read task that holds it."""
    runs: tuple[RunRef, ...]
    rows: int = 0
    """Rows that were read into it."""
    since_us: int = 0
    """When, by the wall clock, the oldest of them was read."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "lane": self.lane,
            "runs": [ref.to_json() for ref in self.runs],
            "rows": self.rows,
            "since_us": self.since_us,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HeldLane:
        """Read what ``to_json`` wrote."""
        runs = tuple(RunRef.from_json(ref) for ref in data["runs"])
        return cls(data["lane"], runs, data["rows"], data["since_us"])


class HoldingKernel(Kernel, Protocol):
    """A kernel whose combined rows may wait for later batches where they were read, without changing any result."""

    def advance_held(
        self,
        held: list[pl.DataFrame],
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Do what ``advance`` does; ``held`` are combined rows that were in time in earlier batches."""
        ...

    def by_window(self, rows: pl.DataFrame, after_us: int) -> pl.DataFrame:
        """Return combined rows as partial rows of all their windows that end after the given time."""
        ...

    def results(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return what ``by_window`` gave as results, row by row."""
        ...
