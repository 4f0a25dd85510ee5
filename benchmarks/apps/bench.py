"""The applications bench: low-voltage detection and vault monitoring on one machine, beside Flink and native Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from benchmarks.apps.answers import ask_oracle, check_app_answer, read_answer, read_flink_answer
from benchmarks.apps.figures import (
    EXCHANGE,
    FLINK,
    FLINK_WAITS,
    READ,
    SPARK,
    AppRun,
    PartRun,
    compute_figures,
)
from benchmarks.apps.inputs import (
    HOUSEHOLD_FILE,
    LAGGING_PCT,
    AppInput,
    plan_app_input,
    read_household,
    write_app_input,
)
from benchmarks.apps.peers import flink
from benchmarks.apps.report import NAMES, AppsReport, draw_apps, print_report
from benchmarks.apps.rules import APPS, DELAY_MS, LOW_VOLTAGE, VAULT_RULE, WINDOW_MS
from benchmarks.disorder.inputs import FILE_FORMAT, LARGEST_LAG_MS, LATENESS_MS
from benchmarks.shared.figures import OURS, WARM_UP_SHARE, compute_steady_rate, find_longest_steady_batch
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
from benchmarks.shared.workload import list_files, read_through

DEFAULT_ROWS = 48_000_000
ROUNDS = 3
FILES_PER_BATCH = 24
"""Of ours and of native Spark: below 3 s of ours on two cores, the checkpoint interval that Flink gets."""
_FEWEST_BATCHES = 4
WAITING_MS = LARGEST_LAG_MS + DELAY_MS
"""How long a watermark must lag behind so that no area's rows are late."""


def run(
    options: BenchOptions, console: Console | None = None, apps: Sequence[str] = APPS, rounds: int = ROUNDS
) -> AppsReport:
    """Run all systems in turn, round by round, and report; print the tables, write JSON and the picture if asked.

    ``apps`` and ``rounds`` narrow the run, for work on a single application.
    """
    console = console or Console()
    bench = _Apps(options, console)
    runs: list[AppRun] = []
    for given in bench.plan_inputs(apps):
        # Each goes first as often as the others, as far as that goes: a machine that slows down is none of them.
        for number in range(rounds):
            systems = bench.list_systems(given.app)
            runs += [bench.run_system(system, given, number) for system in systems[:: -1 if number % 2 else 1]]
    parts = bench.measure_parts(apps[0])
    figures = compute_figures(runs, parts)
    report = AppsReport(
        workload=bench.describe(apps, rounds),
        figures=figures,
        systems=runs,
        parts=parts,
        seed=options.seed,
        notes=bench.notes,
    )
    # No matching answers, no claim: a picture would be one.
    if options.out_dir is not None and report.answers_equal:
        report = replace(report, pictures=draw_apps(report, options.out_dir))
    return deliver(report, options.json_path, print_report, console)


