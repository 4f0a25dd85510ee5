"""Start a peer of a bench in a process of its own, with a scratch folder that goes when it is done."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.shared.process import ProcessOutcome, run_measured

CORES = 2
# The same heap for every JVM: driver memory for Spark, native and ours, and the whole of Flink.
JVM_MEMORY = "4g"
FLINK_CHECKPOINT_SECONDS = 3.0
_TIMEOUT_SECONDS = 1_800.0
_CLONE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Places:
    """Where one run keeps its things: all of it may be deleted afterwards but the log."""

    scratch: Path
    log: Path

    @property
    def output(self) -> Path:
        return self.scratch / "output"

    @property
    def checkpoint(self) -> Path:
        return self.scratch / "checkpoint"

    @property
    def result(self) -> Path:
        return self.scratch / "result.json"


def run_peer(
    name: str,
    command: Sequence[str],
    options: Mapping[str, object],
    places: Places,
    variables: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], ProcessOutcome]:
    """Run a script with its options, and with places for output, checkpoint and result; return what it reported.

    ``variables`` are those of its environment that other peers do not need.
    """
    given = {**options, "output": places.output, "checkpoint": places.checkpoint, "result": places.result}
    arguments = [part for option, value in given.items() for part in (f"--{option}", str(value))]
    environment = {**describe_environment(), **(variables or {})}
    outcome = run_measured(name, [*command, *arguments], environment, places.log, _TIMEOUT_SECONDS)
    return json.loads(places.result.read_text()), outcome


def our_script(module: str) -> list[str]:
    """Return the command of a script that runs in this environment, by its name below ``benchmarks``."""
    if find_spec(f"benchmarks.{module}") is None:
        msg = f"there is no script benchmarks.{module}"
        raise ModuleNotFoundError(msg)
    return [sys.executable, "-m", f"benchmarks.{module}"]


def describe_environment() -> dict[str, str]:
    """Return the variables that peers get beside those of this process: they and their workers find ``benchmarks``."""
    searched = [str(_CLONE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(searched),
    }


@contextmanager
def scratch_places(cache_dir: Path, logs: Path, name: str) -> Iterator[Places]:
    """Give a run its places, and take all of them away afterwards but the log."""
    places = Places(scratch=cache_dir / "runs" / name, log=logs / f"{name}.log")
    shutil.rmtree(places.scratch, ignore_errors=True)
    places.scratch.mkdir(parents=True)
    logs.mkdir(parents=True, exist_ok=True)
    try:
        yield places
    finally:
        shutil.rmtree(places.scratch, ignore_errors=True)


@contextmanager
def show_activity(console: Console, what: str) -> Iterator[None]:
    """Show what is running and for how long; where there is no terminal, nothing moves and nothing is printed."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        progress.add_task(what, total=None)
        yield
