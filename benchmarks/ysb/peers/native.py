"""Run the Yahoo Streaming Benchmark on Spark's own Structured Streaming, with its Kafka connector.

The ads are a broadcast table, read from Redis once: the best case of a stream–table join.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from benchmarks.shared.peers.native_spark import configure, describe_batch, start_spark, write_outcome
from benchmarks.shared.peers.options import read_options
from benchmarks.ysb.redis import open_redis, write_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    """Run the query and write samples, batches and settings as JSON."""
    given = read_options(
        {"login": "{}"},
        servers=str,
        topic=str,
        redis=str,
        jars=str,
        max_rows=int,
        memory=str,
        delay_ms=int,
        window_ms=int,
        seconds=float,
    )

    # A few hundred keys: the state store that keeps them in memory is the faster one.
    settings = configure("memory", given.memory)
    settings["spark.jars"] = ",".join(str(jar) for jar in sorted(Path(given.jars).glob("*.jar")))
    spark = start_spark("ysb-native", settings)
    client = open_redis(given.redis)

    def write(batch: DataFrame, number: int) -> None:
        rows = [(row.campaign_id, row.window_start, row.seen_count) for row in batch.collect()]
        if rows:
            frame = pl.DataFrame(rows, schema=["campaign_id", "window_start", "seen_count"], orient="row")
            write_windows(client, frame, int(time.time() * 1_000), ("ysb-native:batch", number))

    writer = (
        _count_views(spark, given)
        .writeStream.outputMode("append")
        .foreachBatch(write)
        .option("checkpointLocation", given.checkpoint)
    )
    if given.seconds > 0:
        query = writer.start()
        query.awaitTermination(given.seconds)
        query.stop()
    else:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    batches = [describe_batch(json.loads(progress.json)) for progress in query.recentProgress]
    spark.stop()
    write_outcome(given.result, batches, {name: value for name, value in settings.items() if name != "spark.jars"})


def _count_views(spark: SparkSession, given: Any) -> DataFrame:
    from pyspark.sql import functions as F

    with open_redis(given.redis) as client:
        ads = [ad for ad in client.scan_iter() if client.type(ad) == "string"]
        campaigns = client.mget(ads)
    table = spark.createDataFrame(list(zip(ads, campaigns, strict=True)), "ad_id string, campaign_id string")
    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.max_rows)
        .option("kafka.max.partition.fetch.bytes", "10485760")
        .option("kafka.max.poll.records", "5000")
        .option("kafka.check.crcs", "false")
        .options(**{f"kafka.{name}": value for name, value in json.loads(given.login).items()})
        .load()
        .select(
            F.from_json(F.col("value").cast("string"), "ad_id string, event_type string, event_time string").alias("e")
        )
        .select("e.*")
    )
    return (
        events.filter("event_type = 'view'")
        .select("ad_id", F.timestamp_millis(F.col("event_time").cast("long")).alias("event_time"))
        .join(F.broadcast(table), "ad_id")
        .withWatermark("event_time", f"{given.delay_ms} milliseconds")
        .groupBy(F.window("event_time", f"{given.window_ms} milliseconds"), "campaign_id")
        .agg(F.count("*").alias("seen_count"))
        .select("campaign_id", F.unix_millis("window.start").alias("window_start"), "seen_count")
    )


if __name__ == "__main__":
    main()
