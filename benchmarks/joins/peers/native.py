"""Run one join on Spark's own Structured Streaming, in a process of its own."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from benchmarks.joins.streams import (
    AFTER_MS,
    BEFORE_MS,
    DELAY_MS,
    EQ5_WINDOWS,
    INTERVAL,
    MOMENT,
    NEAREST_MS,
    NEWEST_MS,
    STREAMS,
    list_results,
)
from benchmarks.shared.peers.native_spark import configure, describe_batch, run_to_end, start_spark, write_outcome
from benchmarks.shared.peers.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATE_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


def _join(spark: SparkSession, given: Namespace) -> DataFrame:
    from pyspark.sql import functions as F

    streams = {stream: _read(spark, given, stream) for stream in STREAMS[given.query]}
    if given.query == INTERVAL:
        ads, clicks = streams["ads"], streams["clicks"].withColumnRenamed("ad", "clicked_ad")
        joined = ads.join(clicks, F.expr(f"ad = clicked_ad AND {_is_close('clicked', 'shown', BEFORE_MS, AFTER_MS)}"))
    elif given.query == EQ5_WINDOWS:
        newest = F.expr(f"n_regionkey = r_regionkey AND {_is_close('r_at', 'n_at', *NEWEST_MS)}")
        nations = streams["nation"].join(streams["region"], newest).drop("r_at")
        newest = F.expr(f"s_nationkey = n_nationkey AND {_is_close('n_at', 's_at', *NEWEST_MS)}")
        suppliers = streams["supplier"].join(nations, newest).drop("n_at")
        nearest = F.expr(f"l_suppkey = s_suppkey AND {_is_close('s_at', 'l_at', *NEAREST_MS)}")
        joined = streams["lineitem"].join(suppliers, nearest)
    else:
        nations = streams["nation"].join(streams["region"], F.expr("n_regionkey = r_regionkey"))
        suppliers = streams["supplier"].join(nations, F.expr("s_nationkey = n_nationkey"))
        joined = streams["lineitem"].join(suppliers, F.expr("l_suppkey = s_suppkey"))
    return joined.select(*list_results(given.query))


def _is_close(time: str, other: str, before_ms: int, after_ms: int) -> str:
    return (
        f"{time} >= {other} - INTERVAL {before_ms} MILLISECONDS"
        f" AND {time} <= {other} + INTERVAL {after_ms} MILLISECONDS"
    )


def _read(spark: SparkSession, given: Namespace, stream: str) -> DataFrame:
    from pyspark.sql import functions as F

    columns = STREAMS[given.query][stream]
    schema = ", ".join(f"{name} {'BIGINT' if kind == MOMENT else kind}" for name, kind in columns.items())
    rows = (
        spark.readStream.format(given.format)
        .schema(schema)
        .option("maxFilesPerTrigger", given.files_per_batch)
        .load(f"{given.input}/{stream}")
    )
    for name in (name for name, kind in columns.items() if kind == MOMENT):
        rows = rows.withColumn(name, F.timestamp_millis(name)).withWatermark(name, f"{DELAY_MS} milliseconds")
    return rows


def main() -> None:
    """Run the query over all files and write samples, batches and settings as JSON."""
    given = read_options(
        query=str, input=str, format=str, files_per_batch=int, memory=str, state_store=str, state_format=str
    )
    settings = configure(given.state_store, given.memory) | {_STATE_FORMAT: given.state_format}
    spark = start_spark(f"{given.query}-native", settings)
    reports = run_to_end(_join(spark, given), given.output, given.checkpoint)
    spark.stop()
    batches = [describe_batch(report) for report in reports]
    write_outcome(given.result, batches, {**settings, "maxFilesPerTrigger": str(given.files_per_batch)})


if __name__ == "__main__":
    main()
