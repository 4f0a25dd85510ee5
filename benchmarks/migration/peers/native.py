"""Stop a native query, repartition its state, and start it again; note every commit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.migration.inputs import hand_out
from benchmarks.shared.peers.native_spark import configure, describe_batch, start_spark
from benchmarks.shared.peers.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(spark: SparkSession, watched: Path, output: Path, checkpoint: str) -> StreamingQuery:
    """Start the query of the bench: four aggregates over a long window, a file a batch."""
    from pyspark.sql import functions as F

    totals = (
        spark.readStream.format("parquet")
        .schema("sensor long, ts long, value double")
        .option("maxFilesPerTrigger", 1)
        .load(str(watched))
        .withColumn("event_time", F.timestamp_millis("ts"))
        .withWatermark("event_time", "0 seconds")
        .groupBy(F.window("event_time", "1 hour"), "sensor")
        .agg(
            F.count("*").alias("readings"),
            F.sum("value").alias("total"),
            F.min("value").alias("low"),
            F.max("value").alias("high"),
        )
        .select(F.unix_millis("window.start").alias("window_start"), "sensor", "readings", "total", "low", "high")
    )

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(output / str(batch)))

    # Not the file sink: its log must have every batch, and repartitioning makes one that never reaches the sink.
    return totals.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def main() -> None:
    """Run the query in two parts and write commits and moments as JSON."""
    arguments = read_options(input=str, memory=str, slots=int, slots_after=int, files=int, files_before=int)

    # Only this state store can be repartitioned.
    settings = configure("rocksdb", arguments.memory) | {"spark.sql.shuffle.partitions": str(arguments.slots)}
    spark = start_spark("migration-native", {**settings, "spark.ui.showConsoleProgress": "false"})

    watched, output = Path(arguments.checkpoint).with_name("watched"), Path(arguments.output)
    hand_out(Path(arguments.input), watched, 0, arguments.files_before)
    query = start(spark, watched, output, arguments.checkpoint)
    query.processAllAvailable()
    batches = _describe(query)
    # Nothing is under way, so nothing is lost by stopping: the best moment for it.
    stop_called_at = time.time()
    query.stop()
    stopped_at = time.time()
    hand_out(Path(arguments.input), watched, arguments.files_before, arguments.files)
    spark._streamingCheckpointManager.repartition(arguments.checkpoint, arguments.slots_after)
    repartitioned_at = time.time()
    query = start(spark, watched, output, arguments.checkpoint)
    query.processAllAvailable()
    batches += _describe(query)
    query.stop()
    spark.stop()
    outcome = {
        "batches": batches,
        "stop_called_at": stop_called_at,
        "stop_seconds": stopped_at - stop_called_at,
        "repartition_seconds": repartitioned_at - stopped_at,
        "settings": settings,
    }
    Path(arguments.result).write_text(json.dumps(outcome))


def _describe(query: StreamingQuery) -> list[dict[str, Any]]:
    described = []
    for progress in query.recentProgress:
        report = json.loads(progress.json)
        operators = report["stateOperators"]
        described.append(
            {
                **describe_batch(report),
                "batch": report["batchId"],
                "state_bytes": sum(operator["memoryUsedBytes"] for operator in operators),
                "slots": max((operator["numShufflePartitions"] for operator in operators), default=0),
            }
        )
    return described


if __name__ == "__main__":
    main()
