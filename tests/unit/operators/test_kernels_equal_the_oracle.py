"""Random streams, disorder, splits and batches: every kernel answers what plain Python answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import AggregateSpec, DistinctSpec, TopKSpec, WindowSpec
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.kernels import make_kernel
from property_tests import tries
from unit.operators import oracle
from unit.operators.streams import SECOND_US, Batch, batches_strategy, moments_strategy, run_kernel, times_of

AGGREGATES = {
    "rows": ab.count(),
    "values": ab.count("whole"),
    "total": ab.sum("whole"),
    "lowest": ab.min("real"),
    "highest": ab.max("whole"),
    "average": ab.mean("real"),
    "spread": ab.variance("real"),
    "deviation": ab.stddev("whole", ddof=0),
    "opening": ab.first("whole"),
    "closing": ab.last("real"),
}
WINDOWS = {
    "tumbling": WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US),
    "tumbling with an offset": WindowSpec("tumbling", 7 * SECOND_US, 7 * SECOND_US, 3 * SECOND_US),
    "sliding evenly": WindowSpec("sliding", 10 * SECOND_US, 5 * SECOND_US),
    "sliding unevenly": WindowSpec("sliding", 10 * SECOND_US, 4 * SECOND_US, 1 * SECOND_US),
}

windows = st.sampled_from(list(WINDOWS.values()))
either = st.booleans()
clocks = st.lists(st.integers(0, 4), min_size=12, max_size=12)
thorough = tries(40)
brief = tries(25)


def one(rows: list[oracle.Placed]) -> list[dict[str, Any]]:
    return [oracle.aggregate(rows)]


def one_with_name(rows: list[oracle.Placed]) -> list[dict[str, Any]]:
    return [{"name": f"name-{rows[0][3].key}", **oracle.aggregate(rows)}]


def best_two(descending: bool) -> Callable[[list[oracle.Placed]], list[dict[str, Any]]]:
    return lambda rows: oracle.best(rows, 2, descending)


@thorough
@given(
    batches=batches_strategy,
    keys=st.sampled_from([("key",), ("name", "key")]),
    window=windows,
    first_hop=either,
    at_once=moments_strategy,
    combined=either,
)
def test_windows_equal_the_oracle(
    batches: list[Batch],
    keys: tuple[str, ...],
    window: WindowSpec,
    first_hop: bool,
    at_once: list[bool],
    combined: bool,
) -> None:
    kernel = make_kernel(AggregateSpec(keys, AGGREGATES, window, "ts"))
    times = times_of(batches, first_hop, at_once=at_once)
    shape = one if len(keys) == 1 else one_with_name
    expected = oracle.run_windows(oracle.WindowedOracle(window), batches, times, shape)
    oracle.assert_same(run_kernel(kernel, batches, times, combined), expected)


@thorough
@given(
    batches=batches_strategy,
    gap_seconds=st.sampled_from([1, 5, 12]),
    first_hop=either,
    at_once=moments_strategy,
    combined=either,
)
def test_sessions_equal_the_oracle(
    batches: list[Batch], gap_seconds: int, first_hop: bool, at_once: list[bool], combined: bool
) -> None:
    gap_us = gap_seconds * SECOND_US
    kernel = make_kernel(AggregateSpec(("key",), AGGREGATES, WindowSpec("session", gap_us, gap_us), "ts"))
    times = times_of(batches, first_hop, at_once=at_once)
    expected = oracle.run_windows(oracle.SessionOracle(gap_us), batches, times, one)
    oracle.assert_same(run_kernel(kernel, batches, times, combined), expected)


@thorough
@given(
    batches=batches_strategy,
    clock=clocks,
    ttl_us=st.sampled_from([None, 5 * SECOND_US]),
    time_column=st.sampled_from([None, "ts"]),
    combined=either,
)
def test_running_aggregates_equal_the_oracle(
    batches: list[Batch], clock: list[int], ttl_us: int | None, time_column: str | None, combined: bool
) -> None:
    batches = _with_clock(batches, clock)
    # Without event time, first and last go by batch and order alone: the oracle's ties need a time.
    aggregates = {n: a for n, a in AGGREGATES.items() if time_column or n not in ("opening", "closing")}
    kernel = make_kernel(AggregateSpec(("key",), aggregates, None, time_column, ttl_us))
    times = times_of(batches, first_hop=True, drain=False)

    def shape(rows: list[oracle.Placed]) -> list[dict[str, Any]]:
        return [{name: value for name, value in oracle.aggregate(rows).items() if name in aggregates}]

    expected = oracle.run_running(batches, times, ttl_us, time_column is not None, shape)
    oracle.assert_same(run_kernel(kernel, batches, times, combined), expected)


@thorough
@given(
    batches=batches_strategy,
    clock=clocks,
    ttl_us=st.sampled_from([None, 5 * SECOND_US]),
    time_column=st.sampled_from([None, "ts"]),
    combined=either,
)
def test_distinct_equals_the_oracle(
    batches: list[Batch], clock: list[int], ttl_us: int | None, time_column: str | None, combined: bool
) -> None:
    batches = _with_clock(batches, clock)
    kernel = make_kernel(DistinctSpec(("key",), time_column, ttl_us))
    times = times_of(batches, first_hop=True, drain=False)
    expected = oracle.run_distinct(batches, times, ttl_us, time_column is not None)
    oracle.assert_same(run_kernel(kernel, batches, times, combined), expected)


@brief
@given(batches=batches_strategy, window=windows, descending=either, combined=either)
def test_top_k_of_windows_equals_the_oracle(
    batches: list[Batch], window: WindowSpec, descending: bool, combined: bool
) -> None:
    kernel = make_kernel(TopKSpec(("key",), "whole", 2, descending, ("real",), window, "ts"))
    times = times_of(batches, first_hop=True)
    expected = oracle.run_windows(oracle.WindowedOracle(window), batches, times, best_two(descending))
    oracle.assert_same(run_kernel(kernel, batches, times, combined), expected)


@brief
@given(batches=batches_strategy, descending=either, combined=either)
def test_running_top_k_equals_the_oracle(batches: list[Batch], descending: bool, combined: bool) -> None:
    kernel = make_kernel(TopKSpec(("key",), "whole", 2, descending, ("real",), None, "ts"))
    times = times_of(batches, first_hop=True, drain=False)
    expected = oracle.run_running(batches, times, None, True, best_two(descending))
    oracle.assert_same(run_kernel(kernel, batches, times, combined), expected)


@brief
@given(batches=batches_strategy, first_hop=either, combined=either)
def test_top_k_of_sessions_equals_the_oracle(batches: list[Batch], first_hop: bool, combined: bool) -> None:
    window = WindowSpec("session", 5 * SECOND_US, 5 * SECOND_US)
    kernel = make_kernel(TopKSpec(("key",), "whole", 2, True, ("real",), window, "ts"))
    times = times_of(batches, first_hop)
    expected = oracle.run_windows(oracle.SessionOracle(5 * SECOND_US), batches, times, best_two(True))
    oracle.assert_same(run_kernel(kernel, batches, times, combined), expected)


def _with_clock(batches: list[Batch], steps: list[int]) -> list[Batch]:
    now_us = 0
    clocked = []
    for batch, step in zip(batches, steps, strict=False):
        now_us += step * SECOND_US
        clocked.append(Batch(batch.splits, batch.watermark_seconds, now_us))
    return clocked
