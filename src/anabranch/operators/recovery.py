"""A kernel from what a checkpoint says of its operator: enough to read its state without the flow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import polars as pl

from anabranch.errors import FlowError
from anabranch.eventtime.timers import EVENT_TIMERS, PROCESSING_TIMERS
from anabranch.model import (
    FLOW_CLOCK,
    TIME,
    Aggregate,
    AggregateSpec,
    Clock,
    CountWindowSpec,
    DistinctSpec,
    Meeting,
    MeetingInTime,
    OperatorSpec,
    TopKSpec,
    WindowSpec,
)
from anabranch.model.joins import Band, Interval, JoinInput, JoinSpec
from anabranch.operators.aggregates import functions as aggregates
from anabranch.operators.aggregates import sketches
from anabranch.operators.joins.sections import ASOF_JOIN, EQUI_JOIN, NEAR
from anabranch.operators.kernels import make_kernel
from anabranch.operators.keyed.keyed_state import KeyedState
from anabranch.operators.keyed.single_rows import drop_engine_columns
from anabranch.operators.processors.reorder_buffer import HELD

_CLOCKED = ("clocked windows", "clocked sessions")
_AGGREGATING = ("windowed aggregate", "session aggregate", "running aggregate", "count windows", *_CLOCKED)
_KEEPING_ROWS_OF_KEYS = ("processor", "ordered")
_TIMERS = {EVENT_TIMERS: "event_timers", PROCESSING_TIMERS: "processing_timers"}
_KIND = re.compile(r"(\w+)(?:\((.*)\))?")
_TOP_K = re.compile(r"top_(\d+)\((.*), (largest|smallest)\)")

# What is aggregated or compared is not in a checkpoint, and nothing that reads state asks for it.
_UNKNOWN = pl.lit(None)

_MAKERS: dict[str, Callable[[str], Aggregate]] = {
    "count": lambda _: aggregates.count(),
    "sum": lambda _: aggregates.sum(_UNKNOWN),
    "min": lambda _: aggregates.min(_UNKNOWN),
    "max": lambda _: aggregates.max(_UNKNOWN),
    "mean": lambda _: aggregates.mean(_UNKNOWN),
    "variance": lambda given: aggregates.variance(_UNKNOWN, int(given.removeprefix("ddof="))),
    "stddev": lambda given: aggregates.stddev(_UNKNOWN, int(given.removeprefix("ddof="))),
    "first": lambda _: aggregates.first(_UNKNOWN),
    "last": lambda _: aggregates.last(_UNKNOWN),
    "approx_distinct": lambda given: sketches.approx_distinct(_UNKNOWN, int(given.removeprefix("lg_k="))),
    "quantile": lambda given: sketches.quantile(_UNKNOWN, float(given)),
    "quantiles": lambda given: sketches.quantiles(_UNKNOWN, *(float(part) for part in given.split(","))),
}


class StateReader(Protocol):
    """What of a kernel reads its state."""

    @property
    def meeting(self) -> Meeting | MeetingInTime | None:
        """Where the parts of a key meet that several slots share."""
        ...

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return the state in runs as one sorted frame."""
        ...

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return what ``stored`` gave for several slots as the state of one."""
        ...

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return what ``stored`` gave as a person would read it."""
        ...


def recover_kernel(structure: Mapping[str, Any]) -> StateReader | None:
    """Return what merges and finishes stored rows, from what ``Kernel.structure`` returned.

    None for an aggregate of the user's own, or one of another version: only their code can finish them. What is
    returned takes no new rows.
    """
    if structure.get("kind") in _KEEPING_ROWS_OF_KEYS:
        return _StoredRows(structure, _recover_clock(structure))
    spec = _recover_spec(structure)
    return make_kernel(spec) if spec is not None else None


def _recover_spec(structure: Mapping[str, Any]) -> OperatorSpec | None:
    kind, keys = structure.get("kind"), tuple(structure.get("keys", ()))
    if kind == "distinct":
        return DistinctSpec(keys, ttl_us=structure["ttl_us"])
    if kind in (EQUI_JOIN, ASOF_JOIN):
        return _recover_join(structure, keys)
    if kind not in _AGGREGATING:
        return None
    window, counting, clock = recover_window(structure), _recover_count_window(structure), _recover_clock(structure)
    described: Mapping[str, Mapping[str, Any]] = structure["aggregates"]
    time_column, ttl_us = (TIME if window else None), structure.get("ttl_us")
    if len(described) == 1:
        (only,) = described.values()
        top_k = _TOP_K.fullmatch(only["kind"])
        if top_k is not None:
            columns = tuple(column for column in only["columns"] if column != top_k[2])
            best = (top_k[2], int(top_k[1]), top_k[3] == "largest", columns)
            return TopKSpec(keys, *best, window, time_column, ttl_us, clock, counting)
    recovered = {name: _recover_aggregate(aggregate) for name, aggregate in described.items()}
    found = {name: aggregate for name, aggregate in recovered.items() if aggregate is not None}
    if len(found) < len(recovered):
        return None
    return AggregateSpec(keys, found, window, time_column, ttl_us, clock, counting)


