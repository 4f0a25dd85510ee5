"""Any Spark DataFrame, streaming or static, as a source of a flow."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.engine.batches.jobs import JobFailed
from anabranch.engine.batches.outer_rows import OUTER_STREAM
from anabranch.engine.tasks.task_errors import find_reason
from anabranch.errors import FlowError
from anabranch.model.identities import Identity
from anabranch.spark.prompt_input import promptly
from anabranch.spark.split_format import BLOCK, ROW_SCHEMA


class SparkSource:
    """A Spark DataFrame; its rows are packed into Arrow blocks by a stateless step that Spark runs."""

    def __init__(self, frame: DataFrame) -> None:
        if type(frame).__module__.startswith("pyspark.sql.connect"):
            msg = (
                "this DataFrame belongs to Spark Connect, which has no foreachBatch on the driver and no task context; "
                "use a classic session: SparkSession.builder.master(...)"
            )
            raise FlowError(msg)
        if not hasattr(frame, "isStreaming"):
            found = f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"
            msg = f"from_spark takes a PySpark DataFrame, found a {found}; give ab.memory(frame) for other frames"
            raise FlowError(msg)
        self.frame: DataFrame | None = frame
        self.streaming = frame.isStreaming
        self._schema = _polars_schema(frame)

    @property
    def label(self) -> str:
        return OUTER_STREAM if self.streaming else "Spark DataFrame"

    @property
    def identity(self) -> Identity:
        """Name its columns: what a DataFrame reads, Spark does not tell."""
        return Identity(self.label, details={"columns": ", ".join(self._schema)})

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        return self._schema

    def check(self) -> None:
        """Nothing to look at: Spark checked it."""

    def packed(self, index: int) -> DataFrame:
        """Return the DataFrame in the one row shape that all sources share."""
        assert self.frame is not None
        return self.frame.mapInArrow(_Pack(index), ROW_SCHEMA)

    def __getstate__(self) -> dict[str, object]:
        # Tasks decode blocks by the schema; the DataFrame itself stays on the driver.
        return {"frame": None, "streaming": self.streaming, "_schema": self._schema}


def from_spark(frame: DataFrame) -> SparkSource:
    """Read any PySpark DataFrame, streaming or static.

    Spark gives its rows no stable order: where a result depends on order, ``first`` among equal times,
    a replay may choose differently.

    Examples:
        >>> spark = ab.local_session()
        >>> ab.from_spark(spark.createDataFrame([(1, 230.0)], "sensor bigint, volts double")).schema
        {'sensor': Int64, 'volts': Float64}
    """
    return SparkSource(frame)


def rebind(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the same query in another session: the user's DataFrame then runs under our settings, not theirs."""
    jvm: Any = spark._jvm
    plan = frame._jdf.queryExecution().logical()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


@dataclass(frozen=True, slots=True)
class _Pack:
    index: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_pydict(
                {"source": [self.index], "kind": [BLOCK], "payload": [sink.getvalue()]},
                schema=pa.schema([("source", pa.int32()), ("kind", pa.string()), ("payload", pa.binary())]),
            )


@dataclass(frozen=True, slots=True)
class SparkRows:
    """The rows of a batch that Spark reads itself, packed into blocks."""

    frame: DataFrame

    def take_blocks(self, count: int) -> list[tuple[int, bytes]]:
        """Return the first blocks, as (source, block); Spark reads no more than it must for them."""
        try:
            rows = self.frame.take(count)
        except PySparkException as error:
            raise JobFailed(find_reason(str(error))) from error
        return [(row["source"], bytes(row["payload"])) for row in rows if row["kind"] == BLOCK]


def unpack_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks in a task's rows, as (source, block); it has rows that say nothing, too."""
    for batch in promptly(iter(batches)):
        columns = (batch.column(name).to_pylist() for name in ("source", "kind", "payload"))
        for source, kind, payload in zip(*columns, strict=True):
            if kind == BLOCK:
                yield source, payload


def _polars_schema(frame: DataFrame) -> dict[str, pl.DataType]:
    empty = pl.from_arrow(to_arrow_schema(frame.schema, timezone="UTC").empty_table())
    assert isinstance(empty, pl.DataFrame)
    return dict(empty.schema)
