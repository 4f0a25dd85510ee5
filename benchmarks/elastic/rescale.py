"""The part ``rescale``: for how long there are no results while a stream gets more parallel instances."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.peers.flink_rescale import ADAPTIVE, prepare_command, read_results
from benchmarks.elastic.peers.rescaling import AFTER_SECONDS
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
ON_LAB = "Anabranch on a lab, 1 executor to 4 and back"
"""The part ``load``, where it stands beside these."""
SCRIPTS = {OURS: "ours_rescale", "flink": "flink_rescale", "spark": "native_rescale"}
DEFAULT_ROWS = 40_000
"""A second."""
SENSORS = 20_000
SLOTS, SLOTS_AFTER = 2, 4
WINDOW_MS, DELAY_MS = 1_000, 4_000
ROUNDS = 3
"""Systems take turns: what a change costs differs from one to the next, by where in a batch it is asked for."""
TOGETHER_SECONDS = 0.3
"""Results that are less apart are those of one commit; commits are a second apart."""
USUAL_GAPS = 8
"""The last ones before the change are the usual ones."""
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
    gaps = [(before, after, after - before) for before, after in pairwise(_merge(reported["moments"]))]
    # The first results come while processes start.
    early = [gap for _, after, gap in gaps if after <= changed_at][-USUAL_GAPS:]
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


def _merge(moments: Sequence[float]) -> list[float]:
    """Return the moments without those that follow at once: files of one commit become visible one after the other."""
    merged: list[float] = []
    for moment in moments:
        if not merged or moment - merged[-1] >= TOGETHER_SECONDS:
            merged.append(moment)
    return merged


def compute_rescale_figures(runs: Sequence[RescaleRun]) -> dict[str, float]:
    """Return the figures by name, of each system's median; those of absent peers are absent."""
    by_system = {
        system: median(run.without_results_seconds for run in of_system)
        for system, of_system in _group_by_system(runs).items()
    }
    figures = {"rescale_without_results_seconds": by_system[OURS]}
    for peer in by_system.keys() - {OURS}:
        figures[f"rescale_x_{peer}"] = by_system[peer] / by_system[OURS]
    return figures


def _group_by_system(runs: Sequence[RescaleRun]) -> dict[str, list[RescaleRun]]:
    grouped: dict[str, list[RescaleRun]] = {}
    for run in runs:
        grouped.setdefault(run.system, []).append(run)
    return grouped


def compare_gaps(runs: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return how long nothing came out while parallel instances changed, side by side, of runs that parts reported.

    None where only one part was run: its own table has all there is.
    """
    gaps: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        if "without_results_seconds" in run and run["answer"]["equal"]:
            gaps.setdefault(ON_LAB if run["part"] == "load" else NAMES[run["system"]], []).append(run)
    if ON_LAB not in gaps or len(gaps) == 1:
        return None
    table = Table(title="without results while parallel instances change", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("what changes", no_wrap=True)
    for name in ("longer than usual", "usual gap", "longest gap"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, of_system in gaps.items():
        usual = median(run.get("usual_gap_seconds", run.get("usual_seconds")) for run in of_system)
        longest = median(run.get("longest_gap_seconds", run.get("longest_seconds")) for run in of_system)
        without = median(run["without_results_seconds"] for run in of_system)
        table.add_row(name, f"{without:.2f} s", f"{usual:.2f} s", f"{longest:.2f} s")
    table.caption = "in the median of rounds; the lab's batches take three seconds and more, and it changes twice"
    return table


def run_rescale(options: BenchOptions, peers: Sequence[str], console: Console) -> PartOutcome:
    """Rescale the systems by turns, on the same stream, and compare answers with the oracle's."""
    readings = Readings(round((options.rows or DEFAULT_ROWS) * TICK_SECONDS), SENSORS, options.seed)
    logs = (options.out_dir or options.cache_dir) / "logs"
    runs: list[RescaleRun] = []
    notes: list[str] = []
    details = []
    rounds = options.rounds or ROUNDS
    for number, system in product(range(1, rounds + 1), (OURS, *peers)):
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
        with scratch_places(options.cache_dir, logs, f"elastic-rescale-{system}-{number}") as places:
            with show_activity(console, f"{NAMES[system]}, round {number} of {rounds}"):
                reported, took = run_peer(system, our_script(f"elastic.peers.{SCRIPTS[system]}"), given, places)
            answer = _check(system, readings, reported["files"], places.output)
        if took.other_cpu_share > BUSY_NEIGHBOUR_SHARE:
            notes.append(f"busy machine: other programs took {took.other_cpu_share:.0%} of it during {NAMES[system]}")
        runs.append(evaluate_rescale(system, reported, answer))
        details.append(reported)
        console.print(f"{NAMES[system]}: {runs[-1].without_results_seconds:.2f} s without results")
    return PartOutcome(
        answers={f"rescale, {NAMES[run.system]}, {place}": run.answer for place, run in enumerate(runs)},
        figures=compute_rescale_figures(runs),
        workload={
            "rows_per_second": readings.rows / TICK_SECONDS,
            "sensors": SENSORS,
            "window_ms": WINDOW_MS,
            "watermark_delay_ms": DELAY_MS,
            "rounds": rounds,
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
    for name in ("without results", "least … most", "usual gap", "longest gap", "done after"):
        table.add_column(name, justify="right", no_wrap=True)
    for system, of_system in _group_by_system(runs).items():
        without = sorted(run.without_results_seconds for run in of_system)
        is_right = all(run.answer.equal for run in of_system)
        table.add_row(
            NAMES[system],
            f"{median(without):.2f} s" if is_right else "[red]wrong answer[/]",
            f"{without[0]:.2f} … {without[-1]:.2f} s",
            *(
                f"{median(getattr(run, name) for run in of_system):.2f} s"
                for name in ("usual_seconds", "longest_seconds", "change_seconds")
            ),
        )
    return table
