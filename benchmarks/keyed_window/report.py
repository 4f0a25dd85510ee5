"""The outcome of the keyed-window bench: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.keyed_window.small_batches import BatchPart
from benchmarks.shared.figures import OURS, SystemRun
from benchmarks.shared.report import CurvedReport, print_figures, print_if_busy, print_if_wrong
from benchmarks.shared.workload import FORMATS

NAMES = {
    OURS: "Anabranch",
    "spark-memory": "Spark (memory)",
    "spark-rocksdb": "Spark (RocksDB)",
    "flink": "Flink SQL",
    "two-polars": "2 × Polars",
    "two-duckdb": "2 × DuckDB",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWindowReport(CurvedReport[SystemRun, Mapping[str, Any]]):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "rows_per_second": "rows/s",
        "batch_seconds": "s",
        "small_batch_ms": "ms",
        "*_x_*": "ratio",
    }

    small_batch_parts: Sequence[BatchPart] = ()
    """Where the time of a small batch goes."""

    def list_parts(self) -> dict[str, Any]:
        """Return the runs, the points of the curves, and the parts of a small batch."""
        return {**CurvedReport.list_parts(self), "small_batch_parts": [asdict(part) for part in self.small_batch_parts]}


def print_report(report: KeyedWindowReport, console: Console) -> None:
    """Print the table, the figures and, first of all, whether the answers were equal."""
    if report.answers_equal:
        rows = report.systems[0].answer.rows if report.systems else 0
        console.print(f"[green]Answers equal[/]: {len(report.systems)} runs gave the oracle's {rows:,} rows.")
    for run in report.systems:
        name = f"{NAMES[run.system]} on {run.file_format}"
        print_if_wrong(name, run.answer, console)
        print_if_busy(name, run.other_cpu_share, console)
    console.print(_build_table(report.systems))
    if report.curves:
        console.print(_build_curve_table(report.curves))
    if report.small_batch_parts:
        console.print(_build_parts_table(report.small_batch_parts))
    print_figures(report, console)


def _build_table(runs: Sequence[SystemRun]) -> Table:
    table = Table(title="keyed-window, steady state (peak memory in GiB, the JVM's with the driver's)", box=SIMPLE_HEAD)
    table.add_column("format", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for name in ("rows/s", "ours ×", "batch", "driver", "workers"):
        table.add_column(name, justify="right", no_wrap=True)
    ours = {run.file_format: run.rows_per_second for run in runs if run.system == OURS}
    previous = ""
    for run in sorted(runs, key=lambda run: (FORMATS.index(run.file_format), run.system != OURS)):
        if previous and run.file_format != previous:
            table.add_section()
        roles = run.peak_memory_bytes_by_role
        rate, own_rate = run.rows_per_second, ours.get(run.file_format)
        table.add_row(
            run.file_format if run.file_format != previous else "",
            f"[bold]{NAMES[run.system]}[/]" if run.system == OURS else NAMES[run.system],
            _format_rate(rate) if run.answer.equal else "[red]wrong answer[/]",
            f"{own_rate / rate:.2f}" if rate and own_rate and run.answer.equal and run.system != OURS else "",
            f"{run.batch_seconds:.2f} s" if run.batch_seconds is not None else "–",
            _format_bytes(roles.get("driver", 0) + roles.get("jvm", 0)),
            _format_bytes(roles["workers"]) if "workers" in roles else "–",
        )
        previous = run.file_format
    return table


def _build_curve_table(curves: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Anabranch as rows and keys grow (JSON, peak memory in GiB)", box=SIMPLE_HEAD)
    for name in ("rows", "keys", "rows/s", "batch", "driver+JVM", "workers", "state"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in curves:
        table.add_row(
            f"{point['rows']:,}",
            f"{point['keys']:,}",
            _format_rate(point["rows_per_second"]),
            f"{point['batch_seconds']:.2f} s" if point["batch_seconds"] is not None else "–",
            _format_bytes(point["driver_bytes"] + point["jvm_bytes"]),
            _format_bytes(point["workers_bytes"]),
            _format_bytes(point["state_bytes"]),
        )
    return table


def _build_parts_table(parts: Sequence[BatchPart]) -> Table:
    title = "A batch of 1,000 rows, taken apart (ms, medians: they need not add up to small_batch_ms)"
    table = Table(title=title, box=SIMPLE_HEAD)
    table.add_column("part")
    table.add_column("whose", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    for part in parts:
        table.add_row(part.name, part.whose, f"{part.milliseconds:.1f}")
    return table


def _format_rate(rate: float | None) -> str:
    return f"{rate / 1e6:.2f} M" if rate is not None else "too short"


def _format_bytes(count: int) -> str:
    return f"{count / 2**30:.2f}"
