"""The skew bench: how even slots are under every strategy, how soon after a change, and what that costs and brings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from anabranch.balancing import PLANNERS
from anabranch.model.balance import Balance
from benchmarks.planners.inputs import WEIBO_FILE
from benchmarks.shared.answers import ANSWER_READERS, AnswerCheck, Expected, ask_oracle, check_answer
from benchmarks.shared.figures import OURS
from benchmarks.shared.launch import CORES, JVM_MEMORY, our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.registry import BenchError, BenchOptions, choose_names, choose_peers
from benchmarks.shared.report import deliver
from benchmarks.skew.answers import ask_busy_oracle
from benchmarks.skew.competitors import (
    BALANCED,
    HASH,
    MAIN_STRATEGIES,
    STRATEGIES,
    UNBALANCED,
    Competitor,
    list_papers_strategies,
)
from benchmarks.skew.figures import BusyRun, OverheadPair, compute_figures, evaluate_busy
from benchmarks.skew.launch import (
    WHY_NO_CORE_SHARES,
    WHY_NO_FLINK_LOADS,
    describe_neighbours,
    describe_run,
    run_flink_loads,
    run_flows,
)
from benchmarks.skew.loads import SETTLING_BATCHES, LoadRun, evaluate_loads, evaluate_whole_run
from benchmarks.skew.paper.figures import SpreadRun, StreamRate, compute_paper_figures, list_answers
from benchmarks.skew.paper.parts import SPREAD_ROWS, SPREAD_SLOTS, TOP_TOPICS, PaperParts
from benchmarks.skew.paper.picture import draw_paper_parts
from benchmarks.skew.picture import draw_moving, draw_strategies
from benchmarks.skew.report import SkewReport, print_report
from benchmarks.skew.streams import (
    SkewStream,
    make_four_cases,
    make_moving_mean,
    make_narrowing,
    make_uniform_stream,
    make_zipf_stream,
    read_weibo_stream,
    write_stream,
)
from benchmarks.skew.switching.table import SwitchingRun, compute_switching_figures, run_table

DEFAULT_SLOTS = 16
DEFAULT_EXPONENTS = (0.8, 1.5, 2.0)
DEFAULT_ROWS = 2_400_000
"""Of a zipf stream; batches of the other streams have twice as many rows as its batches."""
BATCHES_A_PHASE = SETTLING_BATCHES + 2
ZIPF_PHASES = 2
CASE_BATCHES, CASE_PAST_BATCHES = 9, 4
"""Strategies with a memory look at some batches before they decide; what they decide holds two batches later."""
BUSY_EXPONENT = 1.5
LEHMER_STEPS = 4_000
"""About 10 µs a row: reading and exchanging it must not count beside that."""
OVERHEAD_KEYS = 100_000
OVERHEAD_BATCHES = 8
OVERHEAD_PAIRS = 5
WARM_UP_PAIRS = 1
"""A JVM that still compiles takes more processor time than balance does."""
PARTS = ("loads", "busy", "overhead", "switching", "paper")
"""By name: loads of slots, a costly operator, what balance costs, triggers, and what follows the papers' tables."""
WHY_NOT_SPARK = (
    "native Spark is not among the loads: it merges rows before the exchange and cannot be told not to, so a hot key "
    "is one row a split there; nor has it, in streams, aggregates of one's own from Python for the costly operator"
)
WHY_NOT_FLINK_BUSY = "Flink has the loads only: its own aggregates from Python run row by row, not on arrays"


@dataclass(frozen=True, slots=True, eq=False)
class LoadCase:
    """A stream, and those who spread its keys, side by side in one flow."""

    stream: SkewStream
    competitors: tuple[Competitor, ...]
    settling_batches: int = SETTLING_BATCHES


