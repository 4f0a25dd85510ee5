"""Rows of keys whose windows all stay open: with millions of keys, most rows of a batch are.

Where no window ends and no row is late, a row only has to be added to what is known of its key. That is one walk
through both, in the order of their hashes, by compiled code; all other keys are left to the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS, Hashes, hashes_of, order_by_hash, take_in_order
from anabranch.eventtime import drop_limit_us, pane_us
from anabranch.eventtime.key_clocks import CLOCK, LATEST, ROWS
from anabranch.eventtime.lateness import Judged
from anabranch.model import BEGINNING_OF_TIME, HASH, Clock, OperatorTime, WindowSpec
from anabranch.model.times import NO_PANE
from anabranch.operators.aggregates.overflows import LARGEST_INT64
from anabranch.operators.aggregates.partials import Partials, concatenate
from anabranch.operators.windows.panes import PANE
from anabranch.operators.windows.window_state import Advanced

_SAMPLED_KEYS = 64
"""One key in so many is looked at before anything is done."""

Load = Callable[[Hashes], list[pl.DataFrame]]
"""Returns what is known of keys (sorted, unique hashes); each of them is in one frame at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """What became of keys whose windows stay open, and all there is of other keys."""

    advanced: Advanced | None
    arrived: pl.DataFrame | None
    known: pl.DataFrame | None


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows by hash and column; what is added up is in two matrices, one row a column."""

    frames: list[pl.DataFrame]
    order: NDArray[Any]
    """Where in the frames, one after the other, each row is."""
    hashes: Hashes
    panes: NDArray[np.int64]
    times_us: NDArray[np.int64]
    integers: NDArray[np.int64]
    floats: NDArray[np.float64]

    def select(self, columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns of the frames, in the order of the rows here."""
        if not self.frames:
            return pl.DataFrame()
        return _at(concatenate([frame.select(columns) for frame in self.frames]).rechunk(), self.order)

    def pick(self, chosen: NDArray[np.bool_]) -> pl.DataFrame | None:
        """Return the chosen rows with all their columns; None for none."""
        return _at(concatenate(self.frames), self.order[chosen]) if chosen.any() else None


class OpenWindows:
    """Adds rows to windows that stay open; made once per kernel."""

    def __init__(self, partials: Partials, window: WindowSpec, clock: Clock) -> None:
        plan = partials.plan
        self._keys = partials.keys
        self._partial_columns = plan.partial_columns
        self._inputs: dict[str, str | None] = {
            **dict.fromkeys(plan.row_counts),
            **{column.partial_column: column.input_column for column in plan.sums},
        }
        self._window = window
        self._clock = clock
        self._is_possible = (
            clock.per == "key"
            and clock.idle_us is None
            and window.early_us is None
            and window.late != "side"
            and set(self._inputs) == set(plan.partial_columns)
        )

    def merge(self, received: list[pl.DataFrame], combined: bool, load: Load, time: OperatorTime) -> Merged | None:
        """Merge rows that came with what is known of their keys; None where this way is closed from the beginning."""
        frames = [frame for frame in received if frame.height]
        if not self._is_possible or sum(frame.height for frame in frames) < WORTH_COMPILED_CODE_ROWS:
            return None
        themselves = {name: name for name in self._partial_columns}
        sources: Mapping[str, str | None] = themselves if combined else self._inputs
        types = _types_of(frames[0], sources)
        arrived = _arrange(frames, sources, types, LATEST) if self._is_worth_trying(frames) else None
        if arrived is None:
            return None
        known_frames = load(_unique(arrived.hashes))
        known = _arrange(known_frames, themselves, types, CLOCK)
        merged = None
        if known is not None and not _may_overflow(arrived, known):
            merged = self._merge(arrived, known, types, time)
        return merged or Merged(None, concatenate(frames), concatenate(known_frames) if known_frames else None)

    def _is_worth_trying(self, frames: Sequence[pl.DataFrame]) -> bool:
        """Say whether rows leave most windows of their own key open, by a few keys: what is known of them may not."""
        first = hashes_of(frames[0])[:1]
        chosen = [(hashes_of(frame) ^ first) % np.uint64(_SAMPLED_KEYS) == 0 for frame in frames]
        rows = pl.concat(
            frame.select(HASH, PANE, LATEST).filter(pl.Series(some)) for frame, some in zip(frames, chosen, strict=True)
        )
        ends_us, reached_us = pl.col(PANE).min() + pane_us(self._window), pl.col(LATEST).max() - self._clock.delay_us
        stays = rows.group_by(HASH).agg((ends_us > reached_us).alias("stays")).get_column("stays")
        return 2 * int(stays.sum()) > len(stays)

    def _merge(
        self, arrived: _Rows, known: _Rows, types: Mapping[str, pl.DataType], time: OperatorTime
    ) -> Merged | None:
        from anabranch.compiled.open_window_loops import merge_open

        most = len(arrived.hashes) + len(known.hashes)
        made_from, clocks_us, panes = np.empty(most, np.uint32), np.empty(most, np.int64), np.empty(most, np.int64)
        integers = np.empty((len(arrived.integers), most), np.int64)
        floats = np.empty((len(arrived.floats), most), np.float64)
        firsts, known_firsts = np.empty(len(arrived.hashes), np.uint32), np.empty(len(known.hashes), np.uint32)
        is_left, is_known_left = np.zeros(len(arrived.hashes), np.bool_), np.zeros(len(known.hashes), np.bool_)
        count = merge_open(
            *(arrived.hashes, arrived.panes, arrived.times_us, arrived.integers, arrived.floats),
            *(known.hashes, known.panes, known.times_us, known.integers, known.floats),
            *(self._clock.delay_us, time.floor_us, pane_us(self._window), self._window.lateness_us),
            self._window.kind == "tumbling",
            *(made_from, clocks_us, panes, integers, floats),
            *(firsts, known_firsts, is_left, is_known_left),
        )
        if count < 0:
            return None
        keys = arrived.select(self._keys)
        if _differ(keys, keys, firsts) or _differ(known.select(self._keys), keys, known_firsts):
            # Two keys have one hash: rows find theirs by value.
            return None
        made_from = made_from[:count]
        columns: dict[str, NDArray[Any]] = {HASH: take_in_order(arrived.hashes, made_from)}
        columns |= {CLOCK: clocks_us[:count], PANE: panes[:count]}
        columns |= {name: values[:count] for name, values in zip(_names(types, pl.Int64), integers, strict=True)}
        columns |= {name: values[:count] for name, values in zip(_names(types, pl.Float64), floats, strict=True)}
        written = _at(keys, made_from).with_columns(pl.Series(name, values) for name, values in columns.items())
        written = written.select(HASH, *self._keys, CLOCK, PANE, *self._partial_columns)
        return Merged(
            Advanced(self._judge(arrived, ~is_left, time), [], written),
            arrived.pick(is_left),
            known.pick(is_known_left),
        )

    def _judge(self, arrived: _Rows, is_merged: NDArray[np.bool_], time: OperatorTime) -> Judged:
        """Return what there is to say of rows none of which is late."""
        if not is_merged.any():
            return Judged()
        slot_late = is_merged & (arrived.panes < drop_limit_us(self._window, int(time.slot_closed_us)))
        slot_late_rows = int(slot_late.sum())
        if slot_late_rows and ROWS in arrived.frames[0].columns:
            slot_late_rows = int(arrived.select([ROWS]).filter(pl.Series(slot_late)).get_column(ROWS).sum())
        return Judged(slot_late_rows=slot_late_rows, latest_us=int(arrived.times_us[is_merged].max()))


