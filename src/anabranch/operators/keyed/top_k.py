"""The best rows per key, as an aggregate, and the kernel that lays them out as rows again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS
from anabranch.errors import FlowError
from anabranch.model import (
    BATCH,
    EMISSION,
    ORDER,
    TIME,
    Aggregate,
    Column,
    Fired,
    Kernel,
    Meeting,
    MeetingInTime,
    Met,
    OperatorTime,
    Prepared,
    RunRef,
    SlotState,
    SplitKeyClocks,
    Standing,
    TopKSpec,
)

RANK = "rank"
_BEST, _GROUP = "__best", "__group"
_BY, _TIES = "by", ("time", "batch", "order")
_MOST_KEPT_IN_ORDER = 32
"""More are put in order faster by sorting all."""
_WITHIN_INT64 = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """Keeps the k rows with the largest or smallest value, ties by (event time, batch, order); in no order itself.

    Rows where the value is null do not compete.
    """

    by: str
    k: int
    descending: bool
    columns: tuple[str, ...]
    accepts: Literal["anything"] = "anything"

    @property
    def kind(self) -> str:
        return f"top_{self.k}({self.by}, {'largest' if self.descending else 'smallest'})"

    def inputs(self) -> Mapping[str, pl.Expr]:
        ties = [pl.col(column).alias(name) for column, name in zip((TIME, BATCH, ORDER), _TIES, strict=True)]
        kept = [pl.col(column).alias(f"column.{column}") for column in self.columns]
        by = pl.col(self.by)
        return {"row": pl.when(by.is_not_null()).then(pl.struct(by.alias(_BY), *ties, *kept))}

    def partial(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"rows": self._per_group(col("row").drop_nulls().implode())}

    def merge(self, col: Column) -> Mapping[str, pl.Expr]:
        return {"rows": self._per_group(col("rows").implode().list.eval(pl.element().explode()))}

    def finish(self, col: Column) -> pl.Expr:
        return col("rows")

    def _per_group(self, rows: pl.Expr) -> pl.Expr:
        # Called once, with the lists of all groups. Sorting within the groups of a group_by is slower, and not safe:
        # sort_by behind explode makes Polars 2.1 read beyond its buffers.
        return rows.map_batches(self._cut_groups, return_dtype=pl.self_dtype(), is_elementwise=True)

    def _cut_groups(self, groups: pl.Series) -> pl.Series:
        too_long = groups.list.len() > self.k
        if not too_long.any():
            return groups
        numbered = pl.DataFrame({_GROUP: pl.int_range(len(groups), eager=True), _BEST: groups})
        rows = numbered.filter(too_long).explode(_BEST)
        may_be_best = find_best(rows.get_column(_GROUP), rows.get_column(_BEST).struct.field(_BY), self)
        cut = (
            self._rank(rows if may_be_best is None else rows.filter(may_be_best))
            .filter(pl.col(RANK) <= self.k)
            .group_by(_GROUP, maintain_order=True)
            .agg(_BEST)
        )
        return pl.concat([numbered.filter(~too_long), cut]).sort(_GROUP).get_column(_BEST)

    def rank_rows(self, numbered: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of lists in BEST, best first within each GROUP, with their rank from 1."""
        return self._rank(numbered.explode(_BEST))

    def _rank(self, rows: pl.DataFrame) -> pl.DataFrame:
        best = pl.col(_BEST).struct
        order = [pl.col(_GROUP), best.field(_BY), *(best.field(tie) for tie in _TIES)]
        rows = rows.sort(order, descending=[False, self.descending, False, False, False])
        lengths = rows.get_column(_GROUP).rle().struct.field("len")
        return rows.with_columns(pl.int_ranges(1, lengths.cast(pl.Int64) + 1, eager=True).explode().alias(RANK))


def find_best(groups: pl.Series, values: pl.Series, best: Best) -> pl.Series | None:
    """Say of rows, group after group, which may be among the k best of theirs: those that are not need no sorting.

    None where all rows have to be sorted: few of them, a large k, values that are no numbers.
    """
    if len(values) < WORTH_COMPILED_CODE_ROWS or best.k > _MOST_KEPT_IN_ORDER or values.null_count():
        return None
    if values.dtype.is_integer() and values.dtype in _WITHIN_INT64:
        numbers: NDArray[Any] = values.cast(pl.Int64).to_numpy()
        numbers = numbers if best.descending else ~numbers
    elif values.dtype.is_float() and not values.is_nan().any():
        numbers = values.cast(pl.Float64).to_numpy()
        numbers = numbers if best.descending else -numbers
    else:
        return None
    from anabranch.compiled.top_k_loops import mark_best

    marks = np.zeros(len(numbers), np.bool_)
    ends = np.cumsum(groups.rle().struct.field("len").to_numpy(), dtype=np.int64)
    mark_best(numbers, ends, best.k, marks)
    return pl.Series(marks)


