"""A flow in this process, a batch at a time: the same checkpoint, tasks, manifests and sinks, without Spark.

It writes the logs that Structured Streaming writes, too: Spark can go on where it stopped, and it where Spark did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import polars as pl

from anabranch.connectors.waits import WaitBoard, noted_on
from anabranch.control.steering import Steering
from anabranch.engine.batches.local_jobs import LocalJobs
from anabranch.engine.batches.outer_rows import OuterSource
from anabranch.engine.batches.slot_homes import OneProcess
from anabranch.engine.batches.split_steps import SplitSteps, StepRequest
from anabranch.engine.flow_run import FlowRun
from anabranch.engine.settings import AVAILABLE_NOW, ONCE, RunSettings
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.errors import FlowError
from anabranch.model import BatchProgress, SplitPlanner
from anabranch.model.cluster import Executors
from anabranch.model.waits import PastWait
from anabranch.query.graph import FlowGraph
from anabranch.state.manifest import Manifest
from anabranch.state.spark_logs import last_batches, open_query, read_offset, write_commit, write_offset
from anabranch.state.split_log import SplitLog


class LocalWaits:
    """The waits of a run in this process: all are its driver's own."""

    def __init__(self) -> None:
        self._board = WaitBoard()

    @property
    def in_tasks(self) -> LocalWaits:
        return self

    def told(self) -> AbstractContextManager[None]:
        """Note nothing twice: tasks run on the driver's thread."""
        return nullcontext()

    def begin_batch(self) -> None:
        """Nothing to forget: no task outlives its batch."""

    def noted(self) -> AbstractContextManager[None]:
        """Note the waits of this thread while the block runs."""
        return noted_on(self._board)

    def take_past(self) -> tuple[PastWait, ...]:
        """Return the waits that are over, each once."""
        return self._board.take_past()


class LocalRun:
    """Drives one run of a flow: ``step`` runs its next batch."""

    def __init__(
        self,
        graph: FlowGraph,
        settings: RunSettings,
        *,
        clock: Callable[[], float] = time.time,
        cores: int = 1,
        executors: Executors | None = None,
        on_progress: Callable[[BatchProgress], None] | None = None,
        make_steering: Callable[[FlowProgram], Steering] | None = None,
        initial_state: Mapping[str, pl.DataFrame] | None = None,
    ) -> None:
        """Take the checkpoint; ``executors`` are those that slots are said to be at home on, if this process is not."""
        for source in graph.sources:
            if isinstance(source, OuterSource):
                msg = f"{source.label}: only Spark can read it; give ab.memory(frame) where there is no Spark"
                raise FlowError(msg)
        self._clock = clock
        self.run = FlowRun(graph, settings, LocalWaits(), clock)
        with self.run.released_on_error():
            where = OneProcess(cores) if executors is None else executors
            self.run.open(where, LocalJobs, {}, lambda: open_query(self.run.store), on_progress, make_steering)
            self.run.begin(initial_state)
        planners: dict[int, SplitPlanner] = {
            number: source.planner()  # type: ignore[attr-defined]
            for number, source in self.run.program.sources.items()
        }
        self._ends = settings.trigger in (AVAILABLE_NOW, ONCE)
        self._drains_at_end = settings.drain and self._ends
        most_entries = 1 if settings.trigger == ONCE else None
        self._steps = SplitSteps(
            SplitLog(self.run.store), planners, drain_at_end=self._drains_at_end, most_entries=most_entries
        )

    def run_to_end(self) -> list[BatchProgress]:
        """Run what the sources have now, and drain if the settings say so; return what the batches did."""
        self._steps.bound()
        while self.step() is not None:
            pass
        return self.run.progress.read()

    def step(self, *, tick: bool = False, drain: bool = False) -> BatchProgress | None:
        """Run the next batch; return None if no source has anything new, nothing is due and nothing was asked for.

        ``tick`` asks for a batch though there may be no data, ``drain`` for one that fires what is open.
        """
        store = self.run.store
        begun, done = last_batches(store)
        if begun == done:
            found = self._plan(read_offset(store, begun)["entry"], tick, drain)
            if found is None:
                return None
            begun += 1
            write_offset(store, begun, found, self._clock())
        # One that was begun and not done is run again: its driver died, and may have committed it before.
        self.run.run_batch(begun, read_offset(store, begun - 1), read_offset(store, begun), triggered_at=self._clock())
        write_commit(store, begun, self.run.settings.kept_batches)
        return self.run.progress.latest

    def _plan(self, entry: int, tick: bool, drain: bool) -> int | None:
        latest = self.run.checkpoint.latest()
        tick = tick or (not self._drains_at_end and self._wants_batch(latest))
        # A batch that drains fires whatever is due.
        asked = StepRequest(entry if tick and not drain else None, drain, self.run.holds, self.run.max_rows)
        found = self._steps.next_after(entry, asked, self._clock())
        return None if found == entry else found

    @property
    def wake_us(self) -> int | None:
        """When the flow wants a batch though no rows come, or may read on, by the wall clock; None if never."""
        if self._ends:
            # A flow that ends by itself does not wait for anybody's silence.
            return None
        now_us = self._clock() * 1e6
        wakes = [hold.until_us for hold in self.run.holds if hold.until_us > now_us]
        return min((wake for wake in (self._asked_us, *wakes) if wake is not None), default=None)

    @property
    def _asked_us(self) -> int | None:
        latest = self.run.checkpoint.latest()
        return None if self._ends or latest is None else self.run.wake_us(latest)

    def close(self) -> None:
        """Give the checkpoint back."""
        self.run.close()

    def abandon(self) -> None:
        """Leave everything as a killed process does: connections end, and nobody is told."""
        self.run.abandon()

    def _wants_batch(self, latest: Manifest | None) -> bool:
        if latest is not None and self.run.is_due(latest):
            return True
        wake_us = self._asked_us
        return wake_us is not None and wake_us <= self._clock() * 1e6
