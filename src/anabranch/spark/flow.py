"""Flows that run: the graph, with start and run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import polars as pl

from anabranch.balancing.level import check_planner
from anabranch.connectors.bounded_sources import check_ends
from anabranch.connectors.feedback_loops import refuse_checkpoint_places, refuse_loops
from anabranch.connectors.sink_ownership import name_sinks, refuse_shared_places
from anabranch.engine.batches.set_aside import tell_sources
from anabranch.engine.interrupts import Interrupts
from anabranch.engine.settings import AVAILABLE_NOW, ONCE, RunKeywords, RunSettings, make_settings
from anabranch.engine.states import read_state
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.errors import CheckpointError, FlowError
from anabranch.model import BatchProgress
from anabranch.query.graph import FlowGraph
from anabranch.query.nodes import Readable, Stateful
from anabranch.query.plan import make_plan
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.epochs import Owner, refuse_if_in_use
from anabranch.state.store import check_usable, open_store

# PySpark is imported where a flow starts: whoever only builds, explains or tests one needs none of it.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.spark.handles import Handle

Path = str | os.PathLike[str]
Listener = Callable[[BatchProgress], None]
POLL_SECONDS = 0.2


class Flow(FlowGraph):
    """A keyed stream job: read, transform, key, aggregate, write; then run it on Spark.

    Examples:
        >>> flow = ab.Flow("low-voltage")
        >>> readings = flow.read(ab.memory(frame))
        >>> lowest = readings.key_by("sensor").watermark("ts").window("10s").agg(lowest=ab.min("volts"))
        >>> _ = lowest.filter("lowest < 207").write(ab.parquet("alerts"))
        >>> progress = flow.run("state", trigger="available-now", drain=True)
        >>> pl.read_parquet("alerts/*.parquet").select("sensor", "lowest").rows()
        [(1, 206.25)]
    """

    def check(
        self,
        sources: Sequence[Readable] | None = None,
        *,
        checkpoint: Path | None = None,
        **settings: Unpack[RunKeywords],
    ) -> None:
        """Raise ``FlowError``, ``SourceError`` or ``SinkError`` if the flow cannot run; starts no Spark.

        With a checkpoint and settings, also whatever ``run`` would refuse at once with these: a checkpoint that cannot
        be written, another driver on it, a source that never ends.

        Examples:
            >>> flow.check()
            Traceback (most recent call last):
                ...
            anabranch.errors.FlowError: flow 'example' writes nothing; end it with .write(ab.parquet(...))
        """
        if checkpoint is not None or settings:
            self._check_run(_read_settings("." if checkpoint is None else checkpoint, settings))
            return
        super().check(sources)
        sinks = name_sinks(self.sinks, self.dead_letter_sink)
        refuse_shared_places(sinks)
        refuse_loops(self.sources, sinks)
        for node in self.nodes.values():
            if isinstance(node.operation, Stateful) and node.operation.routing.balance is not None:
                check_planner(node.operation.routing.balance.planner)

    def _check_run(self, settings: RunSettings) -> None:
        self.check(tell_sources(self, settings.checkpoint))
        store = open_store(settings.checkpoint)
        refuse_checkpoint_places(store.url, self.sources, name_sinks(self.sinks, self.dead_letter_sink))
        if settings.trigger in (AVAILABLE_NOW, ONCE):
            check_ends(self.sources)
        check_usable(store)
        if not settings.takeover:
            refuse_if_in_use(store, Owner.this_process(), time.time())

    def start(
        self,
        checkpoint: Path,
        *,
        spark: SparkSession | None = None,
        on_progress: Listener | None = None,
        initial_state: Mapping[str, pl.DataFrame] | None = None,
        **settings: Unpack[RunKeywords],
    ) -> Handle:
        """Start the flow in the background and return a handle.

        Without a session, a local one is started. ``settings`` are the settings of a run: trigger, drain, slots …
        ``initial_state`` (operator → rows of ``read_state(raw=True)``) counts only for a new checkpoint.

        Examples:
            >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.to_memory())
            >>> handle = flow.start("state", trigger="5s", slots=2)
            >>> handle.stop(drain=True)
            >>> handle.active
            False
        """
        from anabranch.spark.session import local_session, refuse_connect

        if spark is not None:
            refuse_connect(spark)
        opened = local_session if spark is None else lambda: spark
        return self.start_on(opened, checkpoint, on_progress, initial_state, **settings)

    def start_on(
        self,
        open_spark: Callable[[], SparkSession],
        checkpoint: Path,
        on_progress: Listener | None = None,
        initial_state: Mapping[str, pl.DataFrame] | None = None,
        **settings: Unpack[RunKeywords],
    ) -> Handle:
        """Start the flow on a session that is opened only once nothing speaks against running it."""
        from anabranch.spark.driver import Driver
        from anabranch.spark.handles import Handle, keep

        checked = _read_settings(checkpoint, settings)
        _check_callbacks(on_progress, initial_state)
        self._check_run(checked)
        driver = Driver(self, checked, open_spark, on_progress)
        driver.start(initial_state)
        return keep(Handle(driver))

    def run(
        self,
        checkpoint: Path,
        *,
        spark: SparkSession | None = None,
        on_progress: Listener | None = None,
        initial_state: Mapping[str, pl.DataFrame] | None = None,
        **settings: Unpack[RunKeywords],
    ) -> list[BatchProgress]:
        """Run the flow until it ends, or until Ctrl-C, which lets the running batch finish; return its progress.

        Arguments are those of ``start``.

        Examples:
            >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.to_memory())
            >>> progress = flow.run("state", trigger="available-now", drain=True, slots=2)
            >>> sum(batch.rows_in for batch in progress)
            4
        """
        handle = self.start(checkpoint, spark=spark, on_progress=on_progress, initial_state=initial_state, **settings)
        # Spark's own handler of Ctrl-C cancels the jobs of the running batch; a user's own is left alone.
        with Interrupts(only_sparks=True) as interrupts:
            try:
                while not handle.wait(POLL_SECONDS):
                    if interrupts.requested:
                        handle.stop()
            except KeyboardInterrupt:
                if interrupts.requested:
                    raise
                handle.stop()
        return handle.read_progress()

    def backfill(
        self, checkpoint: Path, *, spark: SparkSession | None = None, **settings: Unpack[RunKeywords]
    ) -> list[BatchProgress]:
        """Run over what is there now, files or a static DataFrame, to the end: the answers of a stream that ended.

        Examples:
            >>> sink = ab.to_memory()
            >>> _ = readings.key_by("sensor").watermark("ts").window("10s").agg(rows=ab.count()).write(sink)
            >>> _ = flow.backfill("state")
            >>> sink.frame()["rows"].sum()
            4
        """
        given: RunKeywords = {"trigger": AVAILABLE_NOW, "drain": True, **settings}
        return self.run(checkpoint, spark=spark, **given)

    def read_state(
        self, checkpoint: Path, operator: str | None = None, *, batch: int | None = None, raw: bool = False
    ) -> pl.DataFrame:
        """Return the state of a stateful operator after a batch (the last, unless said), without Spark.

        Examples:
            >>> _ = readings.key_by("sensor").agg(rows=ab.count(), name="totals").write(ab.to_memory())
            >>> _ = flow.backfill("state")
            >>> flow.read_state("state", "totals").sort("sensor").rows()
            [(1, 3), (2, 1)]
        """
        store = open_store(os.fspath(checkpoint))
        commits = Checkpoint(store)
        manifest = commits.latest() if batch is None else commits.load(batch)
        if manifest is None:
            msg = f"{store.url} has no committed batch"
            raise CheckpointError(msg)
        plan = make_plan(self, manifest.engine.slots, manifest.flow_structure["strategy"])
        program = FlowProgram(plan, dict(enumerate(self.sources)), {}, store.url, local_merge=True)
        return read_state(program, manifest, operator, raw=raw)


def _read_settings(checkpoint: Path, given: RunKeywords) -> RunSettings:
    try:
        place = os.fspath(checkpoint)
    except TypeError as error:
        msg = f"checkpoint is where state may lie, a path or a URL such as s3://bucket/state; found {checkpoint!r}"
        raise FlowError(msg) from error
    return make_settings(checkpoint=place, **given)


def _check_callbacks(on_progress: object, initial_state: object) -> None:
    if on_progress is not None and not callable(on_progress):
        msg = f"on_progress is called with each batch's progress, found {on_progress!r}; give a function"
        raise FlowError(msg)
    if initial_state is None:
        return
    if not isinstance(initial_state, Mapping) or not all(isinstance(f, pl.DataFrame) for f in initial_state.values()):
        msg = (
            "initial_state is a dict of operator names and Polars frames, as read_state(..., raw=True) returns them; "
            f"found {type(initial_state).__name__}"
        )
        raise FlowError(msg)
