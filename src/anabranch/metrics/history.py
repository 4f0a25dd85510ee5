"""What a run did so far: its batches with the moments they ended, and figures over all of them."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, replace

from anabranch.model import BatchProgress, RunTotals

DEFAULT_KEPT_BATCHES = 2_000
BATCHES_WITH_TASKS = 20
"""Of so many batches, the measures of single tasks stay in memory; the history on disk has those of all."""


@dataclass(frozen=True, slots=True)
class TimedBatch:
    """A batch and the moment it was over, in seconds of whatever clock the caller uses."""

    progress: BatchProgress
    ended_seconds: float


class RunHistory:
    """Collects the batches of one run.

    Totals count every batch; the batches themselves are kept only for a while, so that a run of weeks stays small.
    Batches may be added in one thread and figures read in another.
    """

    def __init__(self, started_seconds: float, kept_batches: int = DEFAULT_KEPT_BATCHES) -> None:
        self.started_seconds = started_seconds
        self.totals = RunTotals()
        self._recent: deque[TimedBatch] = deque(maxlen=kept_batches)
        self._problems: deque[str] = deque(maxlen=20)
        self._changes: deque[tuple[int, str]] = deque(maxlen=20)

    def add(self, progress: BatchProgress, ended_seconds: float) -> None:
        """Take a batch in. A replayed one published again what was counted before, so only its problems are new."""
        self._recent.append(TimedBatch(progress, ended_seconds))
        if len(self._recent) > BATCHES_WITH_TASKS:
            self._shorten(-1 - BATCHES_WITH_TASKS)
        self._problems.extend(progress.problems)
        self._changes.extend((progress.batch, change) for change in progress.changes)
        self.totals = self.totals.plus(progress)

    def _shorten(self, place: int) -> None:
        """Let go of the measures of a batch's tasks; those of executors and hosts stay."""
        progress = self._recent[place].progress
        if progress.measures is not None:
            short = replace(progress, measures=progress.measures.without_tasks())
            self._recent[place] = replace(self._recent[place], progress=short)

    @property
    def recent(self) -> list[TimedBatch]:
        """The batches that are still kept, oldest first."""
        return list(self._recent)

    @property
    def latest(self) -> BatchProgress | None:
        """The last batch, or None before the first."""
        return self._recent[-1].progress if self._recent else None

    @property
    def latest_with_rows(self) -> BatchProgress | None:
        """The last batch that had any rows, else the last one: what bars of slots should show between two ticks."""
        return next((timed.progress for timed in reversed(self.recent) if timed.progress.rows_in), self.latest)

    @property
    def changes(self) -> list[tuple[int, str]]:
        """The last few changes of routes with the batch that they came after, oldest first."""
        return list(self._changes)

    @property
    def problems(self) -> list[str]:
        """The last few problems, oldest first, each once."""
        return list(dict.fromkeys(self._problems))

    def median_batch_seconds(self, batches: int = 20) -> float | None:
        """Return the median time of the last batches, or None before the first."""
        times = [timed.progress.batch_seconds for timed in self.recent[-batches:]]
        return statistics.median(times) if times else None

    def throughput(self, until_seconds: float, bin_seconds: float, bins: int) -> list[float]:
        """Return rows per second in each of the last bins of time, oldest first; a batch's rows are spread over it."""
        begin = until_seconds - bin_seconds * bins
        rows = [0.0] * bins
        for timed in self.recent:
            if timed.ended_seconds <= begin or not timed.progress.rows_in:
                continue
            _spread(rows, timed, begin, bin_seconds)
        return [count / bin_seconds for count in rows]

    def rows_per_second(self, until_seconds: float, over_seconds: float = 10.0) -> float:
        """Return the mean over the last seconds, or over the whole run if it is shorter."""
        span = min(over_seconds, until_seconds - self.started_seconds)
        return self.throughput(until_seconds, span, 1)[0] if span > 0 else 0.0


def skew(loads: tuple[int, ...]) -> float | None:
    """Return the largest load over the mean one: 1 is even; None if there is no load."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total else None


def _spread(rows: list[float], timed: TimedBatch, begin: float, bin_seconds: float) -> None:
    duration = max(timed.progress.batch_seconds, 1e-6)
    rate = timed.progress.rows_in / duration
    first = max(0, int((timed.ended_seconds - duration - begin) // bin_seconds))
    last = min(len(rows) - 1, int((timed.ended_seconds - begin) // bin_seconds))
    for index in range(first, last + 1):
        left = max(begin + index * bin_seconds, timed.ended_seconds - duration)
        right = min(begin + (index + 1) * bin_seconds, timed.ended_seconds)
        rows[index] += rate * max(0.0, right - left)
