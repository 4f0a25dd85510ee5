"""What a run did so far: a window of its batches and their totals in memory, all of them in the history on disk."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.engine.batches.reports import BatchReport
from anabranch.eventtime.flow.flow_time import load_time
from anabranch.metrics.history import RunHistory
from anabranch.model import BatchProgress, RunTotals
from anabranch.model.events import BatchEvent, with_company
from anabranch.query.plan import Plan
from anabranch.state.event_files import read_history
from anabranch.state.manifest import Manifest
from anabranch.state.store import Store

WINDOW_BATCHES = 1_000
"""So many batches of a run are kept in memory."""


class RunProgress:
    """Takes the batches of one run in; memory stays the same however many there are."""

    def __init__(self, store: Store, epoch: int, started_at: float) -> None:
        self._store = store
        self._epoch = epoch
        self._history = RunHistory(started_at, WINDOW_BATCHES)

    def add(self, progress: BatchProgress, ended_at: float) -> None:
        """Take in a batch that is over."""
        self._history.add(progress, ended_at)

    @property
    def window(self) -> list[BatchProgress]:
        """What the last batches did, oldest first."""
        return [timed.progress for timed in self._history.recent]

    @property
    def latest(self) -> BatchProgress | None:
        """What the last batch did; None before the first."""
        return self._history.latest

    @property
    def totals(self) -> RunTotals:
        """What all batches did together."""
        return self._history.totals

    def read(self) -> list[BatchProgress]:
        """Return what all batches of the run did: from disk those that memory has let go, as far as they are kept."""
        window = self.window
        if self.totals.batches == len(window):
            return window
        first = window[0].batch
        told = (
            record.event.progress
            for record in with_company(read_history(self._store))
            if record.epoch == self._epoch and isinstance(record.event, BatchEvent)
        )
        # Events may be gathered for a while before they are written, or have no room on the disk.
        return [*(progress for progress in told if progress.batch < first), *window]


def describe_batch(
    plan: Plan,
    manifest: Manifest,
    report: BatchReport | None,
    seconds: float,
    phases: Mapping[str, float],
    *,
    drained: bool,
) -> BatchProgress:
    """Return the figures of a committed batch; without a report, it was only published again."""
    counters = report.counters if report is not None else {}
    first = plan.levels[0] if plan.levels else ()
    operators = report.operators.values() if report is not None else ()
    rows = [report.operators[head].rows for head in first if report is not None and head in report.operators]
    return BatchProgress(
        batch=manifest.batch,
        rows_in=counters.get("rows_in", 0),
        rows_out=counters.get("rows_out", 0),
        late_rows=counters.get("late_rows", 0),
        dead_rows=counters.get("dead_rows", 0),
        slot_late_rows=counters.get("slot_late_rows", 0),
        updated_rows=counters.get("updated_rows", 0),
        batch_seconds=seconds,
        watermark_us=load_time(plan, manifest).watermark_us,
        slot_rows=tuple(sum(values) for values in zip(*rows, strict=True)) if rows else (),
        slot_seconds=report.slot_seconds if report is not None else (),
        state_rows=manifest.state_rows,
        state_bytes=manifest.state_bytes,
        exchanged_bytes=report.exchanged_bytes if report is not None else 0,
        sampled_rows=sum(load.sampled_rows for operator in operators for load in operator.loads),
        exchanges=tuple(report.figures.values()) if report is not None else (),
        phase_seconds=dict(phases),
        problems=manifest.problems,
        replayed=report is None,
        drained=drained,
    )
