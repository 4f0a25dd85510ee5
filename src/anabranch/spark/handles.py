"""Running flows, as those who started them hold them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from anabranch.connectors.filesystem.part_files import list_parts
from anabranch.connectors.filesystem.sinks import PartFileSink
from anabranch.engine.history import Since, find_events
from anabranch.engine.states import empty_state, read_state
from anabranch.errors import SinkError
from anabranch.metrics.event_frames import frame_events
from anabranch.model import BatchProgress, RunTotals, Sink
from anabranch.model.events import EventKind
from anabranch.model.waits import Wait
from anabranch.spark.driver import Driver
from anabranch.spark.session import active_session
from anabranch.state.checkpoint import Checkpoint


class Handle:
    """A running flow, as ``Flow.start`` returns it.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.to_memory())
        >>> handle = flow.start("state", trigger="available-now")
        >>> handle.wait()
        True
        >>> handle.totals.rows_in, handle.active, handle.exception()
        (4, False, None)
        >>> sorted(handle.results().rows()) == sorted(handle.state().rows())
        True
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __repr__(self) -> str:
        totals, error = self.totals, self._driver.error
        state = "runs" if self.active else "has ended" if error is None else "has failed"
        batches = f"{totals.batches} batch{'' if totals.batches == 1 else 'es'}"
        reason = f": {str(error).splitlines()[0]}" if error is not None and str(error) else ""
        done = f"{batches}, {totals.rows_in:,} rows in"
        return f"<Handle: flow {self.name!r} {state}{reason}; {done}, checkpoint {self._driver.run.store.url}>"

    @property
    def name(self) -> str:
        """The flow's name."""
        return self._driver.run.graph.name

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
        """What the last batches of this run did, 1,000 at most; ``totals`` and ``history`` know of all of them."""
        return self._driver.run.progress.window

    @property
    def totals(self) -> RunTotals:
        """What all batches of this run did together."""
        return self._driver.run.progress.totals

    def read_progress(self) -> list[BatchProgress]:
        """Return what all batches of this run did: from disk those that memory has let go, as far as they are kept."""
        return self._driver.run.progress.read()

    def history(self, kind: EventKind | None = None, since: Since | None = None) -> pl.DataFrame:
        """Return what happened, in this run and in earlier ones, oldest first, as ``ab.history`` does."""
        self._driver.run.events.flush()
        return frame_events(find_events(self._driver.run.store, since), kind)

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
        manifest = Checkpoint(self._driver.run.store).latest()
        if manifest is None:
            return empty_state(self._driver.run.program, operator, raw=raw)
        return read_state(self._driver.run.program, manifest, operator, raw=raw)

    def spark_state(self, operator: str | None = None) -> DataFrame:
        """Return the same as a Spark DataFrame."""
        return to_spark(self._driver.spark, self.state(operator))

    def results(self, sink: int = 0) -> pl.DataFrame:
        """Return what a sink that keeps files or memory holds so far; sinks count from 0, in the order of write()."""
        return read_results(self._driver.run.graph.sinks, sink)

    def spark_results(self, sink: int = 0) -> DataFrame:
        """Return the same as a Spark DataFrame."""
        return read_spark_results(self._driver.spark, self._driver.run.graph.sinks, sink)


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

    Examples:
        >>> [handle.name for handle in ab.active()]
        []
    """
    with _started_lock:
        return tuple(handle for handle in _started if handle.active)


def read_results(sinks: Sequence[Sink], index: int) -> pl.DataFrame:
    """Return all rows that a sink holds, in order of batch and slot."""
    sink = _sink(sinks, index)
    if isinstance(sink, PartFileSink):
        read = pl.read_parquet if sink.suffix == ".parquet" else pl.read_ndjson
        frames = [read(path) for _, path in list_parts(sink.directory)]
        return pl.concat(frames) if frames else pl.DataFrame()
    frame = getattr(sink, "frame", None)
    if frame is None:
        msg = f"sink {index} ({sink.label}) keeps nothing that could be read; write to a file or memory sink as well"
        raise SinkError(msg)
    rows: pl.DataFrame = frame()
    return rows


def read_spark_results(spark: SparkSession, sinks: Sequence[Sink], index: int) -> DataFrame:
    """Return the same as a Spark DataFrame; Spark reads files itself."""
    sink = _sink(sinks, index)
    if isinstance(sink, PartFileSink):
        reader = spark.read
        return reader.parquet(sink.directory) if sink.suffix == ".parquet" else reader.json(sink.directory)
    return to_spark(spark, read_results(sinks, index))


def to_spark(spark: SparkSession, frame: pl.DataFrame) -> DataFrame:
    """Return a Polars frame as a Spark DataFrame of this session."""
    with active_session(spark):
        return spark.createDataFrame(frame.to_arrow())


def _sink(sinks: Sequence[Sink], index: int) -> Sink:
    if not 0 <= index < len(sinks):
        names = ", ".join(f"{number} ({sink.label})" for number, sink in enumerate(sinks))
        msg = f"no sink {index}; there are {names}"
        raise SinkError(msg)
    return sinks[index]
