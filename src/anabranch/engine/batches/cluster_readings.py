"""What batches say of a cluster's load, for whoever decides how many executors there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.model import BatchProgress
from anabranch.model.cluster import Executor, ReleaseWait
from anabranch.model.measures import TaskMeasure
from anabranch.placement.admission import measure_offered
from anabranch.placement.elasticity import ClusterReading, read_cluster


class ClusterReadings:
    """Sees the batches of one run, one after the other."""

    def __init__(self) -> None:
        self._is_warm = False
        self._planned_at: float | None = None
        self._waiting_rows: int | None = None

    def read(
        self,
        progress: BatchProgress,
        executors: Sequence[Executor],
        *,
        measures: Sequence[TaskMeasure],
        held_bytes: int,
        planned_at: float,
        now_seconds: float,
        wait: ReleaseWait,
    ) -> ClusterReading | None:
        """Return what a batch says, with the measures of its tasks; None of one that says nothing of the load.

        That is one that was only published again, one that drains, and the first of a run, whose processes start.
        """
        seconds = 0.0 if self._planned_at is None else planned_at - self._planned_at
        offered = measure_offered(progress.rows_in, progress.waiting_rows, self._waiting_rows, seconds)
        if offered is None and seconds > 0:
            # Batches may wait for their trigger: what they take is no time in which their rows came.
            offered = progress.rows_in / seconds
        self._planned_at, self._waiting_rows = planned_at, progress.waiting_rows
        if progress.replayed or progress.drained or progress.measures is None:
            return None
        was_warm, self._is_warm = self._is_warm, self._is_warm or progress.rows_in > 0
        if not was_warm:
            return None
        reading = read_cluster(
            measures,
            executors,
            now_seconds=now_seconds,
            rows=progress.rows_in,
            batch_seconds=progress.batch_seconds,
            offered_rows_per_second=offered,
            waiting_rows=progress.waiting_rows,
            held_bytes=held_bytes,
        )
        return replace(reading, wait=wait)
