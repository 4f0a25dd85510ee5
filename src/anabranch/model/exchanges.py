"""How rows of a key come together: through an exchange, merged before it, or without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, Literal, Protocol, get_args, runtime_checkable

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

ExchangeWay = Literal["plain", "merged", "held"]
"""What a task does in one batch with rows that leave it: sends them as they are; merges them first; merges them and
holds them back as long as the flow allows. Results are the same."""


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
    slice_us: int | None = None
    """The length of the slices of time that rows are merged in; None: as long as the windows allow."""


@dataclass(frozen=True, slots=True)
class ExchangeDecision:
    """What an operator's exchange is, and why."""

    kind: ExchangeKind
    reason: str


@dataclass(frozen=True, slots=True)
class ExchangeTally:
    """What one operator's exchange did in a batch, in rows and bytes; equal on every try of a task."""

    rows: int = 0
    """Rows that came to it."""
    sent_rows: int = 0
    sent_bytes: int = 0
    held_rows: int = 0
    """Merged rows that came to be held back, less those that were sent; negative when more were sent."""
    tried_rows: int = 0
    """Those of the rows behind the figures that follow; some of them are estimated, because only one way was gone."""
    left_rows: int = 0
    """What a merge per key and window leaves of them."""
    plain_bytes: int = 0
    """What they take as they are."""
    merged_bytes: int = 0
    """What they take merged."""

    def __add__(self, other: ExchangeTally) -> ExchangeTally:
        return ExchangeTally(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def to_json(self) -> list[int]:
        """Return plain JSON data."""
        return list(astuple(self))

    @classmethod
    def from_json(cls, data: Sequence[int]) -> ExchangeTally:
        """Read what ``to_json`` wrote."""
        return cls(*data)


@dataclass(frozen=True, slots=True)
class ExchangeCosts:
    """Processor seconds that one operator's exchange took in a batch, where rows leave; different on every try."""

    merge_seconds: float = 0.0
    """Of merging the rows that were tried, or what it would have taken."""
    send_seconds: float = 0.0
    """Of finding slots for what was sent, and of cutting it into blocks."""
    hold_seconds: float = 0.0
    """Of keeping rows back."""

    def __add__(self, other: ExchangeCosts) -> ExchangeCosts:
        return ExchangeCosts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class ExchangeFigures:
    """One operator's exchange in one batch, as users and displays see it."""

    operator: str
    way: ExchangeWay
    """What it did."""
    next_way: ExchangeWay
    """What it does in the next batch."""
    reason: str
    rows: int
    sent_rows: int
    sent_bytes: int
    left_share: float | None = None
    """The part of the rows that a merge leaves or would leave; None if the batch was too small to tell."""
    merge_seconds: float = 0.0
    """Processor time of merging, in all tasks that rows left."""
    send_seconds: float = 0.0
    hold_seconds: float = 0.0
    costs: Mapping[str, float] = field(default_factory=dict)
    """Way → what it was found to cost, in processor seconds a million rows; empty while that is not known."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ExchangeFigures:
        """Read what ``asdict`` gave; figures that this version does not know are left out."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


@dataclass(frozen=True, slots=True)
class ReaderBuffer:
    """What one reader holds back of one operator, after a batch."""

    reader: int
    """The number of the read task that holds it."""
    runs: tuple[RunRef, ...]
    rows: int = 0
    """Rows that were read into it."""
    since_us: int = 0
    """When, by the wall clock, the oldest of them was read."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            # The word that manifests of format 3 have for a reader's number.
            "lane": self.reader,
            "runs": [ref.to_json() for ref in self.runs],
            "rows": self.rows,
            "since_us": self.since_us,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReaderBuffer:
        """Read what ``to_json`` wrote."""
        runs = tuple(RunRef.from_json(ref) for ref in data["runs"])
        return cls(data["lane"], runs, data["rows"], data["since_us"])


class HoldingKernel(Kernel, Protocol):
    """A kernel whose combined rows may wait for later batches where they were read, without changing any result.

    Rows that wait have WINDOW, a time by which it is told when they must be sent, and are sorted like a run.
    """

    meets_by_interval: bool
    """Whether rows with different WINDOWs merge, as fragments of sessions do."""

    def hold(self, combined: pl.DataFrame) -> pl.DataFrame:
        """Return combined rows (with HASH) as they wait, in any order."""
        ...

    def unite_held(self, held: list[pl.DataFrame]) -> pl.DataFrame:
        """Return rows that wait as one sorted frame, merged as far as they can be."""
        ...

    def release(self, held: pl.DataFrame) -> pl.DataFrame:
        """Return rows that waited as combined ones."""
        ...

    def must_go_until_us(self, time: OperatorTime) -> int | None:
        """Return the WINDOW below which rows that wait may have to be sent in a batch; None if none has to be."""
        ...

    def must_go(self, held: pl.DataFrame, time: OperatorTime) -> pl.Series | None:
        """Say of each row with such a WINDOW whether it has to be sent; None: all of them."""
        ...

    def next_held_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return the first event time at which something is emitted that rows which wait are part of."""
        ...

    def with_held(self, stored: list[pl.DataFrame], runs: list[pl.DataFrame]) -> pl.DataFrame:
        """Return what ``unite`` gives of slots, with rows that wait (at least one run of them)."""
        ...

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


@runtime_checkable
class TellsGroups(Protocol):
    """A kernel that can tell, of combined rows, how far the groups of keys are whose watermarks they raise."""

    def group_latest_us(self, combined: pl.DataFrame) -> Mapping[int, int]:
        """Return the latest event time of each group that rows came for."""
        ...


class StoreKernel(HoldingKernel, Protocol):
    """A kernel whose partial results may meet in a store."""

    def by_window(self, rows: pl.DataFrame, after_us: int) -> pl.DataFrame:
        """Return combined rows as partial rows of all their windows that end after the given time."""
        ...

    def results(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return what ``by_window`` gave as results, row by row."""
        ...
