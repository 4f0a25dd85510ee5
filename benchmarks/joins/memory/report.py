"""What long joins kept, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.joins.memory.figures import (
    ALIGNED,
    FREE,
    LIVE,
    MEMORY,
    Growth,
    MemoryRun,
    find_memory_growth,
    find_state_growth,
)
from benchmarks.shared.report import print_if_busy, print_if_wrong

NAMES = {
    LIVE: "Spark, live",
    ALIGNED: "10 × speed, align",
    FREE: "10 × speed, no align",
}


def print_memory(runs: Sequence[MemoryRun], workload: Mapping[str, Any], console: Console) -> None:
    """Print how state and memory went from the second window length on to the last quarter."""
    if not runs:
        return
    told = workload[MEMORY]
    table = Table(title="memory", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.caption = (
        f"{told[LIVE]['rows']:,} rows live; {told[ALIGNED]['rows']:,} in process, where one side is ten times "
        "as fast; a row is kept for "
        f"{told[LIVE]['length_seconds']:g} s of event time, and runs last {told[LIVE]['window_lengths']} and "
        f"{told[ALIGNED]['window_lengths']} times as long; zipf {told[LIVE]['zipf']:g}. Means of the second window "
        "length and of the last quarter, MB."
    )
    table.add_column("run and measure", no_wrap=True)
    for name in ("2nd length", "last quarter", "growth", "most"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        print_if_wrong(f"memory, {NAMES[run.way]}", run.answer, console)
        print_if_busy(f"memory, {NAMES[run.way]}", run.other_cpu_share, console)
        table.add_row(f"[bold]{NAMES[run.way]}[/]")
        _add(table, "committed state", find_state_growth(run), run.most_state_bytes)
        roles = dict.fromkeys(role for sample in run.samples for role in sample.memory_bytes)
        for role in roles:
            most = max(sample.memory_bytes.get(role, 0) for sample in run.samples)
            _add(table, f"resident, {role}", find_memory_growth(run, role), most)
    console.print(table)


def _add(table: Table, name: str, growth: Growth | None, most: int) -> None:
    shown = ("too short", "", "") if growth is None else (_mb(growth.then), _mb(growth.now), f"{growth.percent:+.1f} %")
    table.add_row(f" {name}", *shown, _mb(most))


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f}"
