"""The outcome of the Yahoo Streaming Benchmark: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.shared.report import BenchReport, print_figures, print_if_wrong
from benchmarks.ysb.figures import CATCH_UP, FLINK, OURS, SECURED, SPARK, YsbRun, compare, find_latency, find_rate

NAMES = {OURS: "Anabranch", FLINK: "Flink", SPARK: "Spark"}


@dataclass(frozen=True, slots=True, kw_only=True)
class YsbReport(BenchReport):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "*rows_per_second": "rows/s",
        "*_seconds": "s",
        "*x_*": "ratio",
        "*_over_flink*": "ratio",
        "*_ms": "ms",
    }

    runs: Sequence[YsbRun]

    def list_parts(self) -> dict[str, Any]:
        """Return the runs."""
        return {"systems": [asdict(run) for run in self.runs]}


def print_report(report: YsbReport, console: Console) -> None:
    """Print the table, the figures and, first of all, whether the answers were equal."""
    if report.answers_equal:
        console.print(f"[green]Answers equal[/]: {len(report.runs)} runs counted as the oracle did.")
    for run in report.runs:
        print_if_wrong(f"{NAMES[run.system]}, {run.mode}", run.answer, console)
    console.print(_build_table(report.runs))
    print_figures(report, console)


def _build_table(runs: Sequence[YsbRun]) -> Table:
    table = Table(
        title="Yahoo Streaming Benchmark from one Kafka topic: catch-up (× ours), and late by (ms) when sustained",
        box=SIMPLE_HEAD,
    )
    table.add_column("system", no_wrap=True)
    for name in ("rows/s", "×", "over TLS", "×", "batch", "p50", "p99", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for system, name in NAMES.items():
        behind = [run for run in runs if run.system == system and run.mode in (CATCH_UP, SECURED)]
        late = find_latency(runs, system)
        if not any(run.system == system for run in runs):
            continue
        batches = [run.batch_seconds for run in behind if run.batch_seconds is not None]
        table.add_row(
            f"[bold]{name}[/]" if system == OURS else name,
            *_describe_rate(runs, system, CATCH_UP),
            *_describe_rate(runs, system, SECURED),
            f"{max(batches):.2f} s" if batches else "–",
            *(["–"] * 2 if late is None else [f"{value:,.0f}" for value in late]),
            f"{max(run.peak_memory_bytes for run in behind) / 1e9:.2f} GB" if behind else "–",
        )
    return table


def _describe_rate(runs: Sequence[YsbRun], system: str, mode: str) -> tuple[str, str]:
    """Return the median rate of a system's runs, and how many times as fast ours were."""
    rate = find_rate(runs, system, mode)
    ratios = compare(runs, system, mode) if system != OURS else []
    if rate is None:
        return ("too short" if any((run.system, run.mode) == (system, mode) for run in runs) else "–"), ""
    return f"{rate / 1e6:.2f} M", f"{median(ratios):.2f}" if ratios else ""
