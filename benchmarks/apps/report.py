"""The outcome of the applications bench: tables and a picture for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.apps.figures import (
    EXCHANGE,
    FLINK,
    FLINK_WAITS,
    PEERS,
    READ,
    SPARK,
    AppRun,
    PartRun,
    compute_ratios,
    list_rates,
    take_apart,
)
from benchmarks.shared.figures import OURS
from benchmarks.shared.picture import save_figure
from benchmarks.shared.report import BenchReport, print_figures, print_if_busy, print_if_wrong, print_notes

NAMES = {
    OURS: "Anabranch",
    FLINK: "Flink",
    FLINK_WAITS: "Flink, waiting",
    SPARK: "native Spark",
}
_PARTS = {READ: "reading", EXCHANGE: "sending to keys", "state": "state, windows, results"}
_COLOURS = {OURS: "#0b6e99", FLINK: "#c06c2b", FLINK_WAITS: "#dba980", SPARK: "#b8c4cc"}
_PART_COLOURS = {READ: "#b8c4cc", EXCHANGE: "#c06c2b", "state": "#5b8c5a"}
_INK = "#22303a"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppsReport(BenchReport):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {"*rows_per_second": "rows/s", "*_seconds": "s", "*_x_*": "ratio"}

    systems: Sequence[AppRun]
    parts: Sequence[PartRun] = ()

    def list_parts(self) -> dict[str, Any]:
        """Return the runs, the runs of parts of the work, and the ratios by round."""
        return {
            "systems": [asdict(run) for run in self.systems],
            "parts": [asdict(part) for part in self.parts],
            "ratios": [{**asdict(ratio), "name": ratio.name} for ratio in compute_ratios(self.systems)],
        }


def print_report(report: AppsReport, console: Console) -> None:
    """Print the tables, the figures and, first of all, whether the answers were equal."""
    if report.answers_equal:
        console.print(f"[green]Answers equal[/]: {len(report.systems)} runs gave the oracle's.")
    for run in report.systems:
        name = f"{NAMES[run.system]}, {run.input_name}"
        print_if_wrong(name, run.answer, console)
        print_if_busy(name, run.other_cpu_share, console)
    print_notes(report.notes, console)
    console.print(_build_table(report.systems))
    if report.answers_equal and list_shares(report):
        console.print(_build_parts_table(report))
    print_figures(report, console)


def _build_table(runs: Sequence[AppRun]) -> Table:
    table = Table(title="applications on one machine (live)", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("application", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for name in ("M rows/s", "spread", "ours ×", "by round", "batch"):
        table.add_column(name, justify="right", no_wrap=True)
    table.caption = (
        "The median of rounds; systems took turns. Flink, waiting: for the slowest area, so results come late."
    )
    ratios = {(ratio.input_name, ratio.peer): ratio for ratio in compute_ratios(runs)}
    for input_name in dict.fromkeys(run.input_name for run in runs):
        if table.row_count:
            table.add_section()
        for place, system in enumerate(dict.fromkeys(run.system for run in runs if run.input_name == input_name)):
            chosen = [run for run in runs if (run.input_name, run.system) == (input_name, system)]
            rates = list_rates(runs, input_name, system)
            right = all(run.answer.equal for run in chosen)
            ratio = ratios.get((input_name, system)) if right else None
            batches = [run.batch_seconds for run in chosen if run.batch_seconds is not None]
            table.add_row(
                "" if place else input_name,
                f"[bold]{NAMES[system]}[/]" if system == OURS else NAMES[system],
                _show_rate(rates, right),
                f"{min(rates) / 1e6:.2f}–{max(rates) / 1e6:.2f}" if rates and right else "",
                f"{ratio.middle:.2f}" if ratio else "",
                ", ".join(f"{value:.1f}" for value in ratio.by_round) if ratio else "",
                f"{max(batches):.2f} s" if batches else "–",
            )
    return table


def _show_rate(rates: Sequence[float], right: bool) -> str:
    if not right:
        return "[red]wrong[/]"
    return f"{median(rates) / 1e6:.2f}" if rates else "too short"


def _build_parts_table(report: AppsReport) -> Table:
    table = Table(title="µs a row, both cores at work", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("application", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for part in _PARTS.values():
        table.add_column(part, justify="right", no_wrap=True)
    table.caption = "Parts ran by themselves; each is what it adds to those before it."
    for input_name, system, spent in list_shares(report):
        table.add_row(input_name, NAMES[system], *(f"{spent[p]:.3f}" if p in spent else "–" for p in _PARTS))
    return table


def list_shares(report: AppsReport) -> list[tuple[str, str, dict[str, float]]]:
    """Return microseconds a row by part, of the systems whose parts were measured."""
    systems = dict.fromkeys(part.system for part in report.parts)
    found = [
        (input_name, system, take_apart(report.systems, report.parts, system, input_name))
        for input_name in dict.fromkeys(run.input_name for run in report.systems)
        for system in systems
    ]
    return [each for each in found if each[2]]


def draw_apps(report: AppsReport, folder: Path) -> list[Path]:
    """Draw rows a second of every system with every application, and where a row's time goes."""
    from matplotlib.figure import Figure

    inputs = list(dict.fromkeys(run.input_name for run in report.systems))
    shares = list_shares(report)
    figure = Figure(figsize=(8.5, 1.6 + 1.0 * len(inputs)), layout="constrained")
    speed, apart = figure.subplots(1, 2, width_ratios=(1.2, 1))
    ratios = {(ratio.input_name, ratio.peer): ratio.middle for ratio in compute_ratios(report.systems)}
    bars = [
        (input_name, system, rates)
        for input_name in inputs
        for system in (OURS, *PEERS)
        if (rates := list_rates(report.systems, input_name, system))
    ]
    for place, (input_name, system, rates) in enumerate(bars):
        middle = median(rates) / 1e6
        spread = [[middle - min(rates) / 1e6], [max(rates) / 1e6 - middle]]
        speed.barh(place, middle, color=_COLOURS[system], height=0.7, xerr=spread, ecolor=_INK)
        ratio = ratios.get((input_name, system))
        beside = f"{middle:.2f}" + (f"  (Anabranch × {ratio:.1f})" if ratio else "")
        speed.annotate(beside, (max(rates) / 1e6, place), (5, -3), textcoords="offset points", fontsize=7.5, color=_INK)
    speed.set_yticks(range(len(bars)), [f"{input_name}: {NAMES[system]}" for input_name, system, _ in bars])
    speed.set_xlim(0, 1.45 * max((max(rates) / 1e6 for *_, rates in bars), default=1.0))
    speed.set_title("million rows a second (live)", loc="left", fontsize=9.5, color=_INK)
    for place, (_, _, spent) in enumerate(shares):
        left = 0.0
        for part, label in _PARTS.items():
            width = max(0.0, spent.get(part, 0.0))
            apart.barh(place, width, left=left, color=_PART_COLOURS[part], height=0.6, label=label)
            left += width
    apart.set_yticks(range(len(shares)), [f"{input_name}: {NAMES[system]}" for input_name, system, _ in shares])
    apart.set_title("µs a row", loc="left", fontsize=9.5, color=_INK)
    handles, labels = apart.get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    if shown:
        apart.legend(shown.values(), shown.keys(), frameon=False, fontsize=7.5)
    for panel in (speed, apart):
        panel.invert_yaxis()
        panel.tick_params(labelsize=8, labelcolor=_INK)
        panel.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, folder, "apps")
