"""The task that reads: splits, or rows that Spark read, up to the exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.engine.batches.outer_rows import decode_rows
from anabranch.engine.batches.reading_levels import level_of_pack
from anabranch.engine.tasks.blocks import Block
from anabranch.engine.tasks.pipeline import Pipeline
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram, LoadsProgram
from anabranch.engine.tasks.task_errors import failing_step, told_as_rows
from anabranch.engine.tasks.task_meter import TaskMeter
from anabranch.model import (
    ReadOutcome,
    Source,
    Split,
)
from anabranch.query.nodes import FlowSource


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Level 0, or behind a level that rows are not for: read splits or rows that Spark read, run what is stateless,
    merge locally, cut into blocks."""

    program: LoadsProgram
    spec: BatchSpec
    packs: tuple[list[tuple[int, int, Split]], ...]
    """What each of the first partitions reads, as (ordinal, source, split)."""
    levels: Mapping[int, int] = field(default_factory=dict)
    """The sources that are read behind a level, and which."""

    def blocks(
        self, origin: int, outer: Iterable[tuple[int, bytes]] = (), meter: TaskMeter | None = None
    ) -> Iterator[Block]:
        """Yield what the task sends on; ``outer`` are blocks of rows that came to it without a split, by source."""
        meter = meter or TaskMeter()
        meter.name(0, origin)
        level = level_of_pack(self.levels, self._pack(origin))
        told = told_as_rows(self._blocks(origin, outer, level, meter), 0, origin, self.spec.receivers_behind(level))
        return meter.sending_to_level(told, level + 1, self.spec.slots)

    def _blocks(self, origin: int, outer: Iterable[tuple[int, bytes]], level: int, meter: TaskMeter) -> Iterator[Block]:
        program = self.program.load()
        pipeline = Pipeline(program, self.spec, 0, origin, next_level=level + 1)
        yield from self.read_into(pipeline, program, origin, outer)
        meter.read(pipeline.counters["rows_in"])
        meter.add_exchange(pipeline.send_seconds)

    def _pack(self, origin: int) -> list[tuple[int, int, Split]]:
        return self.packs[origin] if origin < len(self.packs) else []

    def read_into(
        self, pipeline: Pipeline, program: FlowProgram, origin: int, outer: Iterable[tuple[int, bytes]]
    ) -> Iterator[Block]:
        """Push everything that this task reads into a pipeline, and yield what leaves it."""
        nodes = {
            node.operation.index: node.id for node in program.plan.sources if isinstance(node.operation, FlowSource)
        }
        for ordinal, index, split in self._pack(origin):
            reader = program.sources[index]
            pipeline.read_from(name_partition(index, split.get("partition", "")))
            for outcome in outcomes_of(reader, split):
                pipeline.counters["rows_in"] += outcome.frame.height + len(outcome.rejected)
                pipeline.reject(reader.label, outcome.rejected)
                if outcome.bad_file is not None:
                    pipeline.note_bad_file(*outcome.bad_file)
                pipeline.push(nodes[index], outcome.frame, ordinal)
                yield from pipeline.drain_blocks()
        for source, block in outer:
            frame = decode_rows(block, program.sources[source].schema)
            pipeline.counters["rows_in"] += frame.height
            pipeline.read_from(name_partition(source, ""))
            pipeline.push(nodes[source], frame, origin)
            yield from pipeline.drain_blocks()
        yield from pipeline.finish()


def name_partition(source: int, partition: str) -> str:
    return f"{source}/{partition}" if partition else str(source)


def outcomes_of(reader: Any, split: Split) -> Iterator[ReadOutcome]:
    """Yield what a source reads of a split; what fails is its doing, not that of the steps behind it."""
    source: Source = reader
    outcomes = iter(source.read(split))
    while True:
        with failing_step(f"reading {source.label}"):
            outcome = next(outcomes, None)
        if outcome is None:
            return
        yield outcome
