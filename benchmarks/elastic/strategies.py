"""The strategies part: one query cut into parallel units in the elastic paper's three ways, on hosts with quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
    SpreadRun,
    compute_strategy_figures,
    evaluate_strategy,
)
from benchmarks.elastic.strategies_picture import draw_strategies
from benchmarks.shared.answers import ANSWER_READERS, AnswerCheck, check_answer
from benchmarks.shared.figures import OURS
from benchmarks.shared.launch import scratch_places
from benchmarks.shared.registry import BenchOptions

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
    quotas: bool = True
    """Whether hosts have their parts of cores, or share the machine's."""


WHOLE = Extent()


def run_strategies(
    options: BenchOptions, peers: Sequence[str], console: Console, extent: Extent = WHOLE
) -> PartOutcome:
    """Run every strategy over the same calls, in one session."""
    del peers  # The strategies are compared with each other.
    part = _Strategies(options, extent)
    with (
        open_ground(options.cache_dir, quotas=extent.quotas) as ground,
        scratch_places(options.cache_dir, (options.out_dir or options.cache_dir) / "logs", "strategies") as places,
    ):
        flows = part.list_flows()
        seen, notes = run_flows("parallel strategies", flows, ground, places, console)
        runs = part.judge_strategies(seen, ground, places.output)
    answers = {
        f"{run.strategy} on {run.instances} instances, run {place}": run.answer for place, run in enumerate(runs)
    }
    answers |= part.warm_up_answers
    pictures: list[Path] = []
    if options.out_dir is not None and all(answer.equal for answer in answers.values()):
        pictures += draw_strategies(runs, 3 * SLOTS, options.out_dir)
    return PartOutcome(
        answers=answers,
        figures=compute_strategy_figures(runs, 3 * SLOTS),
        workload={**part.describe(), **ground.describe()},
        runs=[asdict(run) for run in runs],
        tables=[_build_table(runs)],
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
        self._flows: list[tuple[str, int]] = []
        """Strategy and slots of each flow over the calls; the first warms all up."""
        self.warm_up_answers: dict[str, AnswerCheck] = {}

    def list_flows(self) -> list[dict[str, Any]]:
        """Return the flows as a script is told of them."""
        order = [(name, slots) for slots in self._slots for name in self._extent.strategies]
        self._flows = [(OPERATOR_SET, SLOTS)] if self._extent.warms_up else []
        for number in range(self._extent.rounds):
            self._flows += order if number % 2 == 0 else order[::-1]
        return [self._describe_strategy(name, slots) for name, slots in self._flows]

    def judge_strategies(self, seen: Sequence[Mapping[str, Any]], ground: Ground, output: Path) -> list[SpreadRun]:
        """Check the answers of all flows over the calls, and work out what those behind the warm-up did."""
        expected = ask_oracle(self._calls)
        runs = []
        for place, ((name, slots), flow) in enumerate(zip(self._flows, seen, strict=True)):
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
