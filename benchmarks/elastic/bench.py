"""The elastic bench: flows that follow their load, and ways to spread them over executors, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.console import Console

from benchmarks.elastic.balance import run_balance
from benchmarks.elastic.drift import run_drift
from benchmarks.elastic.load import run_load
from benchmarks.elastic.measuring import run_measuring
from benchmarks.elastic.parts import PartOutcome, RunsPart
from benchmarks.elastic.rescale import compare_gaps, run_rescale
from benchmarks.elastic.strategies import run_strategies
from benchmarks.shared.registry import BenchOptions, choose_names, choose_peers
from benchmarks.shared.report import BenchReport, deliver, print_figures, print_if_wrong, print_notes

PARTS: Mapping[str, RunsPart] = {
    "load": run_load,
    "rescale": run_rescale,
    "strategies": run_strategies,
    "drift": run_drift,
    "balance": run_balance,
    "measuring": run_measuring,
}
"""By name, in the order in which they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticReport(BenchReport):
    """What the parts found."""

    units: ClassVar[Mapping[str, str]] = {
        "*_seconds": "s",
        "*_over_median": "ratio",
        "*_over_mean": "ratio",
        "*_x_*": "ratio",
        "*_pct": "%",
        "*_points": "percentage points",
        "*_batches": "batches",
        "*_changes": "changes",
        "*_count": "times",
    }

    parts: Mapping[str, PartOutcome]

    def list_parts(self) -> dict[str, Any]:
        """Return the runs of all parts."""
        return {"systems": [{"part": name, **run} for name, part in self.parts.items() for run in part.runs]}


def run(options: BenchOptions, console: Console | None = None) -> ElasticReport:
    """Run the parts that were asked for, check all answers, and report."""
    console = console or Console()
    chosen = choose_names("parts", options.only, PARTS)
    peers = choose_peers("elastic", options.peers)
    parts = {name: PARTS[name](options, peers, console) for name in chosen}
    answers = [answer.equal for part in parts.values() for answer in part.answers.values()]
    figures: dict[str, float] = {"answers_equal": int(bool(answers) and all(answers))}
    if figures["answers_equal"]:
        for part in parts.values():
            figures |= part.figures
    report = ElasticReport(
        workload={"name": "elastic", **{name: dict(part.workload) for name, part in parts.items()}},
        figures=figures,
        seed=options.seed,
        notes=[note for part in parts.values() for note in part.notes],
        pictures=[picture for part in parts.values() for picture in part.pictures],
        parts=parts,
    )
    return deliver(report, options.json_path, print_report, console)


def print_report(report: ElasticReport, console: Console) -> None:
    """Print the tables and the figures and, first of all, whether the answers were equal."""
    answers = {name: answer for part in report.parts.values() for name, answer in part.answers.items()}
    if report.answers_equal:
        console.print(f"[green]Answers equal[/]: {len(answers)} runs gave the oracle's.")
    for name, answer in answers.items():
        print_if_wrong(name, answer, console)
    print_notes(report.notes, console)
    for part in report.parts.values():
        for table in part.tables:
            console.print(table)
    compared = compare_gaps(report.list_parts()["systems"])
    if compared is not None:
        console.print(compared)
    print_figures(report, console)
