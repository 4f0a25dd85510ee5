"""Streams whose keys are skewed, and whose skew moves: what every batch holds, as a function of the seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.shared.registry import BenchError
from benchmarks.shared.workload import SCHEMA, format_writer, write_atomically

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
PHONE_NUMBERS = 10_000
_BATCH_SPAN_MS = 5_000
# Batches start inside windows, so that no batch holds whole windows only.
_ORIGIN_MS = 1_700_000_003_700


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Some batches in a row whose keys are drawn alike."""

    name: str
    batches: int
    weights: NDArray[np.float64]
    """By key."""


@dataclass(frozen=True, slots=True, eq=False)
class SkewStream:
    """Batches of sensor readings; a new phase is a change of the distribution."""

    name: str
    keys: NDArray[np.int64]
    phases: tuple[Phase, ...]
    rows_per_batch: int
    seed: int

    @property
    def batches(self) -> int:
        """Batches in all."""
        return sum(phase.batches for phase in self.phases)

    @property
    def rows(self) -> int:
        """Rows in all."""
        return self.batches * self.rows_per_batch

    @property
    def first_batches(self) -> tuple[int, ...]:
        """The first batch of each phase."""
        return tuple(accumulate((phase.batches for phase in self.phases[:-1]), initial=0))

    def make_rows(self, batch: int) -> pl.DataFrame:
        """Return the rows of one batch; they depend on the stream and the batch's number alone."""
        phase = self.phases[int(np.searchsorted(self.first_batches, batch, side="right")) - 1]
        rng = np.random.default_rng([self.seed, len(self.keys), self.rows_per_batch, batch])
        cumulative = np.cumsum(phase.weights)
        drawn = np.searchsorted(cumulative, rng.random(self.rows_per_batch) * cumulative[-1], side="right")
        rising_ms = np.arange(self.rows_per_batch, dtype=np.int64) * _BATCH_SPAN_MS // self.rows_per_batch
        return pl.DataFrame(
            {
                "sensor": self.keys[np.minimum(drawn, len(self.keys) - 1)],
                "ts": _ORIGIN_MS + batch * _BATCH_SPAN_MS + rising_ms,
                # Quarters: every sum of them is exact in a double, so answers are equal or wrong, never close.
                "value": rng.integers(0, 1_000, self.rows_per_batch, dtype=np.int64) / 4.0,
            },
            schema=SCHEMA,
        )


@dataclass(frozen=True, slots=True, eq=False)
class RisingStream(SkewStream):
    """Ids that are counted up: every row has a key of its own."""

    def make_rows(self, batch: int) -> pl.DataFrame:
        """Return the rows of one batch, with the next ids."""
        first = batch * self.rows_per_batch
        return SkewStream.make_rows(self, batch).with_columns(
            sensor=pl.int_range(first, first + self.rows_per_batch, dtype=pl.Int64)
        )


def make_rising_stream(rows_per_batch: int, batches: int, seed: int) -> RisingStream:
    """Return rising ids, as many as rows."""
    keys = np.arange(rows_per_batch * batches, dtype=np.int64)
    return RisingStream("rising ids", keys, (Phase("all", batches, np.ones(len(keys))),), rows_per_batch, seed)


def make_topic_stream(rows_per_batch: int, batches: int, seed: int, topics: int = 100_000) -> SkewStream:
    """Return topics of which few are written about by most: a tail as heavy as that of real ones.

    The hottest has some percent of all posts, like over two years of Weibo, or much more; that is the seed's doing.
    """
    weights = np.random.default_rng([seed, topics]).pareto(0.85, topics) + 1.0
    return SkewStream(
        "made-up topics", np.arange(topics, dtype=np.int64), (Phase("all", batches, weights),), rows_per_batch, seed
    )


def read_topic_stream(path: Path, rows_per_batch: int, batches: int, seed: int) -> SkewStream | None:
    """Return all real topics of a file, as often as they were written about in all; None without such a file."""
    posts = _count_posts(path)
    if posts is None:
        return None
    weights = posts.group_by("title").agg(pl.col("posts").sum()).sort("title")["posts"].cast(pl.Float64).to_numpy()
    keys = np.arange(len(weights), dtype=np.int64)
    return SkewStream("Weibo topics, all days", keys, (Phase("all", batches, weights),), rows_per_batch, seed)


def make_zipf_stream(
    exponent: float, rows_per_batch: int, batches_a_phase: int, phases: int, seed: int, keys: int = PHONE_NUMBERS
) -> SkewStream:
    """Return a stream of zipf keys; with each phase, other keys are the hot ones."""
    rng = np.random.default_rng([seed, keys])
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    return SkewStream(
        f"zipf {exponent:g}",
        np.arange(keys, dtype=np.int64),
        tuple(Phase(f"order {number + 1}", batches_a_phase, rng.permutation(weights)) for number in range(phases)),
        rows_per_batch,
        seed,
    )


def make_moving_mean(rows_per_batch: int, batches_a_phase: int, seed: int) -> SkewStream:
    """Return phone numbers, uniform at first, then normal around a mean that goes from 2000 to 8000 and back."""
    phases = [Phase("uniform", batches_a_phase, np.ones(PHONE_NUMBERS))]
    phases += [Phase(f"μ {mean}", batches_a_phase, _normal(mean, 100)) for mean in (2000, 8000, 2000, 8000)]
    return SkewStream("moving mean", np.arange(PHONE_NUMBERS, dtype=np.int64), tuple(phases), rows_per_batch, seed)