def run(options: BenchOptions, console: Console | None = None) -> SkewReport:
    """Run every part, check all answers, and report; print tables, write JSON and pictures if asked to."""
    console = console or Console()
    bench = _Skew(options, console)
    moving = [LoadCase(stream, (HASH, BALANCED)) for stream in bench.make_moving_streams()]
    loads: list[LoadRun] = []
    if "loads" in bench.parts:
        loads += bench.run_loads("zipf keys", bench.make_zipf_cases())
        loads += bench.run_flink_loads()
        loads += bench.run_loads("keys that move, and four cases", [*moving, *bench.make_cases()])
    busy = bench.run_busy() if "busy" in bench.parts else []
    pairs, checked = bench.measure_overhead() if "overhead" in bench.parts else ([], [])
    switching = bench.run_switching() if "switching" in bench.parts else []
    spreads: list[SpreadRun] = []
    rates: list[StreamRate] = []
    if "paper" in bench.parts:
        paper = bench.make_paper_parts()
        spreads = [*bench.spread_by_flink(paper), *paper.spread_rising_ids()]
        rates = paper.rate_cases() + paper.rate_topics()
        bench.notes += paper.notes
    figures = compute_figures(loads, busy, pairs, bench.rows, [*checked, *list_answers(spreads, rates)])
    if figures["answers_equal"]:
        figures |= compute_paper_figures(spreads, rates)
    if switching and (figures["answers_equal"] or bench.parts == ("switching",)):
        # A model gives no answers of its own.
        figures |= compute_switching_figures(switching)
    pictures: list[Path] = []
    # No matching answers, no claim: a picture would be one.
    if options.out_dir is not None and figures["answers_equal"] == 1 and loads and busy:
        phases = {
            case.stream.name: [
                (first, phase.name) for first, phase in zip(case.stream.first_batches, case.stream.phases, strict=True)
            ]
            for case in moving
        }
        pictures += draw_strategies(loads, busy, options.out_dir) + draw_moving(loads, phases, options.out_dir)
    if options.out_dir is not None and figures["answers_equal"] == 1 and spreads:
        pictures += draw_paper_parts(spreads, rates, options.out_dir)
    report = SkewReport(
        workload=bench.describe(),
        figures=figures,
        loads=loads,
        busy=busy,
        pairs=pairs,
        checked=checked,
        spreads=spreads,
        rates=rates,
        switching=switching,
        seed=options.seed,
        notes=bench.notes,
        pictures=pictures,
    )
    return deliver(report, options.json_path, print_report, console)


