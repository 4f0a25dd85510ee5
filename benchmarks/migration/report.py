"""The outcome of the migration bench: tables and a picture for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.migration.figures import MoveRun, RestartRun
from benchmarks.shared.picture import save_figure
from benchmarks.shared.report import BenchReport, print_figures, print_if_wrong, print_notes

NAMES = {
    "anabranch": "Anabranch",
    "anabranch-window": "Anabranch, window protocol",
    "anabranch-restart": "Anabranch, stopped and started",
    "spark-rocksdb": "Spark, stopped, repartitioned, started",
}
_OUR_COLOUR, _PEER_COLOUR, _INK = "#0b6e99", "#b8c4cc", "#22303a"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport(BenchReport):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "*_seconds": "s",
        "*_pct": "%",
        "*_over_median": "ratio",
        "x_*": "ratio",
        "*_bytes": "bytes",
    }

    moves: Sequence[MoveRun]
    restarts: Sequence[RestartRun]

    def list_parts(self) -> dict[str, Any]:
        """Return the runs of both parts."""
        return {
            "systems": [{"part": "moves", **asdict(run)} for run in self.moves]
            + [{"part": "restarts", **asdict(run)} for run in self.restarts]
        }


def print_report(report: MigrationReport, console: Console) -> None:
    """Print the tables, the figures and, first of all, whether the answers were equal."""
    runs: list[MoveRun | RestartRun] = [*report.moves, *report.restarts]
    if report.answers_equal:
        console.print(f"[green]Answers equal[/]: {len(runs)} runs gave the oracle's.")
    for run in runs:
        print_if_wrong(NAMES[run.system], run.answer, console)
    print_notes(report.notes, console)
    console.print(_build_move_table(report.moves))
    console.print(_build_restart_table(report.restarts))
    for restart in report.restarts:
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in restart.parts.items())
        console.print(f"{NAMES[restart.system]}: {parts}")
    print_figures(report, console)


def _build_move_table(runs: Sequence[MoveRun]) -> Table:
    table = Table(title="state moves while the stream runs", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("change", no_wrap=True)
    table.add_column("protocol", no_wrap=True)
    for name in ("keys", "bytes", "of MB", "slowest/median", "adds"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        for step in run.steps:
            table.add_row(
                step.change,
                step.protocol,
                f"{step.moved_keys_pct:.1f} %",
                f"{step.moved_bytes_pct:.1f} %",
                f"{step.state_bytes / 1e6:,.0f}",
                f"{step.slowest_over_median:.2f}" if run.answer.equal else "[red]wrong[/]",
                f"{step.lost_seconds:+.2f} s",
            )
    others = ", ".join(f"{run.median_seconds:.2f} s ({run.slowest_other_over_median:.2f})" for run in runs)
    table.caption = f"median batch, and the slowest without a change over it: {others}"
    return table


def _build_restart_table(runs: Sequence[RestartRun]) -> Table:
    table = Table(title="the stream stops and starts over more slots", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("system", no_wrap=True)
    for name in ("lost", "median batch", "state MB"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(
            NAMES[run.system],
            f"{run.lost_seconds:.2f} s" if run.answer.equal else "[red]wrong answer[/]",
            f"{run.median_seconds:.2f} s",
            f"{run.state_bytes / 1e6:,.0f}",
        )
    return table


def draw_moves(moves: Sequence[MoveRun], restarts: Sequence[RestartRun], folder: Path) -> list[Path]:
    """Draw the batches of a stream whose state moves, and what moving and restarting cost."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(1.5, 1))
    run = moves[0]
    above.plot(range(1, len(run.batch_seconds) + 1), run.batch_seconds, "o-", ms=3, color=_OUR_COLOUR)
    above.axhline(run.median_seconds, color=_PEER_COLOUR, linewidth=1)
    above.axhline(1.5 * run.median_seconds, color="#c06c2b", linewidth=0.8, linestyle="--")
    for step in run.steps:
        above.axvspan(step.batch - 0.5, step.batch + 1.5, color="#e3eef3", zorder=0)
        above.annotate(
            step.change, (step.batch - 0.4, 0.92), xycoords=("data", "axes fraction"), fontsize=8, color=_INK
        )
    above.set_ylim(bottom=0)
    above.set_xlabel("batch; shaded: state is handed over and taken in", fontsize=8, color=_INK)
    above.set_title("seconds a batch (line: median; dashed: 1.5 ×)", loc="left", fontsize=9.5, color=_INK)
    resized = next(step for step in run.steps if step.slots_after > step.slots_before)
    bars = {"Anabranch, while it runs": max(resized.lost_seconds, run.noise_seconds)}
    bars |= {NAMES[restart.system]: restart.lost_seconds for restart in restarts}
    drawn = below.barh(
        list(bars), list(bars.values()), color=[_OUR_COLOUR, *[_PEER_COLOUR] * len(restarts)], height=0.6
    )
    below.bar_label(drawn, labels=[f"{seconds:.2f} s" for seconds in bars.values()], padding=3, fontsize=8)
    below.set_xlim(0, max(bars.values()) * 1.15)
    below.invert_yaxis()
    below.set_title(
        f"{resized.slots_before} slots become {resized.slots_after}: seconds that the stream loses",
        loc="left",
        fontsize=9.5,
        color=_INK,
    )
    for panel in (above, below):
        panel.tick_params(labelsize=8, labelcolor=_INK)
        panel.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, folder, "migration")
