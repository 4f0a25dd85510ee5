"""What slots see of their load: buckets exactly, hot keys surely, and the same whenever they look."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.observe.load_sampling import ROWS, LoadReport, Watch, merge_loads, watch_rows
from anabranch.model import HASH
from anabranch.routing import buckets_of, hash_keys
from anabranch.routing.heavy_hitters import MOST_KEYS
from property_tests import tries

WATCH = Watch(buckets=32, sample_rate=1.0)


def rows_of(keys: list[int] | np.ndarray) -> pl.DataFrame:
    frame = pl.DataFrame({"key": pl.Series(keys, dtype=pl.Int64)})
    return frame.with_columns(hash_keys(frame, ["key"]).alias(HASH))


def hash_of(key: int) -> int:
    return int(rows_of([key])[HASH][0])


def look(frames: list[pl.DataFrame], watch: Watch) -> LoadReport:
    """Return what a slot says of rows that it has."""
    seen = watch_rows(frames, ["key"], watch)
    assert seen is not None
    return seen


def skewed(rows: int, seed: int = 1) -> np.ndarray:
    """Return keys of which key 0 has a fifth, keys 1 to 5 a twentieth each, and the rest little."""
    rng = np.random.default_rng(seed)
    parts = rng.random(rows)
    keys = 10 + rng.integers(0, 5_000, rows)
    keys[parts < 0.45] = 1 + (parts[parts < 0.45] - 0.2) // 0.05
    keys[parts < 0.2] = 0
    return keys


@tries(50)
@given(
    slots=st.lists(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=3), max_size=4),
    rate=st.sampled_from([1.0, 0.5, 0.1]),
)
def test_rows_by_bucket_are_exact_whatever_is_sampled(slots: list[list[list[int]]], rate: float) -> None:
    seen = [watch_rows([rows_of(keys) for keys in frames], ["key"], Watch(32, rate)) for frames in slots]
    found = merge_loads(seen, 32)
    every = [key for frames in slots for keys in frames for key in keys]
    if not every:
        assert found is None
        return
    assert found is not None
    expected = np.bincount(buckets_of(rows_of(every)[HASH].to_numpy(), 32), minlength=32)
    assert found.bucket_rows.tolist() == expected.tolist()


@tries(50)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=200))
def test_few_keys_that_are_all_looked_at_are_counted_exactly(keys: list[int]) -> None:
    found = merge_loads([watch_rows([rows_of(keys)], ["key"], WATCH)], 32)
    assert found is not None
    assert found.hot_rows == {hash_of(key): keys.count(key) for key in set(keys)}
    assert dict(found.sample.select("key", ROWS).rows()) == {key: float(keys.count(key)) for key in set(keys)}


@tries(60)
@given(
    blocks=st.lists(st.integers(1, 3_000), min_size=1, max_size=4),
    rate=st.floats(0.001, 1.0),
    samples=st.booleans(),
)
def test_as_many_rows_are_looked_at_as_the_rate_says(blocks: list[int], rate: float, samples: bool) -> None:
    frames = [rows_of(np.arange(rows) % 97) for rows in blocks]
    found = merge_loads([watch_rows(frames, ["key"], Watch(32, rate, samples))], 32)
    assert found is not None
    assert found.sampled_rows == max(1, round(rate * sum(blocks)))


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.1, 0.3, 0.7, 1.0])
def test_a_stream_with_a_rhythm_is_sampled_as_it_is(rate: float) -> None:
    """Every tenth row is of key 0, and so would every row be that a look at each tenth row meets."""
    rows = 200_000
    found = merge_loads([watch_rows([rows_of(np.arange(rows) % 10)], ["key"], Watch(32, rate))], 32)
    assert found is not None
    within = 4 * np.sqrt(rows / 10 / rate * (1 - rate)) + 10 / rate
    named = {key: found.hot_rows.get(hash_of(key), 0.0) for key in range(10)}
    if rate > 0.002:
        assert all(abs(counted - rows / 10) <= within for counted in named.values())
    else:
        # Twenty rows of each are no more than chance.
        assert found.hot_rows == {}
    sampled = dict(found.sample.select("key", ROWS).rows())
    assert all(abs(sampled[key] - rows / 10) <= within for key in range(10))


def test_left_to_itself_a_slot_looks_at_all_of_few_rows_and_at_a_tenth_of_many() -> None:
    """From a tenth of few, keys would seem hot by chance, and a plan would pick just these."""
    for rows, looked_at in ((500, 500), (20_000, 20_000), (50_000, 20_000), (400_000, 40_000)):
        found = merge_loads([watch_rows([rows_of(skewed(rows))], ["key"], Watch(32, "auto"))], 32)
        assert found is not None
        assert found.sampled_rows == looked_at
    keys = skewed(20_000)
    found = merge_loads([watch_rows([rows_of(keys)], ["key"], Watch(32, "auto"))], 32)
    assert found is not None
    assert [found.hot_rows[hash_of(key)] for key in range(6)] == [int((keys == key).sum()) for key in range(6)]


def test_where_no_key_is_hot_none_is_named() -> None:
    """Counts of a part of the rows would make some keys hot by chance; buckets are counted, and can be moved."""
    keys = np.random.default_rng(1).integers(0, 5_000, 60_000)
    found = merge_loads([watch_rows([rows_of(keys)], ["key"], Watch(32, 0.1))], 32)
    assert found is not None
    assert found.hot_rows == {}
    assert found.bucket_rows.sum() == 60_000
    assert found.sample[ROWS].sum() == pytest.approx(60_000, rel=0.02)


@pytest.mark.parametrize("rate", [0.02, 0.25, 0.5, 1.0])
def test_a_rate_that_is_asked_for_holds_also_where_no_key_is_hot(rate: float) -> None:
    even = [rows_of(np.random.default_rng(1).integers(0, 50_000, 60_000))]
    seen = look(even, Watch(32, rate))
    assert seen.keys is not None
    assert seen.keys.stands_for == pytest.approx(1 / rate)
    # Left to itself, a slot looks for hot keys in 20,000 rows, and takes its sample of 5,000.
    by_itself = look(even, Watch(32, "auto"))
    assert by_itself.keys is not None
    assert (by_itself.sampled_rows, by_itself.keys.stands_for) == (20_000, 12.0)


def test_a_slot_without_hot_keys_sends_a_sample_only_if_asked() -> None:
    even = [rows_of(np.random.default_rng(1).integers(0, 5_000, 60_000))]
    assert look(even, Watch(32, 0.1, samples=False)).keys is None
    assert look(even, Watch(32, 0.1, samples=True)).keys is not None
    assert look([rows_of(skewed(60_000))], Watch(32, 0.1, samples=False)).keys is not None


def test_samples_of_some_slots_are_not_a_sample_of_all() -> None:
    watch = Watch(32, 0.1, samples=False)
    even, hot = np.random.default_rng(1).integers(0, 5_000, 60_000), skewed(60_000)
    seen = [watch_rows([rows_of(keys)], ["key"], watch) for keys in (even, hot)]
    found = merge_loads(seen, 32)
    assert found is not None
    assert not found.complete
    assert found.sample is not None and found.hot_rows
    assert found.bucket_rows.sum() == 120_000
    alone = merge_loads(seen[:1], 32)
    assert alone is not None
    assert alone.sample is None and not alone.complete
    assert merge_loads([None, seen[1]], 32).complete  # type: ignore[union-attr]


def test_rows_of_all_slots_add_up() -> None:
    seen = [watch_rows([rows_of([1, 1, 2])], ["key"], WATCH), None, watch_rows([rows_of([1, 3])], ["key"], WATCH)]
    found = merge_loads(seen, 32)
    assert found is not None
    assert found.hot_rows == {hash_of(1): 3, hash_of(2): 1, hash_of(3): 1}
    assert found.bucket_rows.sum() == 5


def test_a_slot_without_rows_saw_nothing() -> None:
    assert watch_rows([], ["key"], WATCH) is None
    assert watch_rows([rows_of([])], ["key"], WATCH) is None
    assert merge_loads([], 32) is None
    assert merge_loads([None, None], 32) is None


@pytest.mark.parametrize(("rows", "rate"), [(40_000, 0.1), (200_000, 0.1), (200_000, 1.0)])
def test_hot_keys_are_found_with_their_rows_within_a_tenth(rows: int, rate: float) -> None:
    """More keys than the sketch has room for, and more rows than a slot looks at."""
    keys = skewed(rows)
    found = merge_loads([watch_rows([rows_of(keys)], ["key"], Watch(32, rate))], 32)
    assert found is not None
    for key in range(6):
        true = int((keys == key).sum())
        # A sketch that lost count of the small ones may be off by what it says itself: here some hundredths.
        assert found.hot_rows[hash_of(key)] == pytest.approx(true, rel=0.1)
    hottest = max(found.hot_rows, key=lambda key: found.hot_rows[key])
    assert hottest == hash_of(0)


def test_hot_keys_among_very_many_are_found_within_the_bounds_that_are_told() -> None:
    """More keys than there are counters, and enough rows for compiled code."""
    rng = np.random.default_rng(5)
    keys = np.where(rng.random(300_000) < 0.1, rng.integers(0, 4, 300_000), rng.integers(10, 10_000_000, 300_000))
    found = merge_loads([watch_rows([rows_of(keys)], ["key"], Watch(32, 1.0))], 32)
    assert found is not None
    assert 0 < found.error_rows <= 2 / MOST_KEYS * 300_000
    assert set(found.hot_rows) == {hash_of(key) for key in range(4)}
    for key in range(4):
        true = int((keys == key).sum())
        assert true <= found.hot_rows[hash_of(key)] <= true + found.error_rows
    assert found.sample is not None
    assert found.sample.height < 4_000
    assert found.sample[ROWS].sum() == pytest.approx(300_000)


def test_the_sample_stands_for_all_rows() -> None:
    keys = skewed(100_000)
    found = merge_loads([watch_rows([rows_of(keys)], ["key"], Watch(32, 0.25))], 32)
    assert found is not None
    assert found.sample[ROWS].sum() == pytest.approx(100_000, rel=0.02)
    assert found.sample[HASH].n_unique() == found.sample.height


def test_keys_of_several_columns_and_types_go_along() -> None:
    frame = pl.DataFrame({"name": ["ä", "b", "ä"], "raw": [b"\x00", b"x", b"\x00"]})
    frame = frame.with_columns(hash_keys(frame, ["name", "raw"]).alias(HASH))
    found = merge_loads([watch_rows([frame], ["name", "raw"], WATCH)], 32)
    assert found is not None
    assert sorted(found.sample.select("name", "raw", ROWS).rows()) == [("b", b"x", 1.0), ("ä", b"\x00", 2.0)]


def test_what_is_seen_is_plain_json_and_reads_back() -> None:
    seen = look([rows_of(skewed(5_000))], Watch(32, 0.5))
    again = LoadReport.from_json(json.loads(json.dumps(seen.to_json())))
    assert again.to_json() == seen.to_json()
    assert again.named_keys.tolist() == seen.named_keys.tolist()
    left, right = merge_loads([seen], 32), merge_loads([again], 32)
    assert left is not None and right is not None
    assert left.hot_rows == right.hot_rows
    assert left.sample.equals(right.sample)


def test_equal_rows_give_equal_bytes_in_every_process() -> None:
    """What a slot saw crosses exchanges: a task that is run again must say the same to the byte."""
    script = (
        "import json, sys; from unit.control.test_load_sampling import look, rows_of, skewed; "
        "from anabranch.control.observe.load_sampling import Watch; "
        "print(json.dumps(look([rows_of(skewed(20_000))], Watch(64, 0.3)).to_json()))"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/usr/bin:/bin"}
    said = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=environment | {"PYTHONHASHSEED": str(seed), "POLARS_MAX_THREADS": threads},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed, threads in ((1, "1"), (2, "3"))
    ]
    here = json.dumps(look([rows_of(skewed(20_000))], Watch(64, 0.3)).to_json())
    assert said == [here + "\n"] * 2


def test_how_rows_are_cut_into_blocks_does_not_matter() -> None:
    rows = rows_of(skewed(3_000))
    whole = look([rows], Watch(32, 0.4))
    parts = look([rows[:1000], rows[1000:1001], rows[1001:]], Watch(32, 0.4))
    assert parts.to_json() == whole.to_json()
