"""Batches as the batch runner runs them, with tasks called one after the other in this process, without a session."""

from __future__ import annotations

import hashlib
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

import anabranch as ab
from anabranch.connectors.memory import MemorySource
from anabranch.engine import batch as batch_module
from anabranch.engine.batch import BatchRunner, FlowIdentity
from anabranch.engine.rebalancer import BalancingSteering
from anabranch.engine.settings import make_settings
from anabranch.engine.spec import BatchSpec, FlowProgram
from anabranch.engine.tasks import ReadTask, SlotTask
from anabranch.model import BatchProgress
from anabranch.query.plan import make_plan
from anabranch.spark.batch_job import BatchInput
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.epochs import Owner, take_epoch
from anabranch.state.inspect import find_level
from anabranch.state.manifest import Manifest
from anabranch.state.runs import RunFiles, WriteName
from anabranch.state.store import open_store


class LocalJobs:
    """Runs a batch's tasks in this process; keys must not meet, as nothing is between levels."""

    def __init__(self, _spark: object, program: FlowProgram, *_others: object) -> None:
        self._pickled: bytes = cloudpickle.dumps(program)
        self._digest = hashlib.blake2b(self._pickled).hexdigest()

    def name(self, batch: int, doing: str) -> None:
        """Say nothing: there is no Spark to show it."""

    def run(self, given: BatchInput, spec: BatchSpec) -> list[dict[str, Any]]:
        """Run all tasks, level by level."""
        reading = ReadTask(self._digest, self._pickled, spec, given.packs)
        blocks = [block for origin in range(len(given.packs)) for block in reading._blocks(origin, [])]
        for level, slots in enumerate(spec.slots, start=1):
            task, sent = SlotTask(self._digest, self._pickled, spec, level), []
            for slot in range(slots):
                received = sorted((b for b in blocks if b.slot == slot), key=lambda b: (b.head, b.seq))
                sent += list(task.run(slot, received, {}))
            blocks = sent
        return [{"head": block.head, "seq": block.seq, "block": block.payload} for block in blocks]


class LocalFlow:
    """A flow on frames, whose batches are run here."""

    def __init__(
        self, flow: ab.Flow, source: MemorySource, folder: Path, slots: int, patch: pytest.MonkeyPatch
    ) -> None:
        patch.setattr(batch_module, "BatchJobs", LocalJobs)
        # What exchanges cost is told through Spark.
        deaf = SimpleNamespace(tell=lambda costs: None, take=dict)
        patch.setattr(batch_module, "TaskCosts", SimpleNamespace(heard_by=lambda context: deaf))
        self.store = open_store(folder)
        self.program = FlowProgram(
            plan=make_plan(flow, slots),
            sources=dict(enumerate(flow.sources)),
            sinks={},
            checkpoint=str(folder),
            local_merge=True,
        )
        self.steering = BalancingSteering(self.program)
        self._runner = BatchRunner(
            SimpleNamespace(sparkContext=None),  # type: ignore[arg-type]
            self.program,
            make_settings(checkpoint=str(folder), slots=slots),
            Checkpoint(self.store),
            take_epoch(self.store, Owner.this_process(), time.time, takeover=True),
            SimpleNamespace(publish=lambda manifest: None),  # type: ignore[arg-type]
            FlowIdentity({}, lambda: "q"),
            self.steering,
        )
        self._planner = source.planner()
        self._position: Any = None
        self.batch = -1
        self.manifest: Manifest | None = None

    def run(self) -> BatchProgress:
        """Run the batch of the next frame."""
        planned = self._planner.plan(self._position, 0.0)
        self._position = planned.position
        self.batch += 1
        packs = ([(ordinal, 0, split) for ordinal, split in enumerate(planned.splits)],)
        waits: Any = SimpleNamespace(told=nullcontext)
        given = BatchInput(self.batch, None, packs, self.batch, self.batch + 1, time.time(), waits)
        self.manifest, progress = self._runner.run(given)
        return progress

    def keys_by_slot(self, operator: str) -> list[list[int]]:
        """Return the keys whose state lies on each slot of an operator after the last batch."""
        assert self.manifest is not None
        files = RunFiles(self.store, "state", WriteName(0, self.batch, 0, "test"))
        level = find_level(self.manifest, operator)
        return [sorted({key for ref in refs for key in files.read(ref)["key"].to_list()}) for refs in level.runs]
