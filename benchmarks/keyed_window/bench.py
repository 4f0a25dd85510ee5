"""The keyed-window bench: the same files through every system, answers compared before speed is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.keyed_window.launch import FORMATS_BY_SYSTEM, count_files_per_batch, judge, launch, list_systems
from benchmarks.keyed_window.picture import draw_comparison, draw_curves
from benchmarks.keyed_window.report import NAMES, KeyedWindowReport, print_report
from benchmarks.keyed_window.small_batches import BatchPart, take_apart
from benchmarks.shared.answers import Expected, ask_oracle
from benchmarks.shared.figures import (
    OURS,
    SystemRun,
    compute_figures,
    compute_small_batch_ms,
)
from benchmarks.shared.launch import CORES, JVM_MEMORY, Places
from benchmarks.shared.mixed_json import MIXED_JSON
from benchmarks.shared.registry import BenchOptions
from benchmarks.shared.report import deliver
from benchmarks.shared.workload import (
    FORMATS,
    WATERMARK_DELAY_MS,
    WINDOW_MS,
    ZIPF_EXPONENT,
    Workload,
    plan_workload,
    write_small_batches,
    write_workload,
)

DEFAULT_ROWS = 72_000_000
# A row of it takes three times the bytes, and most systems more than three times the time.
MIXED_JSON_SHARE = 3
SMALL_BATCHES = 40
SMALL_BATCH_ROWS = 1_000
CURVE_ROWS = (10_000_000, 30_000_000, 100_000_000)
CURVE_KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
CURVE_KEYS_ROWS = 20_000_000
# The same at every point, and few enough that 10 M rows are several batches.
CURVE_FILES_PER_BATCH = 6
# Rows before those of a point: the JVM is warm from the first row that counts, however few they are.
CURVE_WARM_UP_ROWS = 24_000_000


def run(
    options: BenchOptions, console: Console | None = None, systems: Sequence[str] | None = None
) -> KeyedWindowReport:
    """Run every system on every format it knows and report; print the table, write JSON and pictures if asked to.

    ``systems`` narrows the run to some of them, for work on a single peer.
    """
    console = console or Console()
    workload = plan_workload(options.rows or DEFAULT_ROWS, seed=options.seed)
    chosen = list(systems) if systems else list_systems(options.peers)
    bench = _KeyedWindow(options, workload, console)
    runs = [
        bench.run_system(system, file_format)
        for file_format in FORMATS
        for system in chosen
        if file_format in FORMATS_BY_SYSTEM[system]
    ]
    small_batch_ms, parts = bench.measure_small_batches() if OURS in chosen else (None, [])
    curves = bench.measure_curves() if options.curves else []
    figures = compute_figures(runs, workload.rows, small_batch_ms, curves)
    pictures: list[Path] = []
    # No matching answers, no claim: a picture would be one.
    if options.out_dir is not None and figures["answers_equal"] == 1:
        pictures += draw_comparison(runs, workload.rows, options.out_dir)
        pictures += draw_curves(curves, options.out_dir) if curves else []
    report = KeyedWindowReport(
        workload=_describe_workload(workload),
        figures=figures,
        systems=runs,
        seed=options.seed,
        curves=curves,
        small_batch_parts=parts,
        pictures=pictures,
    )
    return deliver(report, options.json_path, print_report, console)


class _KeyedWindow:
    """One call of the bench: where things lie, and what was prepared already."""

    def __init__(self, options: BenchOptions, workload: Workload, console: Console) -> None:
        self._workload = workload
        self._console = console
        self._inputs = options.cache_dir / "keyed-window"
        self._cache_dir = options.cache_dir
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._expected: dict[Path, Expected] = {}

    def run_system(self, system: str, file_format: str) -> SystemRun:
        """Run one system on one format and check its answers."""
        workload = self._workload
        if file_format == MIXED_JSON:
            workload = plan_workload(max(workload.rows // MIXED_JSON_SHARE, 10), workload.keys, workload.seed)
        files_per_batch = count_files_per_batch(workload, system, file_format)
        name = f"{NAMES[system]} on {file_format}"
        return self._run(name, system, file_format, workload, files_per_batch)

    def measure_small_batches(self) -> tuple[float | None, list[BatchPart]]:
        """Return the median milliseconds of a warm batch of 1,000 rows, and those of its parts."""
        folder = write_small_batches(self._inputs, SMALL_BATCHES, SMALL_BATCH_ROWS, self._workload.seed)
        places = self._places("anabranch-small-batches")
        try:
            with self._show(f"{SMALL_BATCHES} batches of {SMALL_BATCH_ROWS:,} rows"):
                reported, _ = launch(OURS, "json", folder, files_per_batch=1, places=places, cache_dir=self._cache_dir)
        finally:
            shutil.rmtree(places.scratch, ignore_errors=True)
        samples = reported["samples"]
        return compute_small_batch_ms(samples), take_apart(samples, reported["batches"])

    def measure_curves(self) -> list[dict[str, Any]]:
        """Return speed and memory of our system over growing rows, then over growing keys."""
        by_rows = [("rows", rows, 100_000) for rows in CURVE_ROWS]
        by_keys = [("keys", CURVE_KEYS_ROWS, keys) for keys in CURVE_KEYS]
        return [self._measure_point(curve, rows, keys) for curve, rows, keys in by_rows + by_keys]

    def _measure_point(self, curve: str, rows: int, keys: int) -> dict[str, Any]:
        name = f"{rows:,} rows, {keys:,} keys"
        workload = plan_workload(CURVE_WARM_UP_ROWS + rows, keys, self._workload.seed)
        run = self._run(name, OURS, "json", workload, CURVE_FILES_PER_BATCH, CURVE_WARM_UP_ROWS)
        return {
            "curve": curve,
            "rows": rows,
            "keys": keys,
            "answers_equal": int(run.answer.equal),
            "rows_per_second": run.rows_per_second,
            "batch_seconds": run.batch_seconds,
            "state_bytes": max(batch["state_bytes"] for batch in run.details["batches"]),
            **{f"{role}_bytes": run.peak_memory_bytes_by_role.get(role, 0) for role in ("driver", "jvm", "workers")},
        }

    def _run(
        self,
        name: str,
        system: str,
        file_format: str,
        workload: Workload,
        files_per_batch: int,
        warm_up_rows: int | None = None,
    ) -> SystemRun:
        """Run one system over one workload, check its answers and keep nothing of it but the log."""
        folder = self._prepare_input(workload, file_format)
        expected = self._ask_oracle(folder, file_format)
        places = self._places(f"{system}-{file_format}-{workload.rows}-{workload.keys}")
        try:
            with self._show(name):
                reported, took = launch(
                    system,
                    file_format,
                    folder,
                    files_per_batch=files_per_batch,
                    places=places,
                    cache_dir=self._cache_dir,
                )
                run = judge(system, file_format, workload, expected, reported, took, places, warm_up_rows)
        finally:
            shutil.rmtree(places.scratch, ignore_errors=True)
        rate = "too short for a rate" if run.rows_per_second is None else f"{run.rows_per_second / 1e6:.2f} M rows/s"
        verdict = "answers equal" if run.answer.equal else f"[red]wrong answer[/]: {run.answer.difference}"
        self._console.print(f"{name}: {rate}, {verdict}")
        return run

    def _ask_oracle(self, folder: Path, file_format: str) -> Expected:
        # One answer is kept, because systems take turns on one input; those of a hundred million rows are large.
        if folder not in self._expected:
            with self._show(f"asking the oracle about {file_format}"):
                self._expected = {folder: ask_oracle(folder, file_format)}
        return self._expected[folder]

    def _prepare_input(self, workload: Workload, file_format: str) -> Path:
        with self._progress() as progress:
            task = progress.add_task(f"{file_format} files", total=workload.file_count)
            return write_workload(workload, file_format, self._inputs, on_file=lambda: progress.advance(task))

    def _places(self, name: str) -> Places:
        return Places(scratch=self._cache_dir / "runs" / name, log=self._logs / f"{name}.log")

    @contextmanager
    def _show(self, what: str) -> Iterator[None]:
        """Show what is running and for how long; where there is no terminal, nothing moves and nothing is printed."""
        with self._progress() as progress:
            progress.add_task(what, total=None)
            yield

    def _progress(self) -> Progress:
        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )


def _describe_workload(workload: Workload) -> dict[str, Any]:
    return {
        "name": "keyed-window",
        "rows": workload.rows,
        "rows_per_file": workload.rows_per_file,
        "files_per_batch": {system: count_files_per_batch(workload, system) for system in NAMES},
        "mixed_json_rows": workload.rows // MIXED_JSON_SHARE,
        "keys": workload.keys,
        "zipf_exponent": ZIPF_EXPONENT,
        "window_ms": WINDOW_MS,
        "watermark_delay_ms": WATERMARK_DELAY_MS,
        "aggregates": ["count", "sum"],
        "cores": CORES,
        "jvm_memory": JVM_MEMORY,
    }
