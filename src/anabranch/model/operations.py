"""What stateful operators are told to do: windows, aggregates, and the kernel that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model.joins import JoinSpec
from anabranch.model.runs import RunRef, SlotState
from anabranch.model.times import FLOW_CLOCK, Clock, OperatorTime, SplitKeyClocks
from anabranch.model.windows import CountWindowSpec, LatePolicy, WindowSpec

Column = Callable[[str], pl.Expr]
"""Maps an aggregate's own short column name to the real column: ``col("n")``."""


class Aggregate(Protocol):
    """A mergeable aggregate, all in Polars expressions, so that it runs before and after the exchange.

    ``merge`` must not care how rows were grouped into partials: partial results of any cut of the rows,
    merged in any grouping, finish to the same value.

    Examples:
        >>> class Product:
        ...     kind = "product"
        ...
        ...     def inputs(self):
        ...         return {"x": pl.col("volts")}
        ...
        ...     def partial(self, col):
        ...         return {"p": col("x").product()}
        ...
        ...     def merge(self, col):
        ...         return {"p": col("p").product()}
        ...
        ...     def finish(self, col):
        ...         return col("p")
        >>> collect(readings.filter("volts > 220").key_by("sensor").agg(product=Product()))
        [(1, 53130.0), (2, 229.5)]
    """

    @property
    def kind(self) -> str:
        """A stable name with its parameters, ``quantile(0.5)``: checkpoints compare it."""
        ...

    def inputs(self) -> Mapping[str, pl.Expr]:
        """Return the row expressions it needs, by short name."""
        ...

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        """Aggregate input columns of one group into partial columns."""
        ...

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        """Aggregate partial columns of one group into the same partial columns."""
        ...

    def finish(self, col: Column) -> pl.Expr:
        """Turn partial columns into the result."""
        ...


class _Timed:
    """What specifications with a window and a clock have in common."""

    __slots__ = ()

    window: WindowSpec | None
    clock: Clock

    @property
    def follows_own_time(self) -> bool:
        """Whether windows close in the time of their key, group or slot, not in that of the flow."""
        return self.window is not None and self.clock.is_kept_in_slots

    @property
    def keeps_state_by_key(self) -> bool:
        """Whether all state of a key lies together, because what is due differs from key to key."""
        if self.window is None:
            return False
        again = self.window.marks_emissions or (self.window.kind == "session" and self.window.late != "drop")
        return again or self.follows_own_time


@dataclass(frozen=True, slots=True)
class AggregateSpec(_Timed):
    """Aggregate per key, and per window if there is one; without, a running aggregate with update output."""

    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    window: WindowSpec | None = None
    time_column: str | None = None
    ttl_us: int | None = None
    clock: Clock = FLOW_CLOCK
    count_window: CountWindowSpec | None = None
    """Instead of a window in time."""
    slice_us: int | None = None
    """The length of the slices of time that rows are merged in before they meet; None: that of a pane."""


@dataclass(frozen=True, slots=True)
class TopKSpec(_Timed):
    """Keep the k rows per key (and window) with the largest, or smallest, value of a column."""

    keys: tuple[str, ...]
    by: str
    k: int
    descending: bool = True
    columns: tuple[str, ...] = ()
    """What is kept of each row besides keys and ``by``."""
    window: WindowSpec | None = None
    time_column: str | None = None
    ttl_us: int | None = None
    clock: Clock = FLOW_CLOCK
    count_window: CountWindowSpec | None = None


@dataclass(frozen=True, slots=True)
class DistinctSpec:
    """Let the first row of each key pass (smallest time, then order), until its time-to-live has passed.

    The time-to-live runs from the row that passed, in event time if there is a time column: then rows older than the
    watermark less the time-to-live are late.
    """

    follows_own_time: ClassVar[bool] = False
    keeps_state_by_key: ClassVar[bool] = False

    keys: tuple[str, ...]
    time_column: str | None = None
    ttl_us: int | None = None
    clock: Clock = FLOW_CLOCK


class _Waiting:
    """What specifications have in common whose keys wait for event time, each in its own row of the state."""

    __slots__ = ()

    clock: Clock
    keeps_state_by_key: ClassVar[bool] = True

    @property
    def follows_own_time(self) -> bool:
        """Whether it is the time of the key, group or slot that counts, not that of the flow."""
        return self.clock.is_kept_in_slots


