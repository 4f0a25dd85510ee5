"""What a task measures of its exchanges: rows and bytes exactly or by a part of the keys, times beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from anabranch.engine.tasks.exchange_meter import FEWEST_TRIED_ROWS, ExchangeMeter
from anabranch.model import HASH, ORDER, TIME, AggregateSpec, OperatorTime, WindowSpec
from anabranch.model.exchanges import ExchangeCosts, ExchangeTally
from anabranch.operators.aggregates.functions import count
from anabranch.operators.kernels import make_kernel
from anabranch.routing import hash_keys
from anabranch.spark.task_figures import _Adding as Adding

SECOND_US = 1_000_000
KERNEL = make_kernel(
    AggregateSpec(("key",), {"rows": count()}, WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US), "ts")
)


def prepared(keys: Sequence[int]) -> pl.DataFrame:
    times = pl.Series("ts", np.arange(len(keys)) % (30 * SECOND_US)).cast(pl.Datetime("us"))
    frame = pl.DataFrame({"key": list(keys), "ts": times, TIME: times, ORDER: range(len(keys))})
    return KERNEL.prepare(frame, OperatorTime(1)).frame


def hashed(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(hash_keys(frame, ("key",)).alias(HASH))


@pytest.mark.parametrize("hot", [0, 80_000])
def test_what_a_merge_would_leave_is_found_from_some_keys_also_where_one_is_hot(hot: int) -> None:
    chance = np.random.default_rng(5)
    rows = prepared([*chance.integers(0, 20_000, 140_000), *([7] * hot)])
    exact = KERNEL.combine(rows).height
    found = []
    for number in range(16):
        meter = ExchangeMeter(number)
        meter.try_merge(1, hashed(rows), KERNEL, ("key",))
        found.append(meter.tallies[1].left_rows)
        assert meter.tallies[1].tried_rows == rows.height
        assert abs(found[-1] - exact) < 0.12 * exact, (found[-1], exact)
    assert abs(sum(found) / 16 - exact) < 0.01 * exact, "all keys had their turn"


def test_bytes_of_both_ways_are_told_whichever_is_gone() -> None:
    rows = prepared(list(np.random.default_rng(1).integers(0, 5_000, 50_000)))
    gone, other = ExchangeMeter(3), ExchangeMeter(3)
    gone.compare(1, rows, hashed(KERNEL.combine(rows)), ("key",), 0.5)
    other.try_merge(1, hashed(rows), KERNEL, ("key",))
    merged, plain = gone.tallies[1], other.tallies[1]
    assert gone.costs[1] == ExchangeCosts(merge_seconds=0.5)
    assert merged.left_rows == KERNEL.combine(rows).height
    assert merged.plain_bytes == plain.plain_bytes
    # A smaller part is packed less tightly.
    assert abs(merged.merged_bytes - plain.merged_bytes) < 0.4 * merged.merged_bytes
    assert 0 < merged.merged_bytes < merged.plain_bytes / 4


def test_rows_of_hardly_any_key_are_found_to_leave_hardly_anything() -> None:
    rows = hashed(prepared([1, 2, 3] * 50_000))
    found = []
    for number in range(16):
        meter = ExchangeMeter(number)
        meter.try_merge(1, rows, KERNEL, ("key",))
        assert meter.tallies[1].tried_rows == rows.height
        found.append(meter.tallies[1].left_rows)
    assert sum(found) / 16 == 3


def test_few_rows_are_merged_all_to_see_what_is_left() -> None:
    rows = prepared(list(range(3_000)) * 2)
    meter = ExchangeMeter(5)
    meter.try_merge(1, hashed(rows), KERNEL, ("key",))
    assert meter.tallies[1].left_rows == 3_000


def test_few_rows_are_not_looked_at() -> None:
    rows = prepared(range(FEWEST_TRIED_ROWS - 1))
    meter = ExchangeMeter(0)
    meter.compare(1, rows, hashed(rows), ("key",), 1.0)
    meter.try_merge(1, hashed(rows), KERNEL, ("key",))
    assert not meter.tallies and not meter.costs


def test_tallies_and_costs_of_tasks_come_to_those_of_the_batch() -> None:
    assert ExchangeTally(1, 2, 3, -4) + ExchangeTally(10, 20, 30, 40) == ExchangeTally(11, 22, 33, 36)
    adding = Adding()
    spent = adding.addInPlace({1: ExchangeCosts(1.0, 2.0)}, {1: ExchangeCosts(0.5), 2: ExchangeCosts(0, 0, 3.0)})
    assert spent == {1: ExchangeCosts(1.5, 2.0), 2: ExchangeCosts(0, 0, 3.0)}
