"""Stop a native query, repartition its state, and start it again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from benchmarks.elastic.peers.rescaling import make_feeder, read_rescaling_options, rescale, watched_folder
from benchmarks.shared.peers.native_spark import configure, start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_IDLE_SECONDS = 5.0


def main() -> None:
    """Run the query, and restart it over more partitions of state."""
    from pyspark.sql import functions as F

    given = read_rescaling_options()
    # Only this state store can be repartitioned.
    settings = configure("rocksdb", "2g") | {"spark.sql.shuffle.partitions": str(given.slots)}
    spark = start_spark("rescale-native", {**settings, "spark.ui.showConsoleProgress": "false"})
    feeder, output = make_feeder(given), Path(given.output)

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(output / str(batch)))

    def start(**trigger: Any) -> StreamingQuery:
        totals = (
            spark.readStream.format("csv")
            .schema("sensor long, ts long, value double")
            .option("header", "true")
            .load(str(watched_folder(given)))
            .withColumn("event_time", F.timestamp_millis("ts"))
            .withWatermark("event_time", f"{given.delay_ms} milliseconds")
            .groupBy(F.window("event_time", f"{given.window_ms} milliseconds"), "sensor")
            .agg(F.count("*").alias("readings"), F.sum("value").alias("total"))
            .select(F.unix_millis("window.start").alias("window_start"), "sensor", "readings", "total")
        )
        # Not the file sink: its log must have every batch, and repartitioning makes one that never reaches the sink.
        stream = totals.writeStream.foreachBatch(write).option("checkpointLocation", given.checkpoint)
        return stream.trigger(**(trigger or {"processingTime": "1 second"})).start()

    running = [start()]

    def change() -> None:
        # A query that is stopped in the middle of a batch has to be started once more before its state can be changed.
        _wait_until_idle(running[-1])
        running[-1].stop()
        if _has_open_batch(Path(given.checkpoint)):
            start(availableNow=True).awaitTermination()
        spark._streamingCheckpointManager.repartition(given.checkpoint, given.slots_after)
        running.append(start())

    def read() -> pl.DataFrame:
        # Folders without _SUCCESS are being written.
        done = [path.parent for path in output.glob("*/_SUCCESS")]
        parts = [part for folder in done for part in folder.glob("part-*.parquet")]
        return (
            pl.read_parquet(parts, columns=["window_start"])
            if parts
            else pl.DataFrame(schema={"window_start": pl.Int64})
        )

    rescale(given, feeder, "*.parquet", change, read)
    running[-1].stop()
    # Spark takes seconds to end, and nobody waits for it.
    os._exit(0)


def _wait_until_idle(query: StreamingQuery) -> None:
    """Wait for a moment between two batches; for some seconds only, as on a slow machine there is none."""
    deadline = time.monotonic() + _IDLE_SECONDS
    while query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.005)


def _has_open_batch(checkpoint: Path) -> bool:
    begun, done = (
        max((int(path.name) for path in (checkpoint / log).iterdir() if path.name.isdigit()), default=-1)
        for log in ("offsets", "commits")
    )
    return begun > done


if __name__ == "__main__":
    main()
