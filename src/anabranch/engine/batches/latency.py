"""The target that a run has for the latency of its batches, and what they may read so that it is held."""

from __future__ import annotations

from dataclasses import replace

from anabranch.model import BatchProgress
from anabranch.placement.admission import (
    AdmissionState,
    BatchTiming,
    admit,
    begin_admission,
    measure_offered,
    share_out,
)

_OVERHEAD = ("trigger", "commit")
"""The phases of a batch that do not depend on how many rows it has."""


class LatencyControl:
    """Sees the batches of one run, one after the other, and says how many rows the next one may have."""

    def __init__(self, target_seconds: float | None) -> None:
        """Begin; without a target nothing is limited."""
        self._state: AdmissionState | None = None if target_seconds is None else begin_admission(target_seconds)
        self._is_warm = False
        self._planned_at: float | None = None
        self._waiting_rows: int | None = None
        self._executors: int | None = None

    @property
    def max_rows(self) -> int | None:
        """What all sources together may bring in the next batch; None if nobody says."""
        return None if self._state is None else self._state.admitted.rows

    def end_batch(
        self, progress: BatchProgress, planned_at: float, waiting_rows: int | None, executors: int = 1
    ) -> BatchProgress:
        """Return the progress of a batch with what it was allowed to read, and learn from what it took.

        ``executors`` are those that its slots were at home on.
        """
        if self._state is None:
            return replace(progress, waiting_rows=waiting_rows)
        told = replace(progress, admitted=self._state.admitted, waiting_rows=waiting_rows)
        seconds = 0.0 if self._planned_at is None else planned_at - self._planned_at
        offered = measure_offered(progress.rows_in, waiting_rows, self._waiting_rows, seconds)
        self._planned_at, self._waiting_rows = planned_at, waiting_rows
        self._state, self._executors = share_out(self._state, self._executors or executors, executors), executors
        # One that was only published again read nothing, and one that drains fires whatever is open.
        if not progress.replayed and not progress.drained:
            # What the first batch took is what it takes to start: workers, imports, compiled loops.
            if self._is_warm:
                overhead = sum(progress.phase_seconds.get(phase, 0.0) for phase in _OVERHEAD)
                seen = BatchTiming(progress.rows_in, progress.batch_seconds, overhead, waiting_rows, offered)
                self._state = admit(self._state, seen)
            self._is_warm = self._is_warm or progress.rows_in > 0
        return told
