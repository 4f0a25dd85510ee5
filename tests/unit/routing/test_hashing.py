"""The hash of keys never changes: a checkpoint written with it must be read with it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS
from anabranch.model import BucketMap
from anabranch.routing import buckets_of, hash_keys, slots_of
from anabranch.routing.hashing import mix, spread_over, unit_interval
from property_tests import tries
from unit.compiled_loops import check_hashing, whole_numbers

BUCKETS = 512


def hashes_of(values: Sequence[Any], dtype: Any) -> list[int]:
    return hash_keys(pl.DataFrame({"key": pl.Series(values, dtype=dtype, strict=True)}), ["key"]).to_list()


# Values of XXH64 with seed 0 over the key as text. If one of these changes, old checkpoints are lost: don't adapt them.
@pytest.mark.parametrize(
    ("dtype", "golden"),
    [
        (
            pl.Int64(),
            {0: 7148434200721666028, 1: 13237225503670494420, -1: 4423317448651367128, 2**62: 16434145249339052766},
        ),
        (
            pl.String(),
            {
                "": 0xEF46DB3751D8E999,
                "a": 0xD24EC4F1A98C6E5B,
                "sensor-1": 482560243016319937,
                "Zürich": 9651740378605978233,
            },
        ),
        (pl.Binary(), {b"": 0xEF46DB3751D8E999, b"a": 8192945363362096476, b"\x00\xff": 11796886196830140272}),
        (pl.Date(), {dt.date(1970, 1, 1): 14573727858974149046, dt.date(2026, 1, 1): 10290878259269806637}),
        (pl.Datetime("us"), {dt.datetime(2026, 1, 1, 12): 13014444846320653893}),
        (pl.Time(), {dt.time(1, 2, 3): 9220000531838798830}),
        (pl.Duration("us"), {dt.timedelta(seconds=5): 6472111257055741397}),
        (pl.Boolean(), {True: 15549163119024811594, False: 7872179778353117818}),
        (pl.Decimal(10, 2), {Decimal("1.50"): 7844235434893384394}),
    ],
    ids=lambda value: str(value) if isinstance(value, pl.DataType) else "",
)
def test_golden_hashes_of_one_column(dtype: pl.DataType, golden: dict[Any, int]) -> None:
    assert hashes_of(list(golden), dtype) == list(golden.values())


def test_golden_hashes_of_several_columns() -> None:
    frame = pl.DataFrame({"sensor": [1, 12], "region": ["23", "3"], "volts": [230.0, 231.0]})
    assert hash_keys(frame, ["sensor", "region"]).to_list() == [5873071356861310195, 17260749777606929155]


def test_columns_do_not_run_into_one_another() -> None:
    frame = pl.DataFrame({"a": [1, 12], "b": [23, 3]})
    assert hash_keys(frame, ["a", "b"]).n_unique() == 2


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64])
def test_width_of_an_integer_does_not_matter(dtype: type[pl.DataType]) -> None:
    assert hashes_of([0, 1, 100], dtype) == hashes_of([0, 1, 100], pl.Int64)


@pytest.mark.parametrize("unit", ["ms", "ns"])
def test_unit_of_a_time_does_not_matter(unit: Any) -> None:
    instant, length = dt.datetime(2026, 1, 1, 12), dt.timedelta(seconds=5)
    assert hashes_of([instant], pl.Datetime(unit)) == hashes_of([instant], pl.Datetime("us"))
    assert hashes_of([length], pl.Duration(unit)) == hashes_of([length], pl.Duration("us"))


def test_categories_hash_as_their_text() -> None:
    assert hashes_of(["b", "a"], pl.Enum(["a", "b"])) == hashes_of(["b", "a"], pl.String)
    assert hashes_of(["b", "a"], pl.Categorical) == hashes_of(["b", "a"], pl.String)


def test_hash_is_unsigned_64_bit_also_without_rows() -> None:
    frame = pl.DataFrame(schema={"a": pl.Int64, "b": pl.String})
    assert hash_keys(frame, ["a"]).dtype == hash_keys(frame, ["a", "b"]).dtype == pl.UInt64


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=200), st.integers(1, 4096))
def test_bucket_rises_with_the_hash(hashes: list[int], buckets: int) -> None:
    of_sorted = buckets_of(pl.Series(sorted(hashes), dtype=pl.UInt64), buckets)
    assert np.all(np.diff(of_sorted) >= 0)
    assert of_sorted.min() >= 0 and of_sorted.max() < buckets


def test_the_outermost_hashes_are_in_the_outermost_buckets() -> None:
    edges = pl.Series([0, 2**64 - 1], dtype=pl.UInt64)
    assert buckets_of(edges, BUCKETS).tolist() == [0, BUCKETS - 1]


@pytest.mark.parametrize("slots", [1, 3, 8, 30])
def test_keys_spread_evenly_over_slots(slots: int) -> None:
    keys = pl.DataFrame({"key": np.arange(100_000)})
    owners = slots_of(hash_keys(keys, ["key"]), BucketMap.even(slots))
    counts = np.bincount(owners, minlength=slots)
    # Buckets are dealt out whole, so a slot may have one more than another.
    buckets_a_slot = np.bincount(np.arange(BUCKETS) % slots, minlength=slots)
    expected = len(keys) * buckets_a_slot / BUCKETS
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(expected))


def test_slot_is_that_of_the_bucket() -> None:
    hashes = hash_keys(pl.DataFrame({"key": np.arange(1_000)}), ["key"])
    routes = BucketMap(3, tuple((bucket * 7) % 3 for bucket in range(BUCKETS)))
    assert slots_of(hashes, routes).tolist() == [routes.slot_of[b] for b in buckets_of(hashes, BUCKETS)]


# Rings, second choices and the turns of split keys come from these. The first is SplitMix64's first number for seed 0.
def test_golden_mixed_hashes() -> None:
    pairs = [(0, 0), (1, 0), (2**64 - 1, 0), (0, 201)]
    assert [int(mix(np.array([number], np.uint64), seed)[0]) for number, seed in pairs] == [
        0xE220A8397B1DCDAF,
        10451216379200822465,
        16490336266968443936,
        14447574544851515937,
    ]


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=50), st.integers(0, 2**40))
def test_different_hashes_stay_different_when_mixed(hashes: list[int], seed: int) -> None:
    assert len(set(mix(np.array(hashes, np.uint64), seed).tolist())) == len(hashes)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50), st.integers(1, 1000))
def test_hash_spreads_over_all_choices_and_no_more(hashes: list[int], choices: int) -> None:
    spread = spread_over(np.array([0, 2**64 - 1, *hashes], np.uint64), choices).tolist()
    assert (min(spread), max(spread)) == (0, choices - 1)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=50))
def test_unit_interval_keeps_the_order_and_stays_below_1(hashes: list[int]) -> None:
    points = unit_interval(np.array([*sorted(hashes), 2**64 - 1], np.uint64))
    assert np.all(np.diff(points) >= 0)
    assert points[0] >= 0 and points[-1] < 1


def test_many_whole_numbers_have_the_hashes_that_few_have() -> None:
    powers = [sign * 10**exponent + step for exponent in range(19) for step in (-1, 0, 1) for sign in (1, -1)]
    ends = [-(2**63), 2**63 - 1, -(2**63) + 1, 0]
    chance = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, WORTH_COMPILED_CODE_ROWS)
    numbers = pl.Series("key", np.concatenate((powers, ends, chance >> np.arange(len(chance)) % 63)), pl.Int64)
    pieces = [numbers[start : start + 10_000].to_frame() for start in range(0, len(numbers), 10_000)]
    few = pl.concat(hash_keys(piece, ["key"]) for piece in pieces)
    many = hash_keys(numbers.to_frame(), ["key"])
    assert many.dtype == few.dtype and many.to_list() == few.to_list()
    narrow = numbers.filter(numbers.is_between(-100, 100)).cast(pl.Int8)
    narrow = pl.concat([narrow] * (WORTH_COMPILED_CODE_ROWS // len(narrow) + 1))
    assert (
        hash_keys(narrow.to_frame(), ["key"]).to_list()
        == hash_keys(narrow.cast(pl.String).to_frame(), ["key"]).to_list()
    )


@tries(60)
@given(numbers=whole_numbers())
def test_whole_numbers_of_every_width_hash_as_their_texts(numbers: pl.Series) -> None:
    check_hashing(numbers)