class _Skew:
    """One call of the bench: what was asked for, where things lie, and what is to be said about it."""

    def __init__(self, options: BenchOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._inputs = options.cache_dir / "skew"
        self._logs = (options.out_dir or options.cache_dir) / "logs"
        self.slots = options.slots or DEFAULT_SLOTS
        self.exponents = options.exponents or DEFAULT_EXPONENTS
        self._rows_per_batch = (options.rows or DEFAULT_ROWS) // (ZIPF_PHASES * BATCHES_A_PHASE)
        self.rows = self._rows_per_batch * ZIPF_PHASES * BATCHES_A_PHASE
        self._peers = choose_peers("skew", options.peers)
        self.parts = choose_names("parts", options.only, PARTS)
        self.notes: list[str] = []
        _refuse(self._rows_per_batch, self.slots)
        self.notes += [WHY_NOT_SPARK] if "spark" in self._peers else []
        self.notes += [WHY_NOT_FLINK_BUSY] if "flink" in self._peers else []

    def make_zipf_cases(self) -> list[LoadCase]:
        """Return zipf keys, whose order changes once; all strategies under one skew, the main ones under the others."""
        everyone = BUSY_EXPONENT if BUSY_EXPONENT in self.exponents else max(self.exponents)
        return [
            LoadCase(
                make_zipf_stream(exponent, self._rows_per_batch, BATCHES_A_PHASE, ZIPF_PHASES, self._options.seed),
                STRATEGIES if exponent == everyone else MAIN_STRATEGIES,
            )
            for exponent in self.exponents
        ]

    def make_moving_streams(self) -> list[SkewStream]:
        """Return phone numbers whose mean moves and whose deviation narrows, and real topics if there are some."""
        rows, seed = 2 * self._rows_per_batch, self._options.seed
        streams = [make_moving_mean(rows, BATCHES_A_PHASE, seed), make_narrowing(rows, BATCHES_A_PHASE, seed)]
        if self._options.data_dir is not None:
            topics = read_weibo_stream(self._options.data_dir / WEIBO_FILE, rows, BATCHES_A_PHASE, seed)
            if topics is None:
                self.notes.append(f"there is no {WEIBO_FILE} in {self._options.data_dir}: no real keys were tried")
            else:
                streams.append(topics)
        return streams

    def make_cases(self) -> list[LoadCase]:
        """Return the load distribution paper's four cases."""
        rows = 2 * self._rows_per_batch
        competitors = list_papers_strategies(CASE_PAST_BATCHES * rows)
        streams = make_four_cases(rows, CASE_BATCHES, self._options.seed)
        return [LoadCase(stream, competitors, settling_batches=CASE_PAST_BATCHES + 2) for stream in streams]

    def run_loads(self, name: str, cases: Sequence[LoadCase]) -> list[LoadRun]:
        """Run streams in one process, one flow each; check every strategy's answers."""
        folders = [write_stream(case.stream, "parquet", self._inputs) for case in cases]
        given = [
            {
                "name": case.stream.name,
                "folder": str(folder),
                "competitors": [competitor.to_json() for competitor in case.competitors],
            }
            for case, folder in zip(cases, folders, strict=True)
        ]
        runs: list[LoadRun] = []
        with (
            scratch_places(self._options.cache_dir, self._logs, f"skew-{name.split(maxsplit=1)[0]}") as places,
            show_activity(self._console, name),
        ):
            cases_path = places.scratch / "cases.json"
            cases_path.write_text(json.dumps(given))
            options = {"cases": cases_path, "slots": self.slots, "memory": JVM_MEMORY}
            reported, took = run_peer(name, our_script("skew.peers.ours_loads"), options, places)
            self.notes += describe_neighbours(name, took)
            for number, (case, folder) in enumerate(zip(cases, folders, strict=True)):
                expected = ask_oracle(folder, "parquet")
                seen = reported["cases"][case.stream.name]["batches"]
                runs += [
                    _evaluate(case, competitor, seen, expected, places.output / str(number) / competitor.name)
                    for competitor in case.competitors
                ]
        self._say(runs)
        return runs

    def run_flink_loads(self) -> list[LoadRun]:
        """Run zipf keys, with one order of them, through as many subtasks of Flink as there are slots."""
        if "flink" not in self._peers:
            return []
        stream = make_zipf_stream(BUSY_EXPONENT, self._rows_per_batch, BATCHES_A_PHASE, 1, self._options.seed)
        with (
            scratch_places(self._options.cache_dir, self._logs, "skew-flink") as places,
            show_activity(self._console, f"Flink on {stream.name}"),
        ):
            rows, answer, took = run_flink_loads(stream, self.slots, self._inputs, self._options.cache_dir, places)
        self.notes += describe_neighbours("Flink", took)
        if not sum(rows):
            self.notes.append(WHY_NO_FLINK_LOADS)
            return []
        run = evaluate_whole_run("flink", stream.name, rows, answer)
        self._console.print(f"{stream.name}: max/mean {run.settled_max_over_mean:.2f} by Flink")
        return [run]

    def run_busy(self) -> list[BusyRun]:
        """Run an operator that costs processor time, under hash and under balance.

        Each slot has a task thread and a part of a core of its own, as it has a whole one on a cluster: on two cores a
        slot with nearly half of the rows is as good as two even halves. Where the kernel does not let parts be cut,
        slots share the cores, and a note says so.
        """
        stream = make_zipf_stream(BUSY_EXPONENT, 2 * self._rows_per_batch, BATCHES_A_PHASE, 1, self._options.seed)
        folder = write_stream(stream, "parquet", self._inputs)
        expected = ask_busy_oracle(folder, LEHMER_STEPS)
        given = [describe_run(competitor, folder, lehmer_steps=LEHMER_STEPS) for competitor in (HASH, BALANCED)]
        busy: list[BusyRun] = []
        with (
            scratch_places(self._options.cache_dir, self._logs, "skew-busy") as places,
            show_activity(self._console, "an operator that costs processor time"),
        ):
            reported, took = run_flows("a costly operator", given, self.slots, self.slots, places, CORES / self.slots)
            self.notes += describe_neighbours("a costly operator", took)
            if reported["core_share"] is None:
                self.notes.append(WHY_NO_CORE_SHARES)
            for number, seen in enumerate(reported["runs"]):
                answer = check_answer(ANSWER_READERS[OURS](places.output / str(number)), expected)
                busy.append(evaluate_busy(seen["name"], seen["batches"], stream.first_batches, answer))
        for run in busy:
            self._console.print(f"{stream.name}, a costly operator: {run.rows_per_second:,.0f} rows/s by {run.system}")
        return busy

    def measure_overhead(self) -> tuple[list[OverheadPair], list[AnswerCheck]]:
        """Return the processor seconds of flows without skew, balance on and off, in pairs; and all answers."""
        files_per_batch = 2
        files = OVERHEAD_BATCHES * files_per_batch
        stream = make_uniform_stream(2 * self._rows_per_batch, files, OVERHEAD_KEYS, self._options.seed)
        folder = write_stream(stream, "parquet", self._inputs)
        # Each goes first as often as the other, as far as that goes.
        order: list[Competitor] = []
        for pair in range(WARM_UP_PAIRS + OVERHEAD_PAIRS):
            order += [UNBALANCED, BALANCED] if pair % 2 == 0 else [BALANCED, UNBALANCED]
        given = [describe_run(competitor, folder, files_per_batch=files_per_batch) for competitor in order]
        with (
            scratch_places(self._options.cache_dir, self._logs, "skew-overhead") as places,
            show_activity(self._console, "keys without skew, balance on and off"),
        ):
            reported, took = run_flows("keys without skew", given, self.slots, CORES, places)
            expected = ask_oracle(folder, "parquet")
            answers = [
                check_answer(ANSWER_READERS[OURS](places.output / str(number)), expected)
                for number in range(len(given))
            ]
        self.notes += describe_neighbours("keys without skew", took)
        return pair_up(reported["runs"])[WARM_UP_PAIRS:], answers

    def make_paper_parts(self) -> PaperParts:
        """Return the parts after tables and figures of the papers, with what was asked for."""
        return PaperParts(self._options, self._rows_per_batch, self.slots, self._console)

    def spread_by_flink(self, paper: PaperParts) -> list[SpreadRun]:
        """Return what Flink's subtasks get of rising ids, if it is among the peers."""
        return paper.spread_by_flink() if "flink" in self._peers else []

    def run_switching(self) -> list[SwitchingRun]:
        """Run triggers that switch strategies, in the lab: time is modelled, the balancer is not."""
        with show_activity(self._console, "triggers, by how often the data changes"):
            return run_table(self._options.seed)

    def describe(self) -> dict[str, Any]:
        """Return what was run."""
        return {
            "name": "skew",
            "rows": self.rows,
            "slots": self.slots,
            "zipf_exponents": list(self.exponents),
            "local_merge": False,
            "master": f"local[{CORES}]",
            "busy_master": f"local[{self.slots}]",
            "batches_a_phase": BATCHES_A_PHASE,
            "strategies": [competitor.name for competitor in STRATEGIES],
            "planners": sorted(PLANNERS),
            "tolerance": Balance().tolerance,
            "lehmer_steps": LEHMER_STEPS,
            "rising_ids": {"slots": SPREAD_SLOTS, "rows": SPREAD_ROWS},
            "top_k": TOP_TOPICS,
            "overhead_keys": OVERHEAD_KEYS,
            "load": "rows that a slot received in a batch",
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _say(self, runs: Sequence[LoadRun]) -> None:
        for stream in dict.fromkeys(run.stream for run in runs):
            shown = {run.system: run for run in runs if run.stream == stream}
            first, *_, last = shown.values()
            wrong = [run.system for run in shown.values() if not run.answer.equal]
            verdict = f"[red]wrong answers[/] of {', '.join(wrong)}" if wrong else "answers equal"
            self._console.print(
                f"{stream}: max/mean {first.settled_max_over_mean:.2f} by {first.system}, "
                f"{last.settled_max_over_mean:.3f} by {last.system}; {verdict}"
            )


def _refuse(rows_per_batch: int, slots: int) -> None:
    fewest = Balance().fewest_rows_a_slot * slots
    if rows_per_batch < fewest:
        batches = ZIPF_PHASES * BATCHES_A_PHASE
        msg = (
            f"{rows_per_batch * batches:,} rows in {batches} batches are {rows_per_batch:,} a batch, and balance looks "
            f"at batches of {fewest:,} rows and more; ask for at least {fewest * batches:,} rows, or for fewer slots"
        )
        raise BenchError(msg)


def pair_up(runs: Sequence[Mapping[str, Any]]) -> list[OverheadPair]:
    """Return runs of which always two follow each other, one with balance and one without, as pairs."""
    pairs = []
    for first, second in zip(runs[::2], runs[1::2], strict=True):
        seconds = {run["name"]: run["processor_seconds"] for run in (first, second)}
        pairs.append(OverheadPair(seconds[BALANCED.name], seconds[UNBALANCED.name]))
    return pairs


def _evaluate(
    case: LoadCase, competitor: Competitor, seen: Sequence[Mapping[str, Any]], expected: Expected, answers: Path
) -> LoadRun:
    batches = [batch["operators"][competitor.name] for batch in seen if batch["rows"]]
    return evaluate_loads(
        competitor.name,
        case.stream.name,
        [batch["rows"] for batch in batches],
        case.stream.first_batches,
        settling_batches=case.settling_batches,
        changes=sum(bool(batch["change"]) for batch in batches),
        moved_bytes=sum(batch["moved_bytes"] for batch in batches),
        answer=check_answer(ANSWER_READERS[OURS](answers), expected),
    )
