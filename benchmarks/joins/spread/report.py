"""What slots received and kept, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.joins.spread.growth import GrowthRun
from benchmarks.joins.spread.received import ReceivedRun
from benchmarks.joins.spread.strategies import MNRT, SPREADINGS
from benchmarks.shared.report import print_if_wrong

RunT = TypeVar("RunT", ReceivedRun, GrowthRun)


def print_received(runs: Sequence[ReceivedRun], workload: Mapping[str, Any], console: Console) -> None:
    """Print a table a join: rows received a slot, and what it cost to keep slots even."""
    for query in dict.fromkeys(run.point.query for run in runs):
        columns = ("rows/slot", "2nd half", "most/mean", "MB", "O1 plans", "O1 ms", "O2 rows", "O3 MB", "O4 rows")
        table = _begin(f"received: {query}, in process", columns, _describe(workload["received"][query], workload))
        for run in _by_point(table, [run for run in runs if run.point.query == query], console):
            costs = run.costs
            table.add_row(
                *_name(run),
                f"{run.whole.mean:,.0f}",
                f"{run.settled.mean:,.0f}",
                f"{run.settled.max_over_mean:.3f}",
                f"{run.sent_bytes / 1e6:,.1f}",
                f"{costs.plans}",
                f"{1e3 * costs.planning_seconds:,.1f}",
                f"{costs.table_rows:,}",
                f"{costs.moved_bytes / 1e6:,.1f}",
                f"{costs.copied_rows:,}",
            )
        console.print(table)


def print_growth(runs: Sequence[GrowthRun], workload: Mapping[str, Any], console: Console) -> None:
    """Print a table a join: slots needed, and what it took to add them."""
    for query in dict.fromkeys(run.point.query for run in runs):
        columns = ("slots", "fullest", "all keep", "added", "seconds", "moved rows", "moved MB")
        table = _begin(f"growth: {query}, in process", columns, _describe(workload["growth"][query], workload))
        for run in _by_point(table, [run for run in runs if run.point.query == query], console):
            table.add_row(
                *_name(run),
                f"{run.slots}" if run.fits else f"> {run.slots}",
                f"{run.stored_most:,}",
                f"{run.stored_rows:,}",
                f"{run.adjustments}×",
                f"{run.adjustment_seconds:.2f}",
                f"{run.moved_rows:,}",
                f"{run.moved_bytes / 1e6:,.1f}",
            )
        console.print(table)


def _begin(title: str, columns: Sequence[str], caption: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1), caption=caption)
    table.add_column("z", no_wrap=True)
    table.add_column("strategy", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _by_point(table: Table, runs: Sequence[RunT], console: Console) -> Iterator[RunT]:
    """Yield the runs point by point, with a line between points; say whose answer is wrong."""
    for place, run in enumerate(runs):
        print_if_wrong(f"{SPREADINGS[run.strategy].label}, {run.point}", run.answer, console)
        if place and runs[place - 1].point != run.point:
            table.add_section()
        yield run


def _name(run: ReceivedRun | GrowthRun) -> tuple[str, str]:
    label = SPREADINGS[run.strategy].label
    return f"{run.point.exponent:g}", f"[bold]{label}[/]" if run.strategy == MNRT else label


def _describe(told: Mapping[str, Any], workload: Mapping[str, Any]) -> str:
    """Return what is to be said with every figure of a join."""
    limit = f"; a slot may keep {told['limit_rows']:,} rows" if "limit_rows" in told else f"; {told['slots']} slots"
    return (
        f"{told['rows']:,} lineitems, scale factor {told['scale_factor']:.3g}; {told['arrival']}{limit}, one process, "
        f"{workload['cores']} readers, no Spark."
    )
