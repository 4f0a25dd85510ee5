"""The energy bench: what the paper's topologies draw under ERDM and under its rivals, in the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.model.power import DEFAULT_POWER
from anabranch.placement.energy import POLICIES, Erdm, RoundRobin
from anabranch.sim.energy_day import SimulatedDay
from benchmarks.energy.picture import draw_day, draw_hosts
from benchmarks.energy.runs import (
    DAY_UTILISATION,
    SETTINGS,
    SHAPE,
    DayRun,
    HostShares,
    SteadyRun,
    WindowRun,
    check_day,
    list_host_shares,
    run_day,
    run_steady,
    run_windows,
)
from benchmarks.energy.topologies import HOSTS, TOPOLOGIES
from benchmarks.energy.trace import CHANCE, SOURCE
from benchmarks.shared.registry import BenchOptions, choose_names, choose_peers
from benchmarks.shared.report import BenchReport, deliver, print_figures, print_notes

PARTS = ("steady", "day", "windows", "loads")
OTHER_UTILISATIONS = (0.2, 0.3)
OURS = Erdm().name
PAPER = "ERDM, hosts as in the paper"
NOTES = (
    "Everything here is simulated, and energy is modelled: a power curve over simulated processor time. Nothing of it "
    "was measured on Spark.",
    f"Power: {DEFAULT_POWER.source}. Load: {SOURCE}.",
    "The paper's figures contradict one another: releasing 2 of 16 hosts at 60 % load leaves 69 % and not 80 to 100 %, "
    "and its energies are 23 times its power by its time.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyReport(BenchReport):
    """What the bench found."""

    units: ClassVar[Mapping[str, str]] = {
        "*_pct": "%",
        "*_seconds": "s",
        "*_ms": "ms",
        "joules_*": "J",
        "bytes_*": "bytes",
        "*_rate": "rows/s",
    }

    steady: Sequence[SteadyRun] = ()
    days: Sequence[DayRun] = ()
    other_loads: Sequence[DayRun] = ()
    windows: Sequence[WindowRun] = ()
    hosts: Sequence[HostShares] = ()
    wrong: Sequence[str] = ()

    def list_parts(self) -> dict[str, Any]:
        """Return all runs."""
        return {
            "systems": [asdict(run) for run in self.days],
            "steady": [asdict(run) for run in self.steady],
            "other_loads": [asdict(run) for run in self.other_loads],
            "windows": [asdict(run) for run in self.windows],
            "hosts": [asdict(run) for run in self.hosts],
            "wrong": list(self.wrong),
        }


def run(options: BenchOptions, console: Console | None = None) -> EnergyReport:
    """Simulate every topology under every policy, check what must hold, and report; write what was asked for."""
    choose_peers("energy", options.peers)
    parts = choose_names("part", options.only, PARTS)
    console = console or Console()
    steady: list[SteadyRun] = []
    days: list[DayRun] = []
    other: list[DayRun] = []
    shares: list[HostShares] = []
    shown: list[SimulatedDay] = []
    for topology in TOPOLOGIES:
        if "steady" in parts:
            steady += run_steady(topology)
            shares += list_host_shares(topology)
        if "day" in parts:
            found, simulated = run_day(topology, options.seed)
            days += found
            shown = shown or simulated
        if "loads" in parts:
            for utilisation in OTHER_UTILISATIONS:
                policies = (RoundRobin(), Erdm())
                other += run_day(topology, options.seed, utilisation, policies)[0]
        console.print(f"{topology.name}: simulated")
    windows = run_windows(TOPOLOGIES[0], options.seed) if "windows" in parts else []
    wrong = [
        f"{run.topology}, {run.utilisation:.0%}: {reason}"
        for run in (*days, *other)
        if run.system == OURS and (reason := check_day(run))
    ]
    pictures: list[Path] = []
    if options.out_dir is not None and not wrong:
        pictures += draw_day(shown, SETTINGS, options.out_dir) if shown else []
        pictures += draw_hosts(shares, options.out_dir) if shares else []
    report = EnergyReport(
        workload=_describe_workload(),
        figures=compute_figures(days, other, steady, wrong),
        seed=options.seed,
        notes=NOTES,
        pictures=pictures,
        steady=steady,
        days=days,
        other_loads=other,
        windows=windows,
        hosts=shares,
        wrong=wrong,
    )
    return deliver(report, options.json_path, print_report, console)


def compute_figures(
    days: Sequence[DayRun], other: Sequence[DayRun], steady: Sequence[SteadyRun], wrong: Sequence[str]
) -> dict[str, float]:
    """Return the figures: of the day the means over the four topologies, ERDM against round-robin on all hosts."""
    figures: dict[str, float] = {"answers_equal": int(not wrong)}
    ours = [run for run in days if run.system == OURS]
    if wrong:
        return figures
    if ours:
        figures |= {
            "energy_saved_pct": _mean(run.energy_saved_pct for run in ours),
            "energy_saved_least_topology_pct": min(run.energy_saved_pct for run in ours),
            "energy_saved_least_curve_pct": _mean(run.energy_saved_least_pct for run in ours),
            "energy_saved_most_curve_pct": _mean(run.energy_saved_most_pct for run in ours),
            "energy_saved_at_best_pct": _mean(run.energy_saved_at_best_pct for run in ours),
            "rate_change_pct": _mean(run.rate_change_pct for run in ours),
            "latency_change_pct": _mean(run.latency_change_pct for run in ours),
            "bytes_change_pct": _mean(run.bytes_change_pct for run in ours),
            "p95_seconds": max(run.p95_seconds for run in ours),
        }
    for utilisation in sorted({run.utilisation for run in other}):
        saved = [run.energy_saved_pct for run in other if run.system == OURS and run.utilisation == utilisation]
        figures[f"energy_saved_at_{utilisation * 100:.0f}_pct"] = _mean(saved)
    paper = [run for run in steady if run.system == PAPER]
    if paper:
        figures |= {
            "paper_setting_accounting_pct": _mean(run.paper_energy_change_pct or 0.0 for run in paper),
            "paper_setting_energy_change_pct": _mean(run.energy_change_pct for run in paper),
            "paper_setting_rate_change_pct": _mean(run.rate_change_pct for run in paper),
            "paper_setting_latency_change_pct": _mean(run.latency_change_pct for run in paper),
            "paper_setting_bytes_change_pct": _mean(run.bytes_change_pct for run in paper),
        }
    return figures


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _describe_workload() -> dict[str, Any]:
    return {
        "name": "energy",
        "basis": "simulated, energy modelled",
        "hosts": HOSTS,
        "topologies": [topology.name for topology in TOPOLOGIES],
        "policies": [policy.name for policy in POLICIES],
        "trace": SOURCE,
        "chance": CHANCE,
        "day_utilisation": DAY_UTILISATION,
        "interval_seconds": SHAPE.interval_seconds,
        "settings": asdict(SETTINGS),
        "power": asdict(DEFAULT_POWER),
    }


def print_report(report: EnergyReport, console: Console) -> None:
    """Print the tables, the figures, and what they are worth."""
    for reason in report.wrong:
        console.print(f"[red]Not kept[/]: {reason}")
    if report.steady:
        console.print(_build_steady_table(report.steady))
    if report.days:
        console.print(_build_day_table([*report.days, *report.other_loads]))
    if report.windows:
        console.print(_build_window_table(report.windows))
    print_figures(report, console, lambda _, value: f"{value:.1f}")
    print_notes(report.notes, console)


def _begin(title: str, *columns: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < 2 else "right", no_wrap=True)
    return table


def _build_steady_table(runs: Sequence[SteadyRun]) -> Table:
    names = (
        "hosts",
        "MB/s",
        "latency s",
        "rows/s",
        "J/M rows",
        "bytes %",
        "rate %",
        "energy %",
        "at best %",
        "paper %",
    )
    table = _begin("the paper's load (60 % of 16 hosts)", "topology", "policy", *names)
    for run in runs:
        table.add_row(
            run.topology if run.system == "round-robin" else "",
            run.system,
            str(run.hosts),
            f"{run.bytes_between_hosts / 1e6:.1f}",
            f"{run.latency_seconds:.2f}",
            f"{run.highest_rate:,.0f}",
            f"{run.joules_per_million_rows:,.0f}",
            f"{run.bytes_change_pct:+.1f}",
            f"{run.rate_change_pct:+.1f}",
            f"{run.energy_change_pct:+.1f}",
            f"{run.energy_change_at_highest_rate_pct:+.1f}",
            "" if run.paper_energy_change_pct is None else f"{run.paper_energy_change_pct:+.1f}",
        )
    table.caption = "at best: each at the highest rate that it keeps up with; paper: constant power, the paper's rates"
    return table


def _build_day_table(runs: Sequence[DayRun]) -> Table:
    names = (
        "load",
        "awake",
        "starts",
        "p95 s",
        "mean %",
        "in bound",
        "GB",
        "bytes %",
        "J/M rows",
        "saved %",
        "by curve",
    )
    table = _begin("a day", "topology", "policy", *names)
    for run in runs:
        table.add_row(
            run.topology if run.system == "round-robin" else "",
            run.system,
            f"{run.utilisation:.0%}",
            f"{run.hosts_awake:.1f}",
            str(run.restarts),
            f"{run.p95_seconds:.2f}",
            f"{run.latency_change_pct:+.1f}",
            f"{run.within_bound_pct:.1f}",
            f"{run.bytes_between_hosts / 1e9:,.0f}",
            f"{run.bytes_change_pct:+.1f}",
            f"{run.joules_per_million_rows:,.0f}",
            f"{run.energy_saved_pct:.1f}",
            f"{run.energy_saved_least_pct:.0f}–{run.energy_saved_most_pct:.0f}",
        )
    table.caption = f"bound: {SETTINGS.latency_seconds:g} s; by curve: under each of ten published servers"
    return table


def _build_window_table(runs: Sequence[WindowRun]) -> Table:
    names = ("network %", "latency ms", "saved %", "in bound", "starts", "paper's network %", "paper's latency ms")
    table = _begin("ERDM by monitor window (WordCount, a day)", "window", "", *names)
    for run in runs:
        table.add_row(
            f"{run.window_seconds:.0f} s",
            "",
            f"{run.monitor_bytes_pct:.2f}",
            f"{run.added_latency_ms:+.0f}",
            f"{run.energy_saved_pct:.1f}",
            f"{run.within_bound_pct:.1f}",
            str(run.restarts),
            f"{run.paper_network_pct:.1f}",
            f"{run.paper_latency_ms:.1f}",
        )
    return table
