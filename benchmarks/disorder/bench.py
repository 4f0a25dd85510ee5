"""The disorder bench: sources that disagree about time, with a watermark a key, a slot, a subtask, or one for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.disorder.answers import (
    LastWords,
    Oracle,
    ask_oracle,
    check_last_words,
    check_lossy,
    count_flink_checkpoints,
    read_flink_words,
    read_our_words,
)
from benchmarks.disorder.figures import (
    FLINK,
    LATE_PCTS,
    OUR_SYSTEMS,
    PER_KEY,
    SPARK,
    DisorderRun,
    compute_figures,
    unite_rounds,
)
from benchmarks.disorder.inputs import (
    DELAY_MS,
    FILE_FORMAT,
    LARGEST_LAG_MS,
    LATENESS_MS,
    LEAST_LAG_MS,
    SOURCES,
    WINDOW_MS,
    DisorderInput,
    plan_input,
    write_input,
)
from benchmarks.disorder.peers import flink
from benchmarks.disorder.report import NAMES, DisorderReport, draw_disorder, draw_keys, print_report
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import WARM_UP_SHARE, compute_steady_rate, find_longest_steady_batch
from benchmarks.shared.launch import (
    CORES,
    FLINK_CHECKPOINT_SECONDS,
    JVM_MEMORY,
    Places,
    our_script,
    run_peer,
    scratch_places,
    show_activity,
)
from benchmarks.shared.process import ProcessOutcome
from benchmarks.shared.registry import BenchOptions, choose_peers
from benchmarks.shared.report import deliver
from benchmarks.shared.workload import read_through

DEFAULT_ROWS = 108_000_000
DEFAULT_KEYS = 100_000
FILES_PER_BATCH, SPARK_FILES_PER_BATCH = 36, 24
"""Of ours, below 3 s on two cores, the checkpoint interval that Flink gets; and of native Spark, its best."""
_FEWEST_BATCHES = 4
CURVE_KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
CURVE_WARM_UP_ROWS = 24_000_000
CURVE_ROWS = 24_000_000
"""After the warm-up, in which every key comes at least twice."""
CURVE_FILES_PER_BATCH = 12
# Longer than the run: each key has one window, and it stays open.
CURVE_WINDOW_MS = 3_600_000


def run(options: BenchOptions, console: Console | None = None, systems: Sequence[str] | None = None) -> DisorderReport:
    """Run every system at 25, 50 and 75 % of disorder and report; print the table, write JSON and pictures if asked.

    Our own, between whose shares differences of a few percent count, go there and back, so that a machine that
    slows down meanwhile is none of them. ``systems`` narrows the run to some of them, for work on a single peer.
    """
    console = console or Console()
    bench = _Disorder(options, console)
    chosen = bench.systems if systems is None else systems
    runs = [bench.run_system(system, late_pct) for late_pct in LATE_PCTS for system in chosen]
    ours = [system for system in OUR_SYSTEMS if system in chosen]
    runs = unite_rounds(
        runs, [bench.run_system(system, late_pct) for late_pct in reversed(LATE_PCTS) for system in reversed(ours)]
    )
    # Merging before the exchange saves the more the fewer keys there are: without it, all points do the same work.
    merges = (True, False) if options.curves else ()
    curves = [bench.measure_keys(keys, local_merge) for local_merge in merges for keys in CURVE_KEYS]
    figures = compute_figures(runs, bench.plan(LATE_PCTS[0]).rows, curves)
    pictures: list[Path] = []
    # No matching answers, no claim: a picture would be one.
    if options.out_dir is not None and figures["answers_equal"] == 1:
        pictures += draw_disorder(runs, options.out_dir)
        pictures += draw_keys(curves, options.out_dir) if curves else []
    report = DisorderReport(
        workload=bench.describe(), figures=figures, systems=runs, seed=options.seed, curves=curves, pictures=pictures
    )
    return deliver(report, options.json_path, print_report, console)


class _Disorder:
    """One call of the bench: what was asked for, and where things lie."""

    def __init__(self, options: BenchOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._inputs = options.cache_dir / "disorder"
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self.systems = [*OUR_SYSTEMS, *choose_peers("disorder", options.peers)]
        # Known to fail or not before anything is measured.
        self._flink_command = flink.prepare_command(options.cache_dir, JVM_MEMORY) if FLINK in self.systems else []
        self._oracles: dict[Path, Oracle] = {}

    def plan(self, late_pct: int) -> DisorderInput:
        """Return the input of one share of disorder."""
        rows, keys = self._options.rows or DEFAULT_ROWS, self._options.keys or DEFAULT_KEYS
        return plan_input(rows, late_pct, keys, seed=self._options.seed)

    def run_system(self, system: str, late_pct: int) -> DisorderRun:
        """Run one system on one share of disorder and check its answers."""
        given = self.plan(late_pct)
        return self._run(system, given, _count_files_per_batch(given, system), WINDOW_MS, given.rows * WARM_UP_SHARE)

    def measure_keys(self, keys: int, local_merge: bool) -> dict[str, Any]:
        """Return speed and state with so many keys, each with its watermark and an open window."""
        given = plan_input(CURVE_WARM_UP_ROWS + CURVE_ROWS, 0, keys, seed=self._options.seed)
        run = self._run(PER_KEY, given, CURVE_FILES_PER_BATCH, CURVE_WINDOW_MS, CURVE_WARM_UP_ROWS, local_merge)
        return {
            "keys": keys,
            "local_merge": local_merge,
            "rows": CURVE_ROWS,
            "answers_equal": int(run.answer.equal),
            "rows_per_second": run.rows_per_second,
            "batch_seconds": run.batch_seconds,
            "state_bytes": run.state_bytes,
            **{f"{role}_bytes": run.peak_memory_bytes_by_role.get(role, 0) for role in ("driver", "jvm", "workers")},
        }

    def describe(self) -> dict[str, Any]:
        """Return what was run."""
        given = self.plan(LATE_PCTS[0])
        return {
            "name": "disorder",
            "rows": given.rows,
            "rows_per_file": given.rows_per_file,
            "files_per_batch": _count_files_per_batch(given, PER_KEY),
            "spark_files_per_batch": _count_files_per_batch(given, SPARK),
            "format": FILE_FORMAT,
            "keys": given.sensors,
            "sources": SOURCES,
            "late_pct": list(LATE_PCTS),
            "rounds_of_ours": 2,
            "rows_per_event_second": given.rows_per_event_second,
            "lag_ms": [LEAST_LAG_MS, LARGEST_LAG_MS],
            "window_ms": WINDOW_MS,
            "watermark_delay_ms": DELAY_MS,
            "lateness_ms": LATENESS_MS,
            "aggregates": ["count", "sum"],
            "cores": CORES,
            "jvm_memory": JVM_MEMORY,
            "flink_settings": dict(flink.SETTINGS),
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _run(
        self,
        system: str,
        given: DisorderInput,
        files_per_batch: int,
        window_ms: int,
        warm_up_rows: float,
        local_merge: bool = True,
    ) -> DisorderRun:
        merged = "" if local_merge else ", no local merge"
        name = f"{NAMES[system]}, {given.late_pct} % out of order, {given.sensors:,} keys{merged}"
        with show_activity(self._console, f"input of {name}"):
            folder = write_input(given, self._inputs)
            oracle = self._ask_oracle(folder, window_ms)
            read_through(folder)
        label = f"disorder-{system}-{given.late_pct}-{given.sensors}"
        with scratch_places(self._options.cache_dir, self._logs, label) as places:
            with show_activity(self._console, name):
                reported, took = self._launch(system, name, folder, files_per_batch, window_ms, places, local_merge)
            run = _judge(system, given, oracle, reported, took, places, warm_up_rows)
        rate = "too short for a rate" if run.rows_per_second is None else f"{run.rows_per_second / 1e6:.2f} M rows/s"
        verdict = "answers equal" if run.answer.equal else f"[red]wrong answer[/]: {run.answer.difference}"
        self._console.print(f"{name}: {rate}, {verdict}")
        return run

    def _launch(
        self,
        system: str,
        name: str,
        folder: Path,
        files_per_batch: int,
        window_ms: int,
        places: Places,
        local_merge: bool,
    ) -> tuple[dict[str, Any], ProcessOutcome]:
        options: dict[str, object] = {"input": folder, "delay-ms": DELAY_MS, "window-ms": window_ms}
        batches = {"format": FILE_FORMAT, "files-per-batch": files_per_batch, "memory": JVM_MEMORY}
        if system == FLINK:
            settings = {f"flink.{setting}": value for setting, value in flink.SETTINGS.items()}
            return run_peer(name, self._flink_command, {**options, "lateness-ms": LATENESS_MS, **settings}, places)
        if system == SPARK:
            return run_peer(name, our_script("disorder.peers.native"), {**options, **batches}, places)
        ours = {
            "per": system.removeprefix("anabranch-"),
            "lateness-ms": LATENESS_MS,
            "slots": CORES,
            "local-merge": "on" if local_merge else "off",
        }
        return run_peer(name, our_script("disorder.peers.ours"), {**options, **batches, **ours}, places)

    def _ask_oracle(self, folder: Path, window_ms: int) -> Oracle:
        # One answer is kept, because systems take turns on one input.
        if folder not in self._oracles:
            self._oracles = {folder: ask_oracle(folder, window_ms)}
        return self._oracles[folder]


def _count_files_per_batch(given: DisorderInput, system: str) -> int:
    wanted = SPARK_FILES_PER_BATCH if system == SPARK else FILES_PER_BATCH
    return max(1, min(wanted, given.file_count // _FEWEST_BATCHES))


def _judge(
    system: str,
    given: DisorderInput,
    oracle: Oracle,
    reported: Mapping[str, Any],
    took: ProcessOutcome,
    places: Places,
    warm_up_rows: float,
) -> DisorderRun:
    """Check a system's answers and work out its steady rate, behind the warm-up."""
    samples = [(float(seconds), int(rows)) for seconds, rows in reported["samples"]]
    batches: list[dict[str, Any]] = reported.get("batches", [])
    batch_seconds = find_longest_steady_batch(batches, warm_up_rows)
    details = {name: reported[name] for name in ("settings", "versions", "batches") if name in reported}
    dropped_rows = 0
    answer: AnswerCheck
    words: LastWords | None = None
    if system == SPARK:
        lossy = check_lossy(places.output, oracle, given.list_punctual_sources())
        answer, dropped_rows = lossy.check, lossy.dropped_rows
    else:
        words = read_flink_words(places.output) if system == FLINK else read_our_words(places.output)
        answer = check_last_words(words, oracle)
    if system == FLINK:
        # Its source is sampled, not its commits: once all rows are read, time passes that is not throughput.
        samples = [sample for sample in samples if sample[1] < given.rows]
        batch_seconds = FLINK_CHECKPOINT_SECONDS
        details["checkpoints"] = count_flink_checkpoints(places.output)
    ours = system in OUR_SYSTEMS
    return DisorderRun(
        system=system,
        late_pct=given.late_pct,
        rows=given.rows,
        rows_per_second=compute_steady_rate(samples, warm_up_rows),
        batch_seconds=batch_seconds,
        run_seconds=took.run_seconds,
        answer=answer,
        emissions=words.emissions if words else answer.rows,
        updates=words.updates if words else 0,
        late_rows=sum(batch["late_rows"] for batch in batches) if ours else None,
        slot_late_rows=sum(batch["slot_late_rows"] for batch in batches) if ours else None,
        dropped_rows=dropped_rows,
        state_bytes=max(batch["state_bytes"] for batch in batches) if ours else None,
        peak_memory_bytes=took.peak_bytes,
        peak_memory_bytes_by_role=took.peak_bytes_by_role,
        other_cpu_share=took.other_cpu_share,
        details=details,
    )
