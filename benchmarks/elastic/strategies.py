"""The strategies part: one query cut into parallel units in the elastic paper's three ways, on hosts with quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.query.plan import Plan, make_plan
from benchmarks.elastic.grounds import Ground, open_ground, run_flows
from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.peers.phone_query import build_flow
from benchmarks.elastic.phone_calls import DISTRICTS, PhoneInput, ask_oracle, write_input
from benchmarks.elastic.spread_figures import (
    MERGED,
    OPERATOR_SET,
    STRATEGIES,
    CpuSpread,
    SpreadRun,
    compute_strategy_figures,
    evaluate_strategy,
    find_spreads,
)
from benchmarks.elastic.strategies_picture import draw_spreads, draw_strategies
from benchmarks.shared.answers import ANSWER_READERS, AnswerCheck, check_answer
from benchmarks.shared.figures import OURS
from benchmarks.shared.launch import scratch_places
from benchmarks.shared.registry import BenchOptions
from benchmarks.skew.answers import ask_busy_oracle
from benchmarks.skew.competitors import BALANCED, HASH, Competitor
from benchmarks.skew.streams import SkewStream, make_moving_mean, make_narrowing, write_stream

SLOTS = 4
"""Of a subquery under operator-set: one an executor. The query has two stateful operators, so all strategies share out
12 instances: 4 of each of three subqueries, 2 of each of six operators, 12 of the query."""
CURVE_SLOTS = (2, 8)
"""Beside the one above, with curves."""
DEFAULT_ROWS = 3_600_000


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is run: all of it, unless a part is to be worked on."""

    strategies: tuple[str, ...] = (*STRATEGIES, MERGED)
    warms_up: bool = True
    """Whether a flow runs before anything is measured."""
    batches: int = 6
    warm_up_batches: int = 3
    """Of every run; its state files and its planners begin anew."""
    files_per_batch: int = 3 * SLOTS
    rounds: int = 2
    """Each strategy runs so often, the second time in the other order: JVMs compile for minutes."""
    busy_rows: int = 60_000
    """A batch, of the streams whose keys move."""
    busy_steps: int = 4_000
    batches_a_phase: int = 5
    moving_phases: int = 3
    narrowing_phases: int = 4
    quotas: bool = True
    """Whether hosts have their parts of cores, or share the machine's."""


WHOLE = Extent()


@dataclass(frozen=True, slots=True)
class BusyRun:
    """A stream whose keys move, under balance or without."""

    stream: str
    spread_by: str
    phases: tuple[tuple[int, str], ...]
    """The first batch of each, and what it is called."""
    spreads: tuple[CpuSpread, ...]
    answer: AnswerCheck


def run_strategies(
    options: BenchOptions, peers: Sequence[str], console: Console, extent: Extent = WHOLE
) -> PartOutcome:
    """Run every strategy over the same calls, and streams whose keys move over the same slots, in one session."""
    del peers  # The strategies are compared with each other.
    part = _Strategies(options, extent)
    with (
        open_ground(options.cache_dir, quotas=extent.quotas) as ground,
        scratch_places(options.cache_dir, (options.out_dir or options.cache_dir) / "logs", "strategies") as places,
    ):
        flows = part.list_flows()
        seen, notes = run_flows("parallel strategies", flows, ground, places, console)
        runs = part.judge_strategies(seen, ground, places.output)
        busy = part.judge_busy(seen, ground, places.output)
    answers = {
        f"{run.strategy} on {run.instances} instances, run {place}": run.answer for place, run in enumerate(runs)
    }
    answers |= {f"{run.stream}, {run.spread_by}": run.answer for run in busy}
    answers |= part.warm_up_answers
    figures = compute_strategy_figures(runs, 3 * SLOTS) | _compute_busy_figures(busy, extent.batches_a_phase)
    pictures: list[Path] = []
    if options.out_dir is not None and all(answer.equal for answer in answers.values()):
        pictures += draw_strategies(runs, 3 * SLOTS, options.out_dir) if runs else []
        pictures += draw_spreads(
            [(run.stream, run.spread_by, run.phases, run.spreads) for run in busy], options.out_dir
        )
    return PartOutcome(
        answers=answers,
        figures=figures,
        workload={**part.describe(), **ground.describe()},
        runs=[*map(asdict, runs), *map(asdict, busy)],
        tables=[
            *([_build_table(runs)] if runs else []),
            *([_build_busy_table(busy, extent.batches_a_phase)] if busy else []),
        ],
        notes=notes,
        pictures=pictures,
    )


