"""The outcome of the exchange bench: a table and a picture for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.exchange.figures import (
    AHEAD,
    GLOBAL,
    HELD,
    LOCAL,
    PLAIN,
    ExchangeRun,
    find_bytes_pct,
    find_speed_up,
)
from benchmarks.shared.picture import save_figure
from benchmarks.shared.report import CurvedReport, print_figures, print_if_wrong, print_notes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {
    PLAIN: "plain exchange",
    LOCAL: "Local Merge",
    HELD: "Local Merge, held",
    GLOBAL: "Global Merge",
    AHEAD: "Ahead KeyBy",
}
_COLOURS = {PLAIN: "#b8c4cc", LOCAL: "#0b6e99", HELD: "#7fb2c9", GLOBAL: "#5b8c5a", AHEAD: "#c06c2b"}
_INK = "#22303a"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeReport(CurvedReport[ExchangeRun, ExchangeRun]):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "*rows_per_second": "rows/s",
        "*_seconds": "s",
        "*_x_plain": "ratio",
        "*_pct": "%",
        "*_bytes": "bytes",
        "*_mbit": "10⁶ bits/s",
    }


def print_report(report: ExchangeReport, console: Console) -> None:
    """Print the tables, the figures and, first of all, whether the answers were equal."""
    everything = [*report.systems, *report.curves]
    if report.answers_equal:
        console.print(f"[green]Answers equal[/]: {len(everything)} runs gave the oracle's windows.")
    for run in everything:
        print_if_wrong(f"{NAMES[run.way]}, {run.sensors:,} sensors", run.answer, console)
    print_notes(report.notes, console)
    sensors = report.workload["sensors"]
    title = f"{sensors:,} sensors, 5 minute windows, batches of {report.workload['batch_rows']:,} rows"
    console.print(_build_table(title, report.systems))
    if report.curves:
        console.print(_build_curve_table(report.curves))
    print_figures(report, console)


def _build_table(title: str, runs: Sequence[ExchangeRun]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("hosts", no_wrap=True)
    table.add_column("exchange", no_wrap=True)
    for name in ("MB", "%", "on wires", "M rows/s", "×", "batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for limit_mbit in dict.fromkeys(run.limit_mbit for run in runs):
        shown = {run.way: run for run in runs if run.limit_mbit == limit_mbit}
        if table.row_count:
            table.add_section()
        for place, (way, run) in enumerate(shown.items()):
            pct, speed_up = find_bytes_pct(shown, way), find_speed_up(shown, way)
            table.add_row(
                "" if place else _name_wires(limit_mbit),
                NAMES[way],
                f"{run.exchanged_bytes / 1e6:.2f}",
                f"{pct:.2f}" if pct is not None else "–",
                f"{run.wire_bytes / 1e6:.1f}" if run.wire_bytes is not None else "–",
                _format_rate(run.rows_per_second) if run.answer.equal else "[red]wrong[/]",
                f"{speed_up:.2f}" if speed_up is not None and way != PLAIN else "",
                f"{run.batch_seconds:.2f} s" if run.batch_seconds is not None else "–",
            )
    table.caption = "MB: sent by readers to slots, and in % of plain; on wires: MB that hosts sent in all"
    return table


def _build_curve_table(curves: Sequence[ExchangeRun]) -> Table:
    table = Table(title="as sensors grow: M rows/s of plain, and bytes and speed beside it", box=SIMPLE_HEAD)
    table.add_column("sensors", justify="right", no_wrap=True)
    table.add_column("plain", justify="right", no_wrap=True)
    others = (LOCAL, HELD, GLOBAL, AHEAD)
    for way in others:
        table.add_column(NAMES[way], justify="right")
    for sensors in dict.fromkeys(run.sensors for run in curves):
        shown = {run.way: run for run in curves if run.sensors == sensors}
        plain_rate = shown[PLAIN].rows_per_second if PLAIN in shown else None
        cells = []
        for way in others:
            pct, speed_up = find_bytes_pct(shown, way), find_speed_up(shown, way)
            cells.append(f"{pct:.2f} % ×{speed_up:.2f}" if pct is not None and speed_up is not None else "–")
        table.add_row(f"{sensors:,}", _format_rate(plain_rate), *cells)
    return table


def _name_wires(limit_mbit: float | None) -> str:
    return "one" if limit_mbit is None else f"{limit_mbit:g} Mbit"


def _format_rate(rate: float | None) -> str:
    return f"{rate / 1e6:.2f}" if rate is not None else "too short"


def draw_ways(runs: Sequence[ExchangeRun], limited: Sequence[ExchangeRun], folder: Path) -> list[Path]:
    """Draw the bytes of every way, its speed in one process, and its speed between hosts with thin wires."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 2.6), layout="constrained")
    panels = figure.subplots(1, 3 if limited else 2, squeeze=False)[0]
    plain_bytes = next((run.exchanged_bytes for run in runs if run.way == PLAIN), 0)
    shares = [100 * run.exchanged_bytes / plain_bytes if plain_bytes else 0.0 for run in runs]
    _draw_bars(panels[0], runs, shares, "bytes exchanged, % of plain", "{:.2f}")
    _draw_bars(panels[1], runs, _list_rates(runs), "million rows a second, one process", "{:.2f}")
    if limited:
        title = f"two hosts, {limited[0].limit_mbit:g} Mbit/s"
        _draw_bars(panels[2], limited, _list_rates(limited), title, "{:.2f}")
    for panel in panels[1:]:
        panel.set_yticklabels([])
    return save_figure(figure, folder, "exchange")


