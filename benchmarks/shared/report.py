"""What the outcomes of all benches share: JSON for programs, figures for people, the machine and the commit."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import psutil
from rich.console import Console

from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import Outcome
from benchmarks.shared.workload import write_atomically

T = TypeVar("T", bound=Outcome)
RunT = TypeVar("RunT")
PointT = TypeVar("PointT")
BUSY_NEIGHBOUR_SHARE = 0.1
"""Above this, figures of the same commit differ by more than commits do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """What a bench found; each bench adds its runs."""

    units: ClassVar[Mapping[str, str]]
    """The units of figures, by patterns of their names."""

    workload: Mapping[str, Any]
    figures: Mapping[str, float]
    seed: int
    notes: Sequence[str] = ()
    """What was not measured, and why; how busy the machine was with other things."""
    pictures: Sequence[Path] = ()

    @property
    def answers_equal(self) -> bool:
        """Whether all answers were right: without that, no speed is a claim."""
        return self.figures["answers_equal"] == 1

    def list_parts(self) -> dict[str, Any]:
        """Return the bench's own parts as plain JSON data: ``systems``, and what else it has."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data, with the commit and the machine it was measured on."""
        return {
            "workload": dict(self.workload),
            "figures": dict(self.figures),
            **self.list_parts(),
            "units": dict(self.units),
            "notes": list(self.notes),
            **stamp(self.seed),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvedReport(BenchReport, Generic[RunT, PointT]):
    """What a bench found of each system, and on the points of curves beside that."""

    systems: Sequence[RunT]
    curves: Sequence[PointT] = ()

    def list_parts(self) -> dict[str, Any]:
        """Return the runs and the points of the curves."""
        return {"systems": [_to_plain(run) for run in self.systems], "curves": [_to_plain(p) for p in self.curves]}


def _to_plain(measured: Any) -> dict[str, Any]:
    return asdict(measured) if is_dataclass(measured) and not isinstance(measured, type) else dict(measured)


def stamp(seed: int) -> dict[str, Any]:
    """Return what every report says of itself: seed, commit, machine and time."""
    return {
        "seed": seed,
        "commit": find_commit(),
        "machine": describe_machine(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def deliver(report: T, json_path: Path | None, show: Callable[[T, Console], None], console: Console) -> T:
    """Write the report as JSON if that is wanted, print it, and return it: how every bench ends."""
    if json_path is not None:
        write_json(report, json_path)
    show(report, console)
    return report


def write_json(report: Outcome, path: Path) -> None:
    """Write the report as JSON, whole or not at all."""
    text = json.dumps(report.to_json(), indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda unfinished: _write_text(unfinished, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text + "\n")


def print_figures(
    report: BenchReport, console: Console, show: Callable[[str, float], str] = lambda _, value: format_figure(value)
) -> None:
    """Print all figures, and where the pictures lie; ``show`` returns a figure's digits."""
    console.print(", ".join(f"{name} [bold]{show(name, value)}[/]" for name, value in report.figures.items()))
    for picture in report.pictures:
        console.print(f"Picture: {picture}")


def print_if_wrong(name: str, answer: AnswerCheck, console: Console) -> None:
    """Say how a run's answer differs from the oracle's, if it does."""
    if not answer.equal:
        console.print(f"[red]Wrong answer[/]: {name}: {answer.difference}")


def print_notes(notes: Iterable[str], console: Console) -> None:
    """Print what is to be known beside the figures."""
    for note in notes:
        console.print(f"[yellow]Note[/]: {note}")


def print_if_busy(name: str, other_cpu_share: float, console: Console) -> None:
    """Say that other programs took a part of the machine during a run, if it was a large one."""
    if other_cpu_share > BUSY_NEIGHBOUR_SHARE:
        console.print(f"[yellow]Busy machine[/]: other programs took {other_cpu_share:.0%} of it during {name}.")


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
