"""The outcome of the Yahoo Streaming Benchmark: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.bench.report import BenchReport, print_figures
from anabranch.bench.ysb_figures import CATCH_UP, FLINK, OURS, SPARK, SUSTAINED, YsbRun

NAMES = {OURS: "Anabranch", FLINK: "Flink", SPARK: "Spark"}


@dataclass(frozen=True, slots=True, kw_only=True)
class YsbReport(BenchReport):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {"*rows_per_second": "rows/s", "*_seconds": "s", "x_*": "ratio", "*_ms": "ms"}

    runs: Sequence[YsbRun]

    def list_parts(self) -> dict[str, Any]:
        """Return the runs."""
        return {"systems": [asdict(run) for run in self.runs]}


def print_report(report: YsbReport, console: Console) -> None:
    """Print the table, the figures and, first of all, whether the answers were equal."""
    if report.answers_equal:
        console.print(f"[green]Answers equal[/]: {len(report.runs)} runs counted as the oracle did.")
    for run in report.runs:
        if not run.answer.equal:
            console.print(f"[red]Wrong answer[/]: {NAMES[run.system]}, {run.mode}: {run.answer.difference}")
    console.print(_build_table(report.runs))
    print_figures(report, console)


def _build_table(runs: Sequence[YsbRun]) -> Table:
    table = Table(
        title="Yahoo Streaming Benchmark from one Kafka topic: catch-up, and late by (ms) when sustained",
        box=SIMPLE_HEAD,
    )
    table.add_column("system", no_wrap=True)
    for name in ("rows/s", "ours ×", "batch", "p50", "p99", "largest", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    found = {(run.system, run.mode): run for run in runs}
    ours = found.get((OURS, CATCH_UP))
    for system, name in NAMES.items():
        behind, live = found.get((system, CATCH_UP)), found.get((system, SUSTAINED))
        if behind is None and live is None:
            continue
        rate = behind.rows_per_second if behind is not None else None
        own_rate = ours.rows_per_second if ours is not None else None
        late = live.latency if live is not None else None
        batch = behind.batch_seconds if behind is not None else None
        table.add_row(
            f"[bold]{name}[/]" if system == OURS else name,
            f"{rate / 1e6:.2f} M" if rate else "too short",
            f"{own_rate / rate:.2f}" if rate and own_rate and system != OURS else "",
            f"{batch:.2f} s" if batch is not None else "–",
            *((f"{value:,.0f}" for value in (late.p50_ms, late.p99_ms, late.largest_ms)) if late else ("–",) * 3),
            f"{behind.peak_memory_bytes / 1e9:.2f} GB" if behind is not None else "–",
        )
    return table
