"""The joins bench: streams joined by equal keys, beside Flink, native Spark and dbsp; answers before speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from anabranch.lab.ports import find_free_port
from benchmarks.joins.answers import ask_oracle, check_answer
from benchmarks.joins.eq5_input import plan_eq5
from benchmarks.joins.figures import JoinPoint, JoinRun, compute_figures, find_fastest
from benchmarks.joins.inputs import JoinInput, write_streams
from benchmarks.joins.interval_input import plan_interval
from benchmarks.joins.memory.figures import MEMORY, compute_memory_figures
from benchmarks.joins.memory.measuring import MemoryMeasures
from benchmarks.joins.memory.picture import draw_memory
from benchmarks.joins.peers import flink
from benchmarks.joins.peers.dbsp import building
from benchmarks.joins.plan import (
    DBSP_BALANCED,
    NAMES,
    OUR_WAYS,
    PARTS,
    SHOWN_ONLY,
    SPARK_MEMORY,
    SPARK_ROCKSDB_4,
    SUPPLIERS,
    JoinPart,
    choose_formats,
    choose_parts,
    choose_systems,
)
from benchmarks.joins.report import JoinsReport, print_report
from benchmarks.joins.spread.figures import compute_growth_figures, compute_received_figures
from benchmarks.joins.spread.measuring import SpreadMeasures
from benchmarks.joins.spread.picture import draw_spread
from benchmarks.joins.spread.points import GROWTH, RECEIVED
from benchmarks.joins.spread.strategies import MNRT
from benchmarks.joins.streams import INTERVAL, TIMED
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
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions
from benchmarks.shared.report import deliver
from benchmarks.shared.workload import read_through

DEFAULT_ROWS = 6_000_000
DEFAULT_MEMORY_ROWS = 50_000_000
DEFAULT_KEYS = 100_000
ROUNDS = 3
_FILES_PER_BATCH = 8
"""Of ours and of native Spark: a million rows."""
_FEWEST_BATCHES = 6


def run(options: BenchOptions, console: Console | None = None) -> JoinsReport:
    """Run every join on every system and report; print the tables and write JSON if asked.

    Systems take turns, every other round backwards, and medians count. In the first round peers run in all their ways,
    from then on in the one that was fastest.
    """
    console = console or Console()
    bench, spread = _Joins(options, console), SpreadMeasures(options, console)
    memory = MemoryMeasures(options, options.memory_rows or DEFAULT_MEMORY_ROWS, console)
    runs = [run for part in bench.parts for case in bench.list_cases(part) for run in bench.compare(case)]
    received = spread.measure_received() if RECEIVED in bench.others else []
    growth = spread.measure_growth() if GROWTH in bench.others else []
    kept = memory.measure() if MEMORY in bench.others else []
    spread_parts = [part for part in bench.others if part != MEMORY]
    rows = bench.rows if bench.parts else spread.find_most_rows(spread_parts) if spread_parts else memory.rows
    answers = [*(run.answer for run in received), *(run.answer for run in growth), *(run.answer for run in kept)]
    batches = [
        *(run.batch_seconds for run in received if run.strategy == MNRT),
        *(run.batch_seconds for run in growth if run.strategy == MNRT),
        *(run.batch_seconds for run in kept),
    ]
    figures = compute_figures(runs, rows, answers, batches)
    pictures: list[Path] = []
    # No matching answers, no claim: a picture would be one.
    if figures["answers_equal"]:
        figures |= compute_received_figures(received) | compute_growth_figures(growth) | compute_memory_figures(kept)
        if options.out_dir is not None:
            pictures += [*draw_spread(received, growth, options.out_dir), *draw_memory(kept, options.out_dir)]
    report = JoinsReport(
        workload=bench.describe()
        | {part: spread.describe(part) for part in spread_parts}
        | ({MEMORY: memory.describe()} if kept else {}),
        figures=figures,
        systems=runs,
        received=received,
        growth=growth,
        memory=kept,
        seed=options.seed,
        notes=bench.notes,
        pictures=pictures,
    )
    return deliver(report, options.json_path, print_report, console)


@dataclass(frozen=True, slots=True)
class _Case:
    """A point of the bench, and its input."""

    point: JoinPoint
    given: JoinInput


class _Joins:
    """One call of the bench: what was asked for, where things lie, and what is to be said about it."""

    def __init__(self, options: BenchOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._inputs = options.cache_dir / "joins"
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self._slots = options.slots or CORES
        self._rounds = options.rounds or ROUNDS
        known = BENCHES["joins"].peers
        self._peers, self._ways = choose_systems(options.peers, known)
        self.parts, self.others = choose_parts(options.only)
        self.rows = options.rows or DEFAULT_ROWS
        self.notes: list[str] = []
        # Known to fail or not before anything is measured.
        self._flink_command = flink.prepare_command(options.cache_dir) if self._needs("flink") else []
        self._dbsp_command = self._prepare_dbsp(is_asked=options.peers is not None) if self._needs("dbsp") else []
        counted = [peer for peer in known if peer not in SHOWN_ONLY]
        absent = [peer for peer in counted if peer not in self._peers]
        if self.parts and len(absent) < len(counted) and absent:
            ran = [peer for peer in counted if peer in self._peers]
            self.notes.append(f"the best peer is the best of {', '.join(ran)}: {', '.join(absent)} did not run")
        for part in self.parts:
            unable = [peer for peer in self._peers if not part.list_variants(peer)]
            self.notes += [f"{peer} does not run {part.name}" for peer in unable]

    def list_cases(self, part: JoinPart) -> list[_Case]:
        """Return the points of a part with their inputs."""
        return [
            _Case(JoinPoint(part.name, file_format, exponent), self._plan(part, exponent))
            for exponent in self._options.exponents or part.exponents
            for file_format in choose_formats(part, self._options.formats)
        ]

    def compare(self, case: _Case) -> list[JoinRun]:
        """Run all systems on one input, in turn."""
        with show_activity(self._console, f"input of {case.point}"):
            folder = write_streams(case.given, case.point.file_format, self._inputs)
            ask_oracle(case.given.query, folder, case.point.file_format)
        part = PARTS[case.point.part]
        peers = {system: peer for peer in self._peers for system in part.list_variants(peer) if system in self._ways}
        runs: list[JoinRun] = []
        systems = [*OUR_WAYS, *peers]
        for number in range(self._rounds):
            # Each goes first as often as the others, as far as that goes: a machine that slows down is none of them.
            for system in systems[:: -1 if number % 2 else 1]:
                runs += self._try(case, system, peers.get(system), folder)
            fastest = {find_fastest(runs, case.point, peer) for peer in self._peers}
            systems = [*OUR_WAYS, *(system for system in peers if system in fastest)]
        return runs

    def describe(self) -> dict[str, Any]:
        """Return what was run."""
        return {
            "name": "joins",
            "label": "live",
            "rows": self.rows,
            "rounds": self._rounds,
            "slots": self._slots,
            "cores": CORES,
            "jvm_memory": JVM_MEMORY,
            "peers": list(self._peers),
            "parts": {part.name: self._describe_part(part) for part in self.parts if self.list_cases(part)},
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _needs(self, peer: str) -> bool:
        return peer in self._peers and any(way in self._ways for part in self.parts for way in part.list_variants(peer))

    def _prepare_dbsp(self, *, is_asked: bool) -> list[str]:
        """Return the command of the program on dbsp; where it cannot be had and nobody asked for it, do without."""
        try:
            with show_activity(self._console, "building the program on dbsp, many minutes for the first time"):
                return building.prepare_command(self._options.cache_dir)
        except building.AbsentPeerError as error:
            if is_asked:
                raise
            self._peers = tuple(peer for peer in self._peers if peer != "dbsp")
            self.notes.append(f"dbsp was left out: {str(error).splitlines()[0]}")
            return []

    def _plan(self, part: JoinPart, exponent: float) -> JoinInput:
        options = self._options
        if part.query == INTERVAL:
            return plan_interval(self.rows, options.keys or DEFAULT_KEYS, exponent, options.seed)
        suppliers = SUPPLIERS[part.name]
        return plan_eq5(self.rows, exponent, options.seed, suppliers=suppliers, tables_dir=options.cache_dir)

    def _describe_part(self, part: JoinPart) -> dict[str, Any]:
        cases = self.list_cases(part)
        return {
            "asked": part.summary,
            "arrival": part.arrival,
            "files_per_batch": _count_files_per_batch(cases[0].given),
            "points": {
                f"{case.point.file_format}_{case.point.ending}": {
                    "rows": case.given.count_rows(),
                    **case.given.describe(),
                }
                for case in cases
            },
        }

    def _try(self, case: _Case, system: str, peer: str | None, folder: Path) -> list[JoinRun]:
        """Run a system; a peer that fails in one of its ways, by lack of memory, say, is told of and left out."""
        try:
            return [self._run(case, system, peer, folder)]
        except BenchError as error:
            if peer is None:
                raise
            self.notes.append(f"{NAMES[system]}, {case.point}, failed: {str(error).splitlines()[0]}")
            self._console.print(f"{NAMES[system]}, {case.point}: [red]failed[/]: {escape(str(error))}")
            return []

    def _run(self, case: _Case, system: str, peer: str | None, folder: Path) -> JoinRun:
        point, given = case.point, case.given
        name = f"{NAMES[system]}, {point}"
        place = f"joins-{point.part}-{point.file_format}-{point.ending}-{system}"
        with (
            scratch_places(self._options.cache_dir, self._logs, place) as places,
            show_activity(self._console, name),
        ):
            reported, took = self._launch(name, system, given, folder, places)
            answer = check_answer(given.query, places.output, folder, point.file_format)
        run = _judge(case, system, peer, reported, took, answer)
        rate = "too short for a rate" if run.rows_per_second is None else f"{run.rows_per_second / 1e6:.3f} M rows/s"
        verdict = "answers equal" if run.answer.equal else f"[red]wrong answer[/]: {run.answer.difference}"
        self._console.print(f"{name}: {rate}, {verdict}")
        return run

    def _launch(
        self, name: str, system: str, given: JoinInput, folder: Path, places: Places
    ) -> tuple[dict[str, Any], ProcessOutcome]:
        options: dict[str, object] = {"query": given.query, "input": folder, "format": folder.name}
        if system.startswith("flink-"):
            return self._launch_flink(name, system, options, places)
        for stream in given.count_rows():
            read_through(folder / stream)
        options["files-per-batch"] = _count_files_per_batch(given)
        if system.startswith("dbsp"):
            options |= {"workers": CORES, "join": "balanced" if system == DBSP_BALANCED else "hash"}
            return run_peer(name, self._dbsp_command, options, places)
        options["memory"] = JVM_MEMORY
        if system in OUR_WAYS:
            options |= {"slots": self._slots, "cores": CORES, "balance": OUR_WAYS[system]}
            return run_peer(name, our_script("joins.peers.ours"), options, places)
        options |= {
            "state-store": "memory" if system == SPARK_MEMORY else "rocksdb",
            "state-format": 4 if system == SPARK_ROCKSDB_4 else 2,
        }
        return run_peer(name, our_script("joins.peers.native"), options, places)

    def _launch_flink(
        self, name: str, system: str, options: dict[str, object], places: Places
    ) -> tuple[dict[str, Any], ProcessOutcome]:
        folder = Path(str(options["input"]))
        if options["query"] in TIMED:
            folder = flink.write_lanes(folder, CORES)
        for path in (folder, *(path for path in folder.iterdir() if path.is_dir())):
            read_through(path)
        options = {
            **options,
            "input": folder,
            "rest-port": find_free_port(),
            "state": "rocksdb" if "rocksdb" in system else "heap",
            "mini-batch": "on" if system.endswith("-mini") else "off",
        }
        memory = {"JVM_ARGS": f"-Xmx{JVM_MEMORY} -XX:+UseParallelGC"}
        return run_peer(name, self._flink_command, options, places, memory)


def _count_files_per_batch(given: JoinInput) -> int:
    return max(1, min(_FILES_PER_BATCH, given.cut.count // _FEWEST_BATCHES))


def _judge(
    case: _Case,
    system: str,
    peer: str | None,
    reported: Mapping[str, Any],
    took: ProcessOutcome,
    answer: AnswerCheck,
) -> JoinRun:
    """Work out a run's steady rate, behind the warm-up."""
    rows = sum(case.given.count_rows().values())
    warm_up_rows = rows * WARM_UP_SHARE
    samples = [(float(seconds), int(done)) for seconds, done in reported["samples"]]
    batches: list[dict[str, Any]] = reported.get("batches", [])
    batch_seconds = find_longest_steady_batch(batches, warm_up_rows)
    if peer == "flink":
        # Its sources are sampled, not its commits: once all rows are read, time passes that is not throughput.
        samples = [sample for sample in samples if sample[1] < rows]
        batch_seconds = FLINK_CHECKPOINT_SECONDS
    states = [batch["state_bytes"] for batch in batches if "state_bytes" in batch]
    kept = ("settings", "versions", "batches", "checkpoints", "job_seconds")
    return JoinRun(
        point=case.point,
        system=system,
        peer=peer,
        rows=rows,
        rows_per_second=compute_steady_rate(samples, warm_up_rows),
        batch_seconds=batch_seconds,
        run_seconds=took.run_seconds,
        answer=answer,
        state_bytes=max(states, default=None),
        peak_memory_bytes=took.peak_bytes,
        peak_memory_bytes_by_role=took.peak_bytes_by_role,
        other_cpu_share=took.other_cpu_share,
        details={name: reported[name] for name in kept if name in reported},
    )
