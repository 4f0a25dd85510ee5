"""A flow to deploy: the lowest voltage per sensor in windows of ten seconds, from JSON files to Parquet.

spark-submit … flow.py --input /shared/readings --output /shared/alerts --checkpoint /shared/state/low-voltage
Places are paths that all hosts see, or URLs of an object store (s3://bucket/readings).
"""

from __future__ import annotations

import argparse

import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab

SCHEMA = {"sensor": pl.Int64, "ts": pl.Datetime("ms"), "volts": pl.Float64}


def make_flow(source: str, target: str) -> ab.Flow:
    """Return the flow between two places."""
    flow = ab.Flow("low-voltage")
    (
        flow.read(ab.files(source, format="json", schema=SCHEMA))
        .filter(pl.col("volts") > 0)
        .key_by("sensor")
        .watermark("ts", delay="2s")
        .window("10s")
        .agg(readings=ab.count(), lowest=ab.min("volts"))
        .filter("lowest < 207")
        .write(ab.parquet(target))
    )
    return flow


def main() -> None:
    """Run the flow on the session that spark-submit set up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--trigger", default="5s")
    parser.add_argument(
        "--drain", action="store_true", help="with --trigger available-now: fire what is open at the end"
    )
    given = parser.parse_args()
    spark = SparkSession.builder.appName("low-voltage").getOrCreate()
    flow = make_flow(given.input, given.output)
    flow.run(given.checkpoint, spark=spark, trigger=given.trigger, drain=given.drain)
    spark.stop()


if __name__ == "__main__":
    main()
