"""What slots of a flow in this process report: rows that they received and keep, what moved, and what plans cost."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.control.decisions import Decision
from anabranch.control.rebalancer import FlowParts, Rebalancer
from anabranch.control.reported import BatchReport
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.model.moves import PlanCosts
from anabranch.routing.phases import FlowRoutes
from anabranch.state.inspect import list_holders
from anabranch.state.manifest import Manifest
from anabranch.state.runs import RunFiles, WriteName
from benchmarks.shared.figures import WARM_UP_SHARE, find_longest_steady_batch
from benchmarks.shared.launch import CORES
from benchmarks.shared.registry import BenchError


@dataclass(frozen=True, slots=True)
class SlotBatch:
    """What the slots of all joins of a flow reported of one batch."""

    received: tuple[int, ...]
    """Rows by slot, copies included."""
    sent_once: int
    """What they would be if each went to one slot."""
    sent_bytes: int
    moved_rows: int
    """State rows that were written for other slots at its end."""
    moved_bytes: int
    table_rows: int
    """Of the routing tables that it ran under."""
    costs: tuple[PlanCosts, ...]
    """Of the plans that were carried out at its end."""


class WatchedSlots(Rebalancer):
    """Steers as a flow's own rebalancer does, and keeps what slots report."""

    def __init__(self, program: FlowParts) -> None:
        super().__init__(program, time.monotonic)
        self.batches: list[SlotBatch] = []
        self._decided = Decision(-1)

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        """Return what changes at the end of this batch, and remember it."""
        self._decided = super().decide(batch, routes)
        return self._decided

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        """Learn what a batch did, and keep what slots received."""
        super().observe(manifest, report, routes)
        operators = report.operators.values()
        slots = max(len(operator.rows) for operator in operators)
        handed = [ref for operator in operators for slot in operator.handoffs for ref in slot]
        self.batches.append(
            SlotBatch(
                tuple(sum(one.rows[slot] for one in operators if slot < len(one.rows)) for slot in range(slots)),
                sum(figures.rows for figures in report.figures.values()),
                sum(figures.sent_bytes for figures in report.figures.values()),
                sum(ref.rows for ref in handed),
                sum(ref.bytes for ref in handed),
                sum(len(phases.routes.table.keys) for phases in routes.values()),
                tuple(change.costs for change in self._decided.routes.values() if change.costs is not None),
            )
        )


class WatchedRun:
    """A flow in this process, a batch at a time, and its slots."""

    def __init__(self, flow: ab.Flow, checkpoint: Path, slots: int) -> None:
        settings = make_settings(checkpoint=str(checkpoint), slots=slots, kept_batches=2)
        self._run = LocalRun(flow, settings, cores=CORES, make_steering=self._watch)
        self._done: list[dict[str, float]] = []

    def _watch(self, program: FlowParts) -> WatchedSlots:
        self._watched = WatchedSlots(program)
        return self._watched

    @property
    def batches(self) -> list[SlotBatch]:
        """What slots reported, batch by batch."""
        return self._watched.batches

    def step(self) -> bool:
        """Run the next batch; say whether there was one."""
        batch = self._run.step()
        if batch is not None:
            self._done.append({"rows": batch.rows_in, "seconds": batch.batch_seconds})
        return batch is not None

    @property
    def batch_seconds(self) -> float | None:
        """The longest batch with rows after the warm-up, those in which slots are added not among them."""
        return find_longest_steady_batch(self._done, WARM_UP_SHARE * sum(batch["rows"] for batch in self._done))

    def resize(self, slots: int) -> float:
        """Go over to another number of slots; return the seconds from the wish to the commit of all state's move."""
        began = time.monotonic()
        reply = self._watched.submit(Command(uuid.uuid4().hex, "slots", None, {"count": slots}))
        if not reply.ok:
            raise BenchError(reply.text)
        self._run.step(tick=True)
        return time.monotonic() - began

    def count_stored(self) -> list[int]:
        """Return the rows that each slot keeps, of all joins together."""
        manifest = self._run.run.checkpoint.latest()
        assert manifest is not None, "no batch has run yet"
        files = RunFiles(self._run.run.store, "state", WriteName(0, manifest.batch, 0, "reader"))
        stored: dict[int, int] = {}
        for level in manifest.levels:
            for slot, refs in list_holders(level):
                stored[slot] = stored.get(slot, 0) + sum(files.read(ref).height for ref in refs)
        return [stored.get(slot, 0) for slot in range(max(stored, default=0) + 1)]

    def close(self) -> None:
        """Give the checkpoint back."""
        self._run.close()


@contextmanager
def watched(flow: ab.Flow, checkpoint: Path, slots: int) -> Iterator[WatchedRun]:
    """Run a flow whose slots are looked at while the block lasts."""
    # Each of many flows would say that its state grows for ever, as it is meant to.
    logger = logging.getLogger("anabranch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        run = WatchedRun(flow, checkpoint, slots)
        try:
            yield run
        finally:
            run.close()
    finally:
        logger.setLevel(level)


def add_by_slot(batches: Sequence[SlotBatch]) -> list[int]:
    """Return the rows that each slot received in some batches."""
    slots = max((len(batch.received) for batch in batches), default=0)
    return [sum(batch.received[slot] for batch in batches if slot < len(batch.received)) for slot in range(slots)]
