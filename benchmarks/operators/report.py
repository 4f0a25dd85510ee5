"""The outcome of the operators bench: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.operators.figures import OURS, OperatorRun, find_fastest_native, find_rates
from benchmarks.operators.plan import OPERATORS
from benchmarks.shared.figures import Rate
from benchmarks.shared.report import CurvedReport, print_figures, print_if_busy, print_if_wrong

NAMES = {OURS: "Anabranch", "spark-memory": "Spark, in memory", "spark-rocksdb": "Spark, RocksDB"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsReport(CurvedReport[OperatorRun, Mapping[str, Any]]):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {"*rows_per_second": "rows/s", "*_seconds": "s", "*_x_*": "ratio"}


def print_report(report: OperatorsReport, console: Console) -> None:
    """Print the table, the figures and, first of all, whether the answers were equal."""
    if report.answers_equal:
        console.print(f"[green]Answers equal[/]: {len(report.systems)} runs gave the oracle's; sketches within bounds.")
    for run in report.systems:
        name = f"{run.operator} on {NAMES[run.system]}"
        print_if_wrong(name, run.answer, console)
        print_if_busy(name, run.other_cpu_share, console)
    console.print(_build_table(report.systems))
    print_figures(report, console)


def _build_table(runs: Sequence[OperatorRun]) -> Table:
    table = Table(title="million rows a second, medians (slowest to fastest run)", box=SIMPLE_HEAD)
    table.add_column("operator", no_wrap=True)
    for name in ("Anabranch", "native Spark", "its store", "×"):
        table.add_column(name, justify="right", no_wrap=True)
    rates = find_rates(runs)
    wrong = {run.operator for run in runs if not run.answer.equal}
    for operator in OPERATORS:
        if not any(run.operator == operator for run in runs):
            continue
        ours, store = rates.get((operator, OURS)), find_fastest_native(rates, operator)
        native = rates[operator, store] if store is not None else None
        ratio = f"{ours.median / native.median:.2f}" if ours and native else "–"
        table.add_row(
            operator,
            _format(ours),
            _format(native),
            (store or "–").removeprefix("spark-"),
            "[red]wrong[/]" if operator in wrong else ratio,
        )
    return table


def _format(rate: Rate | None) -> str:
    if rate is None:
        return "–"
    spread = f" ({rate.slowest / 1e6:.2f}–{rate.fastest / 1e6:.2f})" if rate.fastest > rate.slowest else ""
    return f"{rate.median / 1e6:.2f}{spread}"
