"""The sketch that finds hot keys, among ten million different ones: what it finds, what it is off by, what it takes."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import anabranch as ab
from anabranch.control.observe.load_sampling import Watch, merge_loads, watch_rows
from anabranch.model import HASH
from anabranch.routing import hash_keys
from anabranch.routing.heavy_hitters import MOST_KEYS, count_keys
from flows.running import START, LocalBench
from soak.amounts import DIFFERENT_KEYS, SEED

HOT_SHARES = [0.2, 0.05, 0.02, 0.01, 0.008]
"""Of all rows, those of the hottest keys; every other key has a single row."""
BATCHES, SLOTS, BUCKETS = 10, 4, 64


def draw_keys(different: int) -> NDArray[np.int64]:
    """Return keys in a random order: five hot ones, 0 to 4, and as many others as are asked for, each once."""
    rng = np.random.default_rng(SEED)
    rows = different / (1 - sum(HOT_SHARES))
    hot = np.repeat(np.arange(len(HOT_SHARES)), np.rint(rows * np.array(HOT_SHARES)).astype(np.int64))
    return rng.permutation(np.concatenate((hot, 1_000 + np.arange(different))))


def hash_rows(keys: NDArray[np.int64]) -> pl.DataFrame:
    frame = pl.DataFrame({"key": keys})
    return frame.with_columns(hash_keys(frame, ["key"]).alias(HASH))


def test_the_sketch_takes_the_same_few_megabytes_however_many_keys_there_are() -> None:
    hashes = hash_rows(draw_keys(DIFFERENT_KEYS))[HASH].to_numpy()
    cuts = [*range(0, len(hashes), 1_000_000), len(hashes)]
    chunks = ((hashes[start:end], np.arange(start, end)) for start, end in pairwise(cuts))
    count_keys([(hashes[:100_000], np.arange(100_000))], 100_000)
    tracemalloc.start()
    counted = count_keys(chunks, len(hashes))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{len(hashes):,} rows: {peak / 1e6:.1f} MB, off by at most {counted.error:,} rows")
    # The places of a chunk's rows are 8 MB of it, and of the test's own making.
    assert peak < 30e6
    assert len(counted.keys) <= MOST_KEYS
    assert 0 < counted.error <= 2 * len(hashes) / MOST_KEYS


@pytest.mark.parametrize("rate", [1.0, 0.1, "auto"])
def test_slots_find_all_hot_keys_and_no_others_within_the_error_that_they_tell(rate: float | str) -> None:
    rows = hash_rows(draw_keys(DIFFERENT_KEYS))
    true = dict(rows.filter(pl.col("key") < len(HOT_SHARES))[HASH].value_counts().rows())
    parts = rows.with_columns(slot=pl.col(HASH) % SLOTS).partition_by("slot", maintain_order=True, include_key=False)
    found = merge_loads([watch_rows([part], ["key"], Watch(BUCKETS, rate)) for part in parts], BUCKETS)  # type: ignore[arg-type]
    assert found is not None and found.sample is not None
    print(
        f"at {rate}: {found.sampled_rows:,} rows looked at, off by at most {found.error_rows:,.0f} of {rows.height:,}"
    )
    assert set(found.hot_rows) == set(true), f"with ANABRANCH_SOAK_SEED={SEED}"
    assert found.error_rows <= 2 * rows.height / MOST_KEYS
    by_chance = 0 if rate == 1.0 else 6 * np.sqrt(max(true.values()) * rows.height / found.sampled_rows)
    for key, counted in found.hot_rows.items():
        assert true[key] - by_chance <= counted <= true[key] + found.error_rows + by_chance
    assert found.sample.height < 4_000 * SLOTS


def test_a_flow_is_evened_out_by_what_the_sketch_found_and_counts_every_row(tmp_path: Path) -> None:
    keys = draw_keys(DIFFERENT_KEYS)
    parts = np.array_split(keys, BATCHES)
    flow, hot, all_rows = ab.Flow("ten-million"), ab.to_memory(), ab.to_memory()
    frames = (
        pl.DataFrame({"key": part}).with_columns(ts=pl.lit(START + timedelta(seconds=10 * number)))
        for number, part in enumerate(parts)
    )
    stream = flow.read(ab.memory(*frames, max_frames=1)).watermark("ts").key_by("key").window("10s")
    counted = stream.agg(rows=ab.count())
    counted.filter("rows > 1").write(hot)
    counted.with_columns(everything=pl.lit(0)).key_by("everything", balance=None).agg(
        keys=ab.count(), rows=ab.sum("rows"), name="all"
    ).write(all_rows)
    progress = (
        LocalBench(tmp_path).run_flow(flow, [hot, all_rows], slots=SLOTS, buckets=BUCKETS, local_merge=False).progress
    )
    with_rows = [entry for entry in progress if entry.rows_in]
    assert len(with_rows) == BATCHES
    evenness = [entry.max_over_mean for entry in with_rows]
    print([f"{one:.3f}" for one in evenness if one is not None])
    assert evenness[0] is not None and evenness[-1] is not None
    assert evenness[0] > 1.2
    assert evenness[-1] < 1.1
    assert any("split" in change for entry in progress for change in entry.changes)

    expected = [(key, int((part == key).sum())) for part in parts for key in range(len(HOT_SHARES))]
    assert sorted(hot.frame().select("key", "rows").rows()) == sorted(expected)
    totals = all_rows.frame().select(pl.col("keys", "rows").max()).row(0)
    assert totals == (DIFFERENT_KEYS + len(expected), len(keys))
