"""A bench's outcome: a table for people, JSON for programs."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.bench.figures import OURS, SystemRun
from anabranch.bench.registry import Outcome
from anabranch.bench.workload import write_atomically

NAMES = {
    OURS: "Anabranch",
    "spark-memory": "Spark (memory)",
    "spark-rocksdb": "Spark (RocksDB)",
    "flink": "Flink SQL",
    "two-polars": "2 × Polars",
}
# Above this, figures of the same commit differ by more than commits do.
_BUSY_NEIGHBOUR_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Report:
    """What a bench found."""

    workload: Mapping[str, Any]
    figures: Mapping[str, float]
    systems: Sequence[SystemRun]
    seed: int
    curves: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    pictures: Sequence[Path] = field(default_factory=tuple)

    @property
    def answers_equal(self) -> bool:
        """Whether every system gave the oracle's answers."""
        return self.figures["answers_equal"] == 1

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data, with the commit and the machine it was measured on."""
        return {
            "workload": dict(self.workload),
            "figures": dict(self.figures),
            "systems": [asdict(run) for run in self.systems],
            "curves": [dict(point) for point in self.curves],
            "units": {"rows_per_second": "rows/s", "batch_seconds": "s", "small_batch_ms": "ms", "*_x_*": "ratio"},
            **stamp(self.seed),
        }


def stamp(seed: int) -> dict[str, Any]:
    """Return what every report says of itself: seed, commit, machine and time."""
    return {
        "seed": seed,
        "commit": find_commit(),
        "machine": describe_machine(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_json(report: Outcome, path: Path) -> None:
    """Write the report as JSON, whole or not at all."""
    text = json.dumps(report.to_json(), indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda unfinished: _write_text(unfinished, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text + "\n")


def print_report(report: Report, console: Console) -> None:
    """Print the table, the figures and, first of all, whether the answers were equal."""
    if report.answers_equal:
        rows = report.systems[0].answer.rows if report.systems else 0
        console.print(f"[green]Answers equal[/]: {len(report.systems)} runs gave the oracle's {rows:,} rows.")
    for run in report.systems:
        name = f"{NAMES[run.system]} on {run.file_format}"
        if not run.answer.equal:
            console.print(f"[red]Wrong answer[/]: {name}: {run.answer.difference}")
        if run.other_cpu_share > _BUSY_NEIGHBOUR_SHARE:
            console.print(
                f"[yellow]Busy machine[/]: other programs took {run.other_cpu_share:.0%} of it during {name}."
            )
    console.print(_build_table(report.systems))
    figures = ", ".join(f"{name} [bold]{format_figure(value)}[/]" for name, value in report.figures.items())
    console.print(figures)
    if report.curves:
        console.print(_build_curve_table(report.curves))
    for picture in report.pictures:
        console.print(f"Picture: {picture}")


def _build_table(runs: Sequence[SystemRun]) -> Table:
    table = Table(title="keyed-window, steady state (peak memory in GiB)", box=SIMPLE_HEAD)
    table.add_column("format", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for name in ("rows/s", "ours ×", "batch", "driver+JVM", "workers"):
        table.add_column(name, justify="right", no_wrap=True)
    ours = {run.file_format: run.rows_per_second for run in runs if run.system == OURS}
    previous = ""
    for run in sorted(runs, key=lambda run: (("json", "csv", "parquet").index(run.file_format), run.system != OURS)):
        if previous and run.file_format != previous:
            table.add_section()
        roles = run.peak_memory_bytes_by_role
        rate, own_rate = run.rows_per_second, ours.get(run.file_format)
        table.add_row(
            run.file_format if run.file_format != previous else "",
            f"[bold]{NAMES[run.system]}[/]" if run.system == OURS else NAMES[run.system],
            _format_rate(rate) if run.answer.equal else "[red]wrong answer[/]",
            f"{own_rate / rate:.2f}" if rate and own_rate and run.answer.equal and run.system != OURS else "",
            f"{run.batch_seconds:.2f} s" if run.batch_seconds is not None else "–",
            _format_bytes(roles.get("driver", 0) + roles.get("jvm", 0)),
            _format_bytes(roles["workers"]) if "workers" in roles else "–",
        )
        previous = run.file_format
    return table


def _build_curve_table(curves: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Anabranch as rows and keys grow (JSON, peak memory in GiB)", box=SIMPLE_HEAD)
    for name in ("rows", "keys", "rows/s", "batch", "driver+JVM", "workers", "state"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in curves:
        table.add_row(
            f"{point['rows']:,}",
            f"{point['keys']:,}",
            _format_rate(point["rows_per_second"]),
            f"{point['batch_seconds']:.2f} s" if point["batch_seconds"] is not None else "–",
            _format_bytes(point["driver_bytes"] + point["jvm_bytes"]),
            _format_bytes(point["workers_bytes"]),
            _format_bytes(point["state_bytes"]),
        )
    return table


def _format_rate(rate: float | None) -> str:
    return f"{rate / 1e6:.2f} M" if rate is not None else "too short"


def _format_bytes(count: int) -> str:
    return f"{count / 2**30:.2f}"


def format_figure(value: float) -> str:
    """Return a figure with as many digits as say something."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def find_commit() -> str | None:
    """Return the commit of the source tree, with a plus when it has changes, or the installed version."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        changes = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        try:
            return f"version {version('anabranch')}"
        except PackageNotFoundError:
            return None
    return commit.stdout.strip() + ("+" if changes.stdout.strip() else "")


def describe_machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, cores, memory and system."""
    return {
        "processor": _find_processor(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _find_processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
