"""Flows that run: the graph, with start and run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from anabranch.balancing.level import check_planner
from anabranch.connectors.claims import name_sinks, refuse_shared_places
from anabranch.connectors.endings import check_ends
from anabranch.connectors.loops import refuse_checkpoint_places, refuse_loops
from anabranch.errors import CheckpointError
from anabranch.model import BatchProgress
from anabranch.model.waits import Wait
from anabranch.query.graph import FlowGraph
from anabranch.query.nodes import Readable, Stateful
from anabranch.query.plan import make_plan
from anabranch.spark.driver import Driver
from anabranch.spark.results import read_results, read_spark_results, to_spark
from anabranch.spark.session import local_session, refuse_connect
from anabranch.spark.set_aside import tell_sources
from anabranch.spark.settings import AVAILABLE_NOW, ONCE, RunSettings, make_settings
from anabranch.spark.spec import FlowProgram
from anabranch.spark.states import read_state
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.store import open_store

Path = str | os.PathLike[str]
Listener = Callable[[BatchProgress], None]


class Flow(FlowGraph):
    """A keyed stream job: read, transform, key, aggregate, write; then run it on Spark."""

    def check(self, sources: Sequence[Readable] | None = None) -> None:
        """Raise ``FlowError``, ``SourceError`` or ``SinkError`` if the flow cannot run."""
        super().check(sources)
        sinks = name_sinks(self.sinks, self.dead_letter_sink)
        refuse_shared_places(sinks)
        refuse_loops(self.sources, sinks)
        for node in self.nodes.values():
            if isinstance(node.operation, Stateful) and node.operation.routing.balance is not None:
                check_planner(node.operation.routing.balance.planner)

    def check_run(self, settings: RunSettings) -> None:
        """Raise the same, also if it is only with these settings that the flow cannot run."""
        self.check(tell_sources(self, settings.checkpoint))
        sinks = name_sinks(self.sinks, self.dead_letter_sink)
        refuse_checkpoint_places(open_store(settings.checkpoint).url, self.sources, sinks)
        if settings.trigger in (AVAILABLE_NOW, ONCE):
            check_ends(self.sources)

    def start(
        self,
        checkpoint: Path,
        *,
        spark: SparkSession | None = None,
        on_progress: Listener | None = None,
        initial_state: Mapping[str, pl.DataFrame] | None = None,
        **settings: Any,
    ) -> Handle:
        """Start the flow in the background and return a handle.

        Without a session, a local one is started. ``settings`` are those of ``RunSettings``: trigger, drain, slots …
        ``initial_state`` (operator → rows of ``read_state(raw=True)``) counts only for a new checkpoint.
        """
        checked = make_settings(checkpoint=os.fspath(checkpoint), **settings)
        if spark is not None:
            refuse_connect(spark)
        # What is wrong with the flow itself is said before a Spark is started for it.
        self.check_run(checked)
        driver = Driver(self, checked, spark if spark is not None else local_session(), on_progress)
        driver.start(initial_state)
        return Handle(driver)

    def run(
        self,
        checkpoint: Path,
        *,
        spark: SparkSession | None = None,
        on_progress: Listener | None = None,
        initial_state: Mapping[str, pl.DataFrame] | None = None,
        **settings: Any,
    ) -> list[BatchProgress]:
        """Run the flow until it ends, or until Ctrl-C, which lets the running batch finish; return its progress."""
        handle = self.start(checkpoint, spark=spark, on_progress=on_progress, initial_state=initial_state, **settings)
        try:
            handle.wait()
        except KeyboardInterrupt:
            handle.stop()
        return handle.progress

    def backfill(self, checkpoint: Path, *, spark: SparkSession | None = None, **settings: Any) -> list[BatchProgress]:
        """Run over what is there now, files or a static DataFrame, to the end: the answers of a stream that ended."""
        return self.run(checkpoint, spark=spark, **{"trigger": AVAILABLE_NOW, "drain": True, **settings})

    def read_state(
        self, checkpoint: Path, operator: str | None = None, *, batch: int | None = None, raw: bool = False
    ) -> pl.DataFrame:
        """Return the state of a stateful operator after a batch (the last, unless said), without Spark."""
        store = open_store(os.fspath(checkpoint))
        commits = Checkpoint(store)
        manifest = commits.latest() if batch is None else commits.load(batch)
        if manifest is None:
            msg = f"{store.url} has no committed batch"
            raise CheckpointError(msg)
        plan = make_plan(self, int(manifest.engine["slots"]), manifest.flow_structure["strategy"])
        program = FlowProgram(plan, dict(enumerate(self.sources)), {}, store.url, local_merge=True)
        return read_state(program, manifest, operator, raw=raw)


class Handle:
    """A running flow."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def stop(self, *, drain: bool = False, timeout_seconds: float | None = None) -> None:
        """End after the running batch; ``drain`` fires first what is still open."""
        self._driver.stop(drain, timeout_seconds)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end and say whether it came; raise what made the flow fail."""
        return self._driver.wait(timeout_seconds)

    @property
    def active(self) -> bool:
        """Whether the flow still runs."""
        return self._driver.active

    @property
    def progress(self) -> list[BatchProgress]:
        """What every batch of this run did."""
        return list(self._driver.progress)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The servers that the flow waits for at the moment, with the reason and since when; the longest first.

        Tasks on other hosts than the driver's are not seen while they wait, only in the problems of their batch.
        """
        return self._driver.waits.current

    @property
    def spark(self) -> SparkSession:
        """The session that the flow runs in: a clone of the given one."""
        return self._driver.spark

    def exception(self) -> BaseException | None:
        """Return what made the flow fail, or None."""
        return self._driver.error

    def state(self, operator: str | None = None, *, raw: bool = False) -> pl.DataFrame:
        """Return the state of a stateful operator after the last committed batch; name it if there are several."""
        manifest = Checkpoint(self._driver.store).latest()
        if manifest is None:
            return pl.DataFrame()
        return read_state(self._driver.program, manifest, operator, raw=raw)

    def spark_state(self, operator: str | None = None) -> DataFrame:
        """Return the same as a Spark DataFrame."""
        return to_spark(self._driver.spark, self.state(operator))

    def results(self, sink: int = 0) -> pl.DataFrame:
        """Return what a sink that keeps files or memory holds so far; sinks count from 0, in the order of write()."""
        return read_results(self._driver.graph.sinks, sink)

    def spark_results(self, sink: int = 0) -> DataFrame:
        """Return the same as a Spark DataFrame."""
        return read_spark_results(self._driver.spark, self._driver.graph.sinks, sink)
