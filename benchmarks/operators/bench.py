"""The operators bench: one operator after the other over text keys, beside native Spark; answers before speed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.operators.answers import Expected, ask_oracle, check_answer, read_answer
from benchmarks.operators.figures import OURS, OperatorRun, compute_figures, find_fastest_native, find_rates
from benchmarks.operators.inputs import FILE_FORMAT, OperatorsInput, plan_input, write_input
from benchmarks.operators.plan import DELAY_MS, OperatorCase, choose_operators
from benchmarks.operators.report import NAMES, OperatorsReport, print_report
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import WARM_UP_SHARE, compute_steady_rate, find_longest_steady_batch
from benchmarks.shared.launch import CORES, JVM_MEMORY, our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.process import ProcessOutcome
from benchmarks.shared.registry import BenchOptions, choose_peers
from benchmarks.shared.report import deliver
from benchmarks.shared.workload import read_through

DEFAULT_ROWS = 36_000_000
DEFAULT_KEYS = 200_000
ROUNDS = 3
_FILES_PER_BATCH = 24
_FEWEST_BATCHES = 4


def run(options: BenchOptions, console: Console | None = None, rounds: int = ROUNDS) -> OperatorsReport:
    """Run every operator on every system and report; print the table and write JSON if asked.

    Systems take turns, and the median of their runs counts. From the second round on, native Spark keeps to the state
    store with which it was faster.
    """
    console = console or Console()
    bench = _Operators(options, console)
    runs = [run for case in bench.cases for run in bench.compare(case, rounds)]
    figures = compute_figures(runs, bench.rows)
    report = OperatorsReport(workload=bench.describe(rounds), figures=figures, systems=runs, seed=options.seed)
    return deliver(report, options.json_path, print_report, console)


class _Operators:
    """One call of the bench: what was asked for, and where things lie."""

    def __init__(self, options: BenchOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._inputs = options.cache_dir / "operators"
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self._with_spark = bool(choose_peers("operators", options.peers))
        self.rows = options.rows or DEFAULT_ROWS
        self.cases = choose_operators(options.only)

    def compare(self, case: OperatorCase, rounds: int) -> list[OperatorRun]:
        """Run one operator on all systems, in turn."""
        given = self._plan(case)
        with show_activity(self._console, f"input of {case.name}"):
            folder = write_input(given, self._inputs)
            expected = ask_oracle(folder, case.name)
        systems = [OURS, *(f"spark-{store}" for store in case.stores if self._with_spark)]
        runs = [self._run(case, system, given, folder, expected) for system in systems]
        fastest = find_fastest_native(find_rates(runs), case.name)
        for _ in range(rounds - 1):
            chosen = [system for system in systems if system in (OURS, fastest)]
            runs += [self._run(case, system, given, folder, expected) for system in chosen]
        return runs

    def describe(self, rounds: int) -> dict[str, Any]:
        """Return what was run."""
        return {
            "name": "operators",
            "rows": self.rows,
            "rows_of_operators": {case.name: self._plan(case).rows for case in self.cases},
            "files_per_batch": {case.name: _count_files_per_batch(self._plan(case)) for case in self.cases},
            "format": FILE_FORMAT,
            "keys": self._plan(self.cases[0]).users,
            **self._plan(self.cases[0]).describe_names(),
            "watermark_delay_ms": DELAY_MS,
            "operators": {case.name: {"asked": case.summary, "spark": case.counterpart} for case in self.cases},
            "rounds": rounds,
            "cores": CORES,
            "jvm_memory": JVM_MEMORY,
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _plan(self, case: OperatorCase) -> OperatorsInput:
        rows = max(1, int(self.rows * case.share_of_rows))
        return plan_input(rows, self._options.keys or DEFAULT_KEYS, self._options.seed)

    def _run(
        self, case: OperatorCase, system: str, given: OperatorsInput, folder: Path, expected: Expected
    ) -> OperatorRun:
        name = f"{case.name} on {NAMES[system]}"
        read_through(folder)
        with scratch_places(self._options.cache_dir, self._logs, f"operators-{case.name}-{system}") as places:
            options: dict[str, object] = {
                "input": folder,
                "operator": case.name,
                "files-per-batch": _count_files_per_batch(given),
                "memory": JVM_MEMORY,
            }
            with show_activity(self._console, name):
                if system == OURS:
                    reported, took = run_peer(
                        name, our_script("operators.peers.ours"), {**options, "slots": CORES}, places
                    )
                else:
                    store = {"state-store": system.removeprefix("spark-")}
                    reported, took = run_peer(name, our_script("operators.peers.native"), {**options, **store}, places)
            answer = check_answer(case.name, read_answer(places.output, case.name), expected)
        run = _judge(case, system, given, reported, took, answer)
        rate = "too short for a rate" if run.rows_per_second is None else f"{run.rows_per_second / 1e6:.2f} M rows/s"
        verdict = "answers equal" if run.answer.equal else f"[red]wrong answer[/]: {run.answer.difference}"
        self._console.print(f"{name}: {rate}, {verdict}")
        return run


def _count_files_per_batch(given: OperatorsInput) -> int:
    return max(1, min(_FILES_PER_BATCH, given.file_count // _FEWEST_BATCHES))


def _judge(
    case: OperatorCase,
    system: str,
    given: OperatorsInput,
    reported: Mapping[str, Any],
    took: ProcessOutcome,
    answer: AnswerCheck,
) -> OperatorRun:
    """Work out a run's steady rate, behind the warm-up."""
    warm_up_rows = given.rows * WARM_UP_SHARE
    samples = [(float(seconds), int(rows)) for seconds, rows in reported["samples"]]
    batches: list[dict[str, Any]] = reported["batches"]
    return OperatorRun(
        operator=case.name,
        system=system,
        rows=given.rows,
        rows_per_second=compute_steady_rate(samples, warm_up_rows),
        batch_seconds=find_longest_steady_batch(batches, warm_up_rows),
        run_seconds=took.run_seconds,
        answer=answer,
        state_bytes=max(batch["state_bytes"] for batch in batches) if system == OURS else None,
        peak_memory_bytes=took.peak_bytes,
        peak_memory_bytes_by_role=took.peak_bytes_by_role,
        other_cpu_share=took.other_cpu_share,
        details={name: reported[name] for name in ("settings", "versions", "batches") if name in reported},
    )
