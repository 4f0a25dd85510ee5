"""The outcome of the disorder bench: a table and a picture for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.disorder.figures import FLINK, LATE_PCTS, PER_KEY, PER_SLOT, SPARK, DisorderRun
from benchmarks.shared.picture import save_figure
from benchmarks.shared.report import CurvedReport, print_figures, print_if_busy, print_if_wrong

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {
    PER_KEY: "Anabranch, key",
    PER_SLOT: "Anabranch, slot",
    FLINK: "Flink, subtask",
    SPARK: "Spark, query",
}
_COLOURS = {PER_KEY: "#0b6e99", PER_SLOT: "#7fb2c9", FLINK: "#c06c2b", SPARK: "#b8c4cc"}
_INK = "#22303a"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisorderReport(CurvedReport[DisorderRun, Mapping[str, Any]]):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "*rows_per_second*": "rows/s",
        "*_seconds": "s",
        "*_x_*": "ratio",
        "*_pct*": "%",
        "*_gb": "10⁹ bytes",
    }


def print_report(report: DisorderReport, console: Console) -> None:
    """Print the tables, the figures and, first of all, whether the answers were equal."""
    if report.answers_equal:
        runs = report.systems
        note = "; of Spark, which drops late rows, those of sources that do not lag" if _has_spark(runs) else ""
        console.print(f"[green]Answers equal[/]: {len(runs)} runs gave the oracle's last word on windows{note}.")
    for run in report.systems:
        name = f"{NAMES[run.system]}, {run.late_pct} % out of order"
        print_if_wrong(name, run.answer, console)
        print_if_busy(name, run.other_cpu_share, console)
    console.print(_build_table(report.systems))
    if report.curves:
        console.print(_build_curve_table(report.curves))
    print_figures(report, console)


def _has_spark(runs: Sequence[DisorderRun]) -> bool:
    return any(run.system == SPARK for run in runs)


def _build_table(runs: Sequence[DisorderRun]) -> Table:
    table = Table(
        title="rows out of order between sources, by whose watermark it is; the rest in % of the rows",
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
    )
    table.add_column("", no_wrap=True)
    table.add_column("watermark of", no_wrap=True)
    for name in ("rows/s", "key ×", "batch", "late", "by slot", "again", "lost"):
        table.add_column(name, justify="right", no_wrap=True)
    for late_pct in sorted({run.late_pct for run in runs}):
        shown = sorted((run for run in runs if run.late_pct == late_pct), key=lambda run: list(NAMES).index(run.system))
        own_rate = next((run.rows_per_second for run in shown if run.system == PER_KEY), None)
        if table.row_count:
            table.add_section()
        for place, run in enumerate(shown):
            rate = run.rows_per_second
            compared = rate and own_rate and run.system != PER_KEY and run.answer.equal
            table.add_row(
                "" if place else f"{late_pct} %",
                f"[bold]{NAMES[run.system]}[/]" if run.system == PER_KEY else NAMES[run.system],
                _format_rate(rate) if run.answer.equal else "[red]wrong[/]",
                f"{own_rate / rate:.2f}" if compared and own_rate and rate else "",
                f"{run.batch_seconds:.2f} s" if run.batch_seconds is not None else "–",
                _format_share(run.late_rows, run.rows),
                _format_share(run.slot_late_rows, run.rows),
                _format_share(run.updates, run.rows),
                _format_share(run.dropped_rows, run.rows),
            )
    table.caption = "late: by its own watermark; by slot: by that of a slot; again: results; lost: rows dropped"
    return table


def _build_curve_table(curves: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="a watermark and an open window a key, as keys grow (memory in GB)", box=SIMPLE_HEAD)
    for name in ("keys", "merged", "rows/s", "µs a row", "batch", "state", "workers"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in curves:
        rate = point["rows_per_second"]
        table.add_row(
            f"{point['keys']:,}",
            "yes" if point["local_merge"] else "no",
            _format_rate(rate) if point["answers_equal"] else "[red]wrong answer[/]",
            f"{1e6 / rate:.3f}" if rate else "–",
            f"{point['batch_seconds']:.2f} s" if point["batch_seconds"] is not None else "–",
            f"{point['state_bytes'] / 1e9:.2f}",
            f"{point['workers_bytes'] / 1e9:.2f}",
        )
    return table


def _format_rate(rate: float | None) -> str:
    return f"{rate / 1e6:.2f} M" if rate is not None else "too short"


def _format_share(count: int | None, rows: int) -> str:
    return "–" if count is None else f"{100 * count / rows:.1f}"


def draw_disorder(runs: Sequence[DisorderRun], folder: Path) -> list[Path]:
    """Draw speed, and results that had to be emitted again or rows that were lost, as disorder grows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 3.4), layout="constrained")
    speed, trouble = figure.subplots(1, 2)
    shown = [system for system in NAMES if any(run.system == system and run.rows_per_second for run in runs)]
    rates_at = {
        pct: [run.rows_per_second / 1e6 for run in runs if run.late_pct == pct and run.rows_per_second]
        for pct in LATE_PCTS
    }
    for place, system in enumerate(shown):
        by_pct = {run.late_pct: run for run in runs if run.system == system}
        across = [pct for pct in LATE_PCTS if pct in by_pct]
        rates = [(by_pct[pct].rows_per_second or 0.0) / 1e6 for pct in across]
        speed.plot(across, rates, "o-", color=_COLOURS[system])
        for pct, rate in zip(across, rates, strict=True):
            away = (0, -12 if _is_crowded(rate, rates_at[pct]) else 5)
            speed.annotate(f"{rate:.2f}", (pct, rate), away, textcoords="offset points", fontsize=7.5, ha="center")
        lost = system == SPARK
        shares = [
            100 * (by_pct[pct].dropped_rows if lost else by_pct[pct].updates) / by_pct[pct].rows for pct in across
        ]
        wide = 20 / len(shown)
        left = [pct - 10 + wide * (place + 0.5) for pct in across]
        bars = trouble.bar(left, shares, wide, color=_COLOURS[system], label=NAMES[system])
        trouble.bar_label(bars, labels=[f"{share:.0f}" for share in shares], fontsize=7, padding=1, color=_INK)
    speed.set_title("million rows a second", loc="left", fontsize=9.5, color=_INK)
    trouble.set_title("results emitted again (Spark: rows lost), % of rows", loc="left", fontsize=9.5, color=_INK)
    trouble.legend(frameon=False, fontsize=8, loc="upper left")
    for panel in (speed, trouble):
        _style(panel)
        panel.set_xticks(LATE_PCTS, [f"{pct} %" for pct in LATE_PCTS])
        panel.set_xlabel("rows out of order between sources", fontsize=8, color=_INK)
    return save_figure(figure, folder, "disorder")


