"""The planners bench: how long planning takes, what it moves and splits, and how even the slots are afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.balancing import PLANNERS, Goal, Planner, balance_buckets
from anabranch.model.loads import BucketLoads
from anabranch.model.moves import MovePlan
from anabranch.model.routes import BucketMap, RoutingTable
from benchmarks.planners.checks import check_bucket_plan, check_key_plan
from benchmarks.planners.inputs import STATE_BYTES_A_KEY, PlannerInput, make_zipf, read_weibo
from benchmarks.planners.picture import draw_planners
from benchmarks.shared.registry import BenchError, BenchOptions, choose_peers
from benchmarks.shared.report import CurvedReport, deliver, format_figure, print_figures

DEFAULT_KEYS = 1_000_000
DEFAULT_SLOTS = 100
DEFAULT_EXPONENTS = (0.8, 1.2, 1.5)
TOLERANCE = 0.05
CURVE_TOLERANCES = (0.01, 0.02, 0.05, 0.1, 0.2)
REPEATS = 3
BUCKETS_A_SLOT = 64
# Planners that promise the limit are shown on ten times as many keys.
MANY_TIMES = 10
GROWTH = 1.25


@dataclass(frozen=True, slots=True)
class PlannerRun:
    """One planner on one input."""

    system: str
    input: str
    keys: int
    slots: int
    slots_after: int
    tolerance: float
    planning_seconds: float
    """The median of several plans."""
    table_rows: int
    split_keys: int
    moves: int
    moved_bytes_pct: float
    split_load_pct: float
    """The part of the load whose partial results must meet further down."""
    max_over_mean_before: float
    max_over_mean_after: float
    wrong: str
    """Which promise was broken; empty when all were kept."""
    shortfall: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannersReport(CurvedReport[PlannerRun, PlannerRun]):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "*_s": "s",
        "planning_seconds": "s",
        "*_pct": "%",
        "max_over_mean_*": "ratio",
    }


def run(options: BenchOptions, console: Console | None = None) -> PlannersReport:
    """Run every planner on every input, check its plans, and report; write JSON and pictures if asked to."""
    choose_peers("planners", options.peers)
    console = console or Console()
    keys, slots = options.keys or DEFAULT_KEYS, options.slots or DEFAULT_SLOTS
    exponents = options.exponents or DEFAULT_EXPONENTS
    if slots < 2 or keys < slots:
        msg = f"there are {keys:,} keys and {slots} slots; planning needs at least two slots, and a key for each"
        raise BenchError(msg)
    goal = Goal(slots, TOLERANCE)
    runs: list[PlannerRun] = []
    for exponent in exponents:
        given = make_zipf(keys, exponent, slots, options.seed)
        runs += [_run_keys(planner, given, goal) for planner in PLANNERS.values()]
        runs.append(_run_buckets(given, goal))
        _print_progress(console, runs[-1])
    weibo = read_weibo(options.data_dir, slots) if options.data_dir is not None else None
    if weibo is not None:
        runs += [_run_keys(planner, weibo, goal) for planner in PLANNERS.values()]
        _print_progress(console, runs[-1])
    many = [
        _run_keys(planner, given, goal)
        for exponent in exponents
        for given in (make_zipf(keys * MANY_TIMES, exponent, slots, options.seed),)
        for planner in PLANNERS.values()
        if planner.splits_keys
    ]
    _print_progress(console, many[-1])
    curves = _measure_curves(weibo or make_zipf(keys, exponents[0], slots, options.seed), slots)
    figures = compute_figures(runs + many, curves, keys)
    pictures: list[Path] = []
    # No kept promises, no claim: a picture would be one.
    if options.out_dir is not None and figures["answers_equal"] == 1:
        pictures += draw_planners(runs, curves, options.out_dir)
    report = PlannersReport(
        workload=_describe_workload(keys, slots, exponents, weibo),
        figures=figures,
        systems=runs + many,
        seed=options.seed,
        curves=curves,
        pictures=pictures,
    )
    return deliver(report, options.json_path, print_report, console)


def _run_keys(planner: Planner, given: PlannerInput, goal: Goal, table: RoutingTable | None = None) -> PlannerRun:
    before = RoutingTable.empty() if table is None else table
    plan, seconds = _measure(lambda: planner.plan(given.loads, before, goal, clock=time.perf_counter))
    limit = (1 + goal.tolerance) * float(given.loads.loads.sum()) / goal.slots_later
    wrong = check_key_plan(given.loads, before, plan, goal.slots_in_all, limit if planner.splits_keys else None)
    return _describe_run(planner.name, given, goal, plan, seconds, wrong)


def _run_buckets(given: PlannerInput, goal: Goal) -> PlannerRun:
    """Run the planner of whole buckets; a bucket lies within one slot, as its keys do."""
    count = goal.slots * BUCKETS_A_SLOT
    # The keys' homes with a second digit: the same slots, in smaller portions.
    portion = (given.loads.keys >> np.uint64(33)) % np.uint64(BUCKETS_A_SLOT)
    buckets = given.loads.homes.astype(np.int64) * BUCKETS_A_SLOT + portion.astype(np.int64)
    loads = BucketLoads(
        BucketMap(goal.slots, tuple((np.arange(count) // BUCKETS_A_SLOT).tolist())),
        np.bincount(buckets, given.loads.loads, count).astype(np.float64),
        np.bincount(buckets, given.loads.state_bytes, count).astype(np.float64),
    )
    plan, seconds = _measure(lambda: balance_buckets(loads, goal, clock=time.perf_counter))
    return _describe_run(plan.planner, given, goal, plan, seconds, check_bucket_plan(loads, plan, goal.slots))


def _measure(make: Callable[[], MovePlan]) -> tuple[MovePlan, float]:
    """Return a plan, and the median seconds of making it; plans of equal inputs must be equal."""
    plans = [make() for _ in range(REPEATS)]
    if any(plan != plans[0] for plan in plans):
        msg = f"{plans[0].planner} made two plans for one input; plans must depend on their input alone"
        raise BenchError(msg)
    return plans[0], median(plan.costs.planning_seconds or 0.0 for plan in plans)


def _describe_run(name: str, given: PlannerInput, goal: Goal, plan: MovePlan, seconds: float, wrong: str) -> PlannerRun:
    return PlannerRun(
        system=name,
        input=given.name,
        keys=given.keys,
        slots=goal.slots,
        slots_after=goal.slots_later,
        tolerance=goal.tolerance,
        planning_seconds=seconds,
        table_rows=plan.costs.table_rows,
        split_keys=len(plan.table.split_keys()),
        moves=len(plan.moves),
        moved_bytes_pct=100 * plan.costs.moved_bytes / float(given.loads.state_bytes.sum()),
        split_load_pct=100 * plan.costs.split_load / float(given.loads.loads.sum()),
        max_over_mean_before=plan.imbalance_before,
        max_over_mean_after=plan.imbalance_after,
        wrong=wrong,
        shortfall=plan.shortfall,
    )


def _measure_curves(given: PlannerInput, slots: int) -> list[PlannerRun]:
    """Return plans for tighter and looser tolerances, and for a quarter more slots on top of the first plan."""
    curves = [
        _run_keys(planner, given, Goal(slots, tolerance))
        for tolerance in CURVE_TOLERANCES
        for planner in PLANNERS.values()
    ]
    table = PLANNERS["mnrt"].plan(given.loads, RoutingTable.empty(), Goal(slots, TOLERANCE)).table
    grown = Goal(slots, TOLERANCE, slots_after=max(slots + 1, round(slots * GROWTH)))
    return curves + [_run_keys(planner, given, grown, table) for planner in PLANNERS.values()]


def compute_figures(runs: Sequence[PlannerRun], curves: Sequence[PlannerRun], keys: int) -> dict[str, float]:
    """Return the figures by name: for each planner the slowest of its plans for so many keys.

    Broken promises leave no claim about speed: only ``answers_equal`` and ``rows`` remain.
    """
    kept = not any(run.wrong for run in (*runs, *curves))
    figures: dict[str, float] = {"answers_equal": int(kept), "rows": keys}
    if not kept:
        return figures
    figures["batch_seconds"] = max(run.planning_seconds for run in runs if run.system == "mnrt" and run.keys == keys)
    for count in (keys, keys * MANY_TIMES):
        zipf = [run for run in runs if run.keys == count and run.input.startswith("zipf")]
        for system in dict.fromkeys(run.system for run in zipf):
            name = f"{system.replace('-', '_')}_{shorten(count)}_s"
            figures[name] = max(run.planning_seconds for run in zipf if run.system == system)
    for system in ("mnrt", "qmmp"):
        tables = [run.table_rows for run in runs if run.system == system and run.keys == keys]
        figures[f"{system}_table_rows"] = max(tables)
    return figures


def shorten(count: int) -> str:
    """Return a number as it is spoken: 1m for a million, 200k, 12."""
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if count >= size and count % size == 0:
            return f"{count // size}{letter}"
    return str(count)


def _describe_workload(keys: int, slots: int, exponents: Sequence[float], weibo: PlannerInput | None) -> dict[str, Any]:
    return {
        "name": "planners",
        "rows": keys,
        "keys": keys,
        "slots": slots,
        "zipf_exponents": list(exponents),
        "weibo_topics": weibo.keys if weibo is not None else 0,
        "tolerance": TOLERANCE,
        "state_bytes_a_key": STATE_BYTES_A_KEY,
        "buckets_a_slot": BUCKETS_A_SLOT,
        "repeats": REPEATS,
    }


def print_report(report: PlannersReport, console: Console) -> None:
    """Print the tables and the figures, and first of all whether every plan kept its promises."""
    runs = [*report.systems, *report.curves]
    broken = [run for run in runs if run.wrong]
    if not broken:
        console.print(f"[green]Promises kept[/]: {len(runs)} plans were checked against their routing tables.")
    for run in broken:
        console.print(f"[red]Broken promise[/]: {run.system} on {run.input}: {run.wrong}")
    console.print(_build_table(report.systems, f"planners, {report.workload['slots']} slots, tolerance {TOLERANCE:g}"))
    console.print(_build_curve_table(report.curves))
    print_figures(report, console, _format)


def _build_table(runs: Sequence[PlannerRun], title: str) -> Table:
    table = _begin_table(title, "input")
    previous = ""
    for run in runs:
        name = f"{run.input}, {_abbreviate(run.keys)}"
        if previous and name != previous:
            table.add_section()
        before, after = f"{run.max_over_mean_before:.2f}", f"{run.max_over_mean_after:.2f}"
        table.add_row(name if name != previous else "", run.system, *_format_costs(run), f"{before}→{after}")
        previous = name
    return table


def _build_curve_table(runs: Sequence[PlannerRun]) -> Table:
    table = _begin_table(f"other tolerances, and more slots ({runs[0].input})", "goal")
    previous = ""
    for run in runs:
        grows = run.slots_after != run.slots
        name = f"{run.slots} → {run.slots_after} slots" if grows else f"tolerance {run.tolerance:g}"
        evenness = f"{run.max_over_mean_after:.2f}"
        table.add_row(name if name != previous else "", run.system, *_format_costs(run), evenness)
        previous = name
    return table


def _begin_table(title: str, first: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column(first, no_wrap=True)
    table.add_column("planner", no_wrap=True)
    for name in ("ms", "table", "split", "moved %", "shared %", "max/mean"):
        table.add_column(name, justify="right", no_wrap=True)
    table.caption = "table: rows of the routing table; split: keys; moved: state; shared: load of split keys"
    return table


def _abbreviate(count: int) -> str:
    """Return a number in thousands or millions."""
    return f"{count / 1e6:.3g}m" if count >= 1_000_000 else f"{count / 1e3:.3g}k"


def _format_costs(run: PlannerRun) -> list[str]:
    return [
        f"{run.planning_seconds * 1000:,.0f}" if not run.wrong else "[red]wrong[/]",
        f"{run.table_rows:,}",
        f"{run.split_keys:,}",
        f"{run.moved_bytes_pct:.3f}",
        f"{run.split_load_pct:.1f}",
    ]


def _format(name: str, value: float) -> str:
    return f"{value:.3f}" if name.endswith(("_s", "_seconds")) else format_figure(value)


def _print_progress(console: Console, run: PlannerRun) -> None:
    console.print(f"{run.input}, {run.keys:,} keys: planned")
