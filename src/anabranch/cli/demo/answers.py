"""The demo's answers once more, by one Polars process over the same rows, and what of them differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from anabranch.cli.demo.scale import LOW_VOLTS, WINDOW_SECONDS
from anabranch.connectors.generator.streams import GeneratorSource
from anabranch.model import BucketMap
from anabranch.routing.hashing import hash_keys, slots_of

CHUNK_ROWS = 1_000_000
MEAN_TOLERANCE = 1e-9
_ORDER = ("window_start", "sensor")
_EXACT = ("sensor", "window_start", "window_end", "readings", "low_readings", "lowest")


@dataclass(frozen=True, slots=True)
class ExpectedAnswers:
    """What the flow must have found, and how many readings each sensor sent."""

    alerts: pl.DataFrame
    readings: pl.DataFrame


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Whether two sets of answers are equal; if not, the first difference."""

    rows: int
    difference: str | None = None

    @property
    def equal(self) -> bool:
        return self.difference is None


def compute_answers(source: GeneratorSource, rows: int) -> ExpectedAnswers:
    """Generate the first rows again and aggregate them with Polars alone: no operator of the engine takes part."""
    partials = pl.concat(_aggregate(chunk) for chunk in _chunks(source, rows))
    windows = partials.group_by("sensor", "window_start").agg(
        pl.col("readings", "low_readings", "total").sum(), pl.col("lowest").min()
    )
    alerts = windows.filter(pl.col("low_readings") > 0).select(
        "sensor",
        "window_start",
        (pl.col("window_start") + pl.duration(seconds=WINDOW_SECONDS)).alias("window_end"),
        "readings",
        "low_readings",
        "lowest",
        (pl.col("total") / pl.col("readings")).alias("mean"),
    )
    return ExpectedAnswers(alerts.sort(_ORDER), windows.group_by("sensor").agg(pl.col("readings").sum()).sort("sensor"))


def read_alerts(folder: Path) -> pl.DataFrame:
    """Return what the flow wrote, in the order of the expected answers; an empty frame if it wrote nothing."""
    parts = sorted(folder.glob("part-*.parquet"))
    return pl.concat(map(pl.read_parquet, parts)).sort(_ORDER) if parts else pl.DataFrame()


def compare_answers(found: pl.DataFrame, expected: pl.DataFrame) -> AnswerCheck:
    """Compare row for row: everything exactly, except means, which may differ in the last digits."""
    if found.height != expected.height:
        return AnswerCheck(found.height, f"{found.height} windows were found, {expected.height} expected")
    if found.is_empty():
        return AnswerCheck(0)
    for column in _EXACT:
        unequal = (found[column] != expected[column]).arg_true()
        if len(unequal):
            return AnswerCheck(found.height, _describe(found, expected, column, unequal[0]))
    apart = ((found["mean"] - expected["mean"]).abs() > MEAN_TOLERANCE * expected["mean"].abs()).arg_true()
    if len(apart):
        return AnswerCheck(found.height, _describe(found, expected, "mean", apart[0]))
    return AnswerCheck(found.height)


def rows_by_home_slot(readings: pl.DataFrame, slots: int, buckets: int) -> tuple[int, ...]:
    """Return how many readings belong to each slot's keys: what slots would receive without local merge."""
    homes = slots_of(hash_keys(readings, ["sensor"]), BucketMap.even(slots, buckets))
    totals = readings.with_columns(pl.Series("slot", homes)).group_by("slot").agg(pl.col("readings").sum())
    by_slot = dict(totals.iter_rows())
    return tuple(by_slot.get(slot, 0) for slot in range(slots))


def _chunks(source: GeneratorSource, rows: int) -> Iterator[pl.DataFrame]:
    for start in range(0, rows, CHUNK_ROWS):
        for outcome in source.read({"from": start, "to": min(start + CHUNK_ROWS, rows)}):
            yield outcome.frame


def _aggregate(chunk: pl.DataFrame) -> pl.DataFrame:
    return (
        chunk.lazy()
        .group_by("sensor", pl.col("ts").dt.truncate(f"{WINDOW_SECONDS}s").alias("window_start"))
        .agg(
            pl.len().cast(pl.Int64).alias("readings"),
            (pl.col("volts") < LOW_VOLTS).sum().cast(pl.Int64).alias("low_readings"),
            pl.col("volts").min().alias("lowest"),
            pl.col("volts").sum().alias("total"),
        )
        .collect()
    )


def _describe(found: pl.DataFrame, expected: pl.DataFrame, column: str, row: int) -> str:
    where = f"sensor {expected['sensor'][row]}, window {expected['window_start'][row]}"
    return f"{where}: {column} is {found[column][row]}, expected {expected[column][row]}"
