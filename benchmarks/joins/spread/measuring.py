"""Run the parts that look at slots: every strategy on the same files, answers first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from rich.console import Console

from benchmarks.joins.answers import ask_oracle
from benchmarks.joins.inputs import JoinInput, write_streams
from benchmarks.joins.spread.growth import GrowthRun, measure_growth
from benchmarks.joins.spread.points import ARRIVALS, EXPONENTS, GROWTH, RECEIVED, SLOTS, SpreadPoint, plan_input
from benchmarks.joins.spread.received import ReceivedRun, measure_received
from benchmarks.joins.spread.strategies import SPREADINGS, Spreading
from benchmarks.joins.streams import BY_TRUCK, MUCH, NEAR_ORDERS
from benchmarks.shared.launch import scratch_places, show_activity
from benchmarks.shared.registry import BenchOptions

SLOTS_FILLED = 12
"""A slot may keep so many parts of all rows that are joined, where slots are added as they fill up."""

RunT = TypeVar("RunT", ReceivedRun, GrowthRun)


class SpreadMeasures:
    """One call of the parts that look at slots."""

    def __init__(self, options: BenchOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._slots = options.slots or SLOTS

    def measure_received(self) -> list[ReceivedRun]:
        """Count what slots receive of all joins, under all skews."""
        measure = partial(measure_received, slots=self._slots)
        return [run for point in self._list_points(RECEIVED) for run in self._compare(point, RECEIVED, measure)]

    def measure_growth(self) -> list[GrowthRun]:
        """Add slots as they fill up, in all joins over the full history, under all skews."""
        runs: list[GrowthRun] = []
        for point in self._list_points(GROWTH):
            limit_rows = self._find_limit(self._plan(point))
            runs += self._compare(point, GROWTH, partial(measure_growth, limit_rows=limit_rows))
        return runs

    def find_most_rows(self, parts: Iterable[str]) -> int:
        """Return the lineitems of the largest join of some parts."""
        rows: list[int] = [told["rows"] for part in parts for told in self.describe(part).values()]
        return max(rows)

    def describe(self, part: str) -> dict[str, Any]:
        """Return what is run, by join."""
        told: dict[str, Any] = {}
        for query, exponents in EXPONENTS[part].items():
            given = self._plan(SpreadPoint(query, (self._options.exponents or exponents)[0]))
            sizes = {"slots": self._slots} if part == RECEIVED else {"limit_rows": self._find_limit(given)}
            told[query] = {
                "label": "in process",
                "rows": given.cut.count * given.cut.rows_per_file,
                "batches": given.cut.count,
                "arrival": ARRIVALS[query],
                **sizes,
                **given.describe(),
            }
        return told

    # -- inside ----------------------------------------------------------------------------------------------------

    def _list_points(self, part: str) -> list[SpreadPoint]:
        return [
            SpreadPoint(query, exponent)
            for query, exponents in EXPONENTS[part].items()
            for exponent in self._options.exponents or exponents
        ]

    def _find_limit(self, given: JoinInput) -> int:
        """Return how many rows a slot may keep: a part of those that come to the join, each counted once."""
        return -(-_count_joined(given) // SLOTS_FILLED)

    def _plan(self, point: SpreadPoint) -> JoinInput:
        return plan_input(point, self._options.rows, self._options.seed, self._options.cache_dir)

    def _compare(
        self, point: SpreadPoint, part: str, measure: Callable[[SpreadPoint, Spreading, Path, Path], RunT]
    ) -> list[RunT]:
        """Run all strategies on one input."""
        with show_activity(self._console, f"input of {point}"):
            folder = write_streams(self._plan(point), "parquet", self._options.cache_dir / "joins")
            ask_oracle(point.query, folder, "parquet")
        runs: list[RunT] = []
        for spreading in SPREADINGS.values():
            name = f"joins-{part}-{point.stem}-{point.ending}-{spreading.name}"
            logs = (self._options.out_dir or self._options.cache_dir) / "logs"
            with (
                scratch_places(self._options.cache_dir, logs, name) as places,
                show_activity(self._console, f"{part}: {spreading.label}, {point}"),
            ):
                runs.append(measure(point, spreading, folder, places.scratch))
            verdict = (
                "answers equal" if runs[-1].answer.equal else f"[red]wrong answer[/]: {runs[-1].answer.difference}"
            )
            self._console.print(f"{part}: {spreading.label}, {point}: {verdict}")
        return runs


def _count_joined(given: JoinInput) -> int:
    """Return the rows that come to the joins from the streams, each once a side."""
    if given.query in NEAR_ORDERS:
        rows = (given.make_rows("lineitem", index) for index in range(given.count_files("lineitem")))
        return sum(frame.filter(pl.sql_expr(side)).height for frame in rows for side in (BY_TRUCK, MUCH))
    return sum(given.count_rows().values())
