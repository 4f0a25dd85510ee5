"""Run the disordered windows on Spark's own Structured Streaming: one watermark for all, late rows are dropped."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from anabranch.bench.peers.native_spark import configure, describe_batch


def main() -> None:
    """Run the query over all files and write samples, batches and settings as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--format", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--files-per-batch", type=int, required=True)
    parser.add_argument("--memory", required=True)
    parser.add_argument("--delay-ms", type=int, required=True)
    parser.add_argument("--window-ms", type=int, required=True)
    arguments = parser.parse_args()

    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    settings = configure("memory", arguments.memory)
    builder = SparkSession.builder.appName("disorder-native")
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
        .withWatermark("event_time", f"{arguments.delay_ms} milliseconds")
        .groupBy(F.window("event_time", f"{arguments.window_ms} milliseconds"), "sensor")
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
    reports = [json.loads(progress.json) for progress in query.recentProgress]
    spark.stop()

    batches = [{**describe_batch(report), "dropped_groups": _count_dropped(report)} for report in reports]
    samples, done = [], 0
    for batch in batches:
        if batch["rows"]:
            done += int(batch["rows"])
            samples.append((batch["committed_at"] - batches[0]["committed_at"], done))
    outcome = {
        "samples": samples,
        "batches": batches,
        "settings": {**settings, "maxFilesPerTrigger": str(arguments.files_per_batch)},
        "versions": {"pyspark": pyspark.__version__},
    }
    Path(arguments.result).write_text(json.dumps(outcome))


def _count_dropped(report: dict[str, Any]) -> int:
    """Return what Spark says that it dropped: it counts after its partial aggregation, so rows are more."""
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in report["stateOperators"])


if __name__ == "__main__":
    main()
