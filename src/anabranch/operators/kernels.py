"""From the description of a stateful operator to the kernel that runs it."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import FlowError
from anabranch.model import (
    Aggregate,
    AggregateSpec,
    CountWindowSpec,
    DistinctSpec,
    JoinKernel,
    JoinSpec,
    Kernel,
    OperatorSpec,
    OrderSpec,
    ProcessSpec,
    TopKSpec,
)
from anabranch.operators.joins.asof_join import AsofJoin
from anabranch.operators.joins.by_keys import EqualKeys, NearKeys
from anabranch.operators.joins.by_order import ByOrder
from anabranch.operators.joins.pair_join import PairJoin
from anabranch.operators.joins.pair_join_by_key import PairJoinByKey
from anabranch.operators.keyed.distinct import Distinct
from anabranch.operators.keyed.running import RunningAggregate
from anabranch.operators.keyed.single_rows import SingleRowsKernel
from anabranch.operators.keyed.top_k import TopK
from anabranch.operators.processors.ordered_rows import OrderedRows
from anabranch.operators.processors.processing import Processing
from anabranch.operators.windows.count_windows import CountWindows
from anabranch.operators.windows.flow_time_sessions import SessionAggregate
from anabranch.operators.windows.flow_time_windows import WindowedAggregate
from anabranch.operators.windows.windows_by_key import make_windows_by_key


def _make_join(spec: JoinSpec) -> JoinKernel:
    if spec.newest:
        return AsofJoin(spec)
    if spec.follows_own_time:
        return PairJoinByKey(spec, EqualKeys(spec))
    if spec.near:
        return PairJoin(spec, NearKeys(spec))
    return PairJoin(spec, EqualKeys(spec) if spec.keys else ByOrder(spec))


def make_kernel(spec: OperatorSpec) -> Kernel | JoinKernel:
    """Return the kernel for an operator; raise ``FlowError`` if the description contradicts itself."""
    if not spec.keys and not isinstance(spec, JoinSpec):
        msg = "a stateful operator needs keys; call key_by() first"
        raise FlowError(msg)
    if isinstance(spec, JoinSpec):
        return _make_join(spec)
    if isinstance(spec, ProcessSpec):
        return SingleRowsKernel(spec.keys, spec.time_column, spec.clock, Processing(spec))
    if isinstance(spec, OrderSpec):
        return SingleRowsKernel(spec.keys, spec.time_column, spec.clock, OrderedRows(spec))
    if spec.ttl_us is not None and spec.ttl_us <= 0:
        msg = f"the time-to-live is {spec.ttl_us} µs; give a positive one, or none to keep keys for ever"
        raise FlowError(msg)
    if isinstance(spec, DistinctSpec):
        return Distinct(spec.keys, spec.time_column, spec.ttl_us)
    if isinstance(spec, TopKSpec):
        if spec.k < 1:
            msg = f"top_k: k must be at least 1, got {spec.k}"
            raise FlowError(msg)
        return TopK(spec, lambda aggregates: _make_aggregating_kernel(spec, aggregates))
    if not spec.aggregates:
        msg = "an aggregation needs at least one aggregate, such as count()"
        raise FlowError(msg)
    return _make_aggregating_kernel(spec, spec.aggregates)


def _make_aggregating_kernel(spec: AggregateSpec | TopKSpec, aggregates: Mapping[str, Aggregate]) -> Kernel:
    window = spec.window
    if spec.count_window is not None:
        return _make_count_windows(spec, spec.count_window, aggregates)
    if window is None:
        return RunningAggregate(spec.keys, aggregates, spec.time_column, spec.ttl_us)
    if spec.time_column is None:
        msg = "windows need event time: name the time column with watermark() first"
        raise FlowError(msg)
    if spec.ttl_us is not None:
        msg = "windows end by themselves; a time-to-live is for running aggregates, without a window"
        raise FlowError(msg)
    if window.size_us <= 0 or window.slide_us <= 0 or window.slide_us > window.size_us:
        msg = (
            f"a window of {window.size_us} µs every {window.slide_us} µs is impossible: "
            "both must be positive, and windows must not leave gaps between them"
        )
        raise FlowError(msg)
    if spec.keeps_state_by_key:
        return make_windows_by_key(spec.keys, aggregates, window, spec.time_column, spec.clock)
    if window.kind == "session":
        return SessionAggregate(spec.keys, aggregates, window, spec.time_column)
    slice_us = spec.slice_us if isinstance(spec, AggregateSpec) else None
    return WindowedAggregate(spec.keys, aggregates, window, spec.time_column, slice_us)


def _make_count_windows(
    spec: AggregateSpec | TopKSpec, window: CountWindowSpec, aggregates: Mapping[str, Aggregate]
) -> CountWindows:
    if spec.window is not None:
        msg = "windows go by time or by rows; give one of window() and count_window()"
        raise FlowError(msg)
    if spec.ttl_us is not None:
        msg = "count windows know no time; a time-to-live is for running aggregates, without a window"
        raise FlowError(msg)
    if not 1 <= window.slide_rows <= window.size_rows:
        msg = (
            f"a window of {window.size_rows} rows every {window.slide_rows} is impossible: "
            "both must be at least 1, and windows must not leave gaps between them"
        )
        raise FlowError(msg)
    return CountWindows(spec.keys, aggregates, window, spec.time_column)
