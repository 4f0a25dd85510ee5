"""Running flows, as those who started them hold them."""

from __future__ import annotations

import threading

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from anabranch.model import BatchProgress
from anabranch.model.waits import Wait
from anabranch.spark.driver import Driver
from anabranch.spark.results import read_results, read_spark_results, to_spark
from anabranch.spark.states import empty_state, read_state
from anabranch.state.checkpoint import Checkpoint


class Handle:
    """A running flow."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __repr__(self) -> str:
        progress, error = self._driver.progress, self._driver.error
        state = "runs" if self.active else "has ended" if error is None else "has failed"
        batches = f"{len(progress)} batch{'' if len(progress) == 1 else 'es'}"
        rows = sum(entry.rows_in for entry in progress)
        reason = f": {str(error).splitlines()[0]}" if error is not None and str(error) else ""
        checkpoint = self._driver.store.url
        return f"<Handle: flow {self.name!r} {state}{reason}; {batches}, {rows:,} rows in, checkpoint {checkpoint}>"

    @property
    def name(self) -> str:
        """The flow's name."""
        return self._driver.graph.name

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
            return empty_state(self._driver.program, operator, raw=raw)
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


_started: list[Handle] = []
_started_lock = threading.Lock()


def keep(handle: Handle) -> Handle:
    """Remember a flow that was started, until it has ended, also if nobody else does."""
    with _started_lock:
        _started[:] = [*(known for known in _started if known.active), handle]
    return handle


def active() -> tuple[Handle, ...]:
    """Return the flows that run in this process, as they were started.

    They are not among ``spark.streams.active``: each runs in a clone of the session, which is left as it is.
    """
    with _started_lock:
        return tuple(handle for handle in _started if handle.active)