class TopK:
    """Lays the best rows that an aggregating kernel keeps out as rows, with their rank from 1."""

    def __init__(self, spec: TopKSpec, make_inner: Callable[[Mapping[str, Aggregate]], Kernel]) -> None:
        """``make_inner`` returns the kernel that keeps the given aggregates per key and window."""
        self._spec = spec
        self._best = Best(spec.by, spec.k, spec.descending, spec.columns)
        self._inner: Kernel = make_inner({_BEST: self._best})
        self.mergeable = self._inner.mergeable
        self.meeting = _lay_out_behind(self._inner.meeting, self._lay_out)

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        for column in (self._spec.by, *self._spec.columns):
            if column not in input_schema:
                msg = f"top_k: no column {column!r}; there are {', '.join(input_schema)}"
                raise FlowError(msg)
            if column == RANK:
                msg = f"top_k adds a column {RANK!r}, and the rows have one; rename it first"
                raise FlowError(msg)
        if input_schema[self._spec.by].is_nested():
            dtype = input_schema[self._spec.by]
            msg = f"top_k needs values with an order, but {self._spec.by} is {dtype}; choose one of its fields"
            raise FlowError(msg)
        inner = self._inner.output_schema(input_schema)
        if EMISSION in inner and EMISSION in (self._spec.by, *self._spec.columns):
            msg = f"top_k adds a column {EMISSION!r}, and the rows have one; rename it first, or name other columns="
            raise FlowError(msg)
        return dict(self._lay_out(pl.DataFrame(schema=inner)).schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        return self._inner.structure(input_schema)

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep the columns that are needed."""
        return self._inner.prepare(frame, time)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Keep the best rows of each key (and window)."""
        return self._inner.combine(prepared)

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Let the inner kernel work, and emit its best rows one by one."""
        fired = self._inner.advance(received, combined, state, time, standing)
        if fired.frame.is_empty():
            return fired
        return replace(fired, frame=self._lay_out(fired.frame))

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Let the inner kernel take in what other slots kept."""
        self._inner.absorb(handed, state)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return what the aggregating kernel keeps."""
        return self._inner.stored(runs, passed_us)

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Let the aggregating kernel unite them."""
        return self._inner.unite(stored)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the best rows so far, one by one."""
        return self._lay_out(self._inner.values(stored))

    def _lay_out(self, results: pl.DataFrame) -> pl.DataFrame:
        spec = self._spec
        best = pl.col(_BEST)
        numbered = results.filter(best.list.len() > 0).with_columns(pl.int_range(pl.len()).alias(_GROUP))
        kept = [best.struct.field(f"column.{column}").alias(column) for column in spec.columns]
        ranked = self._best.rank_rows(numbered)
        return ranked.with_columns(best.struct.field(_BY).alias(spec.by), *kept).drop(_BEST, _GROUP)


@dataclass(frozen=True, slots=True, eq=False)
class _BestMeeting:
    """Lays out the best rows of keys that slots share."""

    inner: Meeting
    lay_out: Callable[[pl.DataFrame], pl.DataFrame]

    def meet(self, shared: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the best rows of what several slots kept."""
        return self.lay_out(self.inner.meet(shared))


@dataclass(frozen=True, slots=True, eq=False)
class _BestMeetingInTime:
    """Does the same where these keys have their own time."""

    inner: MeetingInTime
    lay_out: Callable[[pl.DataFrame], pl.DataFrame]

    def meet_in_time(self, shared: list[pl.DataFrame], time: OperatorTime) -> Met:
        """Return the best rows of keys that slots share, one by one."""
        met = self.inner.meet_in_time(shared, time)
        return met if met.frame.is_empty() else replace(met, frame=self.lay_out(met.frame))

    def absorb_parts(self, handed: Sequence[RunRef], state: SlotState, time: OperatorTime) -> None:
        """Let the aggregating kernel join parts."""
        self.inner.absorb_parts(handed, state, time)

    def clocks_of(self, state: SlotState, hashes: NDArray[np.uint64], time: OperatorTime) -> SplitKeyClocks | None:
        """Return the watermarks of keys that are about to be split."""
        return self.inner.clocks_of(state, hashes, time)

    def settle(self, stored: pl.DataFrame, clocks: SplitKeyClocks) -> pl.DataFrame:
        """Return state with what the last meeting did to it."""
        return self.inner.settle(stored, clocks)


def _lay_out_behind(
    meeting: Meeting | MeetingInTime | None, lay_out: Callable[[pl.DataFrame], pl.DataFrame]
) -> Meeting | MeetingInTime | None:
    """Return where the parts of keys meet whose best rows an aggregating kernel keeps."""
    if meeting is None:
        return None
    if isinstance(meeting, MeetingInTime):
        return _BestMeetingInTime(meeting, lay_out)
    return _BestMeeting(meeting, lay_out)