def _is_crowded(rate: float, rates: Sequence[float]) -> bool:
    """Say whether a faster system is so near that the text above this one would meet its."""
    return any(rate < other < rate + 0.08 * max(rates) for other in rates)


def draw_keys(curves: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw the cost of a row and the size of the state over the number of keys."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 2.8), layout="constrained")
    cost, memory = figure.subplots(1, 2)
    for system, local_merge in ((PER_KEY, True), (PER_SLOT, False)):
        points = [point for point in curves if point["local_merge"] is local_merge and point["rows_per_second"]]
        keys = [point["keys"] for point in points]
        label = "merged before the exchange" if local_merge else "not merged"
        style = {"color": _COLOURS[system], "label": label}
        cost.plot(keys, [1e6 / point["rows_per_second"] for point in points], "o-", **style)
        memory.plot(keys, [point["state_bytes"] / 1e9 for point in points], "o-", **style)
    cost.legend(frameon=False, fontsize=8, loc="upper left")
    cost.set_title("µs a row, with a watermark a key", loc="left", fontsize=9.5, color=_INK)
    memory.set_title("state of all slots, GB", loc="left", fontsize=9.5, color=_INK)
    for panel in (cost, memory):
        _style(panel)
        panel.set_xscale("log")
        panel.set_xlabel("keys, each with one open window", fontsize=8, color=_INK)
    return save_figure(figure, folder, "disorder-keys")


def _style(panel: Axes) -> None:
    panel.set_ylim(0, panel.get_ylim()[1] * 1.05)
    panel.tick_params(labelsize=8, labelcolor=_INK)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#e5e9ec")
    panel.set_axisbelow(True)
