"""The part ``rescale``: for how long there are no results while a stream gets more parallel instances."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.peers.flink_rescale import ADAPTIVE, prepare_command, read_results
from benchmarks.elastic.peers.rescaling import AFTER_SECONDS, BEFORE_SECONDS
from benchmarks.elastic.stream import TICK_SECONDS, Readings, compare_answers, compute_answer, find_closed, keep_closed
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.launch import our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.registry import BenchOptions
from benchmarks.shared.report import BUSY_NEIGHBOUR_SHARE

OURS = "anabranch"
NAMES = {
    OURS: "Anabranch, other slots at a boundary",
    "flink": "Flink, rescaled by its adaptive scheduler",
    "spark": "Spark, stopped, repartitioned, started",
}
SCRIPTS = {OURS: "ours_rescale", "flink": "flink_rescale", "spark": "native_rescale"}
DEFAULT_ROWS = 40_000
"""A second."""
SENSORS = 20_000
SLOTS, SLOTS_AFTER = 2, 4
WINDOW_MS, DELAY_MS = 1_000, 4_000
LEAST_SECONDS = 0.1
"""Less is not told from nothing, however even the gaps are."""


@dataclass(frozen=True, slots=True)
class RescaleRun:
    """A stream whose parallel instances became more while it ran."""

    system: str
    usual_seconds: float
    """Between results, in the median before the change."""
    noise_seconds: float
    """How far from that a gap usually is."""
    longest_seconds: float
    """Between two results, from the wish on."""
    change_seconds: float
    """From the wish until it was done."""
    answer: AnswerCheck

    @property
    def without_results_seconds(self) -> float:
        """For how much longer than usual there was no result; less than the noise cannot be told from nothing."""
        return max(self.longest_seconds - self.usual_seconds, self.noise_seconds, LEAST_SECONDS)


def evaluate_rescale(system: str, reported: Mapping[str, Any], answer: AnswerCheck) -> RescaleRun:
    """Return what the change did to the gaps between results."""
    changed_at = reported["changed_at"]
    gaps = [(before, after, after - before) for before, after in pairwise(reported["moments"])]
    # The first results come while processes start.
    early = [gap for before, after, gap in gaps if changed_at - BEFORE_SECONDS / 1.5 <= before and after <= changed_at]
    late = [gap for before, after, gap in gaps if after > changed_at and before < changed_at + AFTER_SECONDS]
    usual = median(early)
    return RescaleRun(
        system=system,
        usual_seconds=usual,
        noise_seconds=median(abs(gap - usual) for gap in early),
        longest_seconds=max(late),
        change_seconds=reported["change_seconds"],
        answer=answer,
    )


def compute_rescale_figures(runs: Sequence[RescaleRun]) -> dict[str, float]:
    """Return the figures by name; those of absent peers are absent."""
    by_system = {run.system: run.without_results_seconds for run in runs}
    figures = {"rescale_without_results_seconds": by_system[OURS]}
    for peer in by_system.keys() - {OURS}:
        figures[f"rescale_x_{peer}"] = by_system[peer] / by_system[OURS]
    return figures


def run_rescale(options: BenchOptions, peers: Sequence[str], console: Console) -> PartOutcome:
    """Rescale each system once, on the same stream, and compare answers with the oracle's."""
    readings = Readings(round((options.rows or DEFAULT_ROWS) * TICK_SECONDS), SENSORS, options.seed)
    logs = (options.out_dir or options.cache_dir) / "logs"
    runs: list[RescaleRun] = []
    notes: list[str] = []
    details = []
    for system in (OURS, *peers):
        given: dict[str, object] = {
            "rows": readings.rows,
            "sensors": readings.sensors,
            "seed": readings.seed,
            "window-ms": WINDOW_MS,
            "delay-ms": DELAY_MS,
            "slots": SLOTS,
            "slots-after": SLOTS_AFTER,
        }
        if system == "flink":
            given["command"] = json.dumps(prepare_command(options.cache_dir, "2g"))
        with scratch_places(options.cache_dir, logs, f"elastic-rescale-{system}") as places:
            with show_activity(console, NAMES[system]):
                reported, took = run_peer(system, our_script(f"elastic.peers.{SCRIPTS[system]}"), given, places)
            answer = _check(system, readings, reported["files"], places.output)
        if took.other_cpu_share > BUSY_NEIGHBOUR_SHARE:
            notes.append(f"busy machine: other programs took {took.other_cpu_share:.0%} of it during {NAMES[system]}")
        runs.append(evaluate_rescale(system, reported, answer))
        details.append(reported)
        console.print(f"{NAMES[system]}: {runs[-1].without_results_seconds:.2f} s without results")
    return PartOutcome(
        answers={f"rescale, {NAMES[run.system]}": run.answer for run in runs},
        figures=compute_rescale_figures(runs),
        workload={
            "rows_per_second": readings.rows / TICK_SECONDS,
            "sensors": SENSORS,
            "window_ms": WINDOW_MS,
            "watermark_delay_ms": DELAY_MS,
            "slots": SLOTS,
            "slots_after": SLOTS_AFTER,
            "results_every": "1 s: triggers of Spark, checkpoints of Flink",
            "master": "local[2]; Flink: its own cluster in one process, with four slots from the beginning",
            "flink": ADAPTIVE,
        },
        runs=[
            {**asdict(run), "without_results_seconds": run.without_results_seconds, "details": reported}
            for run, reported in zip(runs, details, strict=True)
        ],
        tables=[_build_table(runs)],
        notes=notes,
    )


def _check(system: str, readings: Readings, files: int, output: Path) -> AnswerCheck:
    until_ms = find_closed(files, DELAY_MS)
    if system == "flink":
        found = read_results(output)
    else:
        found = pl.read_parquet([*output.rglob("part-*.parquet")])
        if found.schema["window_start"].is_temporal():
            found = found.with_columns(pl.col("window_start").dt.epoch("ms"))
    wanted = compute_answer(readings, range(files), WINDOW_MS)
    return compare_answers(keep_closed(found, until_ms, WINDOW_MS), keep_closed(wanted, until_ms, WINDOW_MS))


def _build_table(runs: Sequence[RescaleRun]) -> Table:
    table = Table(title=f"{SLOTS} parallel instances become {SLOTS_AFTER}", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("system", no_wrap=True)
    for name in ("without results", "usual gap", "longest gap", "done after"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        table.add_row(
            NAMES[run.system],
            f"{run.without_results_seconds:.2f} s" if run.answer.equal else "[red]wrong answer[/]",
            f"{run.usual_seconds:.2f} s",
            f"{run.longest_seconds:.2f} s",
            f"{run.change_seconds:.2f} s",
        )
    return table
