"""The outcome of the skew bench: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.report import BenchReport, format_figure, print_figures, print_if_wrong, print_notes
from benchmarks.skew.figures import BusyRun, OverheadPair
from benchmarks.skew.loads import EVEN, SETTLING_BATCHES, LoadRun, is_four_cases, is_zipf
from benchmarks.skew.paper.figures import SpreadRun, StreamRate
from benchmarks.skew.paper.report import print_paper_parts
from benchmarks.skew.switching.table import CHANGES_A_MINUTE, SwitchingRun, find_best_fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewReport(BenchReport):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "max_over_mean*": "ratio",
        "balance*": "ratio",
        "*_pct": "%",
        "x_*": "ratio",
        "topk_*": "ratio",
        "switching_over_*": "ratio",
        "batch_seconds": "s",
        "rows_per_second": "rows/s",
    }

    loads: Sequence[LoadRun]
    busy: Sequence[BusyRun]
    pairs: Sequence[OverheadPair]
    checked: Sequence[AnswerCheck] = ()
    """What the runs of the pairs answered."""
    spreads: Sequence[SpreadRun] = ()
    rates: Sequence[StreamRate] = ()
    switching: Sequence[SwitchingRun] = ()

    def list_parts(self) -> dict[str, Any]:
        """Return the runs of both parts, and the pairs with and without balance."""
        return {
            "systems": [{"part": "loads", **asdict(run)} for run in self.loads]
            + [{"part": "busy", **asdict(run)} for run in self.busy],
            "spreads": [asdict(spread) for spread in self.spreads],
            "rates": [asdict(rate) for rate in self.rates],
            "overhead_pairs": [{**asdict(pair), "overhead_pct": pair.overhead_pct} for pair in self.pairs],
            "switching": [asdict(run) for run in self.switching],
        }


def print_report(report: SkewReport, console: Console) -> None:
    """Print the tables, the figures and, first of all, whether the answers were equal."""
    runs: list[LoadRun | BusyRun] = [*report.loads, *report.busy]
    if report.answers_equal:
        count = len(runs) + len(report.checked) + len(report.spreads) + len(report.rates)
        console.print(f"[green]Answers equal[/]: {count} runs gave the oracle's.")
    for run in runs:
        where = f" on {run.stream}" if isinstance(run, LoadRun) else ""
        print_if_wrong(f"{run.system}{where}", run.answer, console)
    for answer in report.checked:
        print_if_wrong("keys without skew", answer, console)
    print_notes(report.notes, console)
    for build, belongs in (
        (_build_zipf_table, is_zipf),
        (_build_stream_table, lambda run: not is_zipf(run) and not is_four_cases(run)),
        (_build_case_table, is_four_cases),
    ):
        runs_of_table = [run for run in report.loads if belongs(run)]
        if runs_of_table:
            console.print(build(runs_of_table))
    if report.busy:
        console.print(_build_busy_table(report.busy))
    print_paper_parts(report.spreads, report.rates, console)
    if report.pairs:
        shown = ", ".join(f"{pair.overhead_pct:+.1f} %" for pair in report.pairs)
        console.print(
            f"Balance on keys without skew, processor seconds on against off, {len(report.pairs)} pairs: {shown}"
        )
    if report.switching:
        console.print(_build_switching_table(report.switching))
    print_figures(report, console, _format)


def _build_zipf_table(runs: Sequence[LoadRun]) -> Table:
    """Return max/mean by strategy and skew, and more of the skew that all strategies ran under."""
    streams = list(dict.fromkeys(run.stream for run in runs))
    detailed = max(streams, key=lambda stream: len({run.system for run in runs if run.stream == stream}))
    by_place = {(run.system, run.stream): run for run in runs}
    table = _make_table(f"Zipf keys on {runs[0].slots} slots: busiest slot over the mean", "strategy")
    for name in (*(stream.removeprefix("zipf ") for stream in streams), "balance", "even after", "changes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.caption = (
        f"From {SETTLING_BATCHES} batches after a change on. Balance and the columns behind it: {detailed}; "
        f"even after so many batches: at most {EVEN:g} times the mean."
    )
    for system in dict.fromkeys(run.system for run in runs):
        run = by_place.get((system, detailed))
        table.add_row(
            _name(system),
            *(_show_worst(by_place.get((system, stream))) for stream in streams),
            *(_describe(run) if run is not None else ("", "", "")),
        )
    return table


def _build_stream_table(runs: Sequence[LoadRun]) -> Table:
    table = _make_table("Keys that move", "stream")
    table.add_column("strategy", no_wrap=True)
    for name in ("max/mean", "balance", "even after", "changes", "moved MB"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        moved = f"{run.moved_bytes / 1e6:.1f}"
        table.add_row(run.stream, _name(run.system), _show_worst(run), *_describe(run), moved)
    return table


def _build_case_table(runs: Sequence[LoadRun]) -> Table:
    by_place = {(run.system, run.stream): run for run in runs}
    streams = list(dict.fromkeys(run.stream for run in runs))
    table = _make_table("Balance: idlest slot over busiest", "strategy")
    for stream in streams:
        table.add_column(stream.replace(", ", ",\n"), justify="right", no_wrap=True)
    for system in dict.fromkeys(run.system for run in runs):
        found = [by_place.get((system, stream)) for stream in streams]
        table.add_row(_name(system), *("" if run is None else _show(run, f"{run.balance:.3f}") for run in found))
    return table


def _make_table(title: str, first: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column(first, no_wrap=True)
    return table


def _describe(run: LoadRun) -> tuple[str, str, str]:
    """Return balance, batches until even, and changes."""
    wait = run.batches_until_even
    return f"{run.balance:.3f}", "never" if wait is None else f"{wait}", f"{run.changes}"


def _show_worst(run: LoadRun | None) -> str:
    return "" if run is None else _show(run, f"{run.settled_max_over_mean:.3f}")


def _show(run: LoadRun, figure: str) -> str:
    return figure if run.answer.equal else "[red]wrong[/]"


def _name(system: str) -> str:
    return f"[bold]{system}[/]" if system == "auto" else system


def _build_busy_table(runs: Sequence[BusyRun]) -> Table:
    table = Table(title="Zipf 1.5, an operator that costs processor time", box=SIMPLE_HEAD)
    table.add_column("system", no_wrap=True)
    for name in ("rows/s", "auto ×", "batch", "max/mean"):
        table.add_column(name, justify="right", no_wrap=True)
    own = next((run.rows_per_second for run in runs if run.system == "auto"), None)
    for run in runs:
        table.add_row(
            _name(run.system),
            f"{run.rows_per_second:,.0f}" if run.answer.equal else "[red]wrong answer[/]",
            f"{own / run.rows_per_second:.2f}" if own is not None and run.system != "auto" else "",
            f"{run.batch_seconds:.2f} s",
            f"{run.max_over_mean:.2f}" if run.max_over_mean is not None else "–",
        )
    return table


def _build_switching_table(runs: Sequence[SwitchingRun]) -> Table:
    table = _make_table("Million rows/s in the lab, by changes of the data a minute", "trigger")
    for rate in CHANGES_A_MINUTE:
        table.add_column(f"{rate:g}", justify="right", no_wrap=True)
    table.caption = (
        "The real balancer on drawn keys that stay whole, from Modulo on; the time of rows and of state that moves is "
        "modelled. Fixed: the fastest strategy that never switches, known only afterwards."
    )
    by_place = {(run.name, run.changes_a_minute): run for run in runs}
    for name in dict.fromkeys(run.name for run in runs if not run.fixed):
        row = [by_place[name, rate].rows_per_second for rate in CHANGES_A_MINUTE]
        table.add_row(name, *(f"{speed / 1e6:.2f}" for speed in row))
    best = [find_best_fixed(runs, rate).rows_per_second for rate in CHANGES_A_MINUTE]
    table.add_row("best fixed", *(f"{speed / 1e6:.2f}" for speed in best))
    return table


def _format(name: str, value: float) -> str:
    return f"{value:.3f}" if name.startswith(("max_over_mean", "balance")) else format_figure(value)
