"""The drift part: keys that are uniform, then normal around a mean that moves, or narrowing; how even executors stay.

After figure 8 of the elastic paper: mean and standard deviation of what executors use of their cores, batch by batch,
with keys that stay on their slots and keys that are balanced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.elastic.drift_picture import draw_spreads
from benchmarks.elastic.grounds import open_ground, run_flows
from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.spread_figures import CpuSpread, Seen, find_spreads
from benchmarks.shared.answers import ANSWER_READERS, AnswerCheck, check_answer
from benchmarks.shared.figures import OURS
from benchmarks.shared.launch import scratch_places
from benchmarks.shared.registry import BenchOptions
from benchmarks.skew.answers import ask_busy_oracle
from benchmarks.skew.competitors import BALANCED, HASH, Competitor
from benchmarks.skew.streams import SkewStream, make_moving_mean, make_narrowing, write_stream

SLOTS = 4
"""One an executor."""
DEFAULT_ROWS_PER_BATCH = 200_000


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is run: all of it, unless the part is to be worked on."""

    steps: int = 4_000
    """Of the generator, for each row: about 10 µs, so that a batch takes four times 0.3 of a core some seconds."""
    batches_a_phase: int = 5
    moving_phases: int = 3
    """Uniform, then around one mean and around another."""
    narrowing_phases: int = 4
    quotas: bool = True
    """Whether hosts have their parts of cores, or share the machine's."""


WHOLE = Extent()


@dataclass(frozen=True, slots=True)
class DriftRun:
    """A stream whose keys move, under balance or without."""

    stream: str
    spread_by: str
    phases: tuple[tuple[int, str], ...]
    """The first batch of each, and what it is called."""
    spreads: tuple[CpuSpread, ...]
    answer: AnswerCheck


def run_drift(options: BenchOptions, peers: Sequence[str], console: Console, extent: Extent = WHOLE) -> PartOutcome:
    """Run both streams with keys that stay and keys that are balanced, on the same slots, in one session."""
    del peers  # Other systems do not say what each of their processes used.
    streams = _make_streams(extent, options.seed, options.rows or DEFAULT_ROWS_PER_BATCH)
    inputs = options.cache_dir / "elastic"
    folders = [write_stream(stream, "parquet", inputs) for stream in streams]
    warm_up = _first_phases(streams[0], 1)
    flows = [_describe(HASH, write_stream(replace(warm_up, name="warm-up"), "parquet", inputs), extent.steps)]
    order = [(stream, folder, how) for stream, folder in zip(streams, folders, strict=True) for how in (HASH, BALANCED)]
    flows += [_describe(how, folder, extent.steps) for _, folder, how in order]
    with (
        open_ground(options.cache_dir, quotas=extent.quotas) as ground,
        scratch_places(options.cache_dir, (options.out_dir or options.cache_dir) / "logs", "drift") as places,
    ):
        (_, *seen), notes = run_flows("keys that move", flows, ground, places, console)
        expected = {folder: ask_busy_oracle(folder, extent.steps) for folder in folders}
        answers = [
            check_answer(ANSWER_READERS[OURS](places.output / str(place)), expected[folder])
            for place, (_, folder, _) in enumerate(order, start=1)
        ]
    runs = [
        _evaluate(stream, how, flow, ground.cores, answer)
        for (stream, _, how), flow, answer in zip(order, seen, answers, strict=True)
    ]
    pictures: list[Path] = []
    if options.out_dir is not None and all(answer.equal for answer in answers):
        pictures += draw_spreads(
            [(run.stream, run.spread_by, run.phases, run.spreads) for run in runs], options.out_dir
        )
    return PartOutcome(
        answers={f"{run.stream}, {run.spread_by}": run.answer for run in runs},
        figures=compute_drift_figures(runs, extent.batches_a_phase),
        workload={
            "rows_per_batch": streams[0].rows_per_batch,
            "batches_a_phase": extent.batches_a_phase,
            "slots": SLOTS,
            "lehmer_steps": extent.steps,
            **ground.describe(),
        },
        runs=[asdict(run) for run in runs],
        tables=[_build_table(runs, extent.batches_a_phase)],
        notes=notes,
        pictures=pictures,
    )


def compute_drift_figures(runs: Sequence[DriftRun], batches_a_phase: int) -> dict[str, float]:
    """Return by how much executors differ in settled batches, in points of what they may use: the worst phase."""
    figures = {}
    for run in runs:
        stem = "moving" if run.stream.startswith("moving") else "narrowing"
        stem += "" if run.spread_by == BALANCED.name else f"_{run.spread_by}"
        settled = average_by_phase(run, batches_a_phase)
        if settled:
            figures[f"{stem}_deviation_points"] = 100 * max(deviation for _, _, deviation in settled)
    return figures


def average_by_phase(run: DriftRun, batches_a_phase: int) -> list[tuple[str, float, float]]:
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


def _make_streams(extent: Extent, seed: int, rows: int) -> list[SkewStream]:
    streams = [
        _first_phases(make_moving_mean(rows, extent.batches_a_phase, seed), extent.moving_phases),
        _first_phases(make_narrowing(rows, extent.batches_a_phase, seed), extent.narrowing_phases),
    ]
    return [stream for stream in streams if stream.phases]


def _first_phases(stream: SkewStream, count: int) -> SkewStream:
    """Return the first phases of a stream; its name says how many, because files of others are another stream."""
    if count >= len(stream.phases):
        return stream
    return replace(stream, name=f"{stream.name} {count}", phases=stream.phases[:count])


def _describe(competitor: Competitor, folder: Path, steps: int) -> dict[str, Any]:
    arguments = {"folder": str(folder), "files_per_batch": 1, "competitor": competitor.to_json(), "steps": steps}
    settings = {"slots": SLOTS, "local_merge": False}
    return {"name": competitor.name, "query": "busy", "arguments": arguments, "settings": settings}


def _evaluate(stream: SkewStream, how: Competitor, flow: Seen, cores: float, answer: AnswerCheck) -> DriftRun:
    phases = tuple((first, phase.name) for first, phase in zip(stream.first_batches, stream.phases, strict=True))
    return DriftRun(stream.name, how.name, phases, tuple(find_spreads(flow, cores)), answer)


def _build_table(runs: Sequence[DriftRun], batches_a_phase: int) -> Table:
    table = Table(title="what executors used of their cores, mean ± standard deviation", box=SIMPLE_HEAD)
    for name in ("keys", "phase", HASH.name, BALANCED.name):
        table.add_column(name, justify="left" if name in ("keys", "phase") else "right", no_wrap=True)
    streams = dict.fromkeys(run.stream for run in runs)
    for stream in streams:
        cells = {
            run.spread_by: {name: f"{100 * mean:.0f} ± {100 * deviation:.1f} %" for name, mean, deviation in averages}
            for run in runs
            if run.stream == stream
            for averages in (average_by_phase(run, batches_a_phase),)
        }
        for place, name in enumerate(cells[HASH.name]):
            shown = [cells[competitor.name].get(name, "–") for competitor in (HASH, BALANCED)]
            table.add_row("" if place else stream, name, *shown)
    return table
