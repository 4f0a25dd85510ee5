"""Two processes side by side, one thread each, that take half of the files each: what a machine of two cores can do."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.shared.workload import list_files

PROCESSES = 2


@dataclass(slots=True)
class Part:
    """What one of the processes is given, and what it did."""

    paths: list[Path]
    file_format: str
    output: Path
    files: list[tuple[float, int]] = field(default_factory=list)

    def note(self, rows: int) -> None:
        """Note that a file was read; one clock for both processes: the monotonic one counts from the machine's boot."""
        self.files.append((time.monotonic(), rows))


def run_side_by_side(module: str, work: Callable[[Part], dict[str, str]], environment: dict[str, str]) -> None:
    """Run both processes, or be one of them: do its work, which returns the versions of what did it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--format", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--part", type=int)
    arguments = parser.parse_args()
    if arguments.part is None:
        _run_all(module, arguments, environment)
        return
    output = Path(arguments.output) / f"part-{arguments.part}.parquet"
    part = Part(list_files(Path(arguments.input))[arguments.part :: PROCESSES], arguments.format, output)
    versions = work(part)
    Path(arguments.result).write_text(json.dumps({"files": part.files, "versions": versions}))


def _run_all(module: str, arguments: argparse.Namespace, environment: dict[str, str]) -> None:
    Path(arguments.output).mkdir(parents=True, exist_ok=True)
    common = ["--input", arguments.input, "--format", arguments.format, "--output", arguments.output]
    results = [f"{arguments.result}.{part}" for part in range(PROCESSES)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, *common, "--result", result, "--part", str(part)],
            env={**os.environ, **environment},
        )
        for part, result in enumerate(results)
    ]
    for process in processes:
        if process.wait() != 0:
            raise SystemExit(process.returncode)
    parts = [json.loads(Path(result).read_text()) for result in results]
    steps = sorted((seconds, rows) for part in parts for seconds, rows in part["files"])
    done = 0
    samples = []
    for seconds, rows in steps:
        done += rows
        samples.append((seconds - steps[0][0], done))
    outcome = {
        "samples": samples,
        "settings": {"processes": PROCESSES, "threads_each": 1},
        "versions": parts[0]["versions"],
    }
    Path(arguments.result).write_text(json.dumps(outcome))