def make_narrowing(rows_per_batch: int, batches_a_phase: int, seed: int) -> SkewStream:
    """Return phone numbers, normal around 5000, whose deviation falls from 100 to 25 in steps of 25, and again."""
    phases = [Phase(f"σ {sigma}", batches_a_phase, _normal(5000, sigma)) for sigma in (100, 75, 50, 25, 100, 25)]
    return SkewStream("narrowing", np.arange(PHONE_NUMBERS, dtype=np.int64), tuple(phases), rows_per_batch, seed)


def make_uniform_stream(rows_per_batch: int, batches: int, keys: int, seed: int) -> SkewStream:
    """Return keys that are all alike."""
    phase = Phase("uniform", batches, np.ones(keys))
    return SkewStream("uniform", np.arange(keys, dtype=np.int64), (phase,), rows_per_batch, seed)


def make_four_cases(rows_per_batch: int, batches: int, seed: int) -> tuple[SkewStream, ...]:
    """Return keys × data, each uniform or not, as the load distribution paper has them.

    Uniform keys are dense ids; the others begin with a district's number, and most districts number in steps. Where
    data is not uniform, a key's rows follow its rank, and the hottest key has less than a slot's share.
    """
    dense = np.arange(12_000, dtype=np.int64)
    sizes_and_steps = ((5000, 1), (3000, 2), (2500, 5), (1500, 10))
    districts = np.concatenate(
        [100_000 * (number + 1) + step * np.arange(size) for number, (size, step) in enumerate(sizes_and_steps)]
    ).astype(np.int64)
    ranks = np.random.default_rng([seed, 3]).permutation(len(dense)) + 1
    by_rank: NDArray[np.float64] = ranks.astype(np.float64) ** -0.6
    return tuple(
        SkewStream(name, keys, (Phase("all", batches, weights),), rows_per_batch, seed)
        for name, keys, weights in (
            ("even keys, even data", dense, np.ones(len(dense))),
            ("other keys, even data", districts, np.ones(len(dense))),
            ("even keys, other data", dense, by_rank),
            ("other keys, other data", districts, by_rank),
        )
    )


def read_weibo_stream(path: Path, rows_per_batch: int, batches_a_phase: int, seed: int) -> SkewStream | None:
    """Return real topics, as often as they were written about on the three busiest days; None without such a file."""
    posts = _count_posts(path)
    if posts is None:
        return None
    daily = posts.group_by("day", "title").agg(pl.col("posts").sum())
    busiest = daily.group_by("day").agg(pl.col("posts").sum()).sort("posts", "day", descending=True).head(3)
    days = sorted(busiest["day"].to_list())
    titles = daily.filter(pl.col("day").is_in(days))["title"].unique().sort()
    phases = []
    for day in days:
        of_day = pl.DataFrame({"title": titles}).join(daily.filter(pl.col("day") == day), on="title", how="left")
        weights = of_day.sort("title")["posts"].fill_null(0).cast(pl.Float64).to_numpy()
        phases.append(Phase(str(day), batches_a_phase, weights))
    return SkewStream("Weibo topics", np.arange(len(titles), dtype=np.int64), tuple(phases), rows_per_batch, seed)


def _count_posts(path: Path) -> pl.DataFrame | None:
    """Return the posts about topics by day and hour, where there were some; None without such a file."""
    if not path.exists():
        return None
    hourly = pl.read_parquet(path, columns=["day", "hour", "title", "discussCount"])
    posts = (
        hourly.drop_nulls()
        .sort("title", "day", "hour")
        .with_columns(posts=pl.col("discussCount").diff().over("title").clip(lower_bound=0))
        .filter(pl.col("posts") > 0)
    )
    if not posts.height:
        msg = f"{path} has no topics that were written about; take it away, or give another data folder"
        raise BenchError(msg)
    return posts


def _normal(mean: float, sigma: float) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.exp(-(((np.arange(PHONE_NUMBERS) - mean) / sigma) ** 2) / 2)
    return weights


def write_stream(stream: SkewStream, file_format: str, cache_dir: Path) -> Path:
    """Return the folder with one file a batch, writing those that the cache lacks."""
    slug = "".join(letter if letter.isalnum() else "-" for letter in stream.name)
    folder = cache_dir / f"v{GENERATOR_VERSION}-{slug}-{stream.batches}x{stream.rows_per_batch}-s{stream.seed}"
    folder = folder / file_format
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(stream.batches):
        path = folder / f"part-{batch:05d}.{file_format}"
        if not path.exists():
            write_atomically(path, partial(_write_batch, stream, file_format, batch))
    return folder


def _write_batch(stream: SkewStream, file_format: str, batch: int, path: Path) -> None:
    format_writer(file_format)(stream.make_rows(batch), path)
    # Spark's file source reads in the order of these times, and small files are written within one tick of the clock.
    os.utime(path, (_ORIGIN_MS // 1_000 + batch, _ORIGIN_MS // 1_000 + batch))
