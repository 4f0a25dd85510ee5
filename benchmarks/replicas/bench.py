"""The replicas bench: availability by where replicas stand, in the simulator, and how long planning takes; and, where
it is asked for, how soon a flow on hosts of a lab goes on from them, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.placement.replicas import ResourcesInsufficient
from benchmarks.replicas.cuts import LAB, Cut, compute_cut_figures, describe_cuts, print_cuts, run_cuts
from benchmarks.replicas.experiments import (
    AGAIN,
    COPIES_A_HOST,
    DEGREE,
    DEGREES,
    FAILURES,
    HOSTS,
    LIMITS,
    MACHINES,
    MRP,
    NODES,
    PLANNING,
    RANDOM,
    SLOTS,
    WHOLE,
    Point,
    Setting,
    list_settings,
    make_cluster,
    measure_point,
)
from benchmarks.replicas.picture import draw_replicas
from benchmarks.replicas.planning import Planning, measure_planning
from benchmarks.replicas.recovery import COST, RECOVERY, LiveRuns, print_live, run_live
from benchmarks.shared.registry import BenchOptions, choose_names, choose_peers
from benchmarks.shared.report import BenchReport, deliver, format_figure, print_figures, print_notes

PARTS = (DEGREES, NODES, MACHINES, FAILURES, LIMITS, AGAIN, PLANNING)
LIVE_PARTS = (RECOVERY, COST)
LAB_PARTS = (*LIVE_PARTS, LAB)
"""Run only where they are named: they need a lab, and many minutes."""
DEFAULT_RUNS = 200
_MOST_FAILURES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasReport(BenchReport):
    """What the bench found; every availability is simulated or enumerated, none was measured on machines."""

    units: ClassVar[Mapping[str, str]] = {
        "*_pct": "%",
        "*_points": "percentage points",
        "*_s": "s",
        "state_mb_a_slot": "MB",
        "slots_lost": "slots",
        "lab_lost_slots": "slots",
        "lab_cuts": "cuts",
        "recovery_replica_over_store": "ratio",
    }

    points: Sequence[Point]
    planning: Planning | None
    live: LiveRuns | None = None
    cuts: Sequence[Cut] = ()

    def list_parts(self) -> dict[str, Any]:
        """Return the points as systems, each labelled, and what planning took."""
        return {
            "systems": [{"system": point.placement, "kind": "simulated", **asdict(point)} for point in self.points],
            "live": [] if self.live is None else [{**run, "kind": f"lab: {run['kind']}"} for run in self.live.runs],
            "cuts": [{**cut, "kind": "lab, and simulated"} for cut in describe_cuts(self.cuts)],
            "planning": None if self.planning is None else {"kind": "measured", **asdict(self.planning)},
        }


def run(options: BenchOptions, console: Console | None = None) -> ReplicasReport:
    """Run the parts that are asked for, check every placement and every run, and report."""
    choose_peers("replicas", options.peers)
    asked = choose_names("parts", options.only, (*PARTS, *LAB_PARTS)) if options.only else PARTS
    parts = [part for part in asked if part in PARTS]
    live_parts = [part for part in asked if part in LIVE_PARTS]
    console = console or Console()
    live = run_live(live_parts, options, console) if live_parts else None
    cuts = run_cuts(options, console) if LAB in asked else []
    runs = options.rounds or DEFAULT_RUNS
    points: list[Point] = []
    for setting in list_settings(parts):
        points.append(measure_point(setting, runs, options.seed))
        if setting.placement == RANDOM or setting.part == AGAIN:
            console.print(f"{setting.part}, {setting.x:g}: {runs} runs by each placement")
    planning = measure_planning(options.seed) if PLANNING in parts else None
    figures = compute_figures(points, planning)
    for seen in ([live.compute_figures()] if live is not None else []) + ([compute_cut_figures(cuts)] if cuts else []):
        is_right = min(figures["answers_equal"], seen["answers_equal"])
        figures = {**figures, **seen, "answers_equal": is_right} if is_right else {"answers_equal": 0}
    pictures: list[Path] = []
    if options.out_dir is not None and points and figures["answers_equal"] == 1:
        pictures += draw_replicas(points, options.out_dir)
    report = ReplicasReport(
        workload={
            "name": "replicas",
            "kind": "simulated, and on a lab" if live is not None or cuts else "simulated",
            "hosts": HOSTS,
            "slots": SLOTS,
            "degree": DEGREE,
            "runs_a_point": runs,
            "copies_a_host_where_limits_bind": COPIES_A_HOST,
        },
        figures=figures,
        seed=options.seed,
        notes=list_notes(parts, options.seed),
        pictures=pictures,
        points=points,
        planning=planning,
        live=live,
        cuts=cuts,
    )
    return deliver(report, options.json_path, print_report, console)


def compute_figures(points: Sequence[Point], planning: Planning | None) -> dict[str, float]:
    """Return the figures by name; one alone where a run or a placement is wrong, and none of parts that did not run."""
    faults = [point.wrong for point in points] + ([] if planning is None else [planning.wrong])
    figures: dict[str, float] = {"answers_equal": int(not any(faults))}
    if any(faults):
        return figures
    found = {(point.part, point.placement, point.x): point for point in points}
    names = {MRP: "mrp", WHOLE: "whole_cluster", RANDOM: "random"}
    for part, beside in ((FAILURES, ""), (LIMITS, "_limits")):
        for placement, name in names.items():
            if (point := found.get((part, placement, _MOST_FAILURES))) and point.enumerated_pct is not None:
                figures[f"{name}{beside}_availability_8_pct"] = point.enumerated_pct
                figures[f"{name}{beside}_runs_8_pct"] = point.simulated_pct
    gaps = [
        whole.enumerated_pct - point.enumerated_pct
        for (part, placement, x), point in found.items()
        if placement == MRP
        and point.enumerated_pct is not None
        and (whole := found.get((part, WHOLE, x))) is not None
        and whole.enumerated_pct is not None
    ]
    if gaps:
        figures["mrp_below_whole_cluster_points"] = max(gaps)
    for x, name in ((0, "degree_4"), (2, "waves_of_4"), (4, "waves_of_2"), (8, "one_by_one")):
        if point := found.get((AGAIN, MRP, x)):
            known = point.simulated_pct if point.enumerated_pct is None else point.enumerated_pct
            figures[f"mrp_{name}_availability_8_pct"] = known
    if planning is not None:
        figures["plan_1000x10000_s"] = planning.plan_seconds
        figures["restore_1000x10000_s"] = planning.restore_seconds
    return figures


def list_notes(parts: Sequence[str], seed: int) -> list[str]:
    """Return what the tables do not show: above all, what cannot be placed at all."""
    notes = []
    if parts:
        notes.append(
            "availability is simulated: a flow has no store, and goes on if every slot has a copy on a host left"
        )
    if LIMITS in parts:
        try:
            make_cluster(Setting(LIMITS, WHOLE, 3, has_limits=True), seed).place()
        except ResourcesInsufficient as error:
            notes.append(f"whole-cluster cannot be placed where {COPIES_A_HOST} copies fit on a host: {error}")
    return notes


def print_report(report: ReplicasReport, console: Console) -> None:
    """Print the experiments, what placements cost, and the figures."""
    for point in report.points:
        if point.wrong:
            console.print(f"[red]Wrong[/]: {point.part}, {point.placement}: {point.wrong}")
    for part in dict.fromkeys(point.part for point in report.points):
        console.print(_build_table(part, [point for point in report.points if point.part == part]))
    if costs := [point for point in report.points if point.part in (FAILURES, LIMITS) and point.x == _MOST_FAILURES]:
        console.print(_build_costs(costs))
    if (planning := report.planning) is not None:
        console.print(
            f"Planning (measured here): {planning.hosts:,} hosts, {planning.slots:,} slots, degree {planning.degree}: "
            f"{planning.plan_seconds:.2f} s; after {planning.lost_hosts} hosts are lost "
            f"{planning.restore_seconds:.2f} s, {planning.moved_replicas} replicas copied for "
            f"{planning.lost_copies} lost copies."
        )
        if planning.wrong:
            console.print(f"[red]Wrong[/]: planning: {planning.wrong}")
    if report.live is not None:
        print_live(report.live, console)
    if report.cuts:
        print_cuts(report.cuts, console)
    print_notes(report.notes, console)
    print_figures(
        report, console, lambda name, value: f"{value:.2f}" if "answers" not in name else format_figure(value)
    )


_TITLES = {
    DEGREES: "1. degree; 10 slots, 20 hosts, 3 fail",
    NODES: "2. slots; degree 2, 20 hosts, 3 fail",
    MACHINES: "3. hosts; 10 slots, degree 3, 15 % fail",
    FAILURES: "4. hosts that fail at once; 10 slots, degree 3, 20 hosts",
    LIMITS: f"4 with limits: {COPIES_A_HOST} copies fit on a host",
    AGAIN: "8 of 20 fail in waves, replicas placed again in between\n0: degree 4, at once",
}


def _build_table(part: str, points: Sequence[Point]) -> Table:
    placements = list(dict.fromkeys(point.placement for point in points))
    table = Table(title=f"{_TITLES[part]} (simulated, %)", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("waves" if part == AGAIN else part, justify="right")
    for placement in placements:
        table.add_column(f"{placement}, runs", justify="right")
        table.add_column("all sets", justify="right")
    for x in dict.fromkeys(point.x for point in points):
        cells: list[str] = []
        for point in [one for one in points if one.x == x]:
            cells.append(f"{point.simulated_pct:.1f} ± {point.error_pct:.1f}")
            cells.append("–" if point.enumerated_pct is None else f"{point.enumerated_pct:.2f}")
        table.add_row(f"{x:g}", *cells)
    return table


def _build_costs(points: Sequence[Point]) -> Table:
    table = Table(title="what placements take (simulated)", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for name in ("placement", "limits"):
        table.add_column(name)
    for name in ("hosts with replicas", "hosts in use", "delay, bytes on their way"):
        table.add_column(name, justify="right")
    for point in points:
        table.add_row(
            point.placement,
            "bind" if point.part == LIMITS else "–",
            f"{point.replica_hosts:.1f}",
            f"{point.used_hosts:.1f}",
            f"{point.delay_bytes:,.0f}",
        )
    return table