def _recover_join(structure: Mapping[str, Any], keys: tuple[str, ...]) -> JoinSpec:
    within = structure["within"]
    # Rows in state have the names that results have; nobody who reads them asks for types.
    left, right = (JoinInput(keys, {name: name for name in columns}, {}) for columns in structure["inputs"])
    near: list[int] | None = structure.get(NEAR)
    interval = None if within is None else Interval(*within)
    return JoinSpec(
        (left, right),
        structure["how"],
        interval,
        recover_window(structure),
        clock=_recover_clock(structure),
        draws=bool(structure.get("draws")),
        band=None if near is None else Band(_UNKNOWN, _UNKNOWN, near[0], near[1], whole=True),
        near=near is not None,
        newest=structure["kind"] == ASOF_JOIN,
    )


def recover_window(structure: Mapping[str, Any]) -> WindowSpec | None:
    """Return the window of an operator that has one, from what ``Kernel.structure`` returned.

    Where a checkpoint depends only on whether there is a length of time, any will do.
    """
    window: Mapping[str, Any] | None = structure.get("window")
    if window is None:
        return None
    if window["kind"] == "session":
        found = WindowSpec("session", window["gap_us"], window["gap_us"])
        clocked = replace(found, late="update", lateness_us=1) if window.get("updates") else replace(found, late="side")
        clocked = replace(clocked, early_us=1 if window.get("early") else None)
    else:
        found = WindowSpec(window["kind"], window["size_us"], window["slide_us"], window["offset_us"])
        clocked = replace(found, late="update", lateness_us=1, early_us=1 if window.get("early") else None)
    return clocked if structure["kind"] in _CLOCKED else found


def _recover_count_window(structure: Mapping[str, Any]) -> CountWindowSpec | None:
    window: Mapping[str, int] | None = structure.get("count_window")
    if window is None:
        return None
    return CountWindowSpec(window["size_rows"], window["slide_rows"], 1 if window.get("idle") else None)


def _recover_clock(structure: Mapping[str, Any]) -> Clock:
    clock: Mapping[str, Any] | None = structure.get("clock")
    if clock is None:
        return FLOW_CLOCK
    return Clock(clock["per"], groups=clock["groups"] or 1, idle_us=1 if clock["idle"] else None)


def _recover_aggregate(described: Mapping[str, Any]) -> Aggregate | None:
    kind = _KIND.fullmatch(described["kind"])
    make = _MAKERS.get(kind[1]) if kind is not None else None
    if kind is None or make is None:
        return None
    try:
        aggregate = make(kind[2] or "")
    except (ValueError, FlowError):
        return None
    # A user's aggregate may have the name of one of ours, but hardly its partial columns, too.
    fits = aggregate.kind == described["kind"] and set(aggregate.partial(pl.col)) == set(described["partials"])
    return aggregate if fits else None


class _StoredRows:
    """Reads the state of a processor, or of an ordered stream, without the code that wrote it.

    What a field has by default is the processor's to know, and is stored as null: that is what is shown.
    """

    meeting = None

    def __init__(self, structure: Mapping[str, Any], clock: Clock) -> None:
        """``structure`` is what ``Kernel.structure`` returned."""
        self._keys = tuple(structure["keys"])
        self._clock = clock
        self._fields = tuple(structure.get("fields", ()))
        self._holds = structure["kind"] == "ordered" or bool(structure.get("ordered"))
        self._hands_on = structure["kind"] == "ordered"

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return one row a key that has something left."""
        return self._rows_of_keys(runs).stored(runs)

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots: each key is on one."""
        return self._rows_of_keys(stored).unite(stored)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the fields of every key, and how many timers (and rows) wait; of an ordered stream, the rows."""
        if self._hands_on:
            waiting = stored.select(HELD).drop_nulls()
            return drop_engine_columns(waiting.explode(HELD).unnest(HELD)) if waiting.height else pl.DataFrame()
        counts = _TIMERS | ({HELD: "waiting_rows"} if self._holds else {})
        known = {name: label for name, label in counts.items() if name in stored.columns}
        return stored.select(
            *self._keys,
            *(name for name in self._fields if name in stored.columns),
            *(pl.col(name).list.len().fill_null(0).cast(pl.Int64).alias(label) for name, label in known.items()),
        )

    def _rows_of_keys(self, frames: list[pl.DataFrame]) -> KeyedState:
        """Return what knows such rows; runs that were written before a field was added lack its column."""
        types = {name: dtype for rows in frames for name, dtype in rows.schema.items()}
        named = [*_TIMERS, *([HELD] if self._holds else []), *self._fields]
        return KeyedState(self._keys, self._clock, {name: types[name] for name in named if name in types})
