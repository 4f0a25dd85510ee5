"""The input of the interval join: ads as they are shown, four to a click, and clicks on ads, both with zipf keys.

What is shown most is not what is clicked most: clicks have the same shares, of ads that are some ranks further down.
With the same hot keys on both sides, pairs would grow with the square of a hot key's share: at zipf 1.5, a row would
meet every sixth of all rows in its interval. The ranks between the sides are chosen so that a row gives two results
in the mean, whatever the skew; where no skew needs no distance, it gives fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.joins.inputs import FileCut, cut_files, find_schema
from benchmarks.joins.streams import AFTER_MS, BEFORE_MS, INTERVAL
from benchmarks.shared.workload import WorkloadError
from benchmarks.shared.zipf import draw_zipf, find_shares

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
ADS_A_CLICK = 4
RESULTS_A_ROW = 2.0
DISORDER_MS = 1_900
"""Below the delay of watermarks, so that no row is late in any system that reads the files in order."""
_INTERVAL_MS = BEFORE_MS + AFTER_MS
_LENGTHS = 20
"""Of the interval, in all of the event time; fewer where so many rows would be in it that systems only fill state."""
_MOST_ROWS_IN_INTERVAL = 500_000
_ORIGIN_MS = 1_700_000_003_700
_CAMPAIGNS = 1_000
_USERS = 500_000
_STREAM_NUMBERS = {"ads": 0, "clicks": 1}


@dataclass(frozen=True, slots=True)
class IntervalInput:
    """What to generate."""

    cut: FileCut
    """By clicks: a file of ads has four times as many rows as one of clicks."""
    keys: int
    exponent: float
    seed: int

    query = INTERVAL

    @property
    def name(self) -> str:
        return (
            f"interval-v{GENERATOR_VERSION}-files{self.cut.count}-n{self.cut.rows_per_file}-k{self.keys}"
            f"-z{self.exponent:g}-s{self.seed}"
        )

    @property
    def rows(self) -> int:
        """Rows of both streams."""
        return sum(self.count_rows().values())

    @property
    def rows_in_interval(self) -> int:
        """Rows of both streams whose times are in one interval."""
        return max(ADS_A_CLICK + 1, min(_MOST_ROWS_IN_INTERVAL, self.rows // _LENGTHS))

    @property
    def file_span_ms(self) -> float:
        """The event time that goes by in a file."""
        return (ADS_A_CLICK + 1) * self.cut.rows_per_file * _INTERVAL_MS / self.rows_in_interval

    @property
    def ranks_between(self) -> int:
        """How many ranks an ad is shown more often than it is clicked."""
        return find_ranks_between(self.keys, self.exponent, self._wanted_share)

    def count_rows(self) -> dict[str, int]:
        """Return the rows of each stream."""
        clicks = self.cut.count * self.cut.rows_per_file
        return {"ads": ADS_A_CLICK * clicks, "clicks": clicks}

    def count_files(self, stream: str) -> int:
        """Return the files of a stream: as many of ads as of clicks, of the same times."""
        return self.cut.count

    def make_rows(self, stream: str, index: int) -> pl.DataFrame:
        """Return the rows of one file; they depend on the input, the stream and the file's number alone."""
        rng = np.random.default_rng([self.seed, self.keys, self.cut.rows_per_file, index, _STREAM_NUMBERS[stream]])
        make = self._make_ads if stream == "ads" else self._make_clicks
        return pl.DataFrame(make(rng, index), schema=find_schema(INTERVAL, stream))

    def describe(self) -> dict[str, object]:
        """Return what is to be known of it beside a figure."""
        return {
            "keys": self.keys,
            "rows_in_interval": self.rows_in_interval,
            "ranks_between_shown_and_clicked": self.ranks_between,
            "results_a_row_at_most": RESULTS_A_ROW,
        }

    @property
    def _wanted_share(self) -> float:
        """The chance that an ad and a click are of the same ad."""
        results_an_ad = RESULTS_A_ROW * (ADS_A_CLICK + 1) / ADS_A_CLICK
        return results_an_ad * (ADS_A_CLICK + 1) / self.rows_in_interval

    def _make_ads(self, rng: np.random.Generator, index: int) -> dict[str, object]:
        count = ADS_A_CLICK * self.cut.rows_per_file
        ads = self._draw_ads(rng, count, 0)
        return {
            "ad": ads,
            "shown": self._draw_times(rng, count, index),
            "campaign": _name("campaign", ads % _CAMPAIGNS),
            "price": rng.integers(1, 4_000, count) / 4.0,
            "place": rng.integers(1, 40, count, dtype=np.int32),
            "seen": rng.random(count) < 0.7,
        }

    def _make_clicks(self, rng: np.random.Generator, index: int) -> dict[str, object]:
        count = self.cut.rows_per_file
        return {
            "ad": self._draw_ads(rng, count, self.ranks_between),
            "clicked": self._draw_times(rng, count, index),
            "user": _name("user", rng.integers(0, _USERS, count)),
            "paid": rng.integers(0, 400, count) / 4.0,
            "x": rng.integers(-200, 1_920, count, dtype=np.int32),
            "mobile": rng.random(count) < 0.4,
        }

    def _draw_ads(self, rng: np.random.Generator, count: int, ranks_down: int) -> NDArray[np.int64]:
        ranks = draw_zipf(rng, count, self.keys, self.exponent)
        return _number_ads(self.keys, self.seed)[(ranks + ranks_down) % self.keys]

    def _draw_times(self, rng: np.random.Generator, count: int, index: int) -> NDArray[np.int64]:
        rising_ms = _ORIGIN_MS + (index + np.arange(count) / count) * self.file_span_ms
        return rising_ms.astype(np.int64) - rng.integers(0, DISORDER_MS, count, dtype=np.int64)


def plan_interval(rows: int, keys: int, exponent: float, seed: int) -> IntervalInput:
    """Return an input of whole files with at least ``rows`` rows in both streams."""
    cut = cut_files(-(-rows // (ADS_A_CLICK + 1)), largest=25_000)
    return IntervalInput(cut, keys, exponent, seed)


@lru_cache(maxsize=4)
def find_ranks_between(keys: int, exponent: float, wanted_share: float) -> int:
    """Return the least distance at which the same ad is not more often on both sides than wanted."""
    shares = find_shares(keys, exponent)
    low, high = 0, keys // 2
    if _meet(shares, high) > wanted_share:
        msg = (
            f"keys is {keys}: with so few, rows in an interval give more results than they shall, "
            f"however far apart hot keys are; ask for more keys or fewer rows"
        )
        raise WorkloadError(msg)
    while low < high:
        middle = (low + high) // 2
        if _meet(shares, middle) > wanted_share:
            low = middle + 1
        else:
            high = middle
    return low


def _meet(shares: NDArray[np.float64], distance: int) -> float:
    return float(shares @ np.roll(shares, distance))


@lru_cache(maxsize=2)
def _number_ads(keys: int, seed: int) -> NDArray[np.int64]:
    # Numbers are shuffled over the ranks: no system may profit from hot keys being small numbers.
    return np.random.default_rng([seed, keys]).permutation(keys).astype(np.int64)


def _name(what: str, numbers: NDArray[np.int64]) -> pl.Series:
    return pl.select(pl.format(what + "-{}", pl.Series(numbers))).to_series()
