"""Run the keyed window on Spark's own Structured Streaming, in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

STATE_STORES = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def configure(state_store: str, memory: str) -> dict[str, str]:
    """Return Spark's settings: those that made this query fastest on two cores."""
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # One state partition a core: more of them only add files and commits.
        "spark.sql.shuffle.partitions": "2",
        # Small enough that two cores finish a batch's files together.
        "spark.sql.files.maxPartitionBytes": "64m",
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[state_store],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }


def main() -> None:
    """Run the query over all files and write samples, batches and settings as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--format", choices=("json", "csv", "parquet"), required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--state-store", choices=sorted(STATE_STORES), required=True)
    parser.add_argument("--files-per-batch", type=int, required=True)
    parser.add_argument("--memory", default="4g")
    arguments = parser.parse_args()

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    settings = configure(arguments.state_store, arguments.memory)
    builder = SparkSession.builder.appName("keyed-window-native")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    readings = (
        spark.readStream.format(arguments.format)
        .schema("sensor long, ts long, value double")
        .option("header", "true")
        .option("maxFilesPerTrigger", arguments.files_per_batch)
        .load(arguments.input)
    )
    totals = (
        readings.withColumn("event_time", F.timestamp_millis("ts"))
        .withWatermark("event_time", "2 seconds")
        .groupBy(F.window("event_time", "10 seconds"), "sensor")
        .agg(F.count("*").alias("readings"), F.sum("value").alias("total"))
        .select(F.unix_millis("window.start").alias("window_start"), "sensor", "readings", "total")
    )
    query = (
        totals.writeStream.format("parquet")
        .outputMode("append")
        .option("path", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [describe_batch(json.loads(progress.json)) for progress in query.recentProgress]
    spark.stop()

    outcome = {
        "samples": _sample_commits(batches),
        "batches": batches,
        "settings": {**settings, "maxFilesPerTrigger": str(arguments.files_per_batch)},
        "versions": {"pyspark": pyspark.__version__},
    }
    Path(arguments.result).write_text(json.dumps(outcome))


def describe_batch(progress: dict[str, Any]) -> dict[str, float]:
    """Return rows, seconds and the moment of commit of a batch, from Spark's report of it."""
    started = datetime.fromisoformat(progress["timestamp"]).timestamp()
    seconds = progress["durationMs"]["triggerExecution"] / 1_000
    return {"rows": progress["numInputRows"], "seconds": seconds, "committed_at": started + seconds}


def _sample_commits(batches: list[dict[str, float]]) -> list[tuple[float, int]]:
    """Return (seconds, rows committed so far) for every batch with rows; the last, empty one only closes windows."""
    samples: list[tuple[float, int]] = []
    rows = 0
    for batch in batches:
        if batch["rows"]:
            rows += int(batch["rows"])
            samples.append((batch["committed_at"] - batches[0]["committed_at"] + batches[0]["seconds"], rows))
    return samples


if __name__ == "__main__":
    main()
