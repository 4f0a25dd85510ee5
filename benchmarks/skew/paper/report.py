"""Tables of the parts of the skew bench that follow tables and figures of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.shared.report import print_if_wrong
from benchmarks.skew.paper.figures import BANDS_PCT, CASES, TOPICS, SpreadRun, StreamRate


def print_paper_parts(spreads: Sequence[SpreadRun], rates: Sequence[StreamRate], console: Console) -> None:
    """Print what slots got of rising ids, and how fast a costly operator was; wrong answers first."""
    for system, place, answer in [
        *((spread.system, "rising ids", spread.answer) for spread in spreads),
        *((rate.run.system, rate.stream, rate.run.answer) for rate in rates),
    ]:
        print_if_wrong(f"{system} on {place}", answer, console)
    if spreads:
        console.print(_build_spread_table(spreads))
    for part, title in ((CASES, "Four cases, a costly operator: rows/s"), (TOPICS, "Top 10 of topics: rows/s")):
        chosen = [rate for rate in rates if rate.part == part]
        if chosen:
            console.print(_build_rate_table(chosen, title))


def _build_spread_table(spreads: Sequence[SpreadRun]) -> Table:
    table = Table(title=f"Rising ids, a row each, on {len(spreads[0].slot_rows)} slots (live)", box=SIMPLE_HEAD)
    table.add_column("system", no_wrap=True)
    for low, high in pairwise(BANDS_PCT):
        table.add_column(f"{low:g}–{high:g} %", justify="right", no_wrap=True)
    for name in ("least", "most", "balance", "extra time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.caption = "Slots by their share of all rows; extra time: what the fullest has beyond the mean."
    for spread in spreads:
        shares = spread.shares_pct
        table.add_row(
            spread.system,
            *(f"{count}" for count in spread.count_by_band()),
            f"{min(shares):.2f} %",
            f"{max(shares):.2f} %",
            f"{spread.balance:.3f}" if spread.answer.equal else "[red]wrong[/]",
            f"{100 * spread.extra_time:.1f} %",
        )
    return table


def _build_rate_table(rates: Sequence[StreamRate], title: str) -> Table:
    by_place = {(rate.run.system, rate.stream): rate.run for rate in rates}
    streams = list(dict.fromkeys(rate.stream for rate in rates))
    table = Table(title=f"{title} (lab: every slot has a part of a core)", box=SIMPLE_HEAD)
    table.add_column("strategy", no_wrap=True)
    for stream in streams:
        table.add_column(stream.replace(", ", ",\n"), justify="right", no_wrap=True)
        table.add_column("×\nhash", justify="right", no_wrap=True)
    for system in dict.fromkeys(rate.run.system for rate in rates):
        cells = []
        for stream in streams:
            run, hashed = by_place.get((system, stream)), by_place.get(("hash", stream))
            right = run is not None and run.answer.equal
            cells.append(f"{run.rows_per_second:,.0f}" if run is not None and right else "[red]wrong[/]")
            compared = run is not None and right and hashed is not None and hashed.answer.equal and system != "hash"
            cells.append(f"{run.rows_per_second / hashed.rows_per_second:.2f}" if compared and run and hashed else "")
        table.add_row(system, *cells)
    return table