@dataclass(frozen=True, slots=True)
class ProcessSpec(_Waiting):
    """Let a user's processor handle rows and timers, with state per key."""

    keys: tuple[str, ...]
    processor: object
    columns: Mapping[str, pl.DataType]
    """What comes, without the engine's own columns."""
    schema: Mapping[str, pl.DataType]
    """What it emits."""
    time_column: str | None
    """None: rows have no event time, and are handled in the order they come."""
    clock: Clock = FLOW_CLOCK
    ordered: bool = False
    """Whether rows wait until the watermark has passed them, and are handled in the order of their time."""


@dataclass(frozen=True, slots=True)
class OrderSpec(_Waiting):
    """Hold rows until the watermark has passed them, and hand them on in the order of their time."""

    keys: tuple[str, ...]
    time_column: str
    clock: Clock = FLOW_CLOCK
    late: LatePolicy = "drop"


OperatorSpec = AggregateSpec | TopKSpec | DistinctSpec | ProcessSpec | OrderSpec | JoinSpec


@dataclass(frozen=True, slots=True)
class Prepared:
    """What stage A sends on, and what it found out on the way."""

    frame: pl.DataFrame
    late_rows: int = 0
    late: pl.DataFrame | None = None
    """The late rows as they came, where the flow wants them."""


@dataclass(frozen=True, slots=True)
class Fired:
    """What an operator emits in one batch on one slot."""

    frame: pl.DataFrame
    late_rows: int = 0
    slot_late_rows: int = 0
    """Rows that would be late if the slot followed its own rows only; filled where slots find late rows."""
    late: pl.DataFrame | None = None
    """The late rows as they came, where the flow wants them."""
    updated_rows: int = 0
    """Late rows that changed a result which had been emitted."""
    latest_us: int | None = None
    """The latest event time among the rows that came."""
    group_latest_us: Mapping[int, int] | None = None
    """The same by group of keys, where watermarks are kept per group."""
    forgotten_us: Mapping[int, int] | None = None
    """By group of keys, the highest watermark of those that are forgotten now, where each key has its own."""
    wake_us: int | None = None
    """When, by the wall clock, something held here may have to be done without any row coming."""
    next_due_us: int | None = None
    """The smallest event time at which something still held here becomes due (None: nothing waits)."""
    reached_us: int | None = None
    """The event time that a drain reached by handing on rows which waited; windows say it by their ends."""
    shared: pl.DataFrame | None = None
    """Partial rows of keys that other slots have, too: they must meet before they are results."""


@dataclass(frozen=True, slots=True)
class Met:
    """What parts of keys with their own time come to in one batch."""

    frame: pl.DataFrame
    """The results."""
    clocks: SplitKeyClocks | None = None
    """The keys' watermarks after the batch, where each has its own."""
    next_due_us: int | None = None
    """What ``Fired`` says of these keys, who cannot say it part by part."""
    wake_us: int | None = None


class Standing(Protocol):
    """What one slot is to the keys that it holds, in one batch."""

    @property
    def split_hashes(self) -> pl.Series | None:
        """The hashes of all keys that several slots share, sorted; None if that cannot be listed."""
        ...

    def shares(self, hashes: pl.Series, windows: pl.Series | None) -> pl.Series:
        """Say of each row whether other slots may hold parts of the same result."""
        ...

    def lacks(self, hashes: pl.Series, windows: pl.Series) -> pl.Series | None:
        """Say of each row whether its window is another slot's; None if none is."""
        ...

    def count_slots(self, rows: pl.DataFrame, keys: tuple[str, ...]) -> pl.Series:
        """Return how many slots share the key of each row, which has HASH and the key's columns."""
        ...

    def finds_copies(self, hashes: pl.Series, *, may_swap: bool, is_usual: bool) -> pl.Series:
        """Say of each row of an input of a join whether it is a copy of one that another slot counts.

        ``is_usual``: unless the routes say else for a key, all its slots get the rows of this input; ``may_swap``: they
        may say else.
        """
        ...


