"""What a run did so far: a window of its batches and their totals in memory, a record of every batch on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.metrics.history import RunHistory
from anabranch.model import BatchProgress, BatchRecord, RunTotals
from anabranch.state.batch_records import BatchRecords, read_records
from anabranch.state.store import Store

WINDOW_BATCHES = 1_000
"""So many batches of a run are kept in memory."""


class RunProgress:
    """Takes the batches of one run in; memory stays the same however many there are."""

    def __init__(self, store: Store, epoch: int, kept_records: int, wall_clock: Callable[[], float]) -> None:
        self._store = store
        self._epoch = epoch
        self._wall_clock = wall_clock
        self._history = RunHistory(wall_clock(), WINDOW_BATCHES)
        self._records = BatchRecords(store, epoch, kept_records)

    def add(self, progress: BatchProgress) -> None:
        """Take in a batch that is over."""
        ended_at = self._wall_clock()
        self._records.add(progress, ended_at)
        self._history.add(progress, ended_at)

    def flush(self) -> None:
        """Write to disk whatever is not there yet."""
        self._records.flush()

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
        return [record.progress for record in self.read_records() if record.epoch == self._epoch]

    def read_records(self) -> Iterator[BatchRecord]:
        """Yield the records of all batches, of this run and of those before it, as far as they are kept."""
        self.flush()
        return read_records(self._store)
