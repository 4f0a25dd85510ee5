"""Run the long joins: on Spark, and in this process with two sides that are far apart in speed."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from rich.console import Console

import anabranch as ab
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.model import BatchProgress
from benchmarks.joins.memory.figures import ALIGNED, FREE, LIVE, MemoryRun, MemorySample
from benchmarks.joins.memory.streams import LENGTH_MS, MemoryStreams, check_pairs, plan_memory, plan_two_speeds
from benchmarks.shared.launch import CORES, our_script, run_peer, scratch_places, show_activity
from benchmarks.shared.registry import BenchOptions

MODERATE_SKEW = 0.8
JVM_MEMORY = "1g"
"""A heap grows to what it may have before it is cleaned; a small one shows early what stays."""
_MOST_ROWS_IN_PROCESS = 400_000
_ALIGN = f"{LENGTH_MS}ms"


class SampleTaker:
    """Notes what a flow keeps after each batch."""

    def __init__(self, streams: MemoryStreams) -> None:
        self.samples: list[MemorySample] = []
        self._start_us: int = streams.make_sources()["ads"].start_us
        self._rows = 0

    def note(self, batch: BatchProgress, memory_bytes: dict[str, int] | None = None) -> None:
        """Take one committed batch."""
        self._rows += batch.rows_in
        if batch.watermark_us is None:
            return
        lengths = (batch.watermark_us - self._start_us) / (1_000 * LENGTH_MS)
        self.samples.append(
            MemorySample(self._rows, lengths, batch.state_bytes, memory_bytes or {}, batch.batch_seconds)
        )


class MemoryMeasures:
    """One call of the part."""

    def __init__(self, options: BenchOptions, rows: int, console: Console) -> None:
        self._options = options
        self._console = console
        exponent = (options.exponents or (MODERATE_SKEW,))[0]
        self._live = plan_memory(rows, exponent, options.seed)
        self._two_speeds = plan_two_speeds(min(rows, _MOST_ROWS_IN_PROCESS), exponent, options.seed)
        self._logs = (options.out_dir or options.cache_dir) / "logs"

    @property
    def rows(self) -> int:
        """Rows of the run on Spark."""
        return self._live.rows

    def measure(self) -> list[MemoryRun]:
        """Run all of it."""
        return [self._run_live(), self._run_in_process(ALIGNED), self._run_in_process(FREE)]

    def describe(self) -> dict[str, Any]:
        """Return what is run."""
        slots = self._options.slots or CORES
        in_process = {"label": "in process", "slots": slots, **self._two_speeds.describe()}
        return {
            LIVE: {"label": "live", "slots": slots, "jvm_memory": JVM_MEMORY, **self._live.describe()},
            ALIGNED: {**in_process, "align": _ALIGN},
            FREE: in_process,
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _run_live(self) -> MemoryRun:
        options = {
            "rows": self._live.rows,
            "z": self._live.exponent,
            "seed": self._live.seed,
            "slots": self._options.slots or CORES,
            "cores": CORES,
            "memory": JVM_MEMORY,
        }
        with (
            scratch_places(self._options.cache_dir, self._logs, "joins-memory-live") as places,
            show_activity(self._console, f"memory: {self._live.rows:,} rows on Spark"),
        ):
            script = our_script("joins.peers.memory")
            reported, took = run_peer("the long interval join", script, options, places)
            run = MemoryRun(
                LIVE,
                self._live.rows,
                self._live.lengths,
                check_pairs(self._live, places.output),
                [MemorySample(**sample) for sample in reported["samples"]],
                took.run_seconds,
                took.other_cpu_share,
            )
        return self._tell(run)

    def _run_in_process(self, way: str) -> MemoryRun:
        align = _ALIGN if way == ALIGNED else None
        with (
            scratch_places(self._options.cache_dir, self._logs, f"joins-memory-{way}") as places,
            show_activity(self._console, f"memory: one side ten times as fast, {way}, in process"),
        ):
            run = run_two_speeds(self._two_speeds, way, align, places.scratch, self._options.slots or CORES)
        return self._tell(run)

    def _tell(self, run: MemoryRun) -> MemoryRun:
        verdict = "answers equal" if run.answer.equal else f"[red]wrong answer[/]: {run.answer.difference}"
        self._console.print(f"memory: {run.way}, {run.rows:,} rows in {run.run_seconds:.0f} s: {verdict}")
        return run


def run_two_speeds(streams: MemoryStreams, way: str, align: str | None, scratch: Path, slots: int) -> MemoryRun:
    """Join two streams in this process, without Spark, to their end; who is ahead waits if it is told to."""
    output, taker = scratch / "output", SampleTaker(streams)
    settings = make_settings(
        checkpoint=str(scratch / "checkpoint"), trigger="available-now", slots=slots, kept_batches=2
    )
    logger = logging.getLogger("anabranch")
    level = logger.level
    # Both say how far one side is ahead, batch by batch, as they are meant to.
    logger.setLevel(logging.ERROR)
    began = time.monotonic()
    try:
        local = LocalRun(streams.build(ab.parquet(output), align), settings, cores=CORES, on_progress=taker.note)
        try:
            local.run_to_end()
        finally:
            local.close()
    finally:
        logger.setLevel(level)
    seconds = time.monotonic() - began
    return MemoryRun(way, streams.rows, streams.lengths, check_pairs(streams, output), taker.samples, seconds)
