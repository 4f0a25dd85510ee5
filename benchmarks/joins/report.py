"""The outcome of the joins bench: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.joins.figures import JoinPoint, JoinRun, find_fastest, find_rates
from benchmarks.joins.memory.figures import MemoryRun
from benchmarks.joins.memory.report import print_memory
from benchmarks.joins.plan import NAMES
from benchmarks.joins.spread.growth import GrowthRun
from benchmarks.joins.spread.received import ReceivedRun
from benchmarks.joins.spread.report import print_growth, print_received
from benchmarks.shared.figures import OURS
from benchmarks.shared.report import CurvedReport, print_figures, print_if_busy, print_if_wrong, print_notes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinsReport(CurvedReport[JoinRun, Mapping[str, Any]]):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "*_rows_per_second_*": "rows/s",
        "*_seconds": "s",
        "*_x_*": "ratio",
        "*_over_best_other*": "ratio",
        "*_slots_needed_*": "slots",
        "*_adjustment_seconds_*": "s",
        "*_growth_pct": "%",
        "*_state_bytes": "bytes",
    }

    received: Sequence[ReceivedRun] = ()
    growth: Sequence[GrowthRun] = ()
    memory: Sequence[MemoryRun] = ()

    def list_parts(self) -> dict[str, Any]:
        """Return the runs beside peers, those that look at slots, and those that look at memory."""
        others: dict[str, Sequence[Any]] = {"received": self.received, "growth": self.growth, "memory": self.memory}
        return {
            **CurvedReport.list_parts(self),
            **{part: [asdict(run) for run in runs] for part, runs in others.items()},
        }


def print_report(report: JoinsReport, console: Console) -> None:
    """Print a table a part, the figures and, first of all, whether the answers were equal."""
    if report.answers_equal:
        runs = len(report.systems) + len(report.received) + len(report.growth) + len(report.memory)
        console.print(f"[green]Answers equal[/]: {runs} runs gave the oracle's.")
    for run in report.systems:
        name = f"{NAMES[run.system]}, {run.point}"
        print_if_wrong(name, run.answer, console)
        print_if_busy(name, run.other_cpu_share, console)
    print_notes(report.notes, console)
    for part in dict.fromkeys(run.point.part for run in report.systems):
        chosen = [run for run in report.systems if run.point.part == part]
        console.print(_build_table(part, chosen, report.workload))
    print_received(report.received, report.workload, console)
    print_growth(report.growth, report.workload, console)
    print_memory(report.memory, report.workload, console)
    print_figures(report, console)


def _build_table(part: str, runs: Sequence[JoinRun], workload: Mapping[str, Any]) -> Table:
    table = Table(title=part, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("input and system", no_wrap=True)
    for name in ("M rows/s", "spread", "ours ×", "batch", "MB", "GB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.caption = _describe(part, workload)
    for point in dict.fromkeys(run.point for run in runs):
        if table.row_count:
            table.add_section()
        _add_point(table, point, [run for run in runs if run.point == point])
    return table


def _describe(part: str, workload: Mapping[str, Any]) -> str:
    """Return what is to be said with every figure of a part."""
    told = workload["parts"][part]
    points = told["points"].values()
    rows = " or ".join(dict.fromkeys(f"{sum(point['rows'].values()):,}" for point in points))
    scales = dict.fromkeys(f", scale factor {point['scale_factor']:g}" for point in points if "scale_factor" in point)
    return (
        f"{rows} rows{''.join(scales)}; {told['arrival']}; {workload['slots']} slots on {workload['cores']} cores. "
        f"Medians of {workload['rounds']} rounds in turn; of a peer, the fastest way counts and is run again. "
        "Beside them the longest batch in seconds, MB of state, GB of memory."
    )


def _add_point(table: Table, point: JoinPoint, runs: Sequence[JoinRun]) -> None:
    rates = find_rates(runs)
    ours, best = rates.get((point, OURS)), find_fastest(runs, point)
    table.add_row(f"{point.file_format}, z = {point.exponent:g}")
    for system in dict.fromkeys(run.system for run in runs):
        own = [run for run in runs if run.system == system]
        rate, right = rates.get((point, system)), all(run.answer.equal for run in own)
        batches = [run.batch_seconds for run in own if run.batch_seconds is not None]
        states = [run.state_bytes for run in own if run.state_bytes is not None]
        name = f"[bold]{NAMES[system]}[/]" if system in (OURS, best) else NAMES[system]
        shown = f"{rate.median / 1e6:.3f}" if rate else "too short"
        table.add_row(
            f" {name}",
            shown if right else "[red]wrong[/]",
            f"{rate.slowest / 1e6:.3f}–{rate.fastest / 1e6:.3f}" if rate and len(own) > 1 else "",
            f"{ours.median / rate.median:.2f}" if right and ours and rate and system != OURS else "",
            f"{max(batches):.2f}" if batches else "–",
            f"{max(states) / 1e6:,.0f}" if states else "–",
            f"{max(run.peak_memory_bytes for run in own) / 1e9:.1f}",
        )
