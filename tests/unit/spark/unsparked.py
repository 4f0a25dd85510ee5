"""Whole flows, batch by batch, with the driver's own batch runner and the tasks themselves, but without Spark.

Tasks run one after the other in this process, and blocks go from one to the next as Spark would send them. What a
driver has in its memory can be thrown away between any two batches, as if it had been killed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import polars as pl
from pyspark import cloudpickle

import anabranch as ab
from anabranch.engine.batch import BatchRunner, FlowIdentity
from anabranch.engine.blocks import Block, from_arrow, to_table
from anabranch.engine.publishing import Publisher
from anabranch.engine.rebalancer import BalancingSteering
from anabranch.engine.settings import make_settings
from anabranch.engine.spec import BatchSpec, FlowProgram
from anabranch.engine.structure import describe_flow
from anabranch.engine.tasks import MeetTask, ReadTask, SlotTask
from anabranch.model import BatchProgress, Split
from anabranch.query.plan import make_plan
from anabranch.query.streams import Stream
from anabranch.spark.batch_job import BatchInput, BatchJobs
from anabranch.state import Checkpoint, Owner, open_store, take_epoch

BUCKETS = 64


@dataclass
class _Adder:
    """What stands for an accumulator."""

    value: Any
    param: Any

    def add(self, more: Any) -> None:
        self.value = self.param.addInPlace(self.value, more)


class _Context:
    def accumulator(self, value: Any, param: Any) -> _Adder:
        return _Adder(value, param)


class _Session:
    sparkContext = _Context()


class _Jobs(BatchJobs):
    """Runs the tasks of a batch in this process."""

    def __init__(self, program: FlowProgram) -> None:
        self._plan = program.plan
        self._pickled = cloudpickle.dumps(program)

    def name(self, batch: int, doing: str) -> None:
        pass

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Any]:
        digest = uuid.uuid4().hex
        reading = ReadTask(digest, self._pickled, spec, given.packs)
        blocks = [block for task in range(max(1, len(given.packs))) for block in reading._blocks(task, ())]
        for level, slots in enumerate(spec.slots, start=1):
            heads = self._plan.levels[level - 1]
            receivers = spec.receivers_behind(level, heads)
            blocks = _through(SlotTask(digest, self._pickled, spec, level, receivers), blocks, slots)
            if spec.meets(heads):
                blocks = _through(MeetTask(digest, self._pickled, spec, level), blocks, slots)
        return [{"slot": b.slot, "head": b.head, "seq": b.seq, "block": b.payload} for b in blocks]


def _through(task: SlotTask | MeetTask, blocks: list[Block], slots: int) -> list[Block]:
    sent: list[Block] = []
    for slot in range(slots):
        mine = to_table(block for block in blocks if block.slot % slots == slot)
        sent += task._blocks(slot, mine.to_batches())
    return from_arrow(to_table(sent).to_batches())


@dataclass
class UnsparkedFlow:
    """One flow, its checkpoint, and whoever drives it at the moment."""

    build: Callable[[Stream], Stream]
    folder: Path
    schema: dict[str, pl.DataType]
    slots: int = 2
    source: Any = field(init=False)
    sink: Any = field(init=False)
    progress: list[BatchProgress] = field(default_factory=list)
    _runner: BatchRunner | None = None
    _position: Any = None
    _batch: int = -1

    def __post_init__(self) -> None:
        self.source = ab.memory(schema=self.schema, max_frames=None)
        self.sink = ab.to_memory(self.folder / "results")

    def run(self, readers: Sequence[pl.DataFrame], drain: bool = False) -> BatchProgress:
        """Run a batch in which each reader gets a frame, or none gets anything."""
        for number, frame in enumerate(readers):
            self.source.add(frame, f"p{number}")
        planned = self.source.planner().plan(self._position, 0.0)
        self._position = planned.position
        packs: list[list[tuple[int, int, Split]]] = [[] for _ in readers]
        for ordinal, split in enumerate(planned.splits):
            packs[ordinal % len(packs)].append((ordinal, 0, split))
        self._batch += 1
        given = BatchInput(
            batch=self._batch,
            frame=None,
            packs=tuple(packs),
            start_offset={"entry": self._batch - 1},
            end_offset={"entry": self._batch},
            triggered_at=time.time(),
            waits=cast("Any", None),
            drain=drain,
        )
        _, progress = self._driver().run(given)
        self.progress.append(progress)
        return progress

    def lose_driver(self) -> None:
        """Forget what the driver knows; the next batch has another."""
        self._runner = None

    def rows(self) -> list[dict[str, Any]]:
        """Return all results so far."""
        return [row for _, frame in self.sink.batches() for row in frame.to_dicts()]

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(open_store(str(self.folder / "checkpoint")))

    def _driver(self) -> BatchRunner:
        if self._runner is None:
            flow = ab.Flow("test")
            self.build(flow.read(self.source)).write(self.sink)
            plan = make_plan(flow, self.slots)
            checkpoint = self.checkpoint
            program = FlowProgram(plan, {0: self.source}, {0: self.sink}, checkpoint.store.url, True)
            settings = make_settings(checkpoint=checkpoint.store.url, slots=self.slots, buckets=BUCKETS)
            lease = take_epoch(checkpoint.store, Owner.this_process(), time.time, takeover=True)
            publisher = Publisher(checkpoint, program.sinks, {"driver_epoch": lease.epoch}, lease.check)
            identity = FlowIdentity(describe_flow(program, BUCKETS, "operator-set"), lambda: "q")
            session = cast("Any", _Session())
            steering = BalancingSteering(program)
            self._runner = BatchRunner(session, program, settings, checkpoint, lease, publisher, identity, steering)
            self._runner._jobs = _Jobs(program)
        return self._runner