class _Strategies:
    """What is run, and how its answers are checked."""

    def __init__(self, options: BenchOptions, extent: Extent) -> None:
        self._extent = extent
        self._slots = (SLOTS, *(CURVE_SLOTS if options.curves else ()))
        inputs = options.cache_dir / "elastic"
        rows = options.rows or DEFAULT_ROWS
        self._calls = write_input(rows, extent.batches, extent.files_per_batch, options.seed, inputs)
        self._streams = [
            _first_phases(
                make_moving_mean(extent.busy_rows, extent.batches_a_phase, options.seed), extent.moving_phases
            ),
            _first_phases(
                make_narrowing(extent.busy_rows, extent.batches_a_phase, options.seed), extent.narrowing_phases
            ),
        ]
        self._folders = [write_stream(stream, "parquet", inputs) for stream in self._streams if stream.phases]
        self._streams = [stream for stream in self._streams if stream.phases]
        self._flows: list[tuple[str, int]] = []
        """Strategy and slots of each flow over the calls; the first warms all up."""
        self.warm_up_answers: dict[str, AnswerCheck] = {}

    def list_flows(self) -> list[dict[str, Any]]:
        """Return the flows as a script is told of them."""
        order = [(name, slots) for slots in self._slots for name in self._extent.strategies]
        self._flows = [(OPERATOR_SET, SLOTS)] if self._extent.warms_up else []
        for number in range(self._extent.rounds):
            self._flows += order if number % 2 == 0 else order[::-1]
        flows = [self._describe_strategy(name, slots) for name, slots in self._flows]
        for folder in self._folders:
            flows += [_describe_busy(competitor, folder, self._extent.busy_steps) for competitor in (HASH, BALANCED)]
        return flows

    def judge_strategies(self, seen: Sequence[Mapping[str, Any]], ground: Ground, output: Path) -> list[SpreadRun]:
        """Check the answers of all flows over the calls, and work out what those behind the warm-up did."""
        expected = ask_oracle(self._calls)
        runs = []
        for place, ((name, slots), flow) in enumerate(zip(self._flows, seen, strict=False)):
            answer = check_answer(ANSWER_READERS[OURS](output / str(place)), expected)
            plan = self._plan(name, slots)
            run = evaluate_strategy(
                flow,
                self._extent.warm_up_batches,
                ground.cores,
                answer,
                strategy=name,
                instances=3 * slots,
                hops=plan.hops,
                fan_out=plan.fan_out,
            )
            if place == 0 and self._extent.warms_up:
                self.warm_up_answers = {"warm-up": answer}
            else:
                runs.append(run)
        return runs

    def judge_busy(self, seen: Sequence[Mapping[str, Any]], ground: Ground, output: Path) -> list[BusyRun]:
        """Check the answers of streams whose keys move, and work out how even executors were."""
        runs, place = [], len(self._flows)
        for stream, folder in zip(self._streams, self._folders, strict=True):
            expected = ask_busy_oracle(folder, self._extent.busy_steps)
            for competitor in (HASH, BALANCED):
                answer = check_answer(ANSWER_READERS[OURS](output / str(place)), expected)
                phases = tuple(
                    (first, phase.name) for first, phase in zip(stream.first_batches, stream.phases, strict=True)
                )
                spreads = tuple(find_spreads(seen[place], ground.cores))
                runs.append(BusyRun(stream.name, competitor.name, phases, spreads, answer))
                place += 1
        return runs

    def describe(self) -> dict[str, Any]:
        """Return what was run."""
        return {
            "rows": self._calls.rows,
            "batches": self._calls.batches,
            "warm_up_batches": self._extent.warm_up_batches,
            "files_per_batch": self._calls.files_per_batch,
            "phones": 10_000,
            "districts": DISTRICTS,
            "slots": list(self._slots),
            "strategies": list(self._extent.strategies),
            "rounds": self._extent.rounds,
            "busy_rows_per_batch": self._extent.busy_rows,
            "busy_steps": self._extent.busy_steps,
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _describe_strategy(self, name: str, slots: int) -> dict[str, Any]:
        parallelism = OPERATOR_SET if name == MERGED else name
        settings = {
            "slots": slots,
            "parallelism": parallelism,
            "read_tasks": self._plan(name, slots).slots[0],
            # The paper's dispatchers route rows and do not merge them.
            "local_merge": name == MERGED,
        }
        return {"name": name, "query": "phones", "arguments": _name_arguments(self._calls), "settings": settings}

    def _plan(self, name: str, slots: int) -> Plan:
        flow = build_flow(output="nowhere", **_name_arguments(self._calls))
        return make_plan(flow, slots, OPERATOR_SET if name == MERGED else name)  # type: ignore[arg-type]


def _name_arguments(calls: PhoneInput) -> dict[str, Any]:
    return {"calls": str(calls.calls), "tariffs": str(calls.tariffs), "files_per_batch": calls.files_per_batch}


def _describe_busy(competitor: Competitor, folder: Path, steps: int) -> dict[str, Any]:
    arguments = {"folder": str(folder), "files_per_batch": 1, "competitor": competitor.to_json(), "steps": steps}
    settings = {"slots": SLOTS, "local_merge": False}
    return {"name": competitor.name, "query": "busy", "arguments": arguments, "settings": settings}


def _first_phases(stream: SkewStream, count: int) -> SkewStream:
    """Return the first phases of a stream; its name says how many, because files of others are another stream."""
    if count >= len(stream.phases):
        return stream
    return replace(stream, name=f"{stream.name} {count}", phases=stream.phases[:count])


def _compute_busy_figures(runs: Sequence[BusyRun], batches_a_phase: int) -> dict[str, float]:
    """Return by how much executors differ in settled batches, in points of what they may use: the worst phase."""
    figures = {}
    for run in runs:
        if run.spread_by == BALANCED.name:
            settled = _average_by_phase(run, batches_a_phase)
            if settled:
                stem = "moving" if run.stream.startswith("moving") else "narrowing"
                figures[f"{stem}_deviation_points"] = 100 * max(deviation for _, _, deviation in settled)
    return figures


def _average_by_phase(run: BusyRun, batches_a_phase: int) -> list[tuple[str, float, float]]:
    """Return name, mean and deviation of each phase, of the batches in its second half."""
    found = []
    for first, name in run.phases:
        settled = [
            spread for spread in run.spreads if first + batches_a_phase // 2 < spread.batch < first + batches_a_phase
        ]
        if settled:
            found.append(
                (
                    name,
                    sum(spread.mean for spread in settled) / len(settled),
                    sum(spread.deviation for spread in settled) / len(settled),
                )
            )
    return found


def _build_table(runs: Sequence[SpreadRun]) -> Table:
    table = Table(title="one query, cut in three ways", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("strategy", no_wrap=True)
    for name in (
        "instances",
        "hops",
        "fan-out",
        "rows/s",
        "µs/row",
        "processing",
        "communication",
        "idle",
        "B/row",
        "on wires",
    ):
        table.add_column(name, justify="right")
    for run in sorted(runs, key=lambda run: (run.instances, (*STRATEGIES, MERGED).index(run.strategy))):
        shares = run.shares
        table.add_row(
            run.strategy,
            str(run.instances),
            str(run.hops),
            str(run.fan_out),
            f"{run.rows_per_second:,.0f}" if run.answer.equal else "[red]wrong[/]",
            f"{run.cpu_us_per_row:.1f}",
            *(f"{100 * share:.0f} %" for share in (shares.processing, shares.communication, shares.idle)),
            f"{run.exchanged_bytes_per_row:.1f}",
            f"{run.wire_bytes_per_row:.1f}" if run.wire_bytes_per_row is not None else "–",
        )
    table.caption = (
        "µs/row: processor time of executors; B/row: blocks between tasks, for each row read; "
        "on wires: what hosts sent in all, likewise"
    )
    return table


def _build_busy_table(runs: Sequence[BusyRun], batches_a_phase: int) -> Table:
    table = Table(title="what executors used of their cores, mean ± standard deviation", box=SIMPLE_HEAD)
    for name in ("keys", "phase", HASH.name, BALANCED.name):
        table.add_column(name, justify="left" if name in ("keys", "phase") else "right", no_wrap=True)
    streams = dict.fromkeys(run.stream for run in runs)
    for stream in streams:
        cells = {
            run.spread_by: {name: f"{100 * mean:.0f} ± {100 * deviation:.1f} %" for name, mean, deviation in averages}
            for run in runs
            if run.stream == stream
            for averages in (_average_by_phase(run, batches_a_phase),)
        }
        for place, name in enumerate(cells[HASH.name]):
            shown = [cells[competitor.name].get(name, "–") for competitor in (HASH, BALANCED)]
            table.add_row("" if place else stream, name, *shown)
    return table
