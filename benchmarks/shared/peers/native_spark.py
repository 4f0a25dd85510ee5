"""What native peers of benches share: a session of Spark's own, windows by key on it, and what it reports."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.shared.mixed_json import MIXED_JSON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def start_spark(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session with these settings that says nothing but errors."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_windows(spark: SparkSession, given: argparse.Namespace, delay: str, window: str) -> list[dict[str, Any]]:
    """Count and sum the readings of each sensor in windows, to the end of all files; return Spark's reports."""
    from pyspark.sql import functions as F

    is_mixed = given.format == MIXED_JSON
    fields = (
        "sensor string, ts long, reading struct<value: double>" if is_mixed else "sensor long, ts long, value double"
    )
    readings = (
        spark.readStream.format("json" if is_mixed else given.format)
        .schema(fields)
        .option("header", "true")
        .option("maxFilesPerTrigger", given.files_per_batch)
        .load(given.input)
        .withColumn("value", F.col("reading.value" if is_mixed else "value"))
    )
    totals = (
        readings.withColumn("event_time", F.timestamp_millis("ts"))
        .withWatermark("event_time", delay)
        .groupBy(F.window("event_time", window), "sensor")
        .agg(F.count("*").alias("readings"), F.sum("value").alias("total"))
        .select(F.unix_millis("window.start").alias("window_start"), "sensor", "readings", "total")
    )
    return run_to_end(totals, given.output, given.checkpoint)


def run_to_end(results: DataFrame, output: str, checkpoint: str) -> list[dict[str, Any]]:
    """Write all that there is as Parquet; return what Spark says of each batch."""
    query = (
        results.writeStream.format("parquet")
        .outputMode("append")
        .option("path", output)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [json.loads(progress.json) for progress in query.recentProgress]


def describe_batch(progress: dict[str, Any]) -> dict[str, float]:
    """Return rows, seconds and the moment of commit of a batch, from Spark's report of it."""
    started = datetime.fromisoformat(progress["timestamp"]).timestamp()
    seconds = progress["durationMs"]["triggerExecution"] / 1_000
    return {"rows": progress["numInputRows"], "seconds": seconds, "committed_at": started + seconds}


def write_outcome(path: str, batches: Sequence[Mapping[str, float]], settings: Mapping[str, str]) -> None:
    """Write commits, batches and settings as JSON."""
    import pyspark

    outcome = {
        "samples": _sample_commits(batches),
        "batches": batches,
        "settings": settings,
        "versions": {"pyspark": pyspark.__version__},
    }
    Path(path).write_text(json.dumps(outcome))


def _sample_commits(batches: Sequence[Mapping[str, float]]) -> list[tuple[float, int]]:
    """Return (seconds, rows committed so far) for every batch with rows; the last, empty one only closes windows."""
    samples: list[tuple[float, int]] = []
    rows = 0
    for batch in batches:
        if batch["rows"]:
            rows += int(batch["rows"])
            samples.append((batch["committed_at"] - batches[0]["committed_at"] + batches[0]["seconds"], rows))
    return samples
