from __future__ import annotations

import datetime
import itertools
import pickle

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors import GeneratedValues, generate, moving_normal, uniform, zipf
from anabranch.connectors.generator.streams import BLOCK_ROWS, GeneratorSource
from anabranch.errors import FlowError
from property_tests import tries

from .conftest import drain_source


def read(source: GeneratorSource, first: int, last: int) -> pl.DataFrame:
    return pl.concat(outcome.frame for outcome in source.read({"from": first, "to": last}))


@tries(30)
@given(st.lists(st.integers(0, 3 * BLOCK_ROWS), max_size=4), st.integers(0, 2**40))
def test_rows_are_the_same_however_splits_are_cut(cuts: list[int], offset: int) -> None:
    source = generate(1000, keys=zipf(100), seed=3)
    edges = sorted({0, *cuts, 3 * BLOCK_ROWS})
    whole = read(source, offset, offset + 3 * BLOCK_ROWS)
    pieces = [read(source, offset + first, offset + last) for first, last in itertools.pairwise(edges)]
    assert pl.concat(pieces).equals(whole)


def test_rows_of_a_seed_never_change() -> None:
    source = generate(1000, keys=zipf(1000, 1.1), values=GeneratedValues(230.0, 4.0, 2.0), seed=7)
    frame = read(source, 123_456, 123_459)
    assert frame.rows() == [
        (6, datetime.datetime(2026, 1, 1, 0, 2, 2, 411218), 224.71875),
        (34, datetime.datetime(2026, 1, 1, 0, 2, 3, 20743), 232.453125),
        (555, datetime.datetime(2026, 1, 1, 0, 2, 2, 401435), 233.046875),
    ]


def test_json_payload_gives_the_same_rows() -> None:
    assert read(generate(1000, payload="json"), 5, 20_000).equals(read(generate(1000), 5, 20_000))


def test_seeds_give_different_streams() -> None:
    assert not read(generate(1000, seed=1), 0, 100).equals(read(generate(1000, seed=2), 0, 100))


def test_event_time_advances_with_the_row_and_is_at_most_the_disorder_behind() -> None:
    source = generate(100, disorder="2s", start="2026-03-01T12:00:00")
    times = read(source, 0, 10_000)["ts"]
    start = datetime.datetime(2026, 3, 1, 12)
    on_time = pl.Series(
        [start + datetime.timedelta(seconds=row / 100) for row in range(10_000)], dtype=pl.Datetime("us")
    )
    lag = (on_time - times).dt.total_microseconds()
    assert lag.min() >= 0  # type: ignore[operator]
    assert 1_900_000 < lag.max() <= 2_000_000  # type: ignore[operator]


def test_ordered_stream_has_no_disorder() -> None:
    assert read(generate(100, disorder="0s"), 0, 10_000)["ts"].is_sorted()


def test_zipf_keys_come_in_proportion_to_their_rank() -> None:
    counts = read(generate(1000, keys=zipf(100, 1.0)), 0, 200_000)["key"].value_counts().sort("key")["count"]
    assert len(counts) == 100
    shares = counts / counts.sum()
    weights = 1 / np.arange(1, 101)
    assert np.allclose(shares.to_numpy(), weights / weights.sum(), atol=0.005)


def test_uniform_keys_come_equally_often() -> None:
    counts = read(generate(1000, keys=uniform(50)), 0, 100_000)["key"].value_counts()["count"]
    assert len(counts) == 50
    assert 1700 < counts.min() <= counts.max() < 2300  # type: ignore[operator]


def test_moving_normal_keys_follow_their_mean_there_and_back() -> None:
    source = generate(1000, keys=moving_normal(1000, 200, 800, 10, period_seconds=20))
    means = [read(source, row, row + 200)["key"].mean() for row in (0, 5_000, 10_000, 15_000, 20_000)]
    assert np.allclose(means, [200, 500, 800, 500, 200], atol=10)  # type: ignore[arg-type]


def test_keys_have_means_of_their_own_where_asked() -> None:
    source = generate(1000, keys=20, values=GeneratedValues(mean=230, sigma=1, key_sigma=10))
    means = read(source, 0, 50_000).group_by("key").agg(pl.col("value").mean())["value"]
    assert means.std() > 4  # type: ignore[operator]


def test_values_are_multiples_of_a_64th_so_that_sums_are_exact() -> None:
    values = read(generate(1000), 0, 1000)["value"]
    assert ((values * 64) % 1 == 0).all()


def test_rows_become_due_at_the_rate_and_a_pause_is_made_up_in_full_batches() -> None:
    planner = generate(100, max_rows=500).planner()
    first = planner.plan({"started": 1000.0, "next": 0}, 1002.0)
    assert [(split["from"], split["to"]) for split in first.splits] == [(0, 200)]
    assert first.position == {"started": 1000.0, "next": 200}
    later = generate(100, max_rows=500).planner().plan(first.position, 1010.0)
    assert later.position["next"] == 700
    assert planner.plan({"started": 1000.0, "next": 700}, 1007.0).splits == ()


@pytest.mark.parametrize(("rows_per_second", "rows"), [(10_000, 1000), (100, 10), (3, 1), (0.01, 1)])
def test_some_rows_are_due_at_once_so_that_the_first_batch_is_not_empty(rows_per_second: float, rows: int) -> None:
    planner = generate(rows_per_second).planner()
    planned = planner.plan(None, 2.0**30)
    assert abs(planned.position["next"] - rows) <= 1 and planned.position["next"] >= 1
    assert planner.plan(planned.position, 2.0**30).splits == ()


def test_stream_ends_at_its_total() -> None:
    drained = drain_source(generate(10, total_rows=25_000, max_rows=10_000, keys=5))
    assert drained.rows_per_batch == [10_000, 10_000, 5_000]
    assert drained.frame.equals(read(generate(10, keys=5), 0, 25_000))


def test_stream_without_a_total_refuses_to_run_to_its_end() -> None:
    with pytest.raises(FlowError, match="without total_rows never ends"):
        generate(10).planner().bound()
    with pytest.raises(FlowError, match=r"set generate\(total_rows=…\), or use the trigger 'continuous'"):
        generate(10).check_end()
    generate(10, total_rows=5).check_end()


def test_columns_are_named_as_asked() -> None:
    source = generate(10, columns=("sensor", "at", "volts"))
    assert dict(source.schema) == {"sensor": pl.Int64(), "at": pl.Datetime("us"), "volts": pl.Float64()}
    assert read(source, 0, 5).schema == source.schema
    assert next(source.read({"from": 0, "to": 5}, ["at"])).frame.columns == ["at"]
    assert pickle.loads(pickle.dumps(source)) == source


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rows_per_second": 0}, "rows_per_second is 0"),
        ({"payload": "xml"}, "the payload is 'xml'; use 'arrow' or 'json'"),
        ({"disorder": "soon"}, "the disorder 'soon' is not a length of time"),
        ({"start": "yesterday"}, "the start 'yesterday' is not a time"),
        ({"columns": ("a", "a", "b")}, "three different columns"),
    ],
)
def test_wrong_option_says_what_to_use(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(FlowError, match=complaint):
        generate(**options)  # type: ignore[arg-type]


def test_pattern_without_keys_is_refused() -> None:
    for pattern in (uniform, zipf, moving_normal):
        with pytest.raises(FlowError, match="at least one key, found 0"):
            pattern(0)