class KeepsState(Protocol):
    """What all kernels have in common. Every method is a pure function of its arguments and the state it is given."""

    mergeable: bool
    """Whether ``combine`` may run before the exchange."""

    @property
    def meeting(self) -> Meeting | MeetingInTime | None:
        """Where the parts of a key meet that several slots share; None: no two slots may share one."""
        ...

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits; raise ``FlowError`` naming the alternatives if a column is missing
        or a type does not fit."""
        ...

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on, as plain JSON data: kind, keys with types, window, aggregates."""
        ...

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Take in state that other slots handed over, before anything else of the batch."""
        ...

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return the state in these runs (at least one, oldest first) as one sorted frame that could be a run itself.

        ``passed_us`` is the watermark up to which everything has fired."""
        ...

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return what ``stored`` gave for several slots as the state of one; the parts of a shared key meet."""
        ...

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return what ``stored`` gave as a person would read it: keys, windows, values so far."""
        ...


class Kernel(KeepsState, Protocol):
    """A stateful operator on Polars frames.

    ``prepare`` and ``combine`` run before the exchange, ``advance`` after it. Frames between them carry the key
    columns, HASH, WINDOW when windowed, and the columns of the operator. All outputs are in a canonical order.
    """

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep the columns that are needed, assign windows (panes), drop and count late rows.

        The input has the key columns (never null), ORDER, and the time column as Datetime (never null)."""
        ...

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate prepared rows into partial rows: one a key and window (the local merge)."""
        ...

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Take what arrived (prepared rows, or combined ones), update the state, emit.

        ``standing`` is None while every key is on one slot; what is shared is fired unfinished.

        Each frame is what one call of ``prepare`` or ``combine`` returned, or a part of it, with HASH added: so a
        combined frame has every key and window at most once. A result without rows may come without columns.
        Called on every slot in every batch, with an empty list where nothing arrived."""
        ...


@runtime_checkable
class JoinKernel(KeepsState, Protocol):
    """A kernel that gets the rows of each of its inputs for itself."""

    spec: JoinSpec

    def prepare_input(self, number: int, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Do with rows of one input what ``prepare`` does."""
        ...

    def advance_inputs(
        self,
        received: Sequence[list[pl.DataFrame]],
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Do with rows of all inputs what ``advance`` does; each has its own section of the state."""
        ...


@runtime_checkable
class Meeting(Protocol):
    """Makes results of split keys, whose parts slots fire by themselves."""

    def meet(self, shared: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the results of what several slots fired of the keys that they share in one batch."""
        ...


@runtime_checkable
class MeetingInTime(Protocol):
    """Makes results of split keys with their own time: what is due is known only where all their parts are.

    Each part judges its rows by the watermark of the whole key, as of the start of the batch, and keeps what it has of
    the key's windows. In every batch, the parts send all that is open and all that came to the meeting, which does what
    one slot would do. So a row splitter, which may share any key, would move the whole state.
    """

    def meet_in_time(self, shared: list[pl.DataFrame], time: OperatorTime) -> Met:
        """Return the results of keys that slots share, and the keys' watermarks after the batch."""
        ...

    def absorb_parts(self, handed: Sequence[RunRef], state: SlotState, time: OperatorTime) -> None:
        """Take in state that other slots handed over; parts of a key become one part."""
        ...

    def clocks_of(self, state: SlotState, hashes: NDArray[np.uint64], time: OperatorTime) -> SplitKeyClocks | None:
        """Return the watermarks of keys (sorted, unique hashes) that are about to be split; None if none is known."""
        ...

    def settle(self, stored: pl.DataFrame, clocks: SplitKeyClocks) -> pl.DataFrame:
        """Return state with what the last meeting did to it: parts learn that in the next batch only."""
        ...


def splits_keys(kernel: KeepsState) -> bool:
    """Say whether several slots may share a key of an operator."""
    return kernel.meeting is not None or isinstance(kernel, JoinKernel)


def spreads_any_key(kernel: KeepsState) -> bool:
    """Say whether a row splitter may share any key of an operator, and not only the few that a routing table names."""
    return splits_keys(kernel) and not isinstance(kernel.meeting, MeetingInTime)