class _Apps:
    """One call of the bench: what was asked for, where things lie, and what is to be said about it."""

    def __init__(self, options: BenchOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._inputs = options.cache_dir / "apps"
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self._peers = choose_peers("apps", options.peers)
        # Known to fail or not before anything is measured.
        self._flink_command = flink.prepare_command(options.cache_dir, JVM_MEMORY) if FLINK in self._peers else []
        self.notes: list[str] = []

    def plan_inputs(self, apps: Sequence[str]) -> list[AppInput]:
        """Return the inputs of applications, and that of low voltage once more with real readings if there are some."""
        inputs = [self._plan(app) for app in apps]
        if self._options.data_dir is not None and LOW_VOLTAGE in apps:
            traces = read_household(self._options.data_dir)
            if traces is None:
                self.notes.append(f"there is no {HOUSEHOLD_FILE} in {self._options.data_dir}: no real voltages")
            else:
                inputs.insert(1, replace(self._plan(LOW_VOLTAGE), traces=traces))
        return inputs

    def list_systems(self, app: str) -> list[str]:
        """Return the systems to run: where areas lag, Flink once so that it corrects results, once so that it waits."""
        flinks = (FLINK, FLINK_WAITS) if LAGGING_PCT[app] else (FLINK,)
        return [OURS, *(flinks if FLINK in self._peers else ()), *((SPARK,) if SPARK in self._peers else ())]

    def run_system(self, system: str, given: AppInput, round_number: int) -> AppRun:
        """Run one system with one application and check its answers."""
        name = f"{NAMES[system]}, {given.name}, round {round_number + 1}"
        with show_activity(self._console, f"input of {name}"):
            folder = write_app_input(given, self._inputs)
            wanted = ask_oracle(given.app, folder, given.low_volts)
            read_through(folder)
        with scratch_places(self._options.cache_dir, self._logs, f"apps-{system}-{given.name}") as places:
            with show_activity(self._console, name):
                reported, took = self._launch(system, given.app, name, given, folder, places)
            run = _judge(system, given, folder, round_number, wanted, reported, took, places)
        rate = "too short for a rate" if run.rows_per_second is None else f"{run.rows_per_second / 1e6:.2f} M rows/s"
        verdict = "answers equal" if run.answer.equal else f"[red]wrong answer[/]: {run.answer.difference}"
        self._console.print(f"{name}: {rate}, {verdict}")
        return run

    def measure_parts(self, app: str) -> list[PartRun]:
        """Return how fast we and Flink read, and how fast Flink reads and sends rows to their keys, on one input.

        We have no such part: rows of a key and window are added up before they are sent.
        """
        given = self._plan(app)
        folder = write_app_input(given, self._inputs)
        asked = [(OURS, READ), *(((FLINK, READ), (FLINK, EXCHANGE)) if FLINK in self._peers else ())]
        found = []
        for system, part in asked:
            name = f"{NAMES[system]}, {part} only"
            read_through(folder)
            with (
                scratch_places(self._options.cache_dir, self._logs, f"apps-{system}-{part}") as places,
                show_activity(self._console, name),
            ):
                reported, _ = self._launch(system, part, name, given, folder, places)
            found.append(PartRun(system, part, _find_rate(system, given.rows, reported)))
        return found

    def describe(self, apps: Sequence[str], rounds: int) -> dict[str, Any]:
        """Return what was run."""
        planned = {app: self._plan(app) for app in apps}
        return {
            "name": "apps",
            "label": "live",
            "rounds": rounds,
            "format": FILE_FORMAT,
            "applications": {
                app: {
                    "rows": given.rows,
                    "sensors": given.readings.sensors,
                    "rows_per_event_second": given.readings.rows_per_event_second,
                    "out_of_order_pct": LAGGING_PCT[app],
                    "window_ms": WINDOW_MS[app],
                    "files_per_batch": _count_files_per_batch(given),
                }
                for app, given in planned.items()
            },
            "delay_ms": DELAY_MS,
            "lateness_ms": LATENESS_MS,
            "waiting_ms": WAITING_MS,
            "vault_rule": asdict(VAULT_RULE),
            "cores": CORES,
            "jvm_memory": JVM_MEMORY,
            "flink_settings": dict(flink.SETTINGS),
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _plan(self, app: str) -> AppInput:
        return plan_app_input(app, self._options.rows or DEFAULT_ROWS, self._options.seed, self._options.keys)

    def _launch(
        self, system: str, job: str, name: str, given: AppInput, folder: Path, places: Places
    ) -> tuple[dict[str, Any], ProcessOutcome]:
        """Run an application, or a part of the work."""
        waits = bool(LAGGING_PCT[given.app]) and system in (FLINK_WAITS, SPARK)
        options: dict[str, object] = {
            "app": job,
            "input": folder,
            "delay-ms": WAITING_MS if waits else DELAY_MS,
            "window-ms": WINDOW_MS[given.app],
            "low-volts": given.low_volts,
        }
        lateness = {"lateness-ms": 0 if waits else LATENESS_MS}
        batches = {"format": FILE_FORMAT, "files-per-batch": _count_files_per_batch(given), "memory": JVM_MEMORY}
        if system == SPARK:
            return run_peer(name, our_script("apps.peers.native"), {**options, **batches}, places)
        if system == OURS:
            given_ours = {**options, **lateness, **batches, "slots": CORES}
            return run_peer(name, our_script("apps.peers.ours"), given_ours, places)
        rule = {
            "drift-um": ",".join(map(str, VAULT_RULE.drift_um)),
            "um-per-minute": ",".join(map(str, VAULT_RULE.um_per_minute)),
            "left-below": VAULT_RULE.left_below,
            "rate-over-ms": VAULT_RULE.rate_over_ms,
        }
        settings = {f"flink.{setting}": value for setting, value in flink.SETTINGS.items()}
        return run_peer(name, self._flink_command, {**options, **lateness, **rule, **settings}, places)


def _count_files_per_batch(given: AppInput) -> int:
    return max(1, min(FILES_PER_BATCH, given.file_count // _FEWEST_BATCHES))


def _find_rate(system: str, rows: int, reported: Mapping[str, Any]) -> float | None:
    samples = [(float(seconds), int(done)) for seconds, done in reported["samples"]]
    if system in (FLINK, FLINK_WAITS):
        # Its source is sampled, not its commits: once all rows are read, time passes that is not throughput.
        samples = [sample for sample in samples if sample[1] < rows]
    return compute_steady_rate(samples, rows * WARM_UP_SHARE)


def _judge(
    system: str,
    given: AppInput,
    folder: Path,
    round_number: int,
    wanted: pl.DataFrame,
    reported: Mapping[str, Any],
    took: ProcessOutcome,
    places: Places,
) -> AppRun:
    """Check a system's answers and work out its steady rate, behind the warm-up."""
    is_flink = system in (FLINK, FLINK_WAITS)
    emitted = (read_flink_answer if is_flink else read_answer)(given.app, places.output)
    closed_until_ms = None
    if system == SPARK:
        # It does not drain: windows beyond its last watermark stay open.
        latest_ms = find_latest_ms(folder)
        closed_until_ms = latest_ms - (WAITING_MS if LAGGING_PCT[given.app] else DELAY_MS)
    batches: list[dict[str, Any]] = reported.get("batches", [])
    warm_up_rows = given.rows * WARM_UP_SHARE
    return AppRun(
        system=system,
        input_name=given.name,
        round_number=round_number,
        rows=given.rows,
        rows_per_second=_find_rate(system, given.rows, reported),
        batch_seconds=FLINK_CHECKPOINT_SECONDS if is_flink else find_longest_steady_batch(batches, warm_up_rows),
        run_seconds=took.run_seconds,
        answer=check_app_answer(given.app, emitted, wanted, closed_until_ms),
        emissions=emitted.height,
        peak_memory_bytes=took.peak_bytes,
        other_cpu_share=took.other_cpu_share,
        details={name: reported[name] for name in ("settings", "versions", "batches") if name in reported},
    )


def find_latest_ms(folder: Path) -> int:
    """Return the latest event time of all rows."""
    return int(pl.scan_csv(list_files(folder)).select(pl.col("ts").max()).collect().item())
