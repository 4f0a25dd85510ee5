"""The bound: two plain Polars processes, one thread each, that parse, window and group half of the files each."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_PROCESSES = 2
_MODULE = "anabranch.bench.peers.two_polars"


def main() -> None:
    """Run both processes side by side, or be one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--format", choices=("json", "csv", "parquet"), required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--part", type=int)
    arguments = parser.parse_args()
    if arguments.part is None:
        _run_all(arguments)
    else:
        _run_part(arguments)


def _run_all(arguments: argparse.Namespace) -> None:
    Path(arguments.output).mkdir(parents=True, exist_ok=True)
    common = ["--input", arguments.input, "--format", arguments.format, "--output", arguments.output]
    results = [f"{arguments.result}.{part}" for part in range(_PROCESSES)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", _MODULE, *common, "--result", result, "--part", str(part)],
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
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
        "settings": {"processes": _PROCESSES, "threads_each": 1},
        "versions": parts[0]["versions"],
    }
    Path(arguments.result).write_text(json.dumps(outcome))


def _run_part(arguments: argparse.Namespace) -> None:
    import polars as pl

    from anabranch.bench.workload import SCHEMA, WINDOW_MS, list_files

    readers: dict[str, Callable[[Path], pl.DataFrame]] = {
        "json": lambda path: pl.read_ndjson(path, schema=SCHEMA),
        "csv": lambda path: pl.read_csv(path, schema=SCHEMA),
        "parquet": pl.read_parquet,
    }
    read = readers[arguments.format]
    partials = []
    files = []
    for path in list_files(Path(arguments.input))[arguments.part :: _PROCESSES]:
        rows = read(path)
        window_start = pl.col("ts") - pl.col("ts") % WINDOW_MS
        partials.append(
            rows.group_by(window_start.alias("window_start"), "sensor").agg(
                pl.len().alias("readings"), pl.col("value").sum().alias("total")
            )
        )
        # One clock for both processes: the monotonic one counts from the boot of the machine.
        files.append((time.monotonic(), rows.height))
    pl.concat(partials).write_parquet(Path(arguments.output) / f"part-{arguments.part}.parquet")
    Path(arguments.result).write_text(json.dumps({"files": files, "versions": {"polars": pl.__version__}}))


if __name__ == "__main__":
    main()
