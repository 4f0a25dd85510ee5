"""Base routes: a pure function of the key."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import BucketMap, RouteError
from anabranch.routing import (
    BaseRoute,
    BucketRoute,
    KeyBatch,
    KeySample,
    ModuloRoute,
    RangeRoute,
    RingRoute,
    WeightRoute,
    base_from_json,
    base_to_json,
    resize_map,
    ring_map,
    slots_of,
)
from anabranch.routing.bases.base_routes import slots_at
from unit.routing.builders import bases, batch_of, hashes_of, key_values, with_powers


@given(bases(), key_values)
def test_every_key_has_a_slot_that_exists(base: BaseRoute, values: list[int]) -> None:
    slots = base.slots_of(batch_of(values))
    assert slots.dtype == np.int32
    assert len(slots) == len(values)
    assert all(0 <= slot < base.slots for slot in slots.tolist())


@given(bases(), key_values, st.integers(0, 300))
def test_slot_does_not_depend_on_how_rows_are_cut(base: BaseRoute, values: list[int], cut: int) -> None:
    whole = base.slots_of(batch_of(values)).tolist()
    assert base.slots_of(batch_of(values[:cut])).tolist() + base.slots_of(batch_of(values[cut:])).tolist() == whole


@given(bases())
def test_route_comes_back_through_json(base: BaseRoute) -> None:
    assert base_from_json(json.loads(json.dumps(base_to_json(base)))) == base


@given(bases(), st.integers(1, 12), key_values)
def test_resized_route_has_the_slots_asked_for(base: BaseRoute, slots: int, values: list[int]) -> None:
    try:
        resized = base.resized(slots)
    except RouteError:
        # Fewer buckets than slots, or no weight left.
        return
    assert resized.slots == slots
    assert all(0 <= slot < slots for slot in resized.slots_of(batch_of(values)).tolist())


# A manifest names routes like this: an old checkpoint must be read.
@pytest.mark.parametrize(
    ("base", "golden"),
    [
        (BucketRoute.even(2, 4), {"kind": "buckets", "slots": 2, "slot_of": [0, 1, 0, 1]}),
        (
            RingRoute.over(3, 12, 4),
            {
                "kind": "ring",
                "slots": 3,
                "slot_of": [2, 0, 2, 0, 0, 2, 2, 0, 2, 1, 0, 0],
                "points_a_slot": 4,
            },
        ),
        (ModuloRoute(7), {"kind": "modulo", "slots": 7, "of_values": True}),
        (WeightRoute((20, 50, 30)), {"kind": "weights", "weights": [20, 50, 30]}),
        (RangeRoute("text", ("g", "p")), {"kind": "ranges", "values": "text", "bounds": ["g", "p"]}),
    ],
)
def test_golden_json(base: BaseRoute, golden: dict[str, Any]) -> None:
    assert base_to_json(base) == golden
    assert base_from_json(golden) == base


def test_unknown_kind_of_route_names_the_known_ones() -> None:
    with pytest.raises(RouteError, match=r"no base route 'bucket'.*did you mean 'buckets'.*ring, modulo, weights"):
        base_from_json({"kind": "bucket"})


# Buckets and the ring.


def test_bucket_route_is_the_bucket_map() -> None:
    bucket_map = BucketMap(3, tuple((bucket * 7) % 3 for bucket in range(64)))
    keys = batch_of(list(range(500)))
    assert BucketRoute(bucket_map).slots_of(keys).tolist() == slots_of(keys.hashes, bucket_map).tolist()


@given(st.sets(st.integers(0, 30), min_size=1, max_size=12), st.integers(0, 30), st.integers(1, 600))
def test_slot_more_on_the_ring_takes_and_nobody_else_does(members: set[int], new: int, buckets: int) -> None:
    before, after = ring_map(members, buckets, 16), ring_map(members | {new}, buckets, 16)
    gained = [b for b in range(buckets) if before.slot_of[b] != after.slot_of[b]]
    assert all(after.slot_of[bucket] == new for bucket in gained)


@given(st.sets(st.integers(0, 30), min_size=2, max_size=12), st.integers(1, 600), st.data())
def test_slot_less_on_the_ring_gives_and_nobody_else_does(members: set[int], buckets: int, data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(members)))
    before, after = ring_map(members, buckets, 16), ring_map(members - {gone}, buckets, 16)
    lost = [b for b in range(buckets) if before.slot_of[b] != after.slot_of[b]]
    assert all(before.slot_of[bucket] == gone for bucket in lost)


@pytest.mark.parametrize("slots", [2, 4, 8, 16])
def test_slot_more_on_the_ring_moves_about_its_share(slots: int) -> None:
    buckets = 4096
    before, after = ring_map(range(slots), buckets), ring_map(range(slots + 1), buckets)
    moved = sum(a != b for a, b in zip(before.slot_of, after.slot_of, strict=True))
    fair = buckets / (slots + 1)
    # Arcs of 128 points a slot differ from the mean by a tenth or so; three times that is luck's limit.
    assert abs(moved - fair) < 0.3 * fair + 3 * np.sqrt(fair)


def test_ring_without_slots_is_refused() -> None:
    with pytest.raises(RouteError, match="at least one of both"):
        ring_map([], 16)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_resized_map_is_even_and_moves_no_more_than_it_must(old: int, new: int, data: st.DataObject) -> None:
    owners = data.draw(st.lists(st.integers(0, old - 1), min_size=12, max_size=60))
    before = BucketMap(old, tuple(owners))
    after = resize_map(before, new)
    counts = np.bincount(after.slot_of, minlength=new)
    assert counts.max() - counts.min() <= 1
    moved = sum(a != b for a, b in zip(before.slot_of, after.slot_of, strict=True))
    had = np.bincount(before.slot_of, minlength=max(old, new))[:new]
    assert moved == np.maximum(counts - had, 0).sum()


def test_even_map_grows_without_a_move_between_old_slots() -> None:
    before = BucketMap.even(4, 64)
    after = resize_map(before, 5)
    changed = [a for b, a in zip(before.slot_of, after.slot_of, strict=True) if a != b]
    assert changed == [4] * 12


# Modulo.


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int64, pl.UInt8, pl.UInt64])
def test_modulo_takes_integers_of_any_width(dtype: type[pl.DataType]) -> None:
    values = pl.Series([0, 5, 100, 127], dtype=dtype)
    keys = KeyBatch(np.zeros(4, np.uint64), values)
    assert ModuloRoute(300).slots_of(keys).tolist() == [0, 5, 100, 127]
    assert ModuloRoute(3).slots_of(keys).tolist() == [0, 2, 1, 1]


def test_modulo_of_a_negative_key_is_a_slot() -> None:
    assert ModuloRoute(4).slots_of(batch_of([-1, -4, -7])).tolist() == [3, 0, 1]


def test_modulo_of_the_largest_unsigned_key_is_exact() -> None:
    keys = KeyBatch(np.zeros(1, np.uint64), pl.Series([2**64 - 1], dtype=pl.UInt64))
    assert ModuloRoute(10).slots_of(keys).tolist() == [5]


def test_modulo_of_a_missing_key_is_the_slot_of_nought_and_leaves_large_ones_exact() -> None:
    keys = KeyBatch(np.zeros(3, np.uint64), pl.Series([None, 2**62 + 3, 5], dtype=pl.Int64))
    assert ModuloRoute(4).slots_of(keys).tolist() == [0, 3, 1]


def test_modulo_of_other_keys_goes_by_their_hash() -> None:
    keys = KeyBatch(np.array([7, 2**64 - 1], np.uint64), pl.Series(["a", "b"]))
    assert ModuloRoute(4, of_values=False).slots_of(keys).tolist() == [3, 3]
    with pytest.raises(RouteError, match=r"integer keys.*found String.*of_values=False"):
        ModuloRoute(4).slots_of(keys)


def test_route_by_value_refuses_bare_hashes() -> None:
    for base in (ModuloRoute(4), RangeRoute("integer", (1, 2, 3))):
        assert base.needs_values
        with pytest.raises(RouteError, match=r"needs key values.*'hash'"):
            base.slots_of(KeyBatch(hashes_of([1, 2])))


# Weights.


def test_weights_20_50_30_are_searched_as_20_70_100() -> None:
    points = np.array([0, 19.999, 20, 69.999, 70, 99.999])
    assert slots_at(points, (20, 50, 30)).tolist() == [0, 0, 1, 1, 2, 2]


def test_slot_of_weight_0_gets_nothing() -> None:
    keys = batch_of(list(range(2000)))
    assert set(WeightRoute((0, 60, 0, 40, 0)).slots_of(keys).tolist()) == {1, 3}
    assert slots_at(np.array([np.nextafter(100, 0)]), (60, 40, 0)).tolist() == [1]


def test_keys_are_spread_by_weight() -> None:
    keys = batch_of(list(range(50_000)))
    counts = np.bincount(WeightRoute((20, 50, 30)).slots_of(keys), minlength=3)
    assert np.allclose(counts / 500, [20, 50, 30], atol=1)


@pytest.mark.parametrize("weights", [(20, 50), (120, -20), ()])
def test_weights_that_do_not_sum_to_100_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(RouteError, match=r"sum to 100.*of_powers"):
        WeightRoute(weights)


def test_weights_come_from_powers() -> None:
    assert WeightRoute.of_powers([2, 5, 3]).weights == (20, 50, 30)
    with pytest.raises(RouteError, match="make no weights"):
        WeightRoute.of_powers([0, 0])


def test_new_slot_gets_the_mean_weight() -> None:
    assert WeightRoute((20, 80)).resized(3).weights == pytest.approx((40 / 3, 160 / 3, 100 / 3))


# Ranges.


def test_bound_belongs_to_the_upper_range() -> None:
    route = RangeRoute("integer", (10, 20))
    assert route.slots_of(batch_of([-5, 9, 10, 19, 20, 99])).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([3, 1, 2], pl.Int16),
        ([3, 1, 2**64 - 1], pl.UInt64),
        ([0.5, -1.5, 7.25], pl.Float32),
        (["b", "a", "ü"], pl.String),
        (["b", "a", "c"], pl.Categorical),
        ([b"\x01", b"\x00\xff", b"\xff"], pl.Binary),
        ([dt.date(2026, 1, 2), dt.date(1960, 1, 1), dt.date(2026, 1, 3)], pl.Date),
        ([dt.datetime(2026, 1, 2), dt.datetime(1960, 1, 1), dt.datetime(2026, 1, 3)], pl.Datetime("ms")),
        ([dt.timedelta(2), dt.timedelta(-1), dt.timedelta(3)], pl.Duration("ns")),
        ([True, False, True], pl.Boolean),
    ],
    ids=str,
)
def test_ranges_keep_the_order_of_every_type(values: list[Any], dtype: Any) -> None:
    keys = pl.Series(values, dtype=dtype)
    sample = KeySample.gather(np.arange(3), values=keys)
    route = RangeRoute.from_sample(sample, 3)
    slots = route.slots_of(KeyBatch(np.zeros(3, np.uint64), keys)).tolist()
    by_value = [slot for _, slot in sorted(zip(values, slots, strict=True))]
    assert by_value == sorted(by_value)
    assert base_from_json(json.loads(json.dumps(base_to_json(route)))) == route


def test_ranges_cut_at_quantiles_hold_equally_many_rows() -> None:
    rng = np.random.default_rng(5)
    values = np.unique(rng.normal(2000, 100, 5000).astype(np.int64))
    counts = rng.integers(1, 20, len(values)).astype(float)
    sample = KeySample.gather(hashes_of(values), counts, pl.Series(values))
    slots = RangeRoute.from_sample(sample, 8).slots_of(sample.batch)
    loads = np.bincount(slots, sample.counts, minlength=8)
    # A key is never cut, so a range is off by half a key at either end.
    assert np.abs(loads - loads.mean()).max() <= counts.max()


def test_ranges_follow_the_powers_of_the_slots() -> None:
    values = np.arange(9000)
    sample = with_powers(KeySample.gather(hashes_of(values), None, pl.Series(values)), 1, 2)
    assert RangeRoute.from_sample(sample, 2).bounds == (3000,)


def test_ranges_of_nothing_are_refused() -> None:
    with pytest.raises(RouteError, match="sample of key values"):
        RangeRoute.from_sample(KeySample.gather([1, 2]), 2)


def test_ranges_over_another_type_are_refused() -> None:
    with pytest.raises(RouteError, match="cut over integer keys, found text"):
        RangeRoute("integer", (3,)).slots_of(KeyBatch(np.zeros(1, np.uint64), pl.Series(["a"])))
    with pytest.raises(RouteError, match="no order"):
        RangeRoute("integer", (3,)).slots_of(KeyBatch(np.zeros(1, np.uint64), pl.Series([[1]])))


def test_bounds_must_rise() -> None:
    with pytest.raises(RouteError, match="not sorted"):
        RangeRoute("integer", (3, 1))


def test_new_range_is_empty_and_a_lost_one_goes_to_its_neighbour() -> None:
    route, keys = RangeRoute("integer", (10, 20)), batch_of([5, 15, 25])
    assert route.resized(4).slots_of(keys).tolist() == [0, 1, 3]
    assert route.resized(2).slots_of(keys).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("values", "kind"), [(pl.Series([-5, 7]), "integer"), (pl.Series([0.5]), "number"), (pl.Series(["a"]), "text")]
)
def test_one_range_stays_whole_when_slots_come_to_it(values: pl.Series, kind: Any) -> None:
    resized = RangeRoute(kind, ()).resized(3)
    assert resized.slots == 3
    assert resized.slots_of(KeyBatch(np.zeros(len(values), np.uint64), values)).tolist() == [0] * len(values)
