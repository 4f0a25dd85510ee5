"""Read what a flow's sinks hold, as Polars and Spark DataFrames."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from anabranch.connectors.files.part_files import list_parts
from anabranch.connectors.files.sinks import PartFileSink
from anabranch.errors import SinkError
from anabranch.model import Sink
from anabranch.spark.session import active_session


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