def _list_rates(runs: Sequence[ExchangeRun]) -> list[float]:
    return [(run.rows_per_second or 0.0) / 1e6 for run in runs]


def _draw_bars(panel: Axes, runs: Sequence[ExchangeRun], values: Sequence[float], title: str, shown: str) -> None:
    names = [NAMES[run.way] for run in runs]
    bars = panel.barh(names[::-1], list(values)[::-1], color=[_COLOURS[run.way] for run in runs][::-1], height=0.72)
    panel.bar_label(bars, labels=[shown.format(value) for value in values][::-1], padding=3, fontsize=8, color=_INK)
    panel.set_xlim(0, max(*values, 1e-9) * 1.3)
    panel.set_title(title, loc="left", fontsize=9, color=_INK)
    panel.tick_params(axis="y", length=0, labelsize=8.5, labelcolor=_INK)
    panel.xaxis.set_visible(False)
    panel.spines[["top", "right", "bottom"]].set_visible(False)


def draw_curves(curves: Sequence[ExchangeRun], folder: Path) -> list[Path]:
    """Draw bytes and speed of every way over the number of sensors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 3.0), layout="constrained")
    volume, speed = figure.subplots(1, 2)
    for way, name in NAMES.items():
        shown = sorted((run for run in curves if run.way == way), key=lambda run: run.sensors)
        if not shown:
            continue
        across = [run.sensors for run in shown]
        if any(run.exchanged_bytes for run in shown):
            per_row = [run.exchanged_bytes / run.rows for run in shown]
            volume.plot(across, per_row, "o-", color=_COLOURS[way], label=name)
        speed.plot(across, _list_rates(shown), "o-", color=_COLOURS[way], label=name)
    volume.set_yscale("log")
    volume.set_title("bytes exchanged a row (none: not shown)", loc="left", fontsize=9.5, color=_INK)
    speed.set_ylim(bottom=0)
    speed.set_title("million rows a second", loc="left", fontsize=9.5, color=_INK)
    handles, labels = speed.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=7.5)
    for panel in (volume, speed):
        panel.set_xscale("log")
        panel.set_xlabel("sensors", fontsize=8, color=_INK)
        panel.tick_params(labelsize=8, labelcolor=_INK)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#e5e9ec")
    return save_figure(figure, folder, "exchange-curves")
