"""Generated ads and clicks that are joined for long, the flow that joins them, and what must come out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from benchmarks.joins.answers import list_results_files
from benchmarks.joins.interval_input import ADS_A_CLICK, DISORDER_MS, find_ranks_between
from benchmarks.joins.streams import AFTER_MS, BEFORE_MS, DELAY_MS
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.workload import WorkloadError

LENGTH_MS = BEFORE_MS + AFTER_MS + DELAY_MS
"""So long a row may be kept: as long as another may come that is close to it."""
LENGTHS, LENGTHS_OF_TWO_SPEEDS = 50, 25
"""Of all of the event time."""
BATCHES_A_LENGTH = 4
RESULTS_A_ROW = 0.5
"""Few, so that the time goes into state and not into results."""
FEWEST_ROWS = 5_000
_MS_A_SECOND = 1_000
_VALUE_STEPS = 64
"""Generated values are multiples of its inverse, so sums of them as whole numbers are exact."""


@dataclass(frozen=True, slots=True)
class MemoryStreams:
    """Two streams of the same event time, by zipf keys of which other ones are hot in each."""

    clicks: int
    ads_a_click: int
    exponent: float
    seed: int
    lengths: int
    batches_a_length: int = BATCHES_A_LENGTH
    """So many batches clicks take to get on by as long as a row is kept."""
    ads_speed: int = 1
    """So many times as far ads get in a batch."""

    @property
    def rows(self) -> int:
        """Rows of both streams."""
        return self.clicks * (1 + self.ads_a_click)

    @property
    def keys(self) -> int:
        """Ads that there are: as many as rows come while one is kept."""
        return self.rows // self.lengths

    @property
    def seconds(self) -> float:
        """All of the event time."""
        return self.lengths * LENGTH_MS / _MS_A_SECOND

    @property
    def ranks_between(self) -> int:
        """How many ranks an ad is shown more often than it is clicked, so that few pairs are found."""
        clicks_in_interval = self.clicks * (BEFORE_MS + AFTER_MS) / (self.lengths * LENGTH_MS)
        results_an_ad = RESULTS_A_ROW * (1 + self.ads_a_click) / self.ads_a_click
        return find_ranks_between(self.keys, self.exponent, results_an_ad / clicks_in_interval)

    def make_sources(self) -> dict[str, Any]:
        """Return the generators of ads and of clicks; clicks still bear their ranks."""
        rows_a_batch = max(1, self.clicks // (self.lengths * self.batches_a_length))
        sizes = {
            "ads": (self.clicks * self.ads_a_click, ("ad", "shown", "price"), self.ads_a_click * self.ads_speed),
            "clicks": (self.clicks, ("ad", "clicked", "paid"), 1),
        }
        return {
            stream: ab.generate(
                None,
                total_rows=rows,
                keys=ab.zipf(self.keys, self.exponent),
                columns=columns,
                disorder=f"{DISORDER_MS}ms",
                event_rows_per_second=rows / self.seconds,
                seed=2 * self.seed + number,
                max_rows=rows_a_batch * factor,
            )
            for number, (stream, (rows, columns, factor)) in enumerate(sizes.items())
        }

    def build(self, sink: Any, align: str | None = None) -> ab.Flow:
        """Return the flow that joins each ad with the clicks on it from 2 s before to 8 s after."""
        flow, sources = ab.Flow("memory"), self.make_sources()
        ads = flow.read(sources["ads"], name="ads").watermark("shown", delay=f"{DELAY_MS}ms")
        clicks = flow.read(sources["clicks"], name="clicks").with_columns(ad=self._number_clicked())
        clicks = clicks.watermark("clicked", delay=f"{DELAY_MS}ms")
        within = (f"{BEFORE_MS}ms", f"{AFTER_MS}ms")
        ads.join(clicks, on="ad", within=within, align=align).select("ad", "shown", "price", "clicked", "paid").write(
            sink
        )
        return flow

    def find_pairs(self) -> Iterator[pl.DataFrame]:
        """Yield what the flow must answer, as Polars finds it: all pairs with the ads of one length after another."""
        sources = self.make_sources()
        ads_a_second = self.clicks * self.ads_a_click / self.seconds
        clicks_a_second = self.clicks / self.seconds
        span, reach = LENGTH_MS / _MS_A_SECOND, (BEFORE_MS + AFTER_MS + 2 * DISORDER_MS) / _MS_A_SECOND
        for number in range(self.lengths):
            begin, end = number * span, (number + 1) * span
            last_ad = self.clicks * self.ads_a_click if number == self.lengths - 1 else int(end * ads_a_second)
            ads = _read(sources["ads"], int(begin * ads_a_second), last_ad)
            first_click, last_click = int((begin - reach) * clicks_a_second), int((end + reach) * clicks_a_second) + 1
            clicks = _read(sources["clicks"], max(0, first_click), min(self.clicks, last_click))
            pairs = ads.join(clicks.with_columns(ad=self._number_clicked()), on="ad")
            later_ms = (pl.col("clicked") - pl.col("shown")).dt.total_microseconds() / 1_000
            yield pairs.filter(later_ms.is_between(-BEFORE_MS, AFTER_MS))

    def describe(self) -> dict[str, object]:
        """Return what is to be known of it beside a figure."""
        return {
            "rows": self.rows,
            "zipf": self.exponent,
            "keys": self.keys,
            "window_lengths": self.lengths,
            "length_seconds": LENGTH_MS / _MS_A_SECOND,
            "rows_a_length": self.rows // self.lengths,
            "batches_a_length": self.batches_a_length,
            "ads_speed": self.ads_speed,
        }

    def _number_clicked(self) -> pl.Expr:
        return (pl.col("ad") + self.ranks_between) % self.keys


def plan_memory(rows: int, exponent: float, seed: int) -> MemoryStreams:
    """Return two streams that are read side by side, four ads to a click, with about so many rows in all."""
    return MemoryStreams(_check(rows) // (1 + ADS_A_CLICK), ADS_A_CLICK, exponent, seed, LENGTHS)


def plan_two_speeds(rows: int, exponent: float, seed: int) -> MemoryStreams:
    """Return two streams of which one is read ten times as fast, with about so many rows in all."""
    return MemoryStreams(_check(rows) // 2, 1, exponent, seed, LENGTHS_OF_TWO_SPEEDS, batches_a_length=10, ads_speed=10)


def check_pairs(streams: MemoryStreams, output: Path) -> AnswerCheck:
    """Compare what a flow wrote with what Polars finds, by their number and by sums that tell pairs apart."""
    wanted = _add(_sum_up(pairs.lazy()) for pairs in streams.find_pairs())
    # A file at a time: all of it may be more than fits into memory.
    found = _add(_sum_up(pl.scan_parquet(path)) for path in list_results_files(output))
    digest = "-".join(f"{total:x}" for total in found.values())
    equal = found == wanted
    return AnswerCheck(equal, found["rows"], digest, "" if equal else f"found {found}, wanted {wanted}")


def _check(rows: int) -> int:
    if rows < FEWEST_ROWS:
        msg = f"{rows} rows are too few for {LENGTHS} lengths of the window; ask for {FEWEST_ROWS} or more"
        raise WorkloadError(msg)
    return rows


def _read(source: Any, first: int, last: int) -> pl.DataFrame:
    frames: list[pl.DataFrame] = [outcome.frame for outcome in source.read({"from": first, "to": last})]
    return pl.concat(frames)


_SUMS = ("rows", "ads", "amounts", "moments")


def _sum_up(pairs: pl.LazyFrame) -> dict[str, int]:
    """Return the number of pairs, and sums: of their ads, and of products of what both sides bring."""
    price, paid = ((pl.col(name) * _VALUE_STEPS).round().cast(pl.Int64) for name in ("price", "paid"))
    later = (pl.col("clicked") - pl.col("shown")).dt.total_milliseconds()
    row = pairs.select(
        pl.len().cast(pl.Int64), pl.col("ad").sum(), (price * paid).sum().alias("amounts"), (later * price).sum()
    ).collect()
    return dict(zip(_SUMS, map(int, row.row(0)), strict=True))


def _add(sums: Iterator[dict[str, int]]) -> dict[str, int]:
    total = dict.fromkeys(_SUMS, 0)
    for one in sums:
        total = {name: total[name] + one[name] for name in _SUMS}
    return total
