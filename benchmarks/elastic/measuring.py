"""The measuring part: what it costs to measure every task, by its own count, and by runs with and without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.elastic.grounds import Ground, run_flows
from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.spread_figures import Seen, select_steady
from benchmarks.shared.answers import ANSWER_READERS, ask_oracle, check_answer
from benchmarks.shared.figures import OURS
from benchmarks.shared.launch import CORES, scratch_places
from benchmarks.shared.registry import BenchOptions
from benchmarks.skew.competitors import UNBALANCED
from benchmarks.skew.figures import OverheadPair
from benchmarks.skew.streams import make_uniform_stream, write_stream

WITH, WITHOUT = "measured", "not measured"
SLOTS = 4
KEYS = 100_000
DEFAULT_ROWS = 4_000_000
_FILES_PER_BATCH = 2


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is run: all of it, unless a part is to be worked on."""

    batches: int = 4
    pairs: int = 10
    warm_up_pairs: int = 1
    """A JVM that still compiles takes more processor time than measuring does."""


WHOLE = Extent()


def run_measuring(options: BenchOptions, peers: Sequence[str], console: Console, extent: Extent = WHOLE) -> PartOutcome:
    """Run one flow again and again in one warm session, measured and not, each first as often as the other."""
    del peers  # Nothing of theirs would be comparable.
    files = extent.batches * _FILES_PER_BATCH
    stream = make_uniform_stream((options.rows or DEFAULT_ROWS) // files, files, KEYS, options.seed)
    folder = write_stream(stream, "parquet", options.cache_dir / "elastic")
    order: list[str] = []
    for pair in range(extent.warm_up_pairs + extent.pairs):
        order += [WITHOUT, WITH] if pair % 2 == 0 else [WITH, WITHOUT]
    ground = Ground(f"local[{CORES}]", {}, CORES)
    with scratch_places(options.cache_dir, (options.out_dir or options.cache_dir) / "logs", "measuring") as places:
        seen, notes = run_flows(
            "with and without measures", [_describe(how, folder) for how in order], ground, places, console
        )
        expected = ask_oracle(folder, "parquet")
        answers = {
            f"{how}, run {place}": check_answer(ANSWER_READERS[OURS](places.output / str(place)), expected)
            for place, how in enumerate(order)
        }
    first = 2 * extent.warm_up_pairs
    measured = [flow for flow in seen[first:] if flow["name"] == WITH]
    pairs = pair_up(seen)[extent.warm_up_pairs :]
    cost_pct = find_cost_pct(measured)
    return PartOutcome(
        answers=answers,
        figures={
            "measuring_cost_pct": cost_pct,
            "measuring_pairs_pct": median(pair.overhead_pct for pair in pairs),
        },
        workload={
            "rows": stream.rows,
            "batches": extent.batches,
            "slots": SLOTS,
            "keys": KEYS,
            "pairs": extent.pairs,
            "master": ground.master,
        },
        runs=[asdict(pair) for pair in pairs],
        tables=[_build_table(cost_pct, pairs)],
        notes=notes,
    )


def find_cost_pct(flows: Sequence[Seen]) -> float:
    """Return the time of measuring over the processor time of batches, the first of each flow left out."""
    # A first batch has no counters of the JVM's time to be compared with, and would have too little of it.
    batches: list[Mapping[str, Any]] = [batch for flow in flows for batch in select_steady(flow, 2)]
    spent, whole = (sum(batch[name] for batch in batches) for name in ("measuring_seconds", "cpu_seconds"))
    return 100 * spent / whole if whole else 0.0


def pair_up(flows: Sequence[Seen]) -> list[OverheadPair]:
    """Return runs of which always two follow each other, one measured and one not, as pairs."""
    pairs = []
    for first, second in zip(flows[::2], flows[1::2], strict=True):
        seconds = {flow["name"]: flow["processor_seconds"] for flow in (first, second)}
        pairs.append(OverheadPair(seconds[WITH], seconds[WITHOUT]))
    return pairs


def _describe(how: str, folder: Path) -> dict[str, Any]:
    arguments = {
        "folder": str(folder),
        "files_per_batch": _FILES_PER_BATCH,
        "competitor": UNBALANCED.to_json(),
        "steps": 0,
    }
    settings = {"slots": SLOTS, "local_merge": False}
    told = {"name": how, "query": "busy", "arguments": arguments, "settings": settings}
    return {**told, "unmeasured": how == WITHOUT}


def _build_table(cost_pct: float, pairs: Sequence[OverheadPair]) -> Table:
    table = Table(title="what measuring costs", box=SIMPLE_HEAD)
    table.add_column("by", no_wrap=True)
    table.add_column("% of processor time", justify="right", no_wrap=True)
    overheads = sorted(pair.overhead_pct for pair in pairs)
    table.add_row("its own count", f"{cost_pct:.2f}")
    table.add_row(f"{len(pairs)} pairs, the median", f"{median(overheads):+.2f}")
    table.add_row("the least and the most of them", f"{overheads[0]:+.1f} … {overheads[-1]:+.1f}")
    return table
