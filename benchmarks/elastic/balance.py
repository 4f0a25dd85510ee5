"""The balance part: uneven slots over four executors, with homes by what slots cost, and as they were dealt first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from anabranch.model.elasticity import Elasticity
from benchmarks.elastic.grounds import EXECUTORS, open_ground, run_flows
from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.spread_figures import Seen, find_max_over_mean, select_steady
from benchmarks.shared.answers import ANSWER_READERS, AnswerCheck, check_answer
from benchmarks.shared.figures import OURS
from benchmarks.shared.launch import scratch_places
from benchmarks.shared.registry import BenchOptions
from benchmarks.skew.answers import ask_busy_oracle
from benchmarks.skew.competitors import HASH
from benchmarks.skew.streams import make_zipf_stream, write_stream

BY_LOAD, DEALT = "by load", "dealt in turn"
SLOTS = 16
EXPONENT = 1.0
"""Of zipf keys, which no planner moves: the fullest slot gets about a sixth of all rows."""
DEFAULT_ROWS_PER_BATCH = 80_000
STEPS = 12_000
"""About 30 µs a row: a batch must take slots longer than it takes Spark to run their tasks."""
_IMBALANCES = {
    BY_LOAD: Elasticity().imbalance,
    # More than executors can differ by: slots stay where the first batch put them, as many on each.
    DEALT: 1_000.0,
}


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is run: all of it, unless a part is to be worked on."""

    batches: int = 10
    warm_up_batches: int = 5
    """Homes follow loads that are averaged over batches."""
    rows_per_batch: int = DEFAULT_ROWS_PER_BATCH
    steps: int = STEPS
    quotas: bool = True
    """Whether hosts have their parts of cores, or share the machine's."""


WHOLE = Extent()


@dataclass(frozen=True, slots=True)
class HomesRun:
    """A flow whose slots have homes that were chosen in one way."""

    homes: str
    answer: AnswerCheck
    executor_max_over_mean: float
    """Of all processor time of executors: readers, slots, starts of tasks, the JVM."""
    slots_max_over_mean: float
    """Of that of slots alone."""
    rows_per_second: float
    home_changes: int
    """Batches that gave slots other homes."""
    flow: Seen


def run_balance(options: BenchOptions, peers: Sequence[str], console: Console, extent: Extent = WHOLE) -> PartOutcome:
    """Run one flow with homes that follow what slots cost and one whose homes stay, over the same rows."""
    del peers  # Other systems have no homes.
    rows = extent.rows_per_batch if options.rows is None else options.rows // extent.batches
    stream = make_zipf_stream(EXPONENT, rows, extent.batches, 1, options.seed)
    folder = write_stream(stream, "parquet", options.cache_dir / "elastic")
    expected = ask_busy_oracle(folder, extent.steps)
    order = (DEALT, BY_LOAD)
    with (
        open_ground(options.cache_dir, quotas=extent.quotas) as ground,
        scratch_places(options.cache_dir, (options.out_dir or options.cache_dir) / "logs", "balance") as places,
    ):
        flows = [_describe(homes, folder, extent.steps, ground.cores / EXECUTORS) for homes in order]
        seen, notes = run_flows("uneven slots", flows, ground, places, console)
        answers = {
            homes: check_answer(ANSWER_READERS[OURS](places.output / str(place)), expected)
            for place, homes in enumerate(order)
        }
    runs = [
        _evaluate(homes, flow, extent.warm_up_batches, answers[homes]) for homes, flow in zip(order, seen, strict=True)
    ]
    by_homes = {run.homes: run for run in runs}
    return PartOutcome(
        answers={f"homes {homes}": answer for homes, answer in answers.items()},
        figures={
            "executor_cpu_max_over_mean": by_homes[BY_LOAD].executor_max_over_mean,
            "dealt_cpu_max_over_mean": by_homes[DEALT].executor_max_over_mean,
        },
        workload={
            "rows": stream.rows,
            "batches": extent.batches,
            "slots": SLOTS,
            "zipf_exponent": EXPONENT,
            "lehmer_steps": extent.steps,
            "imbalance": _IMBALANCES[BY_LOAD],
            **ground.describe(),
        },
        runs=[asdict(run) for run in runs],
        tables=[_build_table(runs)],
        notes=notes,
    )


def _describe(homes: str, folder: Path, steps: int, cores: float) -> dict[str, Any]:
    arguments = {"folder": str(folder), "files_per_batch": 1, "competitor": HASH.to_json(), "steps": steps}
    # As many executors as there are: only homes may change.
    elasticity = {
        "min_executors": EXECUTORS,
        "max_executors": EXECUTORS,
        "cores_per_executor": cores,
        "imbalance": _IMBALANCES[homes],
    }
    settings = {"slots": SLOTS, "local_merge": False, "elasticity": elasticity}
    return {"name": homes, "query": "busy", "arguments": arguments, "settings": settings}


def _evaluate(homes: str, flow: Seen, warm_up_batches: int, answer: AnswerCheck) -> HomesRun:
    before, *steady = select_steady(flow, warm_up_batches)
    seconds = steady[-1]["committed_at"] - before["committed_at"]
    return HomesRun(
        homes=homes,
        answer=answer,
        executor_max_over_mean=find_max_over_mean(steady),
        slots_max_over_mean=find_max_over_mean(steady, "slot_seconds"),
        rows_per_second=sum(batch["rows"] for batch in steady) / seconds,
        home_changes=flow["home_changes"],
        flow=flow,
    )


def _build_table(runs: Sequence[HomesRun]) -> Table:
    table = Table(title=f"{SLOTS} uneven slots over {EXECUTORS} executors", box=SIMPLE_HEAD)
    table.add_column("homes", no_wrap=True)
    for name in ("executors, max/mean", "slots alone", "rows/s", "changes of homes"):
        table.add_column(name, justify="right")
    for run in runs:
        table.add_row(
            run.homes,
            f"{run.executor_max_over_mean:.3f}",
            f"{run.slots_max_over_mean:.3f}",
            f"{run.rows_per_second:,.0f}" if run.answer.equal else "[red]wrong[/]",
            str(run.home_changes),
        )
    table.caption = "busiest executor's processor time over the mean"
    return table