def _types_of(frame: pl.DataFrame, sources: Mapping[str, str | None]) -> dict[str, pl.DataType]:
    """Return the types of partial columns that are made of sources; a source of None counts rows."""
    return {name: frame.schema[source] if source else pl.Int64() for name, source in sources.items()}


def _arrange(
    frames: list[pl.DataFrame],
    sources: Mapping[str, str | None],
    types: Mapping[str, pl.DataType],
    time_column: str,
) -> _Rows | None:
    """Return the rows of frames as arrays; None if what is to be added up are not numbers of these types, all there."""
    if any(dtype not in (pl.Int64, pl.Float64) for dtype in types.values()):
        return None
    for frame in frames:
        if _types_of(frame, sources) != types:
            return None
        if any(source and frame.get_column(source).null_count() for source in sources.values()):
            return None
    order, hashes = order_by_hash(_column(frames, HASH, np.uint64))
    return _Rows(
        frames,
        order,
        hashes,
        take_in_order(_column(frames, PANE, np.int64, NO_PANE), order),
        take_in_order(_column(frames, time_column, np.int64, BEGINNING_OF_TIME), order),
        _matrix(frames, order, [sources[name] for name in _names(types, pl.Int64)], np.int64),
        _matrix(frames, order, [sources[name] for name in _names(types, pl.Float64)], np.float64),
    )


def _names(types: Mapping[str, pl.DataType], dtype: type[pl.DataType]) -> list[str]:
    return [name for name, found in types.items() if found == dtype]


def _column(frames: Sequence[pl.DataFrame], name: str, dtype: Any, missing: int = 0) -> NDArray[Any]:
    values = [frame.get_column(name) for frame in frames]
    pieces = [(one.fill_null(missing) if one.null_count() else one).to_numpy() for one in values]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype)


def _matrix(
    frames: Sequence[pl.DataFrame], order: NDArray[Any], sources: Sequence[str | None], dtype: Any
) -> NDArray[Any]:
    filled = np.ones((len(sources), len(order)), dtype)
    for row, source in enumerate(sources):
        if source is not None:
            filled[row] = take_in_order(_column(frames, source, dtype), order)
    return filled


def _at(rows: pl.DataFrame, places: NDArray[Any]) -> pl.DataFrame:
    return rows[places.astype(np.uint32, copy=False)]


def _unique(hashes: Hashes) -> Hashes:
    unique: Hashes = hashes[np.concatenate(([True], hashes[1:] != hashes[:-1]))]
    return unique


def _may_overflow(arrived: _Rows, known: _Rows) -> bool:
    """Say whether whole numbers might add up beyond 64 bits: the general way finds out whether they do."""
    for added, before in zip(arrived.integers, known.integers, strict=True):
        largest = len(added) * max(-int(added.min()), int(added.max()))
        if before.size:
            largest += max(-int(before.min()), int(before.max()))
        if largest > LARGEST_INT64:
            return True
    return False


def _differ(rows: pl.DataFrame, others: pl.DataFrame, places: NDArray[np.uint32]) -> bool:
    """Say whether any row is another than the one at its place among the others."""
    if rows is others:
        apart = np.flatnonzero(places != np.arange(len(places), dtype=np.uint32))
        rows, places = _at(rows, apart), places[apart]
    if not len(places):
        return False
    paired = _at(others, places)
    return any((rows.get_column(name) != paired.get_column(name)).any() for name in rows.columns)
