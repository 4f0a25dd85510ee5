"""Sketches stay within their bounds, whatever the cut."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import FlowError
from anabranch.operators.aggregates import sketches as sk
from unit.compiled_loops import compiled_from
from unit.operators.test_aggregates import aggregate_values

RANDOM = random.Random(20)
DISTINCT = [RANDOM.randrange(2**40) for _ in range(20_000)]
SKEWED = [RANDOM.lognormvariate(0, 2) for _ in range(20_000)]


@pytest.mark.parametrize("lg_k", [10, 12, 14])
def test_distinct_values_are_estimated_within_three_standard_errors(lg_k: int) -> None:
    values = pl.Series(DISTINCT * 2)
    (estimate,) = aggregate_values(values, cuts=7, n=sk.approx_distinct("x", lg_k=lg_k)).values()
    true = len(set(DISTINCT))
    assert abs(estimate - true) <= 3 * 1.04 / 2 ** (lg_k / 2) * true


@pytest.mark.parametrize("size", [10, 400, 3_000])
def test_estimate_of_distinct_values_does_not_depend_on_the_cut(size: int) -> None:
    values = pl.Series(DISTINCT[:size])
    estimates = {aggregate_values(values, cuts=cuts, n=sk.approx_distinct("x"))["n"] for cuts in (1, 2, 3, 10)}
    assert len(estimates) == 1


@pytest.mark.parametrize(
    "values",
    [
        pl.Series(["a", "b", None, "a", "c"]),
        pl.Series([b"\x00", b"\xff", None, b"\x00", b"\xfe"]),
        pl.Series([1.5, 2.5, None, 1.5, -0.5]),
        pl.Series([date(2024, 1, 1) + timedelta(days=d) for d in (0, 1, 0, 2)]),
        pl.Series(["1.10", "2.20", "1.10", "3.30"]).cast(pl.Decimal(10, 2)),
        pl.Series([1, 2, 1, 255], dtype=pl.UInt8),
        pl.Series(["x", "y", "x", "z"], dtype=pl.Categorical),
    ],
    ids=lambda series: str(series.dtype),
)
def test_values_of_every_flat_type_can_be_told_apart(values: pl.Series) -> None:
    assert aggregate_values(values, n=sk.approx_distinct("x")) == {"n": 3}


@pytest.mark.parametrize("cuts", [1, 4, 50])
@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.5, 0.9, 0.99, 1.0])
def test_quantiles_lie_within_one_percent_of_rank(cuts: int, fraction: float) -> None:
    answer: Any = aggregate_values(pl.Series(SKEWED), cuts=cuts, q=sk.quantile("x", fraction))["q"]
    below = sum(value < answer for value in SKEWED) / len(SKEWED)
    up_to = sum(value <= answer for value in SKEWED) / len(SKEWED)
    assert below - 0.01 <= fraction <= up_to + 0.01


def test_several_quantiles_come_from_one_digest() -> None:
    values = pl.Series(SKEWED)
    row = aggregate_values(values, low=sk.quantile("x", 0.1), both=sk.quantiles("x", 0.1, 0.9), half=sk.median("x"))
    assert row["both"][0] == row["low"]
    assert row["low"] < row["half"] < row["both"][1]


def test_quantiles_ignore_what_is_no_number() -> None:
    values = pl.Series([1.0, float("nan"), None, 3.0])
    assert aggregate_values(values, q=sk.quantiles("x", 0.0, 1.0)) == {"q": [1.0, 3.0]}
    assert aggregate_values(pl.Series([float("nan")]), q=sk.median("x")) == {"q": None}


def test_fractions_and_sizes_out_of_range_are_refused() -> None:
    with pytest.raises(FlowError, match=r"from 0 to 1, got \[99\]"):
        sk.quantile("x", 99)
    with pytest.raises(FlowError, match="from 0 to 1"):
        sk.quantiles("x")
    with pytest.raises(FlowError, match="lg_k must be from 7 to 21, got 3"):
        sk.approx_distinct("x", lg_k=3)


_VALUES: dict[pl.DataType, st.SearchStrategy[Any]] = {
    pl.String(): st.text(max_size=40),
    pl.Int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    pl.UInt8(): st.integers(0, 255),
    pl.Float64(): st.floats() | st.sampled_from([0.0, -0.0, float("nan"), float("inf")]),
    pl.Float32(): st.floats(width=32),
}


@given(values=st.data(), dtype=st.sampled_from(list(_VALUES)), lg_k=st.integers(7, 14))
def test_sketches_of_many_groups_at_once_are_those_of_single_values(
    values: st.DataObject, dtype: pl.DataType, lg_k: int
) -> None:
    lists = values.draw(st.lists(st.lists(_VALUES[dtype], max_size=60), min_size=1, max_size=6))
    check_sketches(pl.Series(lists, dtype=pl.List(dtype)), lg_k)


@pytest.mark.parametrize("lg_k", [7, 8, 10, 12])
@pytest.mark.parametrize("dtype", [pl.String(), pl.Int64(), pl.Float64()])
def test_sketches_of_any_size_are_those_of_single_values(lg_k: int, dtype: pl.DataType) -> None:
    # Where a list becomes a set, and a set registers, and far beyond.
    sizes = [0, 1, 7, 8, 9, 23, 24, 25, 95, 96, 97, 383, 384, 385, 5_000]
    check_sketches(pl.Series([DISTINCT[:size] * 2 for size in sizes]).cast(pl.List(dtype)), lg_k)


def check_sketches(groups: pl.Series, lg_k: int) -> None:
    """Fail unless compiled code makes sketches that say, alone and merged, what those of the library say."""
    aggregate = sk.approx_distinct("x", lg_k)
    said = []
    for worth in (0, 10**9):
        with compiled_from(worth):
            sketches = aggregate._sketch_groups(groups)
        merged = aggregate._merge_groups(pl.Series([sketches.drop_nulls().to_list()], dtype=pl.List(pl.Binary)))
        sizes = sketches.bin.size().to_list()
        said.append((sizes, aggregate._estimate(sketches).to_list(), aggregate._estimate(merged).to_list()))
    assert said[0] == said[1]
